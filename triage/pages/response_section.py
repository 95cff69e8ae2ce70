"""What people do about an incident, as the head of its page, its story and its feedback show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from kb.catalog import Pitfall
from kb.catalog.experience import RatedFix, order_fixes
from triage.models import Feedback, Incident, Profile, Team
from triage.pages.wording import STATUS_STEPS, duration_in_words
from triage.services import feedback, people, recurrence, response
from triage.services.people import Right
from triage.services.recurrence import SeenBefore

#: Incidents offered as targets of a merge; any other can be typed.
MAX_MERGE_TARGETS = 12


@dataclass(frozen=True, slots=True)
class Step:
    """A status that this one may lead to, and its button."""

    status: str
    word: str


@dataclass(frozen=True, slots=True)
class FeedbackSection:
    """Opinions on the answer: the reader's own, and the others'."""

    mine: Feedback | None
    right: int
    wrong: int
    instead: Sequence[str]

    @property
    def is_said(self) -> bool:
        """Whether anybody judged the answer."""
        return bool(self.right or self.wrong)


@dataclass(frozen=True, slots=True)
class ResponseSection:
    """Everything that the controls need; `was` is what the reader sees, for the forms to send."""

    incident: Incident
    can_respond: bool
    is_mine: bool
    was: dict[str, Any]
    steps: Sequence[Step]
    people: Sequence[str]
    teams: Sequence[Team]
    merge_targets: Sequence[Incident]
    merged: Sequence[Incident]
    feedback: FeedbackSection
    fixes: Sequence[RatedFix]
    seen: SeenBefore | None

    @property
    def was_fields(self) -> list[tuple[str, Any]]:
        """What the form of facts sends back, so that nobody's change is overwritten unseen."""
        return [(field, _form_value(value)) for field, value in self.was.items()]

    @property
    def severities(self) -> list[str]:
        """All severities, the lowest first."""
        return list(Incident.Severity.values)

    @property
    def idle_exactly(self) -> str:
        """How long the GPUs stood idle, to the minute as a form needs it: `50 h 5 min`."""
        minutes = self.incident.idle_minutes
        if minutes is None:
            return ""
        return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"

    @property
    def gpu_hours(self) -> str:
        """`94.9 GPU hours lost`; empty while GPUs or idle time are not known."""
        hours = self.incident.gpu_hours_lost
        return "" if hours is None else hours_in_words(hours)

    @property
    def seen_people_time(self) -> str:
        """What the earlier ones took of people's time; empty for nothing."""
        minutes = self.seen.people_minutes if self.seen else 0
        return duration_in_words(minutes * 60) if minutes else ""

    @property
    def seen_gpu_hours(self) -> str:
        """What the earlier ones cost in GPU hours; empty for nothing."""
        minutes = self.seen.gpu_minutes if self.seen else 0
        return hours_in_words(minutes / 60) if minutes else ""


def _form_value(value: Any) -> str:
    """A field as a form holds it: `1` and `0` for yes and no, nothing for None."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return "" if value is None else str(value)


def hours_in_words(hours: float) -> str:
    """`94.9 GPU hours`, `1 GPU hour`."""
    number = f"{hours:,.1f}".removesuffix(".0")
    return f"{number} GPU hour{'' if number == '1' else 's'}"


def build_response(
    incident: Incident, reader: User, pitfall: Pitfall | None = None
) -> ResponseSection:
    """The section of this incident for this reader; `pitfall` is the entry of its answer."""
    can_respond = people.may(reader, Right.RESPOND)
    visible = people.visible_incidents(reader)
    said = [row for row in feedback.standing(incident) if row.slug == incident.slug]
    opinions = [row for row in said if row.about == Feedback.About.DIAGNOSIS]
    mine = {row.fix_title: row.is_good for row in said if row.person_id == reader.pk}
    return ResponseSection(
        incident=incident,
        can_respond=can_respond,
        is_mine=incident.owner_id == reader.pk,
        was={field: response.told(incident, field) for field in response.FIELDS},
        steps=[Step(status, STATUS_STEPS[status]) for status in response.NEXT[incident.status]],
        people=_responders() if can_respond else [],
        teams=list(Team.objects.all()) if can_respond else [],
        merge_targets=_alike(incident, reader) if can_respond else [],
        merged=list(visible.filter(merged_into=incident).order_by("pk")),
        feedback=FeedbackSection(
            mine=next((o for o in opinions if o.person_id == reader.pk), None),
            right=sum(opinion.is_good for opinion in opinions),
            wrong=sum(not opinion.is_good for opinion in opinions),
            instead=sorted({o.other_slug for o in opinions if o.other_slug}),
        ),
        fixes=order_fixes(pitfall.fixes, feedback.experience_of(pitfall), mine) if pitfall else [],
        seen=recurrence.seen_before(incident, visible),
    )


def _responders() -> list[str]:
    """The names of those who may own an incident."""
    able = User.objects.filter(is_active=True).exclude(
        profile__role=Profile.Role.VIEWER, is_superuser=False
    )
    return list(able.order_by("username").values_list("username", flat=True))


def _alike(incident: Incident, reader: User) -> list[Incident]:
    """The newest incidents that this one may be the same as: of its job, or with its answer."""
    alike = Q(pk=None)
    if incident.job_id:
        alike |= Q(job_id=incident.job_id)
    if incident.fingerprint:
        alike |= Q(fingerprint=incident.fingerprint)
    if incident.slug:
        alike |= Q(slug=incident.slug)
    found = people.visible_incidents(reader).filter(alike, merged_into=None)
    return list(found.exclude(pk=incident.pk).order_by("-pk")[:MAX_MERGE_TARGETS])
