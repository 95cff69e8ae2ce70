"""The time of an incident: the reader's timer, and what everybody has put down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.utils import timezone

from triage.models import Incident, TimeEntry
from triage.services import people, time_book
from triage.services.people import Right

#: Entries that the page lists; the CSV has all.
MAX_ENTRIES = 50


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry; `is_mine`: the reader may change it."""

    entry: TimeEntry
    spent: str
    is_mine: bool


@dataclass(frozen=True, slots=True)
class TimeSection:
    """`elsewhere` is the incident on which the reader's timer runs, if not on this one."""

    incident: Incident
    can_respond: bool
    running: TimeEntry | None
    elsewhere: Incident | None
    elapsed: str
    total: str
    rows: Sequence[EntryRow]
    unlisted: int


def build_time(incident: Incident, reader: User) -> TimeSection:
    """The section, in three queries."""
    running = time_book.running(reader)
    is_here = running is not None and running.incident_id == incident.pk
    entries = incident.time_entries.counted().select_related("person").order_by("-started_at")
    listed = list(entries[: MAX_ENTRIES + 1])
    is_admin = people.may(reader, Right.ADMINISTER)
    can_respond = people.may(reader, Right.RESPOND) and incident.merged_into_id is None
    return TimeSection(
        incident=incident,
        can_respond=can_respond,
        running=running if is_here else None,
        elsewhere=running.incident if running is not None and not is_here else None,
        elapsed=clock(timezone.now(), running) if is_here and running else "",
        total=minutes_in_words(incident.time_entries.total_minutes()),
        rows=[
            EntryRow(
                entry,
                minutes_in_words(entry.minutes or 0),
                can_respond and (is_admin or entry.person_id == reader.pk),
            )
            for entry in listed[:MAX_ENTRIES]
        ],
        unlisted=entries.count() - MAX_ENTRIES if len(listed) > MAX_ENTRIES else 0,
    )


def minutes_in_words(minutes: int) -> str:
    """`0 min`, `45 min`, `1 h 30 min`: to the minute, however many."""
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours:,} h {rest} min" if rest else f"{hours:,} h"


def clock(now: datetime, entry: TimeEntry) -> str:
    """How long a timer has run: `0:12:31`."""
    seconds = max(int((now - entry.started_at).total_seconds()), 0)
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
