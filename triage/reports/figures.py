"""One month's numbers. What each one means is said here once, and on the page by DEFINITIONS."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import Count, Max, Q, Sum

from kb.catalog import Catalog
from triage.models import Feedback, Incident, TimeEntry
from triage.querysets import IncidentQuerySet
from triage.reports.months import Month

#: Months of the trend, this one among them.
TREND_MONTHS = 6
#: The pitfalls that cost most: the report opens with them.
COSTLIEST = 4
#: An entry that answered nothing for so long is listed as silent.
SILENT_AFTER = timedelta(days=180)

DEFINITIONS: Mapping[str, str] = {
    "incidents": "Incidents whose first text came in within the month; merged ones count once.",
    "people": "Minutes of the time entries that began within the month, whichever incident they "
    "are for; what overlaps counts once.",
    "gpu": "GPUs × idle time of the month's incidents, where both are known.",
    "diagnosis": "From the first text to the first diagnosis: half of the incidents were quicker.",
    "resolution": "From the first text to the last time it was resolved, of the month's incidents "
    "that are resolved: half of them were quicker.",
    "undetermined": "Of the month's incidents that were read, those in which a failure shows and "
    "no cause.",
    "corrected": "Of the month's incidents that were read, those whose answer somebody called "
    "wrong.",
    "costliest": "The four pitfalls with the most people's time in the month; where two are equal, "
    "the one with more incidents first.",
    "fixes": "What people said of fixes of the month's incidents: worked, of those tried.",
    "new": "Pitfalls that answered an incident for the first time.",
    "silent": "Entries of the catalog that have answered no incident for 180 days.",
}


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """An incident of the month, or one on which time was spent in it."""

    reference: str
    pitfall: str
    title: str
    created_at: datetime
    is_of_month: bool
    verdict: str
    status: str
    minutes: int
    gpu_minutes: int


@dataclass(frozen=True, slots=True)
class PitfallRow:
    """A pitfall in this month and in the one before; the slug is empty for no named cause."""

    slug: str
    title: str
    incidents: int
    minutes: int
    gpu_minutes: int
    incidents_before: int
    minutes_before: int


@dataclass(frozen=True, slots=True)
class FixRow:
    """How a fix fared."""

    slug: str
    title: str
    worked: int
    tried: int


@dataclass(frozen=True, slots=True)
class TrendRow:
    """One month of the trend."""

    month: str
    incidents: int
    minutes: int
    gpu_minutes: int


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a month: the page, Markdown, CSV and JSON are drawn from these alone."""

    month: Month
    is_partial: bool
    incidents: int
    minutes: int
    gpu_minutes: int
    named: int
    undetermined: int
    clean: int
    corrected: int
    resolved: int
    reopened: int
    diagnosis_s: float | None
    resolution_s: float | None
    pitfalls: Sequence[PitfallRow]
    costliest: Sequence[PitfallRow]
    fixes: Sequence[FixRow]
    trend: Sequence[TrendRow]
    new: Sequence[str]
    silent: Sequence[str]
    rows: Sequence[IncidentRow]

    @property
    def read(self) -> int:
        """Incidents with a verdict."""
        return self.named + self.undetermined + self.clean

    @property
    def share_undetermined(self) -> float | None:
        """Of those read, from 0 to 1; None where none was."""
        return self.undetermined / self.read if self.read else None

    @property
    def share_corrected(self) -> float | None:
        """Of those read, from 0 to 1; None where none was."""
        return self.corrected / self.read if self.read else None

    def to_json(self) -> dict[str, Any]:
        """Plain values; minutes and seconds as numbers, times in ISO form."""
        plain = asdict(self)
        plain["month"] = str(self.month)
        plain["share_undetermined"] = self.share_undetermined
        plain["share_corrected"] = self.share_corrected
        for row in plain["rows"]:
            row["created_at"] = row["created_at"].isoformat()
        return plain


def figures(
    month: Month, catalog: Catalog, now: datetime, incidents: IncidentQuerySet | None = None
) -> Figures:
    """The figures of a month over these incidents (default: all), in a dozen queries."""
    seen = Incident.objects.all() if incidents is None else incidents
    seen = seen.filter(merged_into=None)
    before = month.later(-1)
    of_month = list(_of(seen, month).order_by("created_at", "pk"))
    spent, spent_before = _minutes_by(seen, month), _minutes_by(seen, before)
    known = {incident.pk: incident for incident in of_month}
    others = set(spent) - known.keys()
    known |= {incident.pk: incident for incident in seen.filter(pk__in=others)}
    past = _Past(
        dict(_of(seen, before).values_list("slug").annotate(Count("pk"))),
        _by_slug(spent_before, dict(seen.filter(pk__in=spent_before).values_list("pk", "slug"))),
    )
    slugs = {pk: incident.slug for pk, incident in known.items()}
    pitfalls = _pitfalls(of_month, _by_slug(spent, slugs), past, catalog)
    verdicts = Counter(incident.verdict for incident in of_month)
    resolved = [i for i in of_month if i.status == Incident.Status.RESOLVED and i.resolved_at]
    return Figures(
        month=month,
        is_partial=now < month.end,
        incidents=len(of_month),
        minutes=sum(spent.values()),
        gpu_minutes=sum(_gpu_minutes(incident) for incident in of_month),
        named=verdicts[Incident.Verdict.NAMED],
        undetermined=verdicts[Incident.Verdict.UNDETERMINED],
        clean=verdicts[Incident.Verdict.CLEAN],
        corrected=_corrected(of_month),
        resolved=len(resolved),
        reopened=sum(1 for incident in of_month if incident.reopened_count),
        diagnosis_s=_median(i.diagnosed_at - i.created_at for i in of_month if i.diagnosed_at),
        resolution_s=_median(i.resolved_at - i.created_at for i in resolved if i.resolved_at),
        pitfalls=pitfalls,
        costliest=[row for row in pitfalls if row.slug and row.minutes][:COSTLIEST],
        fixes=_fixes(of_month),
        trend=[_trend(seen, month.later(n)) for n in range(1 - TREND_MONTHS, 1)],
        new=_new(seen, month, of_month),
        silent=_silent(seen, catalog, min(now, month.end)),
        rows=[
            _row(known[pk], month, spent.get(pk, 0))
            for pk in sorted(known, key=lambda pk: (known[pk].created_at, pk))
        ],
    )


