"""What people say of an answer (right, wrong, which then) and of a fix (it worked, it did not).

One opinion a person, incident and question: a new one takes the place of the former, which stays
in the table as withdrawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Max, Q
from django.utils import timezone

from kb.catalog import Pitfall
from kb.catalog.experience import Experience, Tally
from triage.models import Feedback, Incident
from triage.querysets import IncidentQuerySet
from triage.services import log_book
from triage.services.catalog import current_catalog
from triage.services.response import ChangeError, refuse_merged
from triage.services.storable import clean_name

About = Feedback.About

_MAX_NOTE_CHARACTERS = 500
#: Pitfalls listed for the curator.
MOST_LISTED = 200


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a person says; `fix_title` is empty for an opinion on the answer itself."""

    is_good: bool
    fix_title: str = ""
    other_slug: str = ""
    note: str = ""
    # The entry that the fix is of; empty for the incident's own answer.
    slug: str = ""


def give(incident: Incident, opinion: Opinion, *, who: User) -> Feedback:
    """Stores the opinion in place of the person's former one on the same; a row of the log book.

    Saying the same again changes nothing. Raises ChangeError for a fix or an entry that the catalog
    has not, for an incident without an answer, or for one that was merged.
    """
    slug = _judged_slug(incident, opinion)
    fields = {
        "is_good": opinion.is_good,
        "other_slug": "" if opinion.is_good else opinion.other_slug,
        "note": clean_name(opinion.note, _MAX_NOTE_CHARACTERS),
    }
    with transaction.atomic():
        # The incident's lock: of two clicks at once the second finds the first.
        refuse_merged(Incident.objects.select_for_update().get(pk=incident.pk))
        former = _standing(incident, who, slug, opinion.fix_title).first()
        if former is not None:
            if all(getattr(former, name) == value for name, value in fields.items()):
                return former
            _withdraw(former)
        row = Feedback.objects.create(
            incident=incident,
            person=who,
            about=About.FIX if opinion.fix_title else About.DIAGNOSIS,
            slug=slug,
            fix_title=opinion.fix_title,
            at=timezone.now(),
            **fields,
        )
        log_book.write(incident, log_book.FEEDBACK, _told(row), who=who)
    return row


def withdraw(incident: Incident, *, who: User, fix_title: str = "", slug: str = "") -> bool:
    """Takes the person's opinion back; whether there was one."""
    with transaction.atomic():
        Incident.objects.select_for_update().get(pk=incident.pk)
        row = _standing(incident, who, slug or incident.slug, fix_title).first()
        if row is None:
            return False
        _withdraw(row)
        log_book.write(incident, log_book.FEEDBACK_WITHDRAWN, _told(row), who=who)
    return True


def standing(incident: Incident) -> list[Feedback]:
    """The opinions on this incident that count, the oldest first."""
    return list(incident.feedback.filter(withdrawn_at=None).select_related("person"))


def experience_of(pitfall: Pitfall) -> Experience:
    """What people said of this entry, over all incidents."""
    return experiences([pitfall.slug])[pitfall.slug]


def experiences(slugs: Iterable[str]) -> Mapping[str, Experience]:
    """What people said of these entries, in one query; an empty one for those nobody judged."""
    wanted = list(dict.fromkeys(slugs))
    rows = (
        Feedback.objects.filter(withdrawn_at=None, slug__in=wanted)
        .order_by()
        .values("slug", "about", "fix_title", "other_slug")
        .annotate(good=Count("pk", filter=Q(is_good=True)), total=Count("pk"))
    )
    answers: Counter[str] = Counter()
    right: Counter[str] = Counter()
    fixes: dict[str, dict[str, Tally]] = {slug: {} for slug in wanted}
    instead: dict[str, Counter[str]] = {slug: Counter() for slug in wanted}
    for row in rows:
        slug, title = row["slug"], row["fix_title"]
        if row["about"] == About.FIX:
            former = fixes[slug].get(title, Tally())
            fixes[slug][title] = Tally(former.good + row["good"], former.total + row["total"])
            continue
        answers[slug] += row["total"]
        right[slug] += row["good"]
        if row["other_slug"]:
            instead[slug][row["other_slug"]] += row["total"] - row["good"]
    return {
        slug: Experience(
            answers=Tally(right[slug], answers[slug]),
            fixes=fixes[slug],
            instead=instead[slug].most_common(),
        )
        for slug in wanted
    }


@dataclass(frozen=True, slots=True)
class Disputed:
    """An entry that people called wrong, or whose fixes failed them."""

    slug: str
    experience: Experience
    wrong: int
    failed_fixes: int


def disputed(visible: IncidentQuerySet) -> list[Disputed]:
    """Entries with the most wrong answers and failed fixes first, of incidents that one may see."""
    rows = (
        Feedback.objects.filter(withdrawn_at=None, is_good=False, incident__in=visible)
        .order_by()
        .values("slug")
        .annotate(
            wrong=Count("pk", filter=Q(about=About.DIAGNOSIS)),
            failed=Count("pk", filter=Q(about=About.FIX)),
            last=Max("at"),
        )
        .order_by("-wrong", "-failed", "-last")[:MOST_LISTED]
    )
    found = list(rows)
    said = experiences(row["slug"] for row in found)
    return [Disputed(row["slug"], said[row["slug"]], row["wrong"], row["failed"]) for row in found]


def newest(visible: IncidentQuerySet, *, slug: str = "", most: int = 100) -> list[Feedback]:
    """The newest opinions that count, on incidents that one may see; of one entry, if given."""
    rows = Feedback.objects.filter(withdrawn_at=None, incident__in=visible)
    if slug:
        rows = rows.filter(slug=slug)
    return list(rows.select_related("person", "incident").order_by("-pk")[:most])


def _standing(incident: Incident, who: User, slug: str, fix_title: str):  # type: ignore[no-untyped-def]
    return Feedback.objects.filter(
        incident=incident,
        person=who,
        about=About.FIX if fix_title else About.DIAGNOSIS,
        slug=slug,
        fix_title=fix_title,
        withdrawn_at=None,
    )


def _withdraw(row: Feedback) -> None:
    row.withdrawn_at = timezone.now()
    row.save(update_fields=["withdrawn_at"])


def _judged_slug(incident: Incident, opinion: Opinion) -> str:
    """The entry that the opinion is about, once all that it names is there."""
    if incident.current_diagnosis_id is None:
        raise ChangeError(
            f"{incident.reference} has no answer yet.",
            hint="Wait for its diagnosis.",
            code="no-answer",
        )
    catalog = current_catalog()
    if opinion.other_slug and catalog.get(opinion.other_slug) is None:
        raise _unknown(opinion.other_slug)
    if not opinion.fix_title:
        return incident.slug
    slug = opinion.slug or incident.slug
    pitfall = catalog.get(slug)
    if pitfall is None:
        raise _unknown(slug)
    if opinion.fix_title not in {fix.title for fix in pitfall.fixes}:
        raise ChangeError(
            f"{slug} has no fix “{opinion.fix_title[:80]}”.",
            hint="Name a fix by the title that its page shows.",
            status=422,
            code="no-such-fix",
        )
    return slug


def _unknown(slug: str) -> ChangeError:
    return ChangeError(
        f"The catalog has no entry {slug[:100]}.", status=422, code="no-such-pitfall"
    )


def _told(row: Feedback) -> dict[str, object]:
    return {
        "about": row.about,
        "slug": row.slug,
        "fix": row.fix_title,
        "good": row.is_good,
        "instead": row.other_slug,
        "note": row.note,
    }
