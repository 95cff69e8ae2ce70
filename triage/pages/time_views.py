"""Timers, minutes by hand, one's own time, and all of it as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.views.decorators.http import require_GET, require_POST

from triage.models import Incident, TimeEntry
from triage.pages.access import requires
from triage.pages.incident_actions import minutes_of
from triage.pages.requests import PageRequest
from triage.pages.time_section import clock, minutes_in_words
from triage.reports.render import in_a_cell
from triage.services import people, time_book
from triage.services.people import Right
from triage.services.time_book import TimeError

#: Days that one's own page looks back without being asked.
DAYS_SHOWN = 31


def _incident(request: PageRequest, number: int) -> Incident:
    return get_object_or_404(people.visible_incidents(request.user), pk=number, merged_into=None)


@requires(Right.RESPOND)
@require_POST
def timer(request: PageRequest, number: int) -> HttpResponse:
    """Starts or stops the reader's timer."""
    incident = _incident(request, number)
    if request.POST.get("deed") == "stop":
        entry = time_book.stop(request.user, incident)
        if entry is None:
            messages.info(request, "No timer of yours ran here.")
        elif entry.is_capped:
            messages.warning(request, _capped(entry))
        else:
            messages.success(request, f"{minutes_in_words(entry.minutes or 0)} put down.")
        return redirect(incident)
    try:
        started = time_book.start(incident, request.user)
    except TimeError as error:
        messages.error(request, str(error))
        return redirect(incident)
    if started.stopped is not None:
        spent = minutes_in_words(started.stopped.minutes or 0)
        messages.info(
            request, f"Your timer on {started.stopped.incident.reference} stopped: {spent}."
        )
    return redirect(incident)


def _capped(entry: TimeEntry) -> str:
    return (
        f"That timer had been forgotten: it was cut at {minutes_in_words(entry.minutes or 0)}. Put "
        "the entry right below."
    )


@requires(Right.RESPOND)
@require_POST
def add(request: PageRequest, number: int) -> HttpResponse:
    """Puts minutes down by hand."""
    incident = _incident(request, number)
    try:
        minutes = _minutes(request.POST.get("minutes", ""))
        note = request.POST.get("note", "").strip()
        entry = time_book.add(incident, request.user, minutes, note=note)
    except TimeError as error:
        messages.error(request, str(error))
    else:
        if entry.minutes != minutes:
            messages.info(
                request,
                f"{minutes_in_words(entry.minutes or 0)} count: an entry of yours covers the rest.",
            )
        else:
            messages.success(request, f"{minutes_in_words(minutes)} put down.")
    return redirect(f"{incident.get_absolute_url()}#time")


@requires(Right.RESPOND)
@require_POST
def change(request: PageRequest, pk: int) -> HttpResponse:
    """Another length for an entry, or takes it back: one's own; an admin anybody's."""
    entry = _entry(request, pk)
    try:
        if request.POST.get("deed") == "void":
            if time_book.void(entry, by=request.user):
                messages.success(request, "Taken back.")
        else:
            changed = time_book.change(
                entry, _minutes(request.POST.get("minutes", "")), by=request.user
            )
            messages.success(request, f"It counts {minutes_in_words(changed.minutes or 0)} now.")
    except TimeError as error:
        messages.error(request, str(error))
    if request.POST.get("from") == "mine":
        return redirect("triage:my-time")
    return redirect(f"{entry.incident.get_absolute_url()}#time")


def _entry(request: PageRequest, pk: int) -> TimeEntry:
    entry = get_object_or_404(TimeEntry.objects.select_related("incident", "person"), pk=pk)
    is_mine = entry.person == request.user or people.may(request.user, Right.ADMINISTER)
    is_seen = people.visible_incidents(request.user).filter(pk=entry.incident_id).exists()
    if not (is_mine and is_seen):
        raise Http404(pk)
    return entry


def _minutes(text: str) -> int:
    try:
        minutes = minutes_of(text)
    except ValueError:
        minutes = None
    if minutes is None:
        raise TimeError("How long? Write it as 45, 1:30 or 1 h 30 min.")
    return minutes


@requires(Right.READ)
@require_GET
def mine(request: PageRequest) -> HttpResponse:
    """The reader's own time of the last month, by day, with the timer that runs."""
    since = timezone.now() - timedelta(days=DAYS_SHOWN)
    entries = (
        TimeEntry.objects.counted()
        .filter(person=request.user, started_at__gte=since)
        .select_related("incident")
        .order_by("-started_at", "-pk")
    )
    running = time_book.running(request.user)
    days: dict[str, list[TimeEntry]] = {}
    for entry in entries:
        day = timezone.localtime(entry.started_at).strftime("%Y-%m-%d")
        days.setdefault(day, []).append(entry)
    context = {
        "section": "people",
        "running": running,
        "elapsed": clock(timezone.now(), running) if running else "",
        "total": minutes_in_words(sum(entry.minutes or 0 for entry in entries)),
        "days": [
            {
                "day": day,
                "total": minutes_in_words(sum(entry.minutes or 0 for entry in of_day)),
                "rows": [(entry, minutes_in_words(entry.minutes or 0)) for entry in of_day],
            }
            for day, of_day in days.items()
        ],
        "days_shown": DAYS_SHOWN,
    }
    return render(request, "triage/my_time.html", context)


CSV_COLUMNS = (
    "incident", "pitfall", "person", "source", "started_at", "ended_at", "minutes", "is_capped",
    "note",
)  # fmt: skip


@requires(Right.READ)
@require_GET
def entries_csv(request: PageRequest) -> StreamingHttpResponse:
    """All time on incidents that the reader sees, oldest first; `from` and `to` are dates."""
    entries = (
        TimeEntry.objects.counted()
        .filter(incident__in=people.visible_incidents(request.user))
        .select_related("incident", "person")
        .order_by("started_at", "pk")
    )
    if begin := _midnight(request.GET.get("from", "")):
        entries = entries.filter(started_at__gte=begin)
    if end := _midnight(request.GET.get("to", "")):
        entries = entries.filter(started_at__lt=end + timedelta(days=1))
    response = StreamingHttpResponse(_lines(entries), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="pitstop-time.csv"'
    return response


def _midnight(text: str) -> datetime | None:
    try:
        day = parse_date(text)
    except ValueError:
        return None
    if day is None:
        return None
    return timezone.make_aware(datetime(day.year, day.month, day.day))


class _Echo:
    """Hands back what a csv writer writes."""

    def write(self, value: str) -> str:
        return value


def _lines(entries: Any) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(CSV_COLUMNS)
    for entry in entries.iterator(chunk_size=2_000):
        yield writer.writerow(
            [
                entry.incident.reference,
                entry.incident.slug,
                in_a_cell(entry.person.get_username()),
                entry.source,
                entry.started_at.isoformat(),
                entry.ended_at.isoformat(),
                entry.minutes,
                "yes" if entry.is_capped else "no",
                in_a_cell(entry.note),
            ]
        )
