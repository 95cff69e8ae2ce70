"""Real texts with a label each, from the folder that PITSTOP_CORPUS names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kb.catalog import Catalog
from triage.engine import Evidence, diagnose

FIRST_RIGHT = 0.97
HARD_RIGHT = 0.92
RANK_RIGHT = 0.90
NEGATIVES_ANSWERED = 0


@dataclass(frozen=True)
class Answer:
    """What the engine says of a text, beside its label."""

    file: str
    root: str
    acceptable: tuple[str, ...]
    rank: int | None
    is_hard: bool
    verdict: str
    slug: str
    said_rank: int | None

    @property
    def is_right(self) -> bool:
        return self.slug in (self.root, *self.acceptable)


@pytest.fixture(scope="module")
def answers(
    corpus: list[Any], catalog: Catalog, scan_text: Callable[..., Evidence]
) -> list[Answer]:
    """One Answer a labelled text; skips where no corpus is named."""
    if not corpus:
        pytest.skip("PITSTOP_CORPUS names no folder of labelled texts")
    found = []
    for text in corpus:
        verdict = diagnose([scan_text(text.raw)], catalog)
        first = verdict.diagnoses[0] if verdict.diagnoses else None
        found.append(
            Answer(
                file=text.name,
                root=text.label["root"],
                acceptable=tuple(text.label["acceptable"]),
                rank=text.label["rank"],
                is_hard=bool(text.label["hard"]),
                verdict=verdict.kind,
                slug=first.slug if first else "none",
                said_rank=first.rank if first else None,
            )
        )
    return found


def share(part: list[Answer], whole: list[Answer], what: str) -> float:
    """The share, printed: `pytest -s` or a failure shows it."""
    rate = len(part) / len(whole) if whole else 1.0
    print(f"{what}: {len(part)} of {len(whole)} ({rate:.1%})")
    return rate


def test_the_true_cause_stands_first(answers: list[Answer]) -> None:
    right = [a for a in answers if a.is_right]
    for answer in answers:
        if not answer.is_right:
            print(f"{answer.file}: {answer.root} was answered with {answer.slug}")
    hard = [a for a in answers if a.is_hard]
    assert share([a for a in hard if a.is_right], hard, "hard ones right") >= HARD_RIGHT
    assert share(right, answers, "first answer right") >= FIRST_RIGHT


def test_healthy_texts_are_left_alone(answers: list[Answer]) -> None:
    healthy = [a for a in answers if a.root == "none"]
    named = [a for a in healthy if a.verdict == "named" and not a.is_right]
    for answer in named:
        print(f"{answer.file}: nothing to name was answered with {answer.slug}")
    share(named, healthy, "negatives answered")
    assert len(named) <= NEGATIVES_ANSWERED


def test_the_culprit_rank_is_named(answers: list[Answer]) -> None:
    labelled = [a for a in answers if a.rank is not None]
    right = [a for a in labelled if a.said_rank == a.rank]
    for answer in labelled:
        if answer.said_rank != answer.rank:
            print(f"{answer.file}: rank {answer.rank} was answered with {answer.said_rank}")
    assert share(right, labelled, "rank right") >= RANK_RIGHT
