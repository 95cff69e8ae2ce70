"""Errors as RFC 9457 problem documents, each with a hint what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation, TooManyFilesSent
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from triage.services.intake import IntakeError
from triage.services.reproductions import RefusedError
from triage.services.response import ChangeError, ConflictError

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"


class Problem(Exception):  # noqa: N818 (RFC 9457 calls it a problem)
    """An answer that is an error: status, short code, a sentence, and what to do."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.hint = hint
        self.headers = dict(headers or {})
        self.more = more


def respond(request: HttpRequest, problem: Problem) -> HttpResponse:
    """The problem as its document."""
    document: dict[str, Any] = {
        "type": f"urn:pitstop:problem:{problem.code}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "instance": request.path,
        "code": problem.code,
    }
    if problem.hint:
        document["hint"] = problem.hint
    document.update(problem.more)
    return JsonResponse(
        document, status=problem.status, content_type=CONTENT_TYPE, headers=problem.headers
    )


def of_intake(error: IntakeError) -> Problem:
    """What intake refused, as a problem."""
    more: dict[str, Any] = {"text": error.name} if error.name else {}
    return Problem(error.status, error.code, error.problem, hint=error.hint, **more)


def _of_validation(error: ValidationError) -> Problem:
    faults = [
        {"where": ".".join(str(part) for part in fault["loc"]), "problem": fault["msg"]}
        for fault in error.errors
    ]
    first = f"{faults[0]['where']}: {faults[0]['problem']}" if faults else "It is not valid."
    return Problem(422, "invalid-request", first, hint="See /api/docs.", errors=faults)


def handle_problems(api: NinjaAPI) -> None:
    """Makes every error of this API a problem document."""

    @api.exception_handler(Problem)
    def _(request: HttpRequest, error: Problem) -> HttpResponse:
        return respond(request, error)

    @api.exception_handler(IntakeError)
    def _(request: HttpRequest, error: IntakeError) -> HttpResponse:
        return respond(request, of_intake(error))

    @api.exception_handler(RefusedError)
    def _(request: HttpRequest, error: RefusedError) -> HttpResponse:
        headers = {"Retry-After": "60"} if error.status == HTTPStatus.TOO_MANY_REQUESTS else {}
        problem = Problem(error.status, error.code, error.problem, hint=error.hint, headers=headers)
        return respond(request, problem)

    @api.exception_handler(ChangeError)
    def _(request: HttpRequest, error: ChangeError) -> HttpResponse:
        more: dict[str, Any] = {}
        if isinstance(error, ConflictError):
            more["changed"] = [
                {"field": item.field, "value": item.value, "who": item.who}
                for item in error.changed
            ]
        problem = Problem(error.status, error.code, error.problem, hint=error.hint, **more)
        return respond(request, problem)

    @api.exception_handler(ValidationError)
    def _(request: HttpRequest, error: ValidationError) -> HttpResponse:
        return respond(request, _of_validation(error))

    @api.exception_handler(AuthenticationError)
    def _(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
        problem = Problem(
            401,
            "no-token",
            "The request carries no valid API token.",
            hint="Send `Authorization: Bearer TOKEN`; `manage.py token NAME` makes one.",
            headers={"WWW-Authenticate": 'Bearer realm="pitstop"'},
        )
        return respond(request, problem)

    @api.exception_handler(Http404)
    def _(request: HttpRequest, error: Http404) -> HttpResponse:
        return respond(request, Problem(404, "not-found", "There is nothing at this address."))

    @api.exception_handler(HttpError)
    def _(request: HttpRequest, error: HttpError) -> HttpResponse:
        return respond(request, Problem(error.status_code, "refused", error.message))

    @api.exception_handler(RequestDataTooBig)
    @api.exception_handler(TooManyFilesSent)
    def _(request: HttpRequest, error: Exception) -> HttpResponse:
        problem = Problem(
            413,
            "too-large",
            "The request is larger than a form or a JSON document may be.",
            hint="Send each log as a file (multipart) or as the raw body (text/plain).",
        )
        return respond(request, problem)

    @api.exception_handler(MultiPartParserError)
    @api.exception_handler(UnreadablePostError)
    @api.exception_handler(SuspiciousOperation)
    def _(request: HttpRequest, error: Exception) -> HttpResponse:
        problem = Problem(400, "unreadable-body", "The request's body cannot be read.")
        return respond(request, problem)

    @api.exception_handler(Exception)
    def _(request: HttpRequest, error: Exception) -> HttpResponse:
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        problem = Problem(500, "internal-error", "This is a fault of Pitstop; it is in its log.")
        return respond(request, problem)
