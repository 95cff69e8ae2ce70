"""Pages about people, teams, tokens and the audit: who may, what happens, what is written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import make_incident, make_user
from triage.models import ApiToken, AuditEntry, Membership, Profile, Team
from triage.services import people, tokens

pytestmark = pytest.mark.django_db


@pytest.fixture
def signed_in() -> Callable[..., Client]:
    """A client of somebody with this role."""

    def sign_in(role: str, username: str = "") -> Client:
        person = make_user(username=username or role)
        Profile.objects.create(person=person, role=role)
        client = Client()
        client.force_login(person)
        return client

    return sign_in


def kinds() -> list[str]:
    """What the audit tells, oldest first, without the sign-ins."""
    rows = AuditEntry.objects.order_by("pk").values_list("kind", flat=True)
    return [kind for kind in rows if kind != "signed_in"]


def test_an_admin_adds_somebody_who_comes_in_by_the_link(signed_in: Callable[..., Client]) -> None:
    admin = signed_in("admin")
    page = admin.post("/people/", {"username": "noor", "email": "", "role": "curator"})
    assert page.status_code == 200
    link = page.context["link"]
    assert link in page.content.decode()
    newcomer = Client()
    assert newcomer.get(link.removeprefix("http://testserver")).url == "/"
    assert newcomer.get("/me/").status_code == 200
    assert people.role_of(User.objects.get(username="noor")) == "curator"
    entry = AuditEntry.objects.get(kind="person_added")
    assert entry.data == {"who": "admin", "about": "noor", "role": "curator"}
    again = admin.post("/people/", {"username": "Noor", "email": "", "role": "viewer"})
    assert "There is somebody named Noor already." in again.content.decode()
    # The first password needs no old one.
    form = {"new_password1": "a long one 7", "new_password2": "a long one 7"}
    assert newcomer.post("/me/password/", form).url == "/me/"
    assert newcomer.get("/me/").status_code == 200
    form = {"username": "noor", "password": "a long one 7"}
    assert Client().post("/login/", form).url == "/"


@pytest.mark.parametrize("role", ["viewer", "responder", "curator"])
def test_nobody_but_an_admin_looks_after_people(
    signed_in: Callable[..., Client], role: str
) -> None:
    client = signed_in(role)
    team = Team.objects.create(name="vision", slug="vision")
    person = make_user(username="mo")
    for address in ("/people/", "/audit/"):
        page = client.get(address)
        assert page.status_code == 403
        assert "needs more rights" in page.content.decode()
    for address, fields in (
        ("/people/", {"username": "x", "role": "admin"}),
        (f"/people/{person.pk}/", {"role": "admin"}),
        (f"/people/{person.pk}/link", {}),
        ("/teams/", {"name": "speech"}),
        (f"/teams/{team.slug}/change", {"deed": "join", "person": role}),
    ):
        assert client.post(address, fields).status_code == 403, address
    assert people.role_of(User.objects.get(username="mo")) == "responder"
    assert Team.objects.count() == 1
    assert not Membership.objects.exists()
    assert client.get("/teams/").status_code == 200
    assert client.get("/teams/vision/").status_code == 200


def test_a_stranger_is_led_to_the_sign_in_page(client: Client) -> None:
    for address in ("/people/", "/teams/", "/tokens/", "/audit/", "/me/", "/me/password/"):
        assert client.get(address).url == f"/login/?next={address}"


def test_roles_change_and_the_last_admin_stays(signed_in: Callable[..., Client]) -> None:
    admin = signed_in("admin")
    chief = User.objects.get(username="admin")
    mo = make_user(username="mo")
    admin.post(f"/people/{mo.pk}/", {"role": "admin"})
    mo.refresh_from_db()
    assert people.role_of(mo) == "admin"
    admin.post(f"/people/{mo.pk}/", {"role": "viewer"})
    mo = User.objects.select_related("profile").get(username="mo")
    assert people.role_of(mo) == "viewer"
    assert not mo.is_superuser
    assert kinds() == ["role_changed", "role_changed"]
    for fields in ({"role": "viewer"}, {"is_active": "no"}):
        page = admin.post(f"/people/{chief.pk}/", fields, follow=True)
        assert "admin is the only admin." in page.content.decode()
    assert kinds() == ["role_changed", "role_changed"]
    assert (
        "Choose one of the roles."
        in admin.post(f"/people/{mo.pk}/", {"role": "emperor"}, follow=True).content.decode()
    )


def test_who_is_shut_out_is_out_at_once_and_their_tokens_rest(
    signed_in: Callable[..., Client],
) -> None:
    admin, theirs = signed_in("admin"), signed_in("responder", "mo")
    mo = User.objects.get(username="mo")
    _, key = tokens.make_token("job", "submit", owner=mo)
    admin.post(f"/people/{mo.pk}/", {"is_active": "no"})
    assert theirs.get("/me/").status_code == 302
    assert tokens.find_token(key) is None
    admin.post(f"/people/{mo.pk}/", {"is_active": "yes"})
    assert tokens.find_token(key) is not None
    assert kinds()[-2:] == ["person_shut_out", "person_let_in"]


def test_teams_are_made_filled_renamed_and_removed(signed_in: Callable[..., Client]) -> None:
    admin = signed_in("admin")
    make_user(username="mo")
    assert "No team yet." in admin.get("/teams/").content.decode()
    assert admin.post("/teams/", {"name": "Vision & Co"}).url == "/teams/vision-co/"
    assert "already" in admin.post("/teams/", {"name": "vision & co"}).content.decode()
    assert "needs a letter" in admin.post("/teams/", {"name": "…"}).content.decode()
    admin.post("/teams/vision-co/change", {"deed": "join", "person": "mo"})
    assert Membership.objects.get().person.username == "mo"
    assert (
        admin.post("/teams/vision-co/change", {"deed": "join", "person": "mo"}).status_code == 200
    )
    admin.post("/teams/vision-co/change", {"deed": "rename", "name": "Speech"})
    team = Team.objects.get(name="Speech")
    make_incident(team=team)
    kept = admin.post(f"/teams/{team.slug}/change", {"deed": "remove"}, follow=True)
    assert "1 incident is this team&#x27;s." in kept.content.decode()
    assert Team.objects.filter(pk=team.pk).exists()
    team.incidents.update(team=None)
    admin.post(f"/teams/{team.slug}/change", {"deed": "leave", "person": "mo"})
    admin.post(f"/teams/{team.slug}/change", {"deed": "remove"})
    assert not Team.objects.exists()
    assert kinds() == ["team_made", "joined_team", "team_renamed", "left_team", "team_removed"]


def test_a_key_is_shown_once_and_is_its_owners_to_end(signed_in: Callable[..., Client]) -> None:
    mine, others = signed_in("responder"), signed_in("curator")
    page = mine.post("/tokens/", {"name": "epilog", "scope": "write", "days": "30"})
    key = page.context["key"]
    assert key in page.content.decode()
    assert key not in mine.get("/tokens/").content.decode()
    token = tokens.find_token(key)
    assert token is not None
    assert token.owner is not None
    assert token.owner.username == "responder"
    assert token.expires_at is not None
    assert "epilog" not in others.get("/tokens/").content.decode()
    assert others.post(f"/tokens/{token.pk}/revoke").status_code == 404
    mine.post(f"/tokens/{token.pk}/revoke")
    mine.post(f"/tokens/{token.pk}/revoke")
    assert tokens.find_token(key) is None
    assert kinds() == ["token_made", "token_revoked"]


@pytest.mark.parametrize(
    ("role", "scopes"),
    [
        ("viewer", ["read"]),
        ("responder", ["submit", "read", "write"]),
        ("admin", ["submit", "read", "write", "admin"]),
    ],
)
def test_nobody_makes_a_token_that_may_more_than_they(
    signed_in: Callable[..., Client], role: str, scopes: list[str]
) -> None:
    client = signed_in(role)
    form = client.get("/tokens/").context["form"]
    assert [name for name, _ in form.fields["scope"].choices] == scopes
    client.post("/tokens/", {"name": "x", "scope": "admin", "days": "0"})
    assert ApiToken.objects.count() == (role == "admin")


def test_a_token_falls_with_its_owners_role(signed_in: Callable[..., Client]) -> None:
    signed_in("responder", "mo")
    mo = User.objects.get(username="mo")
    _, key = tokens.make_token("job", "write", owner=mo)
    incident = make_incident()
    client = Client(headers={"Authorization": f"Bearer {key}"})
    address = f"/api/v1/incidents/{incident.reference}"
    note = {"text": "looked at it"}
    assert client.post(f"{address}/notes", note, "application/json").status_code < 300
    mo.profile.role = "viewer"
    mo.profile.save()
    assert client.post(f"{address}/notes", note, "application/json").status_code == 403
    assert client.get(address).status_code == 200


def test_sign_ins_are_told_with_their_address_and_no_typed_secret(client: Client) -> None:
    make_user(username="mo")
    client.post("/login/", {"username": "mo", "password": "wrong"})
    client.post("/login/", {"username": "hunter2-typed-in-the-wrong-field", "password": "x"})
    client.post("/login/", {"username": "mo", "password": "correct horse"})
    client.post("/logout/")
    rows = list(AuditEntry.objects.order_by("pk"))
    assert [(row.kind, row.data.get("name", "")) for row in rows] == [
        ("sign_in_failed", "mo"), ("sign_in_failed", ""), ("signed_in", ""), ("signed_out", ""),
    ]  # fmt: skip
    assert {row.address for row in rows} == {"127.0.0.1"}
    assert rows[2].data == {"who": "mo", "by": "password"}


def test_the_audit_is_filtered_and_paged(
    signed_in: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    django_assert_num_queries: Any,
) -> None:
    monkeypatch.setattr("triage.pages.people_views.ROWS_A_PAGE", 3)
    admin = signed_in("admin")
    for number in range(5):
        admin.post("/teams/", {"name": f"team {number}"})
    page = admin.get("/audit/?kind=team_made")
    assert [row.data["team"] for row, _, _ in page.context["rows"]] == [
        "team 4",
        "team 3",
        "team 2",
    ]
    older = admin.get(f"/audit/?kind=team_made&before={page.context['older']}")
    assert [row.data["team"] for row, _, _ in older.context["rows"]] == ["team 1", "team 0"]
    assert admin.get("/audit/?kind=<script>&before=x").status_code == 200
    with django_assert_num_queries(4):
        admin.get("/audit/")


def test_the_list_of_people_costs_the_same_for_many(
    signed_in: Callable[..., Client], django_assert_num_queries: Any
) -> None:
    admin = signed_in("admin")
    team = Team.objects.create(name="vision", slug="vision")
    for number in range(12):
        person = make_user(username=f"p{number}")
        Profile.objects.create(person=person, role="viewer")
        Membership.objects.create(team=team, person=person)
    with django_assert_num_queries(5):
        assert admin.get("/people/").status_code == 200


def test_a_time_zone_is_one_of_the_known(signed_in: Callable[..., Client]) -> None:
    client = signed_in("viewer")
    assert "No such zone" in client.post("/me/", {"time_zone": "../../etc/passwd"}).content.decode()
    client.post("/me/", {"time_zone": "Asia/Seoul"})
    profile = Profile.objects.get(person__username="viewer")
    assert (profile.time_zone, profile.role) == ("Asia/Seoul", "viewer")
