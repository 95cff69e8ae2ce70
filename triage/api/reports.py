"""The month, by the API."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router

from triage.api.access import token_of, visible_incidents
from triage.api.auth import TokenAuth
from triage.api.problems import Problem
from triage.reports.figures import figures
from triage.reports.months import Month
from triage.services.catalog import current_catalog

router = Router()


@router.get(
    "/reports/{month}", auth=TokenAuth("read"), response=dict[str, Any], summary="Read a month"
)
def read_report(request: HttpRequest, month: str) -> dict[str, Any]:
    """All figures of a month such as `2026-11`, over the incidents that the token sees."""
    try:
        wanted = Month.parse(month)
    except ValueError as error:
        raise Problem(404, "not-found", f"There is {error}.") from None
    seen = visible_incidents(token_of(request))
    return figures(wanted, current_catalog(), timezone.now(), seen).to_json()
