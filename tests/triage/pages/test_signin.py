"""Signing in: the one-time link, and the rest after wrong passwords."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone

from triage.services.sign_in import make_token, redeem_token

pytestmark = [pytest.mark.django_db, pytest.mark.services]


@pytest.fixture
def person() -> User:
    return User.objects.create_user("ada", password="correct-horse-battery")


def test_link_signs_in_and_is_spent(client: Client, person: User) -> None:
    link = f"/login/once/{make_token(person)}"
    response = client.get(link)
    assert (response.status_code, response.headers["Location"]) == (302, "/")
    assert client.session["_auth_user_id"] == str(person.pk)
    stranger = Client()
    response = stranger.get(link)
    assert response.headers["Location"] == "/login/"
    assert "used already or has expired" in str(next(iter(get_messages(response.wsgi_request))))
    assert "_auth_user_id" not in stranger.session


def test_who_is_signed_in_already_is_just_led_on(client: Client, person: User) -> None:
    link = f"/login/once/{make_token(person)}"
    client.get(link)
    assert client.get(link).headers["Location"] == "/"


def test_looking_whether_the_link_is_alive_does_not_spend_it(client: Client, person: User) -> None:
    link = f"/login/once/{make_token(person)}"
    assert client.head(link).status_code == 405
    assert client.get(link).headers["Location"] == "/"


def test_link_expires(person: User, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    token = make_token(person)
    later = timezone.now() + timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT + 5)
    monkeypatch.setattr(
        PasswordResetTokenGenerator, "_now", lambda self: later.replace(tzinfo=None)
    )
    assert redeem_token(token) is None


def test_link_dies_with_a_new_password_and_with_the_account(person: User) -> None:
    token = make_token(person)
    person.set_password("another-horse-battery")
    person.save()
    assert redeem_token(token) is None
    token = make_token(person)
    User.objects.filter(pk=person.pk).update(is_active=False)
    assert redeem_token(token) is None


@pytest.mark.parametrize(
    "token", ["", "x", "1", "1-", "-1-a-b", "٣-a-b", "9" * 40 + "-a-b", "1-divrh4-deadbeef", "é-a"]
)
def test_nonsense_is_no_link(person: User, token: str) -> None:
    assert redeem_token(token) is None


def test_link_of_one_is_no_link_of_another(person: User) -> None:
    other = User.objects.create_user("grace")
    _, _, signature = make_token(person).partition("-")
    assert redeem_token(f"{other.pk}-{signature}") is None


def test_ten_wrong_passwords_rest_that_name_only(client: Client, person: User) -> None:
    for _ in range(10):
        response = client.post("/login/", {"username": "ada", "password": "wrong"})
    assert response.status_code == 429
    assert response.headers["Retry-After"] == "300"
    right = {"username": "ada", "password": "correct-horse-battery"}
    assert client.post("/login/", right).status_code == 429
    User.objects.create_user("grace", password="correct-horse-battery")
    assert client.post("/login/", right | {"username": "grace"}).status_code == 302
