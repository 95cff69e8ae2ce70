"""API tokens: a key is shown once, kept as a hash, and ends when it should."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.factories import make_token, make_user
from triage.models import ApiToken
from triage.services import tokens

pytestmark = pytest.mark.django_db


def test_only_the_hash_is_kept() -> None:
    token, key = make_token("read")

    row = ApiToken.objects.values().get(pk=token.pk)
    assert key not in map(str, row.values())
    assert key.startswith(row["prefix"])
    assert len(key) > len(row["prefix"]) + 30
    assert tokens.find_token(key) == token
    assert tokens.find_token(key + "x") is None
    assert tokens.find_token("") is None
    assert tokens.find_token("\udcff") is None


def test_a_token_ends() -> None:
    _, expired_key = make_token(expires_at=timezone.now() - timedelta(seconds=1))
    revoked, revoked_key = make_token()
    ada = make_user()
    _, orphan_key = make_token(owner=ada)

    tokens.revoke(revoked)
    first = ApiToken.objects.get(pk=revoked.pk).revoked_at
    tokens.revoke(revoked)
    ada.is_active = False
    ada.save()

    assert ApiToken.objects.get(pk=revoked.pk).revoked_at == first
    assert [tokens.find_token(key) for key in (expired_key, revoked_key, orphan_key)] == [None] * 3


def test_its_use_is_noted_once_a_minute() -> None:
    token, key = make_token()

    tokens.find_token(key)
    first = ApiToken.objects.get(pk=token.pk).last_used_at
    tokens.find_token(key)

    assert first is not None
    assert ApiToken.objects.get(pk=token.pk).last_used_at == first
    ApiToken.objects.update(last_used_at=first - timedelta(minutes=2))
    tokens.find_token(key)
    assert ApiToken.objects.get(pk=token.pk).last_used_at >= first


def test_scopes_include_each_other() -> None:
    scopes = ("submit", "read", "write", "admin")
    for held, scope in enumerate(scopes):
        token, _ = make_token(scope)
        assert [tokens.may(token, wanted) for wanted in scopes] == [
            number <= held for number in range(4)
        ]
    with pytest.raises(ValueError, match="no such scope: 'root'"):
        make_token("root")


def test_the_command_prints_the_key_alone() -> None:
    out, err = io.StringIO(), io.StringIO()
    ada = make_user(username="ada")

    call_command(
        "token", "slurm-epilog", "--scope", "write", "--owner", "ada", "--days", "7",
        stdout=out, stderr=err,
    )  # fmt: skip

    token = tokens.find_token(out.getvalue().strip())
    assert token is not None
    assert (token.name, token.scope, token.owner) == ("slurm-epilog", "write", ada)
    assert timedelta(days=6) < token.expires_at - timezone.now() <= timedelta(days=7)
    assert out.getvalue().strip() not in err.getvalue()
    call_command("token", "ranks", stdout=out, stderr=err)
    assert ApiToken.objects.get(name="ranks").scope == "submit"


def test_the_command_refuses_what_it_cannot_do() -> None:
    with pytest.raises(CommandError, match="no user 'nobody'"):
        call_command("token", "x", "--owner", "nobody")
    with pytest.raises(CommandError, match="at least 1"):
        call_command("token", "x", "--days", "0")
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("token", "x", "--scope", "root")
    assert not ApiToken.objects.exists()
