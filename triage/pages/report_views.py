"""The month as a page, and as files of the same figures."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from triage.models import Incident
from triage.pages.access import requires
from triage.pages.bars import Bar, build_bars
from triage.pages.requests import PageRequest
from triage.pages.time_section import minutes_in_words
from triage.pages.wording import duration_in_words
from triage.reports.figures import DEFINITIONS, Figures, figures
from triage.reports.months import Month
from triage.reports.render import FORMS, hours
from triage.services import people
from triage.services.catalog import current_catalog
from triage.services.people import Right

_TYPES = {"json": "application/json", "csv": "text/csv", "md": "text/markdown"}
#: Incidents that the page lists; the files have all.
MAX_ROWS = 200


@requires(Right.READ)
@require_GET
def report_list(request: PageRequest) -> HttpResponse:
    """Leads to the current month."""
    return redirect("triage:report", month=str(Month.of(timezone.now())))


@requires(Right.READ)
@require_GET
def report(request: PageRequest, month: str) -> HttpResponse:
    """The page of a month, over the incidents that the reader sees."""
    told = _figures(request, month)
    now = Month.of(timezone.now())
    context = {
        "section": "reports",
        "told": told,
        "month": told.month,
        "earlier": told.month.later(-1),
        "later": told.month.later(1) if told.month < now else None,
        "has_demo": Incident.objects.filter(
            is_demo=True, created_at__gte=told.month.start, created_at__lt=told.month.end
        ).exists(),
        "hours": hours(told.minutes),
        "people_time": minutes_in_words(told.minutes),
        "gpu_hours": hours(told.gpu_minutes),
        "diagnosis": _words(told.diagnosis_s),
        "resolution": _words(told.resolution_s),
        "undetermined": _share(told.share_undetermined),
        "corrected": _share(told.share_corrected),
        "pitfalls": [
            (row, minutes_in_words(row.minutes), hours(row.gpu_minutes), hours(row.minutes_before))
            for row in told.pitfalls
        ],
        "costliest": [(row, minutes_in_words(row.minutes)) for row in told.costliest],
        "rows": [(row, minutes_in_words(row.minutes)) for row in told.rows[:MAX_ROWS]],
        "unlisted": max(len(told.rows) - MAX_ROWS, 0),
        "pitfall_chart": build_bars(
            "Hours of people by pitfall",
            [Bar(row.title, row.minutes / 60) for row in told.pitfalls if row.minutes][:12],
            " h",
        ),
        "trend_chart": build_bars(
            "Incidents by month", [Bar(row.month, row.incidents) for row in told.trend], ""
        ),
        "trend": [(row, hours(row.minutes), hours(row.gpu_minutes)) for row in told.trend],
        "definitions": DEFINITIONS,
    }
    return render(request, "triage/report_detail.html", context)


@requires(Right.READ)
@require_GET
def report_file(request: PageRequest, month: str, form: str) -> HttpResponse:
    """The same figures as JSON, CSV or Markdown."""
    told = _figures(request, month)
    response = HttpResponse(FORMS[form](told), content_type=f"{_TYPES[form]}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="pitstop-{told.month}.{form}"'
    return response


def _figures(request: PageRequest, name: str) -> Figures:
    try:
        month = Month.parse(name)
    except ValueError as error:
        raise Http404(str(error)) from None
    if month > Month.of(timezone.now()):
        raise Http404("that month is yet to come")
    seen = people.visible_incidents(request.user)
    return figures(month, current_catalog(), timezone.now(), seen)


def _words(seconds: float | None) -> str:
    return "–" if seconds is None else duration_in_words(seconds)


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"
