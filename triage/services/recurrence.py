"""Whether this happened before: how often, what ended it, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, F, Min, Q, Sum

from triage.models import Feedback, Incident, TimeEntry
from triage.querysets import IncidentQuerySet


@dataclass(frozen=True, slots=True)
class SeenBefore:
    """Earlier incidents of the same pitfall, among them those of the very same failure.

    `people_minutes` and `gpu_minutes` are what the earlier ones cost; `fix` is the fix that last
    worked for one of them and `fix_incident` where it did.
    """

    times: int
    same_failure: int
    first_at: datetime
    last: Incident
    last_resolved: Incident | None
    fix: str
    fix_incident: Incident | None
    people_minutes: int
    gpu_minutes: int


def seen_before(incident: Incident, visible: IncidentQuerySet) -> SeenBefore | None:
    """Earlier incidents that one may see and that answered alike; None for the first of its kind.

    Incidents with an answer are alike by their pitfall, others by their fingerprint.
    """
    if not incident.fingerprint:
        return None
    alike = Q(fingerprint=incident.fingerprint)
    if incident.slug:
        alike |= Q(slug=incident.slug)
    earlier = visible.filter(alike, pk__lt=incident.pk, merged_into=None)
    totals = earlier.aggregate(
        times=Count("pk"),
        same=Count("pk", filter=Q(fingerprint=incident.fingerprint)),
        first=Min("created_at"),
        gpu_minutes=Sum(F("gpus") * F("idle_minutes")),
    )
    if not totals["times"]:
        return None
    worked = (
        Feedback.objects.filter(
            incident__in=earlier, about=Feedback.About.FIX, is_good=True, withdrawn_at=None
        )
        .select_related("incident")
        .order_by("-pk")
        .first()
    )
    last = earlier.order_by("-pk").first()
    assert last is not None, "counted above"
    return SeenBefore(
        times=totals["times"],
        same_failure=totals["same"],
        first_at=totals["first"],
        last=last,
        last_resolved=earlier.filter(status=Incident.Status.RESOLVED).order_by("-pk").first(),
        fix=worked.fix_title if worked else "",
        fix_incident=worked.incident if worked else None,
        people_minutes=TimeEntry.objects.filter(incident__in=earlier).total_minutes(),
        gpu_minutes=totals["gpu_minutes"] or 0,
    )
