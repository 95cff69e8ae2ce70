"""What a token may see: the token of a request, and the incidents it opens."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db.models import Q
from django.http import HttpRequest
from ninja.errors import AuthenticationError

from triage.api.problems import Problem
from triage.models import ApiToken, Incident
from triage.querysets import IncidentQuerySet
from triage.services import people, tokens


def token_of(request: HttpRequest) -> ApiToken:
    """The token that TokenAuth let pass."""
    token = getattr(request, "auth", None)
    if not isinstance(token, ApiToken):
        raise AuthenticationError
    return token


def person_of(request: HttpRequest) -> User:
    """The owner of the token. Raises Problem (422) where it is nobody's."""
    owner = token_of(request).owner
    if owner is None:
        raise Problem(
            422,
            "token-without-owner",
            "This request speaks for a person, and the token is nobody's.",
            hint="Use a token with an owner.",
        )
    return owner


def visible_incidents(token: ApiToken) -> IncidentQuerySet:
    """What a token of scope `read` sees: what its owner sees; all, where it is nobody's."""
    return people.visible_incidents(token.owner) if token.owner else Incident.objects.all()


def visible(request: HttpRequest, reference: str) -> Incident:
    """The incident, its answer loaded, if this token may read it.

    Raises Problem (404) otherwise: one that it may not read is as good as none.
    """
    token = token_of(request)
    number = Incident.number_of(reference)
    found = None
    if number is not None:
        # A merged incident is read by whoever sent it, though its texts are elsewhere now.
        sent_to = Q(submissions__token=token) | Q(merged_into__submissions__token=token)
        sent = Incident.objects.filter(sent_to, pk=number).exists()
        seen = Incident.objects.all() if sent else visible_incidents(token)
        if sent or tokens.may(token, "read"):
            found = seen.with_answer().filter(pk=number).first()
    if found is None:
        raise Problem(
            404, "not-found", f"There is no incident {reference} that this token may read."
        )
    return found
