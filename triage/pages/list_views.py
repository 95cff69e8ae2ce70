"""The list of incidents: filters, order and place in the address; picked ones are acted upon."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from triage.models import Incident, Team
from triage.pages import incident_filters
from triage.pages.access import requires
from triage.pages.incident_filters import apply_filters, read_filters
from triage.pages.incident_rows import build_rows
from triage.pages.requests import PageRequest
from triage.services import people
from triage.services.catalog import current_catalog
from triage.services.people import Right

INCIDENTS_A_PAGE = 50


@requires(Right.READ)
@require_GET
def incident_list(request: PageRequest) -> HttpResponse:
    """Incidents that the reader may see, filtered and sorted as the address says."""
    filters = read_filters(request.GET)
    rows = apply_filters(filters, people.visible_incidents(request.user), request.user)
    before, page = _place(request, "before"), _place(request, "page")
    # By age a page begins after a number, so that new incidents shift nothing.
    if not filters.sort:
        page = 0
        rows = rows.filter(pk__lt=before) if before else rows
    page = min(page, incident_filters.MAX_PAGE)
    start = page * INCIDENTS_A_PAGE
    found = list(rows.with_answer()[start : start + INCIDENTS_A_PAGE + 1])
    more = len(found) > INCIDENTS_A_PAGE
    found = found[:INCIDENTS_A_PAGE]
    further = ""
    if more and filters.sort and page < incident_filters.MAX_PAGE:
        further = _address(request, page=str(page + 1))
    elif more and not filters.sort:
        further = _address(request, before=str(found[-1].pk))
    catalog = current_catalog()
    context = {
        "section": "incidents",
        "rows": build_rows(found, catalog),
        "filters": filters,
        "verdicts": incident_filters.VERDICTS,
        "statuses": incident_filters.STATUSES,
        "sorts": incident_filters.SORTS,
        "severities": Incident.Severity.values,
        "owners": User.objects.filter(owned_incidents__isnull=False)
        .distinct()
        .order_by("username")
        .values_list("username", flat=True)[:200],
        "teams": list(Team.objects.all()),
        "pitfall": catalog.get(filters.pitfall) if filters.pitfall else None,
        "further": further,
        "start": _address(request) if before or page else "",
        "is_filtered": bool(filters.is_any or before or page),
        "can_respond": people.may(request.user, Right.RESPOND),
    }
    return render(request, "triage/incident_list.html", context)


def _place(request: HttpRequest, name: str) -> int:
    value = request.GET.get(name, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else 0


def _address(request: HttpRequest, **place: str) -> str:
    """This list at another place; empty filters are left out."""
    query = request.GET.copy()
    for name in ("before", "page"):
        query.pop(name, None)
    for name in [name for name, value in query.items() if not value]:
        del query[name]
    query.update(place)
    return f"{request.path}?{query.urlencode()}" if query else request.path
