"""Timers and time, by the API: for the owner of the token."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field

from triage.api.access import person_of, token_of, visible, visible_incidents
from triage.api.auth import TokenAuth
from triage.api.problems import Problem
from triage.models import Incident, TimeEntry
from triage.services import people, time_book
from triage.services.people import Right
from triage.services.time_book import TimeError

router = Router()


class TimeIn(BaseModel):
    """Minutes by hand; they ended now, or when `ended_at` says."""

    model_config = ConfigDict(extra="forbid")

    minutes: int = Field(ge=1, le=time_book.MOST_MINUTES)
    note: str = Field("", max_length=500)
    ended_at: datetime | None = None


class EntryOut(Schema):
    """An entry. `minutes` is what it counts, without what an earlier one of the person covers."""

    id: int
    incident: str
    person: str
    source: str
    started_at: datetime
    ended_at: datetime | None
    minutes: int | None
    is_capped: bool
    note: str


class TimeOut(Schema):
    """All entries of an incident that count, oldest first."""

    minutes: int
    entries: list[EntryOut]


class TimerOut(Schema):
    """The timer that runs, None without one; `stopped` ran before, here or elsewhere."""

    running: EntryOut | None
    stopped: EntryOut | None = None


def _entry(entry: TimeEntry) -> dict[str, Any]:
    return {
        "id": entry.pk,
        "incident": entry.incident.reference,
        "person": entry.person.get_username(),
        "source": entry.source,
        "started_at": entry.started_at,
        "ended_at": entry.ended_at,
        "minutes": entry.minutes,
        "is_capped": entry.is_capped,
        "note": entry.note,
    }


@router.get("/timer", auth=TokenAuth("read"), response=TimerOut, summary="Read one's timer")
def read_timer(request: HttpRequest) -> dict[str, Any]:
    """The timer of the token's owner, wherever it runs."""
    entry = time_book.running(person_of(request))
    return {"running": _entry(entry) if entry else None}


@router.post(
    "/incidents/{reference}/timer/start",
    auth=TokenAuth("write"),
    response=TimerOut,
    summary="Start one's timer",
)
def start_timer(request: HttpRequest, reference: str) -> dict[str, Any]:
    """Starts it here and stops the one that runs elsewhere; again, it goes on as it was."""
    person = person_of(request)
    try:
        started = time_book.start(_open(request, reference), person)
    except TimeError as error:
        raise Problem(409, "timer-is-started", str(error), hint="Send it again.") from None
    stopped = started.stopped
    return {"running": _entry(started.entry), "stopped": _entry(stopped) if stopped else None}


@router.post(
    "/incidents/{reference}/timer/stop",
    auth=TokenAuth("write"),
    response=TimerOut,
    summary="Stop one's timer",
)
def stop_timer(request: HttpRequest, reference: str) -> dict[str, Any]:
    """Stops it if it runs here; `stopped` is then what it counts."""
    person = person_of(request)
    entry = time_book.stop(person, _open(request, reference))
    elsewhere = time_book.running(person)
    return {
        "running": _entry(elsewhere) if elsewhere else None,
        "stopped": _entry(entry) if entry else None,
    }


@router.get(
    "/incidents/{reference}/time", auth=TokenAuth("read"), response=TimeOut, summary="Read its time"
)
def read_time(request: HttpRequest, reference: str) -> dict[str, Any]:
    """What people have put down for an incident."""
    incident = visible(request, reference)
    entries = incident.time_entries.counted().select_related("incident", "person")
    return {
        "minutes": incident.time_entries.total_minutes(),
        "entries": [_entry(entry) for entry in entries],
    }


@router.post(
    "/incidents/{reference}/time",
    auth=TokenAuth("write"),
    response={201: EntryOut},
    summary="Put minutes down",
)
def add_time(request: HttpRequest, reference: str, body: TimeIn) -> Status[dict[str, Any]]:
    """Adds minutes by hand for the token's owner."""
    try:
        entry = time_book.add(
            _open(request, reference),
            person_of(request),
            body.minutes,
            note=body.note,
            ended_at=body.ended_at,
        )
    except TimeError as error:
        raise Problem(422, "time-refused", str(error)) from None
    return Status(201, _entry(entry))


@router.delete(
    "/time/{entry_id}", auth=TokenAuth("write"), response={204: None}, summary="Take time back"
)
def void_time(request: HttpRequest, entry_id: int) -> Status[None]:
    """Takes an entry back: one's own; an admin anybody's. Again, nothing more happens."""
    person = person_of(request)
    entry = (
        TimeEntry.objects.select_related("incident", "person")
        .filter(pk=entry_id, incident__in=visible_incidents(token_of(request)))
        .first()
    )
    is_mine = entry is not None and entry.person_id == person.pk
    if entry is None or not (is_mine or people.may(person, Right.ADMINISTER)):
        raise Problem(404, "not-found", "There is no such entry of yours.")
    time_book.void(entry, by=person)
    return Status(204, None)


def _open(request: HttpRequest, reference: str) -> Incident:
    """The incident, if time can be put down there. Raises Problem (404, 409)."""
    incident = visible(request, reference)
    if incident.merged_into is not None:
        raise Problem(
            409,
            "merged",
            f"{incident.reference} was merged into {incident.merged_into.reference}.",
            hint=f"Put the time down for {incident.merged_into.reference}.",
        )
    return incident
