"""Writes the report of each month that has ended, once, whatever restarts."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils import timezone

from triage.models import Incident, MonthlyReport
from triage.reports.figures import figures
from triage.reports.months import Month
from triage.services.catalog import current_catalog

#: Months that are written after the fact, where nothing ran at their end.
MOST_MONTHS_BACK = 12


def write_due() -> list[str]:
    """Writes the months that have ended and have no row; their names.

    From the month of the first incident on. Two beats at once write one row: the month is unique.
    """
    now = timezone.now()
    first = Incident.objects.order_by("created_at").values_list("created_at", flat=True).first()
    if first is None:
        return []
    current = Month.of(now)
    months = [current.later(-back) for back in range(MOST_MONTHS_BACK, 0, -1)]
    wanted = [month for month in months if month >= Month.of(first)]
    names = [str(month) for month in wanted]
    there = set(MonthlyReport.objects.filter(month__in=names).values_list("month", flat=True))
    written = []
    for month in wanted:
        if str(month) in there:
            continue
        told = figures(month, current_catalog(), now).to_json()
        try:
            with transaction.atomic():
                MonthlyReport.objects.create(month=str(month), figures=told, written_at=now)
        except IntegrityError:
            continue
        written.append(str(month))
    return written
