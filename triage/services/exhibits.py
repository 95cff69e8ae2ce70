"""What the page draws of the evidence, small enough to keep: who waits where, numbers per step."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from triage.engine import Evidence, series, stack_tree

logger = logging.getLogger(__name__)

#: Places of one tree, whatever its depth; a page of more is read by nobody.
MAX_GROUPS = 160
#: A path with its function, as long as a screen is wide.
MAX_FRAME_CHARACTERS = 240
MAX_LABEL_CHARACTERS = 400
#: Series of an incident; the page draws the first of each name.
MAX_SERIES = 16


@dataclass(frozen=True, slots=True)
class Exhibits:
    """The stack tree as JSON, None without stack dumps, and the series as JSON."""

    stack_tree: dict[str, Any] | None = None
    series: list[dict[str, Any]] = field(default_factory=list)


def collect(evidences: Sequence[Evidence]) -> Exhibits:
    """The exhibits of an incident; a text counts by its index in `evidences`.

    They illustrate a verdict: whatever goes wrong here is logged and costs the picture alone.
    """
    try:
        tree = _small_tree(evidences) if any(e.stacks for e in evidences) else None
    except Exception:
        logger.exception("The stack dumps could not be grouped")
        tree = None
    try:
        found = _small_series(evidences) if any(e.points for e in evidences) else []
    except Exception:
        logger.exception("The series could not be summed up")
        found = []
    return Exhibits(tree, found)


def _small_tree(evidences: Sequence[Evidence]) -> dict[str, Any] | None:
    tree = stack_tree.build(evidences).to_json()
    if not tree["groups"]:
        return None
    budget = _Budget(MAX_GROUPS)
    groups, left_out = budget.cut(tree["groups"])
    tree["sentence"] = tree["sentence"][: 2 * MAX_LABEL_CHARACTERS]
    return {**tree, "groups": groups, "left_out": tree["left_out"] + left_out}


class _Budget:
    """Cuts a tree to a number of groups: the outer ones first, then what is inside the first."""

    def __init__(self, groups: int) -> None:
        self.left = groups

    def cut(self, groups: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
        """(the groups that fit, how many do not)."""
        kept = list(groups[: self.left])
        self.left -= len(kept)
        return [self._small(group) for group in kept], len(groups) - len(kept)

    def _small(self, group: dict[str, Any]) -> dict[str, Any]:
        children, left_out = self.cut(group["children"])
        return {
            **group,
            "label": group["label"][:MAX_LABEL_CHARACTERS],
            "frames": [frame[:MAX_FRAME_CHARACTERS] for frame in group["frames"]],
            "children": children,
            "left_out": left_out,
        }


def _small_series(evidences: Sequence[Evidence]) -> list[dict[str, Any]]:
    return [one.to_json() for one in series.summaries(evidences)[:MAX_SERIES]]
