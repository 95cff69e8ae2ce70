"""A believable team's three months, through the real engine; marked, and removed whole.

The texts are the catalog's own examples, taken in, scanned and diagnosed as any others; then their
incidents are put back to the days on which they are told to have happened.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from kb.catalog import Pitfall
from triage.models import (
    Feedback,
    Incident,
    LogBookEntry,
    Membership,
    Profile,
    Submission,
    Team,
    TimeEntry,
)
from triage.reports.months import Month
from triage.services import diagnosis, incidents, log_book, time_book
from triage.services.catalog import current_catalog
from triage.services.intake import JobFacts, NamedStream, receive

TEAM = "Demo team"
PEOPLE = ("demo.ada", "demo.noor", "demo.kim")
#: (pitfall, minutes of each incident): July has 23 incidents and 34.5 hours over twelve pitfalls,
#: the four that seem to run and are wrong, or die later, on top.
JULY = (
    ("dataloader-fork-deadlock", (150, 120, 120, 90)),
    ("collective-rank-conditional", (150, 130, 110)),
    ("cuda-oom-graph-retention", (130, 110, 90)),
    ("cuda-async-error-misattributed", (140, 100)),
    ("loss-nan", (90, 60)),
    ("dataloader-shm-bus-error", (70, 50)),
    ("collective-uneven-inputs", (65, 45)),
    ("host-oom-killed", (70,)),
    ("nccl-ib-error", (55,)),
    ("checkpoint-key-mismatch", (50,)),
    ("disk-full", (45,)),
    ("process-segfault", (30,)),
)
JUNE = (
    ("dataloader-shm-bus-error", (95, 80)),
    ("dataloader-fork-deadlock", (160, 140)),
    ("cuda-oom-graph-retention", (120,)),
    ("loss-nan", (75, 60)),
    ("disk-full", (40,)),
    ("nccl-ib-error", (85,)),
)
AUGUST = (
    ("collective-rank-conditional", (90, 80)),
    ("dataloader-fork-deadlock", (60, 45)),
    ("host-oom-killed", (80, 55)),
    ("cuda-oom-graph-retention", (50,)),
    ("process-segfault", (65, 40)),
    ("checkpoint-key-mismatch", (35,)),
    ("collective-uneven-inputs", (50,)),
)
MONTHS = ((Month(2026, 6), JUNE), (Month(2026, 7), JULY), (Month(2026, 8), AUGUST))

_JOBS = ("llama-ft", "vit-pretrain", "asr-large", "diffusion-xl", "bert-mlm", "moe-8x7b")
_GPUS = (8, 8, 16, 32, 4)


class DemoExistsError(Exception):
    """The demo is there already."""


@dataclass(frozen=True, slots=True)
class _Cast:
    """Who works on what happens; `chance` decides what nobody cares about."""

    people: Sequence[User]
    team: Team
    chance: random.Random


@dataclass(frozen=True, slots=True)
class _Told:
    """One incident to tell of."""

    slug: str
    minutes: int
    at: datetime


def seed(report: Callable[[int, int], None]) -> list[Incident]:
    """The incidents made; `report` hears how many of how many. Raises DemoExistsError."""
    if Incident.objects.filter(is_demo=True).exists():
        raise DemoExistsError
    catalog = current_catalog()
    chance = random.Random(7)  # noqa: S311 (a story, not a secret)
    cast = _Cast(*_people(), chance)
    told = [one for month, rows in MONTHS for one in _month(month, rows, chance)]
    made = []
    for number, one in enumerate(told, start=1):
        pitfall = catalog.get(one.slug)
        assert pitfall is not None, one.slug
        made.append(_tell(one, number, pitfall, cast))
        report(number, len(told))
    return made


def remove() -> int:
    """Takes the demo away with its texts, people and team; how many incidents went."""
    found = list(Incident.objects.filter(is_demo=True))
    for incident in found:
        incidents.destroy_texts(incident, reason="demo data removed")
    with transaction.atomic():
        Incident.objects.filter(is_demo=True).update(merged_into=None)
        Incident.objects.filter(is_demo=True).delete()
        User.objects.filter(username__in=PEOPLE).delete()
        Team.objects.filter(name=TEAM, incidents=None).delete()
    return len(found)


def _people() -> tuple[list[User], Team]:
    team, _ = Team.objects.get_or_create(name=TEAM, defaults={"slug": "demo-team"})
    people = []
    for name in PEOPLE:
        person, is_new = User.objects.get_or_create(username=name)
        if is_new:
            person.set_unusable_password()
            person.save()
        Profile.objects.get_or_create(person=person, defaults={"role": Profile.Role.RESPONDER})
        Membership.objects.get_or_create(team=team, person=person)
        people.append(person)
    return people, team


def _month(
    month: Month, rows: Sequence[tuple[str, Sequence[int]]], chance: random.Random
) -> Iterator[_Told]:
    """Its incidents by day; at night and at the weekend, too, as runs die."""
    all_minutes = [(slug, minutes) for slug, several in rows for minutes in several]
    days = (month.end - month.start).days
    moments = sorted(
        month.start
        + timedelta(
            days=(number + chance.random()) * (days - 1) / len(all_minutes),
            minutes=chance.randrange(600),
        )
        for number in range(len(all_minutes))
    )
    chance.shuffle(all_minutes)
    for at, (slug, minutes) in zip(moments, all_minutes, strict=True):
        yield _Told(slug, minutes, at)


def _tell(one: _Told, number: int, pitfall: Pitfall, cast: _Cast) -> Incident:
    person, chance = cast.people[number % len(cast.people)], cast.chance
    texts = [e for e in pitfall.examples if e.expect == pitfall.slug]
    example = texts[number % len(texts)]
    gpus = chance.choice(_GPUS)
    with example.path.open("rb") as stream:
        received = receive(
            [NamedStream(example.path.name, stream)],
            who=person,
            job=JobFacts(id=f"demo-{48_000 + number}", scheduler="slurm", gpus=gpus),
            title=chance.choice(_JOBS),
        )
    incident = received.incident
    Incident.objects.filter(pk=incident.pk).update(
        is_demo=True, team=cast.team, is_shared=True, idle_minutes=chance.randrange(20, 400)
    )
    for submission in incident.submissions.pending():
        diagnosis.scan_submission(submission.pk)
    diagnosis.diagnose_incident(incident.pk)
    incident.refresh_from_db()
    _put_back(incident, one.at)
    _work_on(incident, one, person, pitfall, chance)
    return incident


def _put_back(incident: Incident, at: datetime) -> None:
    """The incident and its rows as of that moment."""
    back = incident.created_at - at
    took = (incident.diagnosed_at or incident.created_at) - incident.created_at
    Incident.objects.filter(pk=incident.pk).update(created_at=at, diagnosed_at=at + took)
    Submission.objects.filter(incident=incident).update(created_at=F("created_at") - back)
    incident.diagnoses.update(created_at=F("created_at") - back)
    LogBookEntry.objects.filter(incident=incident).update(at=F("at") - back)


def _work_on(
    incident: Incident, one: _Told, person: User, pitfall: Pitfall, chance: random.Random
) -> None:
    looked = one.at + timedelta(minutes=chance.randrange(2, 90))
    ended = _free_end(person, looked + timedelta(minutes=one.minutes), one.minutes)
    time_book.add(incident, person, one.minutes, ended_at=ended)
    incident.log_book.filter(kind=log_book.TIME_ADDED).update(at=ended)
    Incident.objects.filter(pk=incident.pk).update(
        status=Incident.Status.RESOLVED, resolved_at=ended, owner=person
    )
    if pitfall.fixes and incident.slug == pitfall.slug:
        Feedback.objects.create(
            incident=incident,
            person=person,
            about=Feedback.About.FIX,
            slug=pitfall.slug,
            fix_title=pitfall.fixes[0].title,
            is_good=chance.random() < 0.8,
            at=ended,
        )


def _free_end(person: User, end: datetime, minutes: int) -> datetime:
    """When so many minutes can end that nothing else of the person's lies within them."""
    while TimeEntry.objects.counted().filter(
        person=person, started_at__lt=end, ended_at__gt=end - timedelta(minutes=minutes)
    ):
        end += timedelta(minutes=45)
    return end
