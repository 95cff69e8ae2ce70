"""People, teams, tokens, the audit, and one's own account."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from triage.models import ApiToken, AuditEntry, Profile, Team
from triage.pages.access import requires
from triage.pages.people_forms import (
    MemberForm,
    PersonForm,
    ProfileForm,
    RoleForm,
    TeamForm,
    TokenForm,
)
from triage.pages.requests import PageRequest
from triage.services import audit, people, sign_in, tokens
from triage.services.people import PeopleError, Right

ROWS_A_PAGE = 100


@requires(Right.ADMINISTER)
@require_http_methods(["GET", "HEAD", "POST"])
def person_list(request: PageRequest) -> HttpResponse:
    """Everybody with an account; a POST adds somebody and shows the link that lets them in."""
    form = PersonForm(request.POST if request.method == "POST" else None)
    link = ""
    if request.method == "POST" and form.is_valid():
        try:
            person = people.add_person(**form.cleaned_data, by=request.user)
        except PeopleError as error:
            form.add_error("username", str(error))
        else:
            link = _link_for(request, person)
            messages.success(request, f"{person.get_username()} is there.")
            form = PersonForm()
    return _person_page(request, form, link)


@never_cache
@requires(Right.ADMINISTER)
@require_POST
def person_link(request: PageRequest, pk: int) -> HttpResponse:
    """The page of people with a new one-time link for one of them."""
    person = get_object_or_404(User, pk=pk, is_active=True)
    audit.write(audit.LINK_MADE, who=request.user, about=person, request=request)
    return _person_page(request, PersonForm(), _link_for(request, person))


@requires(Right.ADMINISTER)
@require_POST
def person_change(request: PageRequest, pk: int) -> HttpResponse:
    """Gives another role, shuts out or lets in again."""
    person = get_object_or_404(User, pk=pk)
    name = person.get_username()
    try:
        if "is_active" in request.POST:
            is_active = request.POST["is_active"] == "yes"
            if people.set_active(person, is_active, by=request.user):
                said = "can sign in again" if is_active else "is shut out"
                messages.success(request, f"{name} {said}.")
        else:
            form = RoleForm(request.POST)
            if not form.is_valid():
                raise PeopleError("Choose one of the roles.")
            if people.set_role(person, form.cleaned_data["role"], by=request.user):
                messages.success(request, f"{name} is {form.cleaned_data['role']} now.")
    except PeopleError as error:
        messages.error(request, str(error))
    return redirect("triage:person-list")


def _link_for(request: PageRequest, person: User) -> str:
    return request.build_absolute_uri(reverse("sign-in-once", args=[sign_in.make_token(person)]))


def _person_page(request: PageRequest, form: PersonForm, link: str) -> HttpResponse:
    rows = User.objects.select_related("profile").prefetch_related("teams").order_by("username")
    context = {
        "section": "people",
        "rows": [
            {"person": person, "role": people.role_of(person), "is_self": person == request.user}
            for person in rows
        ],
        "roles": Profile.Role.values,
        "form": form,
        "link": link,
    }
    return render(request, "triage/person_list.html", context)


@requires(Right.READ)
@require_http_methods(["GET", "HEAD", "POST"])
def team_list(request: PageRequest) -> HttpResponse:
    """The teams; an admin's POST makes one."""
    is_admin = people.may(request.user, Right.ADMINISTER)
    form = TeamForm(request.POST if request.method == "POST" and is_admin else None)
    if request.method == "POST":
        if not is_admin:
            raise PermissionDenied(Right.ADMINISTER.name)
        if form.is_valid():
            try:
                team = people.make_team(form.cleaned_data["name"], by=request.user)
            except PeopleError as error:
                form.add_error("name", str(error))
            else:
                return redirect("triage:team", slug=team.slug)
    rows = Team.objects.annotate(
        people=Count("memberships", distinct=True), sent=Count("incidents", distinct=True)
    )
    context = {"section": "people", "rows": rows, "form": form, "is_admin": is_admin}
    return render(request, "triage/team_list.html", context)


@requires(Right.READ)
@require_GET
def team(request: PageRequest, slug: str) -> HttpResponse:
    """One team: who is of it; an admin's controls."""
    return _team_page(request, get_object_or_404(Team, slug=slug))


@requires(Right.ADMINISTER)
@require_POST
def team_change(request: PageRequest, slug: str) -> HttpResponse:
    """Renames or removes a team, takes somebody in or out."""
    team = get_object_or_404(Team, slug=slug)
    deed = request.POST.get("deed", "")
    try:
        if deed == "rename":
            name = TeamForm(request.POST)
            if not name.is_valid():
                return _team_page(request, team, rename=name)
            people.rename_team(team, name.cleaned_data["name"], by=request.user)
        elif deed == "join":
            member = MemberForm(request.POST, team=team)
            if not member.is_valid():
                return _team_page(request, team, member=member)
            people.join(team, member.cleaned_data["person"], by=request.user)
        elif deed == "leave":
            person = get_object_or_404(User, username=request.POST.get("person", ""))
            if people.leave(team, person, by=request.user):
                messages.success(request, f"{person.get_username()} is no longer of {team.name}.")
        elif deed == "remove":
            people.remove_team(team, by=request.user)
            messages.success(request, f"The team {team.name} is gone.")
            return redirect("triage:team-list")
    except PeopleError as error:
        messages.error(request, str(error))
    return redirect("triage:team", slug=team.slug)


