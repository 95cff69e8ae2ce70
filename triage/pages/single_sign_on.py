"""Accounts of those who come in by OpenID Connect; loaded where it is configured alone."""

from __future__ import annotations

from typing import Any

from allauth.account.utils import user_email, user_username
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest

from triage.models import Profile
from triage.pages.errors import error_page
from triage.services import audit


class Adapter(DefaultSocialAccountAdapter):
    """Makes the account of somebody whom the provider vouches for, with the role of newcomers.

    It is never joined to an account that is there already under the same name or mail: whoever
    may choose those at the provider would become that person.
    """

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Whoever the provider lets in has an account here."""
        return True

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: Any) -> User:
        """The account as the provider's claims have it; a taken name gets a number."""
        user: User = super().populate_user(request, sociallogin, data)
        claims = sociallogin.account.extra_data.get("userinfo") or {}
        name = claims.get("preferred_username") or user_email(user).partition("@")[0] or "person"
        user_username(user, self._free_name(str(name)))
        return user

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        """The stored account, its role and the row that tells of it."""
        with transaction.atomic():
            user: User = super().save_user(request, sociallogin, form)
            role = Profile.Role(settings.PITSTOP_OIDC_ROLE)
            Profile.objects.create(person=user, role=role)
            audit.write(
                audit.PERSON_ADDED,
                about=user,
                data={"role": role, "by": settings.PITSTOP_OIDC_NAME},
            )
        return user

    def on_authentication_error(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """A page of this site instead of the library's."""
        raise ImmediateHttpResponse(
            error_page(
                request,
                403,
                "The sign-in did not come through",
                f"{settings.PITSTOP_OIDC_NAME} did not say who you are, or you cancelled it.",
                "Try again from the sign-in page, or use a sign-in link of this site's admin.",
            )
        )

    @staticmethod
    def _free_name(wanted: str) -> str:
        kept = "".join(c for c in wanted if c.isalnum() or c in "@.+-_")[:140] or "person"
        names = (kept if number == 1 else f"{kept}{number}" for number in range(1, 1_000))
        return next(n for n in names if not User.objects.filter(username__iexact=n).exists())
