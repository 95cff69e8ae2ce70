"""Who asks: `Authorization: Bearer TOKEN`, and whether the token's scope suffices."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from ninja.security import HttpBearer

from triage.api.problems import Problem
from triage.models import ApiToken
from triage.services import tokens
from triage.services.people import Right


class TokenAuth(HttpBearer):
    """Lets tokens of at least this scope pass whose owner has the right that goes with it.

    The token is then `request.auth`. `right` is for what needs less than others of its scope.
    """

    # One name in the OpenAPI document for all scopes.
    openapi_name = "token"

    def __init__(self, scope: str, right: Right | None = None) -> None:
        super().__init__()
        self.scope = scope
        self.right = tokens.RIGHTS[scope] if right is None else right

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        """The token's row; None (401) if there is none. Raises Problem (403) for its scope or its
        owner's role."""
        found = tokens.find_token(token)
        if found is not None and not tokens.may(found, self.scope):
            raise Problem(
                403,
                "scope-too-small",
                f"This token has the scope {found.scope}.",
                hint=f"The request needs {self.scope}: "
                f"`manage.py token NAME --scope {self.scope}` makes such a token.",
            )
        if found is not None and not tokens.owner_may(found, self.right):
            raise Problem(
                403,
                "owner-may-not",
                "The role of this token's owner does not go as far as its scope.",
                hint="Ask the admin of this site for the role, or use another token.",
            )
        return found


class AsyncTokenAuth(TokenAuth):
    """The same for endpoints that wait: the look-up must not run on the event loop."""

    async def authenticate(  # type: ignore[override]  # ninja awaits what is a coroutine
        self, request: HttpRequest, token: str
    ) -> ApiToken | None:
        """TokenAuth's answer."""
        return await sync_to_async(super().authenticate)(request, token)
