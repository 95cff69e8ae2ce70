"""The time that people spend on incidents: timers, minutes by hand, and what they count.

One person works at one thing at a time: where entries of one person overlap, the one that began
first counts whole, and a later one only what the former leave. So the minutes of the rows add up,
by person, incident, pitfall or month, and no minute is in two sums. A timer that ran for longer
than settings.PITSTOP_TIMER_CAP_S was forgotten: it is cut there and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from triage.models import Incident, TimeEntry
from triage.services import log_book

#: A day has no more; who needs more enters it as several.
MOST_MINUTES = 24 * 60
_TRIES = 3


class TimeError(ValueError):
    """What was asked for cannot be; its text says why, to the person who asked."""


@dataclass(frozen=True, slots=True)
class Started:
    """The timer that runs now; `stopped` ran before on another incident."""

    entry: TimeEntry
    is_new: bool
    stopped: TimeEntry | None = None


def running(person: User) -> TimeEntry | None:
    """The person's timer, if one runs; one that was forgotten is cut first."""
    entry = TimeEntry.objects.running().filter(person=person).select_related("incident").first()
    if entry is not None and _is_forgotten(entry, timezone.now()):
        stop(person)
        return None
    return entry


def start(incident: Incident, person: User) -> Started:
    """Starts the person's timer here and stops the one that runs elsewhere.

    Where it runs here already, that one goes on: a second tab or a retried request changes nothing.
    """
    for _ in range(_TRIES):
        try:
            with transaction.atomic():
                return _start(incident, person)
        except IntegrityError:
            # Another request started one at this very moment: look again at what runs.
            continue
    raise TimeError("Another timer of yours is being started. Try again.")


def _start(incident: Incident, person: User) -> Started:
    now = timezone.now()
    before = _locked_running(person)
    if before is not None and before.incident_id == incident.pk and not _is_forgotten(before, now):
        return Started(before, is_new=False)
    stopped = _end(before, now) if before is not None else None
    entry = TimeEntry.objects.create(
        incident=incident, person=person, source=TimeEntry.Source.TIMER, started_at=now
    )
    log_book.write(incident, log_book.TIMER_STARTED, {"entry": entry.pk}, who=person)
    return Started(entry, is_new=True, stopped=stopped)


def stop(person: User, incident: Incident | None = None) -> TimeEntry | None:
    """Stops the person's timer, of this incident if one is given; None if none runs there."""
    with transaction.atomic():
        entry = _locked_running(person)
        if entry is None or (incident is not None and entry.incident_id != incident.pk):
            return None
        return _end(entry, timezone.now())


def close_forgotten() -> int:
    """Cuts the timers that ran for too long; how many there were."""
    limit = timezone.now() - timedelta(seconds=settings.PITSTOP_TIMER_CAP_S)
    forgotten = TimeEntry.objects.running().filter(started_at__lt=limit)
    people = User.objects.filter(pk__in=forgotten.values("person")).order_by("pk")
    return sum(stop(person) is not None for person in people)


def add(
    incident: Incident,
    person: User,
    minutes: int,
    *,
    note: str = "",
    ended_at: datetime | None = None,
) -> TimeEntry:
    """Minutes by hand, up to now or to the moment given. Raises TimeError for an odd number."""
    _check(minutes)
    end = ended_at or timezone.now()
    if end > timezone.now() + timedelta(minutes=1):
        raise TimeError("That is in the future.")
    with transaction.atomic():
        _locked_person(person)
        entry = TimeEntry.objects.create(
            incident=incident,
            person=person,
            source=TimeEntry.Source.HAND,
            started_at=end - timedelta(minutes=minutes),
            ended_at=end,
            minutes=minutes,
            note=note[:500],
        )
        _recount(person, entry.started_at, end)
        entry.refresh_from_db()
        log_book.write(
            incident,
            log_book.TIME_ADDED,
            {"entry": entry.pk, "minutes": entry.minutes, "asked": minutes, "note": entry.note},
            who=person,
        )
    return entry


