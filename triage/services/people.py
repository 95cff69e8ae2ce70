"""Who may do what: roles of people, and whose incidents they see.

Each role may do all that the former may: a viewer reads, a responder sends texts and works on
incidents, a curator writes catalog entries, an admin looks after people, teams and tokens and sees
the incidents of every team.
"""

from __future__ import annotations

from enum import IntEnum

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils.text import slugify

from triage.models import Incident, Membership, Profile, Team
from triage.querysets import IncidentQuerySet
from triage.services import audit


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


class PeopleError(ValueError):
    """What was asked for cannot be; its text says why, to the person who asked."""


def add_person(username: str, email: str, role: str, *, by: User) -> User:
    """A new account that a one-time link opens. Raises PeopleError for a taken name."""
    with transaction.atomic():
        if User.objects.filter(username__iexact=username).exists():
            raise PeopleError(f"There is somebody named {username} already.")
        person = User.objects.create_user(username, email, password=None)
        Profile.objects.create(person=person, role=_known_role(role))
        audit.write(audit.PERSON_ADDED, who=by, about=person, data={"role": role})
    return person


def set_role(person: User, role: str, *, by: User) -> bool:
    """Whether the role changed. Raises PeopleError where no admin would be left."""
    role = _known_role(role)
    with transaction.atomic():
        before = role_of(_locked(person))
        if before == role:
            return False
        if before == Profile.Role.ADMIN:
            _keep_an_admin(person)
        Profile.objects.update_or_create(person=person, defaults={"role": role})
        # A superuser is an admin whatever the profile says: the flag goes with the role.
        is_admin = role == Profile.Role.ADMIN
        User.objects.filter(pk=person.pk).update(is_superuser=is_admin, is_staff=is_admin)
        audit.write(
            audit.ROLE_CHANGED, who=by, about=person, data={"before": before, "after": role}
        )
    return True


def set_active(person: User, is_active: bool, *, by: User) -> bool:
    """Whether it changed: somebody shut out can sign in no more, and their tokens rest."""
    with transaction.atomic():
        if _locked(person).is_active == is_active:
            return False
        if not is_active and role_of(person) == Profile.Role.ADMIN:
            _keep_an_admin(person)
        User.objects.filter(pk=person.pk).update(is_active=is_active)
        kind = audit.PERSON_LET_IN if is_active else audit.PERSON_SHUT_OUT
        audit.write(kind, who=by, about=person)
    return True


def make_team(name: str, *, by: User) -> Team:
    """A new team without members. Raises PeopleError for a taken or unusable name."""
    with transaction.atomic():
        team = Team.objects.create(name=name, slug=_free_slug(name))
        audit.write(audit.TEAM_MADE, who=by, data={"team": name})
    return team


def rename_team(team: Team, name: str, *, by: User) -> None:
    """Nothing; its incidents and members stay. Raises PeopleError for a taken name."""
    with transaction.atomic():
        before = team.name
        team.slug = _free_slug(name, but=team)
        team.name = name
        team.save()
        audit.write(audit.TEAM_RENAMED, who=by, data={"team": name, "before": before})


def remove_team(team: Team, *, by: User) -> None:
    """Nothing. Raises PeopleError while incidents are its: everybody would see them then."""
    with transaction.atomic():
        number = Incident.objects.filter(team=team).count()
        if number:
            raise PeopleError(
                f"{number} incident{'s are' if number > 1 else ' is'} this team's. Give them to "
                "another team first: without one everybody would see them."
            )
        audit.write(audit.TEAM_REMOVED, who=by, data={"team": team.name})
        team.delete()


def join(team: Team, person: User, *, by: User) -> bool:
    """Whether the person was not a member before."""
    with transaction.atomic():
        _, is_new = Membership.objects.get_or_create(team=team, person=person)
        if is_new:
            audit.write(audit.JOINED_TEAM, who=by, about=person, data={"team": team.name})
    return is_new


def leave(team: Team, person: User, *, by: User) -> bool:
    """Whether the person was a member."""
    with transaction.atomic():
        number, _ = Membership.objects.filter(team=team, person=person).delete()
        if number:
            audit.write(audit.LEFT_TEAM, who=by, about=person, data={"team": team.name})
    return bool(number)


def _known_role(role: str) -> Profile.Role:
    try:
        return Profile.Role(role)
    except ValueError:
        known = ", ".join(Profile.Role.values)
        raise PeopleError(f"No such role: {role!r}. There are {known}.") from None


def _locked(person: User) -> User:
    return User.objects.select_for_update().get(pk=person.pk)


def _keep_an_admin(person: User) -> None:
    """Raises PeopleError if nobody else could look after people and tokens."""
    admins = User.objects.select_for_update(of=("self",)).filter(
        Q(is_superuser=True) | Q(profile__role=Profile.Role.ADMIN), is_active=True
    )
    if not any(admin.pk != person.pk for admin in admins):
        raise PeopleError(
            f"{person.get_username()} is the only admin. Make somebody else an admin first."
        )


def _free_slug(name: str, but: Team | None = None) -> str:
    slug = slugify(name)
    if not slug:
        raise PeopleError("A team's name needs a letter or a digit.")
    taken = Team.objects.filter(Q(name__iexact=name) | Q(slug=slug))
    if but is not None:
        taken = taken.exclude(pk=but.pk)
    if taken.exists():
        raise PeopleError(f"There is a team named {name} already.")
    return slug
