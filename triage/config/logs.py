"""Structured logs: one JSON object a line, requests with incident and duration, no secrets."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

_REQUESTS = logging.getLogger("pitstop.request")
_INCIDENT = re.compile(r"\bINC-\d+\b")
# Probes come every few seconds and say nothing while they answer 200.
_QUIET_PATHS = frozenset({"/healthz", "/readyz"})

_SECRETS = (
    # Authorization: Bearer TOKEN, and the same in a printed dictionary of headers
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 [secret]"),
    # postgres://user:password@host, redis://:password@host
    (re.compile(r"(://[^\s/:@]*):[^\s/@]+@"), r"\1:[secret]@"),
    # the one-time sign-in link
    (re.compile(r"(/login/once/)[^\s\"'?#/]+"), r"\1[secret]"),
    # password=…, "token": "…", secret_key: …
    (
        re.compile(
            r"(?i)\b(password|passwd|secret|secret_key|token|api_key|sessionid|csrftoken)"
            r"([\"']?\s*[=:]\s*[\"']?)[^\s\"',;&}]{4,}"
        ),
        r"\1\2[secret]",
    ),
)


def without_secrets(text: str) -> str:
    """The text with credentials replaced by `[secret]`."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class WithoutSecrets(logging.Filter):
    """Replaces credentials in the message, its arguments included, before a handler sees it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true: lines are mended, never dropped."""
        record.msg = without_secrets(record.getMessage())
        record.args = None
        return True


class JsonLines(JsonFormatter):
    """One JSON object a line: time, level, logger, message, and what the caller gave as extra."""

    def __init__(self) -> None:
        super().__init__(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
            json_ensure_ascii=False,
            reserved_attrs=[*RESERVED_ATTRS, "color_message", "data"],
        )

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def converter(self, timestamp: float | None) -> time.struct_time:
        """UTC, as everywhere."""
        return time.gmtime(timestamp)

    def formatException(self, ei: object) -> str:  # noqa: N802 (logging's own name)
        """The traceback without credentials: exceptions quote addresses and headers."""
        return without_secrets(super().formatException(ei))  # type: ignore[arg-type]


class RequestLogMiddleware:
    """One line a request: method, path, status, milliseconds, user and incident."""

    sync_capable = True
    async_capable = True

    def __init__(
        self,
        get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]],
    ) -> None:
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """The response, logged when it is ready."""
        if self._is_async:
            return self._answer_async(request)
        started = time.perf_counter()
        response = self._get_response(request)
        assert isinstance(response, HttpResponseBase)
        _log(request, response, started)
        return response

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        response = self._get_response(request)
        assert isinstance(response, Awaitable)
        answer = await response
        _log(request, answer, started)
        return answer


def _log(request: HttpRequest, response: HttpResponseBase, started: float) -> None:
    if request.path in _QUIET_PATHS and response.status_code < 400:
        return
    fields: dict[str, object] = {
        "method": request.method,
        "path": without_secrets(request.path),
        "status": response.status_code,
        "ms": round((time.perf_counter() - started) * 1_000, 1),
    }
    user = request.__dict__.get("user")
    # The lazy user is not asked: a log line must not cost a query.
    if user is not None and hasattr(request, "_cached_user"):
        fields["user"] = user.pk
    incident = _INCIDENT.search(request.path)
    if incident:
        fields["incident"] = incident.group()
    level = logging.ERROR if response.status_code >= 500 else logging.INFO
    _REQUESTS.log(level, "%s %s", request.method, request.path, extra=fields)
