"""The one writer of LogBookEntry: append-only rows of kind, who, when and data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from triage.models import Incident, LogBookEntry

RECEIVED = "received"
SCANNED = "scanned"
DIAGNOSED = "diagnosed"
DESTROYED = "destroyed"
REPRODUCTION_ASKED = "reproduction_asked"
REPRODUCTION_STARTED = "reproduction_started"
REPRODUCTION_ENDED = "reproduction_ended"
REPRODUCTION_CANCELLED = "reproduction_cancelled"
#: `changes`: {field: [before, after]}; `undoes`: the row that it takes back.
CHANGED = "changed"
NOTE = "note"
NOTE_EDITED = "note_edited"
NOTE_REMOVED = "note_removed"
#: `texts`: [[primary key, position before, position after], …], as in the four rows below it.
MERGED = "merged"
MERGED_IN = "merged_in"
UNMERGED = "unmerged"
SPLIT = "split"
SPLIT_FROM = "split_from"
TIMER_STARTED = "timer_started"
#: `minutes`: what it counts; `is_capped`: it had been forgotten.
TIMER_STOPPED = "timer_stopped"
TIME_ADDED = "time_added"
TIME_CHANGED = "time_changed"
TIME_VOIDED = "time_voided"
FEEDBACK = "feedback"
FEEDBACK_WITHDRAWN = "feedback_withdrawn"


def write(
    incident: Incident,
    kind: str,
    data: Mapping[str, Any],
    *,
    who: User | None = None,
) -> LogBookEntry:
    """Adds a row, now. Call it inside the transaction that does what the row tells."""
    return LogBookEntry.objects.create(
        incident=incident, kind=kind, data=dict(data), who=who, at=timezone.now()
    )
