"""Version 1 of the API: one short function an endpoint."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI, Query
from ninja.openapi.views import openapi_view
from ninja.responses import Status
from pydantic import Field

from triage.api import answers, incident_work, reports, schemas
from triage.api import time as time_endpoints
from triage.api.access import token_of, visible, visible_incidents
from triage.api.auth import AsyncTokenAuth, TokenAuth
from triage.api.bodies import openapi_body, read_body
from triage.api.problems import Problem, handle_problems
from triage.models import ApiToken, Incident, Reproduction, Submission
from triage.services import incidents, intake, reproductions, texts, tokens
from triage.services.people import Right

_DESCRIPTION = """
Send the log of a failed or hung PyTorch run, read what went wrong.

Every request carries `Authorization: Bearer TOKEN`; `manage.py token NAME --scope SCOPE` makes a
token. Scopes, each with all that the former may do: **submit** sends texts and reads the incidents
that this token sent texts to; **read** reads everything; **write** changes and destroys; **admin**
lists and revokes tokens. Errors are RFC 9457 problem documents with a `hint`.
"""
# Longer waits meet the timeouts of proxies.
_LONGEST_WAIT_S = 30.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
#: Keys of the list's filter, and what they compare.
_FILTERS = {
    "state": "state",
    "verdict": "verdict",
    "job_id": "job_id",
    "status": "status",
    "severity": "severity",
    "owner": "owner__username",
    "team": "team__slug",
}

api = NinjaAPI(
    title="Pitstop",
    version="1.0.0",
    description=_DESCRIPTION,
    docs_url=None,
    openapi_url="/openapi.json",
    urls_namespace="api",
)
handle_problems(api)
api.add_router("", incident_work.router)
api.add_router("", time_endpoints.router)
api.add_router("", reports.router)


def docs(request: HttpRequest) -> HttpResponse:
    """The page that describes the API, with Swagger UI from this site's own static files."""
    return openapi_view(request, api)


@api.post(
    "/incidents",
    auth=TokenAuth("submit"),
    response={202: schemas.ReceivedOut},
    openapi_extra=openapi_body(),
    summary="Send texts",
)
def send_texts(request: HttpRequest) -> Status[dict[str, Any]]:
    """Takes one text or several and answers at once; the diagnosis follows.

    Texts of the same `job.id` and `job.attempt` join one incident. The same text sent twice is one.
    Secrets are replaced before anything is stored.
    """
    return Status(202, _receive(request))


@api.post(
    "/incidents/{reference}/texts",
    auth=TokenAuth("submit"),
    response={202: schemas.ReceivedOut},
    openapi_extra=openapi_body(),
    summary="Add texts to an incident",
)
def add_texts(request: HttpRequest, reference: str) -> Status[dict[str, Any]]:
    """Adds what was asked for, such as the output of the commands in `next`."""
    return Status(202, _receive(request, incident=visible(request, reference)))


@api.get(
    "/incidents",
    auth=TokenAuth("read"),
    response=schemas.IncidentListOut,
    summary="List incidents",
)
def list_incidents(request: HttpRequest, wanted: Query[schemas.IncidentFilter]) -> dict[str, Any]:
    """Newest first, without those that were merged. `cursor` is the `next` of the page before."""
    found = visible_incidents(token_of(request)).filter(merged_into=None)
    found = found.newest_first().with_answer()
    if wanted.slug:
        found = found.caused_by(wanted.slug)
    for key, column in _FILTERS.items():
        if value := getattr(wanted, key):
            found = found.filter(**{column: value})
    if wanted.cursor:
        before = Incident.number_of(wanted.cursor)
        if before is None:
            raise Problem(422, "invalid-request", "The cursor is not one that a page gave.")
        found = found.filter(pk__lt=before)
    page = list(found[: wanted.limit + 1])
    more = len(page) > wanted.limit
    page = page[: wanted.limit]
    return {
        "incidents": [answers.row(request, incident) for incident in page],
        "next": page[-1].reference if more else None,
    }


@api.get(
    "/incidents/{reference}",
    auth=AsyncTokenAuth("submit", Right.READ),
    response=schemas.IncidentOut,
    summary="Read an incident",
)
async def read_incident(
    request: HttpRequest,
    reference: str,
    wait: Annotated[
        float, Field(ge=0, description="Seconds to wait for a diagnosis, up to 30.")
    ] = 0,
) -> dict[str, Any]:
    """The incident with its answer. With `wait` the reply is held until it is diagnosed."""
    incident = await sync_to_async(visible)(request, reference)
    until = time.monotonic() + min(wait, _LONGEST_WAIT_S)
    pause_s = _FIRST_PAUSE_S
    while not incident.is_settled and time.monotonic() < until:
        await asyncio.sleep(min(pause_s, max(until - time.monotonic(), 0)))
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
        incident.state = await Incident.objects.values_list("state", flat=True).aget(pk=incident.pk)
    return await sync_to_async(lambda: answers.whole(request, visible(request, reference)))()


@api.patch(
    "/incidents/{reference}",
    auth=TokenAuth("write"),
    response=schemas.IncidentOut,
    summary="Change an incident",
)
def change_incident(
    request: HttpRequest, reference: str, wanted: incident_work.ChangeIn
) -> dict[str, Any]:
    """Status, owner, team, sharing, severity and job facts, in one step and one log book row."""
    return incident_work.change(request, reference, wanted)


