"""The log book as the page tells it: one line a row, runs of scans drawn together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.html import format_html, format_html_join, urlize
from django.utils.safestring import SafeString

from triage.models import LogBookEntry
from triage.pages.time_section import minutes_in_words
from triage.pages.wording import STATUSES, count_in_words, duration_in_words, size_in_words
from triage.services import log_book

_REFERENCE = re.compile(r"(\bINC-[0-9]{1,18}\b)", re.IGNORECASE)
_SEVERITIES = ("low", "normal", "high", "critical")


@dataclass(frozen=True, slots=True)
class Note:
    """A note as it stands: `former` are its earlier texts, the newest first."""

    text: str
    html: SafeString
    former: Sequence[str]
    is_removed: bool
    is_own: bool


@dataclass(frozen=True, slots=True)
class StoryRow:
    """One line of the story; `template` says it in words."""

    at: datetime
    who: str
    template: str
    facts: dict[str, Any]
    pk: int = 0
    can_undo: bool = False
    is_undone: bool = False
    note: Note | None = None


def build_story(
    entries: Iterable[LogBookEntry], *, reader: User | None = None, can_respond: bool = False
) -> list[StoryRow]:
    """The rows in order; scans that follow each other make one row, their failures one each.

    Edits of a note show in the note. `reader` has buttons for what they may change.
    """
    book = list(entries)
    undoable, undone = _undoable(book)
    edits: dict[int, list[LogBookEntry]] = {}
    for entry in book:
        if entry.kind in (log_book.NOTE_EDITED, log_book.NOTE_REMOVED):
            edits.setdefault(entry.data["note"], []).append(entry)
    shown = (e for e in book if e.kind not in (log_book.NOTE_EDITED, log_book.NOTE_REMOVED))
    rows = []
    for kind, group in groupby(shown, key=_kind):
        run = list(group)
        if kind == "scanned" and len(run) > 1:
            rows.append(_scans(run))
            continue
        for entry in run:
            note = _note(entry, edits.get(entry.pk, []), reader) if kind == log_book.NOTE else None
            can_undo = can_respond and entry.pk in undoable
            rows.append(
                _row(entry, kind, note=note, can_undo=can_undo, is_undone=entry.pk in undone)
            )
    return rows


def change_in_words(entry: LogBookEntry) -> str:
    """What a row of kind `changed` did: `took it and started to investigate`."""
    who = entry.who.get_username() if entry.who else ""
    changes: Mapping[str, list[Any]] = entry.data["changes"]
    # The owner first: who took it then did the rest.
    order = sorted(changes, key=lambda field: field != "owner")
    phrases = [_phrase(field, *changes[field], who=who) for field in order]
    return " and ".join(filter(None, [", ".join(phrases[:-1]), phrases[-1]]))


def text_to_html(text: str) -> SafeString:
    """A note's text: escaped, addresses and `INC-7` as links, line ends kept by the stylesheet."""
    return format_html_join("", "{}", ((_linked(piece),) for piece in re.split(r"(\s+)", text)))


def _linked(word: str) -> SafeString | str:
    if "://" in word:
        return SafeString(urlize(word, nofollow=True, autoescape=True))
    pieces = _REFERENCE.split(word)
    if len(pieces) == 1:
        return word
    return format_html_join(
        "",
        "{}",
        (
            (
                format_html(
                    '<a href="{}">{}</a>', reverse("triage:incident", args=[piece.upper()]), piece
                )
                if number % 2
                else piece,
            )
            for number, piece in enumerate(pieces)
        ),
    )


def _phrase(field: str, before: Any, after: Any, *, who: str) -> str:
    if field == "status":
        return STATUSES[after].meaning
    if field == "owner":
        return _owner_phrase(before, after, who)
    if field == "team":
        return f"gave it to team {after}" if after else f"opened it to all, no more of {before}"
    if field == "is_shared":
        return "shared it with other teams" if after else "kept it to its team"
    if field == "severity":
        is_up = _SEVERITIES.index(after) > _SEVERITIES.index(before)
        return f"{'raised' if is_up else 'lowered'} the severity to {after}"
    if field == "idle_minutes":
        if after is None:
            return "took out the idle time"
        return f"noted that its GPUs stood idle for {duration_in_words(after * 60)}"
    if field == "gpus":
        return "took out the number of GPUs" if after is None else f"noted {_gpus(after)}"
    words = {"title": "name", "job_id": "job", "attempt": "attempt", "scheduler": "scheduler"}
    if after == "":
        return f"took out the {words[field]} {before}"
    return f"set the {words[field]} to {after}"


def _owner_phrase(before: str, after: str, who: str) -> str:
    if not after:
        return "gave it back" if before == who else f"took it from {before}"
    return "took it" if after == who else f"gave it to {after}"


def _gpus(number: int) -> str:
    return count_in_words(number, "GPU")


def _undoable(book: Sequence[LogBookEntry]) -> tuple[set[int], set[int]]:
    """Rows whose every field stands as they set it; and rows that were undone."""
    latest: dict[str, int] = {}
    changed = [entry for entry in book if entry.kind == log_book.CHANGED]
    undone = {entry.data["undoes"] for entry in changed if "undoes" in entry.data}
    for entry in changed:
        latest.update(dict.fromkeys(entry.data["changes"], entry.pk))
    standing = {
        entry.pk
        for entry in changed
        if all(latest[field] == entry.pk for field in entry.data["changes"])
    }
    return standing - undone, undone


def _note(entry: LogBookEntry, edits: Sequence[LogBookEntry], reader: User | None) -> Note:
    text = str((edits[-1] if edits else entry).data.get("text", ""))
    former = [str(edit.data["was"]) for edit in reversed(edits) if edit.data["was"]]
    return Note(
        text=text,
        html=text_to_html(text),
        former=former,
        is_removed=not text,
        is_own=reader is not None and entry.who_id == reader.pk,
    )


def _kind(entry: LogBookEntry) -> str:
    return f"{entry.kind}_failed" if entry.data.get("error") else entry.kind


def _row(
    entry: LogBookEntry, kind: str, *, note: Note | None, can_undo: bool, is_undone: bool
) -> StoryRow:
    facts = dict(entry.data)
    if "duration_ms" in facts:
        facts["taken"] = duration_in_words(facts["duration_ms"] / 1000)
    if "minutes" in facts:
        facts["spent"] = minutes_in_words(facts["minutes"])
    if "bytes" in facts:
        facts["size"] = size_in_words(facts["bytes"])
    secrets = facts.get("secrets")
    facts["secrets_total"] = sum(secrets.values()) if isinstance(secrets, dict) else 0
    if kind == log_book.CHANGED:
        facts["said"] = change_in_words(entry)
    return StoryRow(
        at=entry.at,
        who=entry.who.get_username() if entry.who else str(facts.get("token", "")),
        template=f"triage/log_book/{kind}.html",
        facts=facts,
        pk=entry.pk,
        can_undo=can_undo,
        is_undone=is_undone,
        note=note,
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
