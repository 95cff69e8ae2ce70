"""Which incidents a list shows, and in what order: read from its address."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, fields

from django.contrib.auth.models import User
from django.db.models import Case, F, IntegerField, Q, Value, When
from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_date

from triage.models import Finding, Incident
from triage.querysets import IncidentQuerySet

#: What the reading said, by the key in the address.
VERDICTS = {
    "": "Any verdict",
    "named": "Cause named",
    "undetermined": "Not determined",
    "clean": "No failure",
    "working": "At work",
    "failed": "Not read",
}
STATUSES = {
    "": "Any status",
    "unresolved": "Not resolved",
    **{status: status.capitalize() for status in Incident.Status.values},
}
SORTS = {
    "": "Newest first",
    "oldest": "Oldest first",
    "severity": "Most severe first",
    "changed": "Last changed first",
    "cost": "Most GPU hours first",
}
_MAX_WORD_CHARACTERS = 200
#: Sorted by anything but age, pages are counted; nobody turns more of them.
MAX_PAGE = 200


@dataclass(frozen=True, slots=True)
class IncidentFilters:
    """One field a key of the address; empty for what is not filtered."""

    show: str = ""
    status: str = ""
    owner: str = ""
    team: str = ""
    severity: str = ""
    pitfall: str = ""
    alike: str = ""
    job: str = ""
    host: str = ""
    since: datetime.date | None = None
    until: datetime.date | None = None
    sort: str = ""

    @property
    def is_any(self) -> bool:
        """Whether anything is filtered."""
        return any(getattr(self, f.name) for f in fields(self) if f.name != "sort")

    @property
    def unfolded(self) -> bool:
        """Whether one of the rarer filters is set, which the page folds away."""
        return bool(self.severity or self.job or self.host or self.since or self.until)


def read_filters(query: QueryDict) -> IncidentFilters:
    """The filters in an address; a value that makes no sense counts as none."""

    def choice(name: str, allowed: Mapping[str, str]) -> str:
        value = query.get(name, "")
        return value if value in allowed else ""

    def word(name: str) -> str:
        return query.get(name, "").replace("\0", "").strip()[:_MAX_WORD_CHARACTERS]

    return IncidentFilters(
        show=choice("show", VERDICTS),
        status=choice("status", STATUSES),
        owner=word("owner"),
        team=word("team"),
        severity=choice("severity", dict.fromkeys(Incident.Severity.values, "")),
        pitfall=word("pitfall"),
        alike=word("alike"),
        job=word("job"),
        host=word("host"),
        since=_date(query.get("since", "")),
        until=_date(query.get("until", "")),
        sort=choice("sort", SORTS),
    )


def apply_filters(
    filters: IncidentFilters, rows: IncidentQuerySet, reader: User
) -> IncidentQuerySet:
    """The rows that fit, in the order that was asked for; days are the reader's."""
    rows = _by_verdict(filters.show, rows.filter(merged_into=None))
    if filters.status == "unresolved":
        rows = rows.exclude(status=Incident.Status.RESOLVED)
    elif filters.status:
        rows = rows.filter(status=filters.status)
    if filters.owner == "none":
        rows = rows.filter(owner=None)
    elif filters.owner == "me":
        rows = rows.filter(owner=reader)
    elif filters.owner:
        rows = rows.filter(owner__username=filters.owner)
    if filters.team == "none":
        rows = rows.filter(team=None)
    elif filters.team:
        rows = rows.filter(team__slug=filters.team)
    if filters.severity:
        rows = rows.filter(severity=filters.severity)
    if filters.pitfall:
        rows = rows.caused_by(filters.pitfall)
    if filters.alike:
        number = Incident.number_of(filters.alike)
        like = rows.filter(pk=number).values("fingerprint") if number else rows.none()
        rows = rows.filter(fingerprint__in=like).exclude(fingerprint="")
    if filters.job:
        rows = rows.filter(Q(job_id=filters.job) | Q(title__icontains=filters.job))
    if filters.host:
        found = Finding.objects.filter(host__iexact=filters.host).values("diagnosis")
        rows = rows.filter(current_diagnosis__in=found)
    if filters.since:
        rows = rows.filter(created_at__gte=_midnight(filters.since))
    if filters.until:
        rows = rows.filter(created_at__lt=_midnight(filters.until + datetime.timedelta(days=1)))
    return _sorted(filters.sort, rows)


def _by_verdict(show: str, rows: IncidentQuerySet) -> IncidentQuerySet:
    if show == "working":
        states = [Incident.State.RECEIVED, Incident.State.SCANNING, Incident.State.DIAGNOSING]
        return rows.filter(state__in=states)
    if show == "failed":
        return rows.filter(state=Incident.State.FAILED)
    return rows.filter(state=Incident.State.DIAGNOSED, verdict=show) if show else rows


def _sorted(sort: str, rows: IncidentQuerySet) -> IncidentQuerySet:
    if sort == "oldest":
        return rows.order_by("pk")
    if sort == "severity":
        steps = enumerate(Incident.Severity.values)
        rank = Case(
            *(When(severity=severity, then=Value(step)) for step, severity in steps),
            output_field=IntegerField(),
        )
        return rows.order_by(rank.desc(), "-pk")
    if sort == "changed":
        return rows.order_by("-updated_at", "-pk")
    if sort == "cost":
        cost = F("gpus") * F("idle_minutes")
        return rows.order_by(cost.desc(nulls_last=True), "-pk")
    return rows.newest_first()


def _date(text: str) -> datetime.date | None:
    try:
        found = parse_date(text)
    except ValueError:
        return None
    # The first and last years of the calendar have no neighbours to compare with.
    return found if found is not None and 1970 <= found.year <= 9000 else None


def _midnight(day: datetime.date) -> datetime.datetime:
    return timezone.make_aware(datetime.datetime.combine(day, datetime.time()))
