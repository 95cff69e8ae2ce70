"""The log book as the page tells it: one line a row, runs of scans drawn together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from triage.models import LogBookEntry
from triage.pages.wording import duration_in_words, size_in_words


@dataclass(frozen=True, slots=True)
class StoryRow:
    """One line of the story; `template` says it in words."""

    at: datetime
    who: str
    template: str
    facts: dict[str, Any]


def build_story(entries: Iterable[LogBookEntry]) -> list[StoryRow]:
    """The rows in order; scans that follow each other make one row, their failures one each."""
    rows = []
    for kind, group in groupby(entries, key=_kind):
        run = list(group)
        if kind == "scanned" and len(run) > 1:
            rows.append(_scans(run))
        else:
            rows += [_row(entry, kind) for entry in run]
    return rows


def _kind(entry: LogBookEntry) -> str:
    return f"{entry.kind}_failed" if entry.data.get("error") else entry.kind


def _row(entry: LogBookEntry, kind: str) -> StoryRow:
    facts = dict(entry.data)
    if "duration_ms" in facts:
        facts["taken"] = duration_in_words(facts["duration_ms"] / 1000)
    if "bytes" in facts:
        facts["size"] = size_in_words(facts["bytes"])
    secrets = facts.get("secrets")
    facts["secrets_total"] = sum(secrets.values()) if isinstance(secrets, dict) else 0
    return StoryRow(
        at=entry.at,
        who=entry.who.get_username() if entry.who else str(facts.get("token", "")),
        template=f"triage/log_book/{kind}.html",
        facts=facts,
    )


def _scans(run: list[LogBookEntry]) -> StoryRow:
    size_bytes = sum(entry.data.get("bytes", 0) for entry in run)
    facts = {
        "texts": len(run),
        "size": size_in_words(size_bytes),
        "taken": duration_in_words(
            (run[-1].at - run[0].at).total_seconds() + run[0].data.get("duration_ms", 0) / 1000
        ),
    }
    return StoryRow(at=run[-1].at, who="", template="triage/log_book/scanned.html", facts=facts)
