"""Who may do what: roles of people, and whose incidents they see.

Each role may do all that the former may: a viewer reads, a responder sends texts and works on
incidents, a curator writes catalog entries, an admin looks after people, teams and tokens and sees
the incidents of every team.
"""

from __future__ import annotations

from enum import IntEnum

from django.contrib.auth.models import User

from triage.models import Incident, Profile, Team
from triage.querysets import IncidentQuerySet


class Right(IntEnum):
    """What a page or endpoint asks for, each with the former."""

    READ = 0
    RESPOND = 1
    CURATE = 2
    ADMINISTER = 3


_RIGHTS = {
    Profile.Role.VIEWER: Right.READ,
    Profile.Role.RESPONDER: Right.RESPOND,
    Profile.Role.CURATOR: Right.CURATE,
    Profile.Role.ADMIN: Right.ADMINISTER,
}


def role_of(person: User) -> Profile.Role:
    """The role of somebody who has signed in; a superuser is an admin, whatever is written."""
    if person.is_superuser:
        return Profile.Role.ADMIN
    profile: Profile | None = getattr(person, "profile", None)
    return Profile.Role(profile.role) if profile is not None else Profile.Role.RESPONDER


def may(person: User, right: Right) -> bool:
    """Whether the person's role includes this right."""
    return person.is_active and _RIGHTS[role_of(person)] >= right


def visible_incidents(person: User) -> IncidentQuerySet:
    """The incidents that this person may know of; to an admin all of them."""
    if may(person, Right.ADMINISTER):
        return Incident.objects.all()
    return Incident.objects.of_teams(Team.objects.filter(members=person))


def team_for(person: User | None) -> Team | None:
    """The team of what this person sends: the first they joined; None for those of no team."""
    if person is None:
        return None
    return Team.objects.filter(members=person).order_by("memberships__pk").first()
