"""One-time sign-in links, as `manage.py up` prints them.

A link is signed, not stored: its signature covers the account's password and last sign-in, so
whoever reads the database learns nothing, and the first use, a later sign-in or a new password
makes it worthless. It expires after settings.PASSWORD_RESET_TIMEOUT seconds.
"""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.utils import timezone


class _LinkTokens(PasswordResetTokenGenerator):
    key_salt = "triage.services.sign_in"

    def _make_hash_value(self, user: AbstractBaseUser, timestamp: int) -> str:
        # Microseconds, unlike the parent: two sign-ins in one second are two.
        last = user.last_login.isoformat() if user.last_login else ""
        return f"{user.pk}{user.password}{last}{timestamp}{user.is_active}"


_tokens = _LinkTokens()


def make_token(user: User) -> str:
    """The last part of a link /login/once/<token> that signs this person in once."""
    return f"{user.pk}-{_tokens.make_token(user)}"


def redeem_token(token: str) -> User | None:
    """The person whose link this is, or None: malformed, used, expired, or the account is off.

    The link is spent then, even for a second request at the same moment.
    """
    pk, _, signature = token.partition("-")
    if not (pk.isascii() and pk.isdigit()) or len(pk) > 18:
        return None
    people = get_user_model().objects
    user = people.filter(pk=int(pk), is_active=True).first()
    if user is None or not _tokens.check_token(user, signature):
        return None
    spent = people.filter(pk=user.pk, last_login=user.last_login).update(last_login=timezone.now())
    return user if spent else None