@api.get(
    "/incidents/{reference}/texts/{position}/lines",
    auth=TokenAuth("submit", Right.READ),
    response=schemas.LinesOut,
    summary="Read lines of a text",
)
def read_lines(
    request: HttpRequest,
    reference: str,
    position: int,
    first: Annotated[int, Query(ge=1)] = 1,
    count: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> dict[str, Any]:
    """Lines of a stored text from `first` on, secrets replaced."""
    submission = _text(visible(request, reference), position)
    try:
        lines = texts.read_lines(submission, first, count)
    except FileNotFoundError:
        raise Problem(410, "text-gone", "This text is no longer kept.") from None
    return {
        "lines": [{"line": x.number, "text": x.text, "is_cut": x.is_cut} for x in lines],
        "line_count": submission.line_count,
    }


@api.get(
    "/incidents/{reference}/log-book",
    auth=TokenAuth("read"),
    response=list[schemas.LogBookEntryOut],
    summary="Read the log book",
)
def read_log_book(request: HttpRequest, reference: str) -> list[dict[str, Any]]:
    """What was done about the incident, oldest first."""
    entries = visible(request, reference).log_book.select_related("who")
    return [
        {
            "id": entry.pk,
            "kind": entry.kind,
            "who": entry.who.get_username() if entry.who else "",
            "at": entry.at,
            "data": entry.data,
        }
        for entry in entries
    ]


@api.post(
    "/incidents/{reference}/reproductions",
    auth=TokenAuth("write"),
    response={202: schemas.ReproductionOut},
    summary="Reproduce the failure",
)
def ask_reproduction(
    request: HttpRequest, reference: str, wanted: schemas.ReproductionIn
) -> Status[dict[str, Any]]:
    """Runs the catalog's own script for this incident's pitfall, in a sandbox on a worker.

    Without a worker that can do it, it waits. The same request twice is one run.
    """
    token = token_of(request)
    row = reproductions.ask(
        visible(request, reference),
        wanted.slug,
        fixed=wanted.fixed,
        options=wanted.options,
        who=token.owner,
        token=token,
    )
    return Status(202, answers.reproduction(row))


@api.get(
    "/incidents/{reference}/reproductions",
    auth=TokenAuth("read"),
    response=list[schemas.ReproductionOut],
    summary="List reproductions",
)
def list_reproductions(request: HttpRequest, reference: str) -> list[dict[str, Any]]:
    """The incident's newest runs, at most 50, without their output."""
    rows = visible(request, reference).reproductions.defer("output")[:50]
    return [answers.reproduction(row, with_output=False) for row in rows]


@api.get(
    "/incidents/{reference}/reproductions/{number}",
    auth=TokenAuth("read"),
    response=schemas.ReproductionOut,
    summary="Read a reproduction",
)
def read_reproduction(request: HttpRequest, reference: str, number: int) -> dict[str, Any]:
    """How a run stands, with what it printed so far."""
    return answers.reproduction(_run(request, reference, number))


@api.delete(
    "/incidents/{reference}/reproductions/{number}",
    auth=TokenAuth("write"),
    response={202: schemas.ReproductionOut},
    summary="Cancel a reproduction",
)
def cancel_reproduction(
    request: HttpRequest, reference: str, number: int
) -> Status[dict[str, Any]]:
    """Cancels a run that waits or is at work; one at work ends within seconds."""
    row = reproductions.cancel(_run(request, reference, number), token_of(request).owner)
    return Status(202, answers.reproduction(row))


@api.delete(
    "/incidents/{reference}/texts",
    auth=TokenAuth("write"),
    response=schemas.DestroyedOut,
    summary="Destroy the texts of an incident",
)
def destroy_texts(request: HttpRequest, reference: str) -> dict[str, int]:
    """Destroys all its texts and whatever quotes them, for a wrong paste or a secret."""
    incident = visible(request, reference)
    return {"destroyed": incidents.destroy_texts(incident, token_of(request).owner)}


@api.delete(
    "/incidents/{reference}/texts/{position}",
    auth=TokenAuth("write"),
    response=schemas.DestroyedOut,
    summary="Destroy one text",
)
def destroy_text(request: HttpRequest, reference: str, position: int) -> dict[str, int]:
    """Destroys this text; the incident is diagnosed again from what is left."""
    incident = visible(request, reference)
    _text(incident, position)
    who = token_of(request).owner
    return {"destroyed": incidents.destroy_texts(incident, who, positions=[position])}


@api.get(
    "/tokens", auth=TokenAuth("admin"), response=list[schemas.TokenOut], summary="List API tokens"
)
def list_tokens(request: HttpRequest) -> list[dict[str, Any]]:
    """All tokens, without their keys, which are not kept."""
    return [
        answers.token(token) for token in ApiToken.objects.select_related("owner").order_by("pk")
    ]


@api.delete(
    "/tokens/{token_id}", auth=TokenAuth("admin"), response={204: None}, summary="Revoke a token"
)
def revoke_token(request: HttpRequest, token_id: int) -> Status[None]:
    """Ends the token's life now."""
    token = ApiToken.objects.filter(pk=token_id).first()
    if token is None:
        raise Problem(404, "not-found", "There is no such token.")
    tokens.revoke(token)
    return Status(204, None)


def _receive(request: HttpRequest, incident: Incident | None = None) -> dict[str, Any]:
    sent = read_body(request)
    token = token_of(request)
    received = intake.receive(
        sent.texts, who=token.owner, job=sent.job, token=token, incident=incident, title=sent.title
    )
    return answers.received(request, received)


def _run(request: HttpRequest, reference: str, number: int) -> Reproduction:
    incident = visible(request, reference)
    row = incident.reproductions.filter(pk=number).first()
    if row is None:
        raise Problem(404, "not-found", f"{incident.reference} has no reproduction {number}.")
    return row


def _text(incident: Incident, position: int) -> Submission:
    text = incident.submissions.defer("evidence").filter(position=position).first()
    if text is None:
        raise Problem(404, "not-found", f"{incident.reference} has no text T{position}.")
    return text
