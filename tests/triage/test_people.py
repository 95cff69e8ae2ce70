"""Roles of people and the teams whose incidents they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.factories import BUS_ERROR, make_incident, make_user, send
from triage.models import Membership, Profile, Team
from triage.services import people
from triage.services.people import Right

pytestmark = [pytest.mark.django_db, pytest.mark.services]


@pytest.mark.parametrize(
    ("role", "highest"),
    [
        ("viewer", Right.READ),
        ("responder", Right.RESPOND),
        ("curator", Right.CURATE),
        ("admin", Right.ADMINISTER),
    ],
)
def test_each_role_may_what_the_former_may(role: str, highest: Right) -> None:
    person = make_user(username="mo")
    Profile.objects.create(person=person, role=role)
    assert [right for right in Right if people.may(person, right)] == [
        right for right in Right if right <= highest
    ]


def test_somebody_without_a_profile_responds_and_a_superuser_administers() -> None:
    assert people.role_of(make_user(username="new")) == "responder"
    assert people.role_of(make_user(username="root", is_superuser=True)) == "admin"


def test_who_has_left_may_nothing() -> None:
    assert not people.may(make_user(username="gone", is_active=False), Right.READ)


def test_owner_team_mate_and_stranger() -> None:
    vision, speech = (Team.objects.create(name=n, slug=n) for n in ("vision", "speech"))
    mate, stranger, admin = (make_user(username=n) for n in ("mate", "stranger", "chief"))
    Membership.objects.create(team=vision, person=mate)
    Membership.objects.create(team=speech, person=stranger)
    Profile.objects.create(person=admin, role="admin")
    theirs = make_incident(team=vision)
    shared = make_incident(team=vision, is_shared=True)
    everybodys = make_incident()
    assert set(people.visible_incidents(mate)) == {theirs, shared, everybodys}
    assert set(people.visible_incidents(stranger)) == {shared, everybodys}
    assert set(people.visible_incidents(admin)) == {theirs, shared, everybodys}


def test_what_somebody_sends_is_of_their_first_team(work: Callable[[], Any]) -> None:
    person = make_user(username="mo")
    for name in ("vision", "speech"):
        Membership.objects.create(team=Team.objects.create(name=name, slug=name), person=person)
    with work():
        received = send(BUS_ERROR, who=person)
    received.incident.refresh_from_db()
    assert received.incident.team == Team.objects.get(name="vision")
    assert received.incident.slug == "dataloader-shm-bus-error"
    assert received.incident.fingerprint