def _team_page(
    request: PageRequest,
    team: Team,
    *,
    rename: TeamForm | None = None,
    member: MemberForm | None = None,
) -> HttpResponse:
    context = {
        "section": "people",
        "team": team,
        "members": User.objects.filter(memberships__team=team).order_by("username"),
        "is_admin": people.may(request.user, Right.ADMINISTER),
        "rename": rename or TeamForm(initial={"name": team.name}),
        "member": member or MemberForm(team=team),
    }
    return render(request, "triage/team_detail.html", context)


@never_cache
@requires(Right.READ)
@require_http_methods(["GET", "HEAD", "POST"])
def token_list(request: PageRequest) -> HttpResponse:
    """One's own tokens, an admin's page all of them; a POST makes one and shows its key once."""
    form = TokenForm(request.POST if request.method == "POST" else None, person=request.user)
    key = ""
    if request.method == "POST" and form.is_valid():
        days = form.cleaned_data["days"]
        _, key = tokens.make_token(
            form.cleaned_data["name"],
            form.cleaned_data["scope"],
            owner=request.user,
            expires_at=timezone.now() + timedelta(days=days) if days else None,
        )
        form = TokenForm(person=request.user)
    rows = ApiToken.objects.select_related("owner").order_by("-pk")
    if not people.may(request.user, Right.ADMINISTER):
        rows = rows.filter(owner=request.user)
    context = {
        "section": "people",
        "rows": rows[:ROWS_A_PAGE],
        "form": form,
        "key": key,
        "now": timezone.now(),
    }
    return render(request, "triage/token_list.html", context)


@requires(Right.READ)
@require_POST
def token_revoke(request: PageRequest, pk: int) -> HttpResponse:
    """Ends one's own token; an admin any."""
    mine = ApiToken.objects.all()
    if not people.may(request.user, Right.ADMINISTER):
        mine = mine.filter(owner=request.user)
    token = get_object_or_404(mine, pk=pk)
    if tokens.revoke(token, by=request.user):
        messages.success(request, f"{token.name} opens nothing any more.")
    return redirect("triage:token-list")


@requires(Right.ADMINISTER)
@require_GET
def audit_list(request: PageRequest) -> HttpResponse:
    """Sign-ins and changes of who may do what, the newest first."""
    rows = AuditEntry.objects.select_related("who", "about")
    kind = request.GET.get("kind", "")
    if kind in KIND_WORDS:
        rows = rows.filter(kind=kind)
    before = request.GET.get("before", "")
    if before.isdecimal() and len(before) < 19:
        rows = rows.filter(pk__lt=int(before))
    found = list(rows[: ROWS_A_PAGE + 1])
    context = {
        "section": "people",
        "rows": [(row, KIND_WORDS.get(row.kind, row.kind), _details(row)) for row in found][
            :ROWS_A_PAGE
        ],
        "older": found[ROWS_A_PAGE - 1].pk if len(found) > ROWS_A_PAGE else None,
        "kinds": KIND_WORDS.items(),
        "kind": kind if kind in KIND_WORDS else "",
    }
    return render(request, "triage/audit_list.html", context)


KIND_WORDS: Mapping[str, str] = {
    audit.SIGNED_IN: "signed in",
    audit.SIGNED_OUT: "signed out",
    audit.SIGN_IN_FAILED: "failed to sign in",
    audit.PASSWORD_CHANGED: "changed the password",
    audit.PERSON_ADDED: "added",
    audit.LINK_MADE: "made a sign-in link for",
    audit.ROLE_CHANGED: "changed the role of",
    audit.PERSON_SHUT_OUT: "shut out",
    audit.PERSON_LET_IN: "let in again",
    audit.TEAM_MADE: "made a team",
    audit.TEAM_RENAMED: "renamed a team",
    audit.TEAM_REMOVED: "removed a team",
    audit.JOINED_TEAM: "took into a team",
    audit.LEFT_TEAM: "took out of a team",
    audit.TOKEN_MADE: "made a token",
    audit.TOKEN_REVOKED: "revoked a token",
}


def _details(row: AuditEntry) -> str:
    data: Mapping[str, Any] = row.data
    if row.kind == audit.ROLE_CHANGED:
        return f"{data.get('before')} → {data.get('after')}"
    if row.kind == audit.TEAM_RENAMED:
        return f"{data.get('before')} → {data.get('team')}"
    shown = (data.get(key, "") for key in ("by", "name", "role", "team", "token", "scope"))
    return " · ".join(str(value) for value in shown if value)


@requires(Right.READ)
@require_http_methods(["GET", "HEAD", "POST"])
def account(request: PageRequest) -> HttpResponse:
    """One's own account: time zone, role, teams, and the way to all that is about people."""
    profile, _ = Profile.objects.get_or_create(
        person=request.user, defaults={"role": people.role_of(request.user)}
    )
    form = ProfileForm(request.POST if request.method == "POST" else None, instance=profile)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, "Kept.")
        return redirect("triage:account")
    context = {
        "section": "people",
        "form": form,
        "role": people.role_of(request.user),
        "teams": Team.objects.filter(members=request.user),
        "is_admin": people.may(request.user, Right.ADMINISTER),
    }
    return render(request, "triage/account.html", context)


@sensitive_post_parameters()
@requires(Right.READ)
@require_http_methods(["GET", "HEAD", "POST"])
def password(request: PageRequest) -> HttpResponse:
    """Another password; the first one for somebody whom a link let in."""
    kind = PasswordChangeForm if request.user.has_usable_password() else SetPasswordForm
    form = kind(request.user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        form.save()
        # Other sessions end with the old password, this one goes on.
        update_session_auth_hash(request, request.user)
        audit.write(audit.PASSWORD_CHANGED, who=request.user, request=request)
        messages.success(request, "The new password counts from now on.")
        return redirect("triage:account")
    return render(request, "triage/password.html", {"section": "people", "form": form})