def _of(seen: IncidentQuerySet, month: Month) -> IncidentQuerySet:
    return seen.filter(created_at__gte=month.start, created_at__lt=month.end)


def _minutes_by(seen: IncidentQuerySet, month: Month) -> dict[int, int]:
    rows = (
        TimeEntry.objects.counted()
        .filter(incident__in=seen, started_at__gte=month.start, started_at__lt=month.end)
        .values_list("incident")
        .annotate(total=Sum("minutes"))
    )
    return {pk: total or 0 for pk, total in rows}


def _gpu_minutes(incident: Incident) -> int:
    return (incident.gpus or 0) * (incident.idle_minutes or 0)


def _row(incident: Incident, month: Month, minutes: int) -> IncidentRow:
    is_of_month = month.start <= incident.created_at < month.end
    return IncidentRow(
        reference=incident.reference,
        pitfall=incident.slug,
        title=incident.title,
        created_at=incident.created_at,
        is_of_month=is_of_month,
        verdict=incident.verdict,
        status=incident.status,
        minutes=minutes,
        gpu_minutes=_gpu_minutes(incident) if is_of_month else 0,
    )


@dataclass(frozen=True, slots=True)
class _Past:
    """The month before, by slug."""

    incidents: Mapping[str, int]
    minutes: Mapping[str, int]


def _by_slug(spent: Mapping[int, int], slugs: Mapping[int, str]) -> dict[str, int]:
    """Minutes by the slug of their incident."""
    minutes: dict[str, int] = defaultdict(int)
    for pk, number in spent.items():
        minutes[slugs[pk]] += number
    return dict(minutes)


def _pitfalls(
    of_month: Sequence[Incident], minutes: Mapping[str, int], past: _Past, catalog: Catalog
) -> list[PitfallRow]:
    counts = Counter(incident.slug for incident in of_month)
    gpu: dict[str, int] = defaultdict(int)
    for incident in of_month:
        gpu[incident.slug] += _gpu_minutes(incident)
    titles = {entry.slug: entry.title for entry in catalog}
    rows = [
        PitfallRow(
            slug,
            titles.get(slug, slug) if slug else "No named cause",
            counts[slug],
            minutes.get(slug, 0),
            gpu.get(slug, 0),
            past.incidents.get(slug, 0),
            past.minutes.get(slug, 0),
        )
        for slug in {*counts, *minutes}
    ]
    return sorted(rows, key=lambda row: (-row.minutes, -row.incidents, row.slug))


def _corrected(of_month: Sequence[Incident]) -> int:
    """Incidents whose answer somebody calls wrong; another answer since is another opinion."""
    slugs = {incident.pk: incident.slug for incident in of_month if incident.verdict}
    said = Feedback.objects.filter(
        incident__in=slugs, about=Feedback.About.DIAGNOSIS, is_good=False, withdrawn_at=None
    )
    return len({pk for pk, _ in said.values_list("incident", "slug")})


def _fixes(of_month: Sequence[Incident]) -> list[FixRow]:
    rows = (
        Feedback.objects.filter(
            incident__in=[incident.pk for incident in of_month],
            about=Feedback.About.FIX,
            withdrawn_at=None,
        )
        .values_list("slug", "fix_title")
        .annotate(worked=Count("pk", filter=Q(is_good=True)), tried=Count("pk"))
    )
    found = [FixRow(*row) for row in rows]
    return sorted(found, key=lambda row: (-row.worked, row.tried, row.slug, row.title))


def _trend(seen: IncidentQuerySet, month: Month) -> TrendRow:
    of_month = _of(seen, month).values_list("gpus", "idle_minutes")
    return TrendRow(
        str(month),
        len(of_month),
        sum(_minutes_by(seen, month).values()),
        sum((gpus or 0) * (idle or 0) for gpus, idle in of_month),
    )


def _new(seen: IncidentQuerySet, month: Month, of_month: Sequence[Incident]) -> list[str]:
    slugs = {incident.slug for incident in of_month} - {""}
    older = seen.filter(created_at__lt=month.start, slug__in=slugs)
    return sorted(slugs - set(older.values_list("slug", flat=True)))


def _silent(seen: IncidentQuerySet, catalog: Catalog, end: datetime) -> list[str]:
    latest = dict(
        seen.exclude(slug="")
        .filter(created_at__lt=end)
        .values_list("slug")
        .annotate(Max("created_at"))
    )
    limit = end - SILENT_AFTER
    return sorted(e.slug for e in catalog.active if latest.get(e.slug, limit) <= limit)


def _median(spans: Any) -> float | None:
    seconds = [span.total_seconds() for span in spans]
    return median(seconds) if seconds else None
