"""API tokens: made, looked up by their hash, revoked.

Scopes, each with all that the former may do:

- `submit`: send texts, and read the incidents to which this token has sent a text. For schedulers
  and jobs: a key that lies on every compute node opens nobody else's logs.
- `read`: list and read all incidents, their texts and log books.
- `write`: change incidents, destroy texts.
- `admin`: what concerns the site, such as the list of tokens and revoking one.

A token with an owner acts for them: it may no more than they, sees what they see, and rests while
they are shut out.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from triage.models import ApiToken
from triage.services import audit, people
from triage.services.people import Right

SCOPES: tuple[str, ...] = tuple(ApiToken.Scope.values)
#: The right that the owner of a token needs for what asks for this scope.
RIGHTS: dict[str, Right] = {
    ApiToken.Scope.SUBMIT: Right.RESPOND,
    ApiToken.Scope.READ: Right.READ,
    ApiToken.Scope.WRITE: Right.RESPOND,
    ApiToken.Scope.ADMIN: Right.ADMINISTER,
}
#: Says what the key is for to whoever finds it in a log, and to secret scanners.
KEY_PREFIX = "pit_"
_KEY_BYTES = 32
_SHOWN_CHARACTERS = 10
# `last_used_at` answers "is it still in use?"; a write a request would cost more than it tells.
_USE_NOTED_EVERY = timedelta(minutes=1)


def make_token(
    name: str,
    scope: str,
    *,
    owner: User | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiToken, str]:
    """A new token and its key, which is kept nowhere else. Raises ValueError for no such scope."""
    if scope not in SCOPES:
        raise ValueError(f"no such scope: {scope!r}; there are {', '.join(SCOPES)}")
    key = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    with transaction.atomic():
        token = ApiToken.objects.create(
            name=name,
            scope=scope,
            owner=owner,
            expires_at=expires_at,
            key_hash=_hash(key),
            prefix=key[:_SHOWN_CHARACTERS],
        )
        audit.write(audit.TOKEN_MADE, who=owner, data=_named(token))
    return token, key


def find_token(key: str) -> ApiToken | None:
    """The token of this key if it may be used now, its use noted; else None."""
    now = timezone.now()
    # A random key of 256 bits needs no salt and no slow hash: it cannot be guessed from either.
    usable = ApiToken.objects.usable(now).select_related("owner__profile")
    token = usable.filter(key_hash=_hash(key)).first()
    if token is None or (token.owner is not None and not token.owner.is_active):
        return None
    if token.last_used_at is None or now - token.last_used_at > _USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def may(token: ApiToken, scope: str) -> bool:
    """Whether this token's scope includes `scope`; for its owner's role see owner_may."""
    return SCOPES.index(token.scope) >= SCOPES.index(scope)


def owner_may(token: ApiToken, right: Right) -> bool:
    """Whether its owner has this right; a token of nobody is bound by its scope alone."""
    return token.owner is None or people.may(token.owner, right)


def scopes_for(person: User) -> list[str]:
    """The scopes that a token of this person can have, the smallest first."""
    return [scope for scope in SCOPES if people.may(person, RIGHTS[scope])]


def revoke(token: ApiToken, *, by: User | None = None) -> bool:
    """Whether that ended the token's life; it is ended once."""
    with transaction.atomic():
        ended = ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(
            revoked_at=timezone.now()
        )
        if ended:
            audit.write(audit.TOKEN_REVOKED, who=by, about=token.owner, data=_named(token))
    return bool(ended)


def _named(token: ApiToken) -> dict[str, str]:
    return {"token": token.name, "scope": token.scope, "prefix": token.prefix}


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