def change(entry: TimeEntry, minutes: int, *, by: User) -> TimeEntry:
    """Another length for an entry that has ended, from the same beginning.

    Raises TimeError for an odd number, a running timer, or one that was taken back.
    """
    _check(minutes)
    with transaction.atomic():
        _locked_person(entry.person)
        entry = TimeEntry.objects.select_for_update().get(pk=entry.pk)
        if entry.ended_at is None or entry.voided_at is not None:
            raise TimeError("That entry runs still, or was taken back.")
        before, end = entry.minutes, entry.ended_at
        entry.ended_at = entry.started_at + timedelta(minutes=minutes)
        entry.is_capped = False
        entry.save()
        _recount(entry.person, entry.started_at, max(end, entry.ended_at))
        entry.refresh_from_db()
        log_book.write(
            entry.incident,
            log_book.TIME_CHANGED,
            {
                "entry": entry.pk, "before": before, "minutes": entry.minutes,
                "person": entry.person.get_username(),
            },
            who=by,
        )  # fmt: skip
    return entry


def void(entry: TimeEntry, *, by: User) -> bool:
    """Takes an entry back, a running one too; whether it stood before."""
    with transaction.atomic():
        _locked_person(entry.person)
        entry = TimeEntry.objects.select_for_update().get(pk=entry.pk)
        if entry.voided_at is not None:
            return False
        entry.voided_at = timezone.now()
        entry.save()
        if entry.ended_at is not None:
            _recount(entry.person, entry.started_at, entry.ended_at)
        log_book.write(
            entry.incident,
            log_book.TIME_VOIDED,
            {
                "entry": entry.pk, "minutes": entry.minutes or 0,
                "person": entry.person.get_username(),
            },
            who=by,
        )  # fmt: skip
    return True


def _check(minutes: int) -> None:
    if not 1 <= minutes <= MOST_MINUTES:
        raise TimeError(f"An entry has 1 to {MOST_MINUTES:,} minutes; enter more as several.")


def _is_forgotten(entry: TimeEntry, now: datetime) -> bool:
    return (now - entry.started_at).total_seconds() > settings.PITSTOP_TIMER_CAP_S


def _locked_person(person: User) -> None:
    # Whoever changes entries of one person does so one after the other: what one counts depends on
    # the others.
    User.objects.select_for_update().filter(pk=person.pk).first()


def _locked_running(person: User) -> TimeEntry | None:
    _locked_person(person)
    return TimeEntry.objects.running().filter(person=person).select_related("incident").first()


def _end(entry: TimeEntry, now: datetime) -> TimeEntry:
    entry.is_capped = _is_forgotten(entry, now)
    cap = entry.started_at + timedelta(seconds=settings.PITSTOP_TIMER_CAP_S)
    entry.ended_at = min(now, cap)
    entry.minutes = 0
    entry.save()
    _recount(entry.person, entry.started_at, entry.ended_at)
    entry.refresh_from_db()
    log_book.write(
        entry.incident,
        log_book.TIMER_STOPPED,
        {"entry": entry.pk, "minutes": entry.minutes, "is_capped": entry.is_capped},
        who=entry.person,
    )
    return entry


def _recount(person: User, start: datetime, end: datetime) -> None:
    """Counts anew what overlaps this span."""
    mine = TimeEntry.objects.counted().filter(person=person)
    touched = list(mine.filter(started_at__lte=end, ended_at__gte=start))
    if not touched:
        return
    first = min(entry.started_at for entry in touched)
    last = max(entry.ended_at for entry in touched if entry.ended_at is not None)
    around = list(mine.filter(started_at__lte=last, ended_at__gte=first))
    around.sort(key=lambda entry: (entry.started_at, entry.pk))
    wanted = {entry.pk for entry in touched}
    for entry, minutes in zip(around, counted_minutes(around), strict=True):
        if entry.pk in wanted and entry.minutes != minutes:
            TimeEntry.objects.filter(pk=entry.pk).update(minutes=minutes)


def counted_minutes(entries: Sequence[TimeEntry]) -> Iterable[int]:
    """What each counts, of one person's ended entries in the order in which they began."""
    covered: list[tuple[datetime, datetime]] = []
    for entry in entries:
        assert entry.ended_at is not None, "running timers do not count"
        left = (entry.ended_at - entry.started_at).total_seconds()
        for begin, end in covered:
            shared = min(end, entry.ended_at) - max(begin, entry.started_at)
            left -= max(shared.total_seconds(), 0.0)
        yield int(left / 60 + 0.5)
        covered = _joined(covered, (entry.started_at, entry.ended_at))


def _joined(
    covered: list[tuple[datetime, datetime]], span: tuple[datetime, datetime]
) -> list[tuple[datetime, datetime]]:
    """The spans with one more that begins after them all, those that meet drawn together."""
    if covered and span[0] <= covered[-1][1]:
        return [*covered[:-1], (covered[-1][0], max(covered[-1][1], span[1]))]
    return [*covered, span]
