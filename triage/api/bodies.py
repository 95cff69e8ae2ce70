"""The three forms in which texts arrive: JSON, multipart, raw body. Large ones stay streams."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpRequest
from ninja.errors import ValidationError
from pydantic import BaseModel
from pydantic import ValidationError as PydanticValidationError

from triage.api.problems import Problem
from triage.api.schemas import IncidentIn, JobIn
from triage.services.intake import JobFacts, NamedStream

_Model = TypeVar("_Model", bound=BaseModel)

_JOB_PARAMETERS = ("id", "attempt", "scheduler", "gpus")
_AS_FILE = "Send it as a file (multipart/form-data) or as the raw body (text/plain)."


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request brings."""

    texts: list[NamedStream]
    job: JobFacts = field(default_factory=JobFacts)
    title: str = ""


def read_body(request: HttpRequest) -> Sent:
    """The texts and facts of this request, whichever of the three forms it has.

    Raises Problem or ninja's ValidationError.
    """
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip"):
        raise Problem(
            415, "unknown-encoding", f"The body is encoded by {encoding}.", hint="Use gzip."
        )
    if request.content_type == "application/json":
        return _from_json(request, is_gzip=encoding == "gzip")
    if request.content_type == "multipart/form-data":
        return _from_form(request)
    if request.content_type == "application/x-www-form-urlencoded":
        raise Problem(
            415,
            "unknown-form",
            "The body is sent as a URL-encoded form, which a log is not.",
            hint="With curl: --data-binary @FILE -H 'Content-Type: text/plain'.",
        )
    return _from_raw(request)


def _from_json(request: HttpRequest, *, is_gzip: bool) -> Sent:
    most_bytes = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    body = request.read(most_bytes + 1)
    if is_gzip:
        body = _gunzip(body, most_bytes)
    if len(body) > most_bytes:
        raise Problem(
            413, "too-large", f"The JSON is larger than {most_bytes} bytes.", hint=_AS_FILE
        )
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "not-json", "The body is not JSON.", hint="See /api/docs.") from None
    sent = _validated(IncidentIn, document, "body")
    texts = [(item.name, item.text) for item in sent.texts]
    if sent.text is not None:
        texts.insert(0, (sent.name, sent.text))
    if not texts:
        raise Problem(422, "empty-text", "There is neither `text` nor `texts`.", hint=_AS_FILE)
    return Sent(
        texts=[_named(name, text) for name, text in texts],
        job=sent.job.facts() if sent.job else JobFacts(),
        title=sent.title,
    )


def _from_form(request: HttpRequest) -> Sent:
    texts = [
        NamedStream(upload.name or "", upload)
        for _, uploads in request.FILES.lists()
        for upload in uploads
        if upload is not None
    ]
    texts += [
        _named(request.POST.get("name", ""), text) for text in request.POST.getlist("text") if text
    ]
    if not texts:
        raise Problem(
            422, "empty-text", "The form has neither a file nor a field `text`.", hint=_AS_FILE
        )
    return Sent(texts, job=_job_of(request.POST.dict()), title=request.POST.get("title", ""))


def _from_raw(request: HttpRequest) -> Sent:
    return Sent(
        [NamedStream(request.GET.get("name", ""), request)],
        job=_job_of(request.GET.dict()),
        title=request.GET.get("title", ""),
    )


def _named(name: str, text: str) -> NamedStream:
    raw = text.encode("utf-8", "replace")
    if len(raw) > settings.PITSTOP_MAX_PASTE_BYTES:
        limit = settings.PITSTOP_MAX_PASTE_BYTES
        raise Problem(
            413, "too-large", f"A text in a field may have {limit} bytes.", hint=_AS_FILE, text=name
        )
    return NamedStream(name, io.BytesIO(raw))


def _job_of(parameters: dict[str, Any]) -> JobFacts:
    """From `job` (JSON) and from job_id, job_attempt, job_scheduler, job_gpus, which win."""
    facts: Any = {}
    if parameters.get("job"):
        try:
            facts = json.loads(parameters["job"])
        except (ValueError, RecursionError):
            raise Problem(400, "not-json", "`job` is not JSON.", hint="See /api/docs.") from None
    if isinstance(facts, dict):
        for key in _JOB_PARAMETERS:
            if parameters.get(f"job_{key}"):
                facts[key] = parameters[f"job_{key}"]
    return _validated(JobIn, facts, "job").facts()


def _validated(model: type[_Model], document: Any, where: str) -> _Model:
    try:
        return model.model_validate(document)
    except PydanticValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        raise ValidationError(
            [{**fault, "loc": (where, *fault["loc"])} for fault in faults]
        ) from None


def _gunzip(body: bytes, most_bytes: int) -> bytes:
    inflate = zlib.decompressobj(31)
    try:
        return inflate.decompress(body, most_bytes + 1)
    except zlib.error:
        raise Problem(400, "unreadable-body", "The body is not gzip.") from None


def openapi_body() -> dict[str, Any]:
    """The request body of an endpoint that takes texts, as OpenAPI describes it."""
    job = {name: {"type": "string"} for name in _names_of_job_parameters()}
    form = {
        "file": {
            "type": "array",
            "items": {"type": "string", "format": "binary"},
            "description": "Log files, any number; plain or gzip.",
        },
        "text": {"type": "string"},
        "name": {"type": "string"},
        "title": {"type": "string"},
        "job": {"type": "string", "description": "The object `job` as JSON."},
        **job,
    }
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _inlined(IncidentIn.model_json_schema())},
                "multipart/form-data": {"schema": {"type": "object", "properties": form}},
                "text/plain": {"schema": {"type": "string"}},
                "application/gzip": binary,
            },
        },
        "parameters": [
            {
                "in": "query",
                "name": name,
                "schema": {"type": "string"},
                "description": "With a raw body only.",
            }
            for name in ("name", "title", *job)
        ],
    }


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its `$defs` in place: a reference would point outside the document."""
    definitions = schema.pop("$defs", {})

    def inline(node: Any) -> Any:
        if isinstance(node, dict):
            if reference := node.get("$ref"):
                return inline(definitions[reference.rsplit("/", 1)[-1]])
            return {key: inline(value) for key, value in node.items()}
        return [inline(value) for value in node] if isinstance(node, list) else node

    result: dict[str, Any] = inline(schema)
    return result


def _names_of_job_parameters() -> Iterator[str]:
    return (f"job_{key}" for key in _JOB_PARAMETERS)
