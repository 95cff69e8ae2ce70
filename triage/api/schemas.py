"""Bodies of requests and answers."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from triage.services.intake import JobFacts

_MOST_JOB_BYTES = 16 * 1024
_LARGEST_INTEGER = 2**31 - 1


class JobIn(BaseModel):
    """What the scheduler knows of the job. `id` with `attempt` names the incident; further keys
    are kept as they are."""

    model_config = ConfigDict(extra="allow")

    id: str = Field("", max_length=200, description="The scheduler's job id.")
    attempt: int = Field(0, ge=0, le=_LARGEST_INTEGER, description="Which try of the job, from 0.")
    scheduler: str = Field("", max_length=40, description="slurm, kubernetes, torchrun …")
    gpus: int | None = Field(None, ge=0, le=_LARGEST_INTEGER)

    @field_validator("id", mode="before")
    @classmethod
    def _numbers_are_ids_too(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _is_small(self) -> JobIn:
        size_bytes = len(json.dumps(self.model_extra or {}, default=str))
        if size_bytes > _MOST_JOB_BYTES:
            raise ValueError(f"a job's facts may take {_MOST_JOB_BYTES} bytes as JSON")
        return self

    def facts(self) -> JobFacts:
        """The same for the services."""
        return JobFacts(
            id=self.id,
            attempt=self.attempt,
            scheduler=self.scheduler,
            gpus=self.gpus,
            more=self.model_extra or {},
        )


class TextIn(BaseModel):
    """One text."""

    text: str
    name: str = Field("", max_length=1000, description="Its file name, such as rank3.log.")


class IncidentIn(BaseModel):
    """A log, a traceback, stack dumps: one text, or several in `texts`."""

    text: str | None = None
    name: str = Field("", max_length=1000, description="Its file name, such as rank3.log.")
    texts: list[TextIn] = []
    title: str = Field("", max_length=200)
    job: JobIn | None = None


class SkippedOut(Schema):
    """A text that was left out, and why."""

    name: str
    problem: str


class ReceivedOut(Schema):
    """The incident that the texts belong to; its diagnosis follows."""

    id: str
    url: str
    state: str
    created: bool
    duplicates: int
    secrets_replaced: int
    skipped: list[SkippedOut]


class EvidenceOut(Schema):
    """A line, or lines, that a diagnosis rests on, with its link."""

    line: int
    end_line: int
    text: str
    url: str


class DiagnosisOut(Schema):
    """One pitfall that the evidence shows; the first of a list is the answer."""

    slug: str
    role: str
    confidence: str
    rank: int | None
    host: str
    because: list[str]
    evidence: list[EvidenceOut]
    values: dict[str, Any]
    explains: list[str]
    advice: str


class JobOut(BaseModel):
    """What is known of the job."""

    model_config = ConfigDict(extra="allow")

    id: str
    attempt: int
    scheduler: str
    gpus: int | None


class TextOut(Schema):
    """A text of an incident, and how far its scan is."""

    position: int
    name: str
    state: str
    bytes: int
    lines: int
    bytes_scanned: int
    secrets_replaced: int
    error: str


class IncidentRowOut(Schema):
    """An incident in a list."""

    id: str
    url: str
    title: str
    state: str
    verdict: str
    slug: str
    sentence: str
    job: JobOut
    created_at: datetime
    diagnosed_at: datetime | None
    status: str = Field(description="open, investigating, mitigated, resolved, reopened")
    severity: str = Field(description="low, normal, high, critical")
    owner: str = Field(description="A user name; empty while nobody has taken it.")
    team: str = Field(description="The team's slug; empty where everybody sees it.")
    is_shared: bool
    idle_minutes: int | None = Field(description="How long its GPUs stood idle.")
    gpu_hours_lost: float | None = Field(description="GPUs × idle time.")
    resolved_at: datetime | None
    reopened_count: int
    merged_into: str | None = Field(description="The incident that has its texts now.")


class IncidentOut(IncidentRowOut):
    """An incident with its answer; `advice` is that of the first diagnosis, for schedulers."""

    advice: str
    diagnoses: list[DiagnosisOut]
    next: list[str]
    catalog: str
    error: str
    texts: list[TextOut]


class IncidentFilter(Schema):
    """Which incidents a list shows."""

    cursor: str = ""
    limit: int = Field(50, ge=1, le=200)
    state: str = ""
    verdict: str = ""
    slug: str = Field("", description="The pitfall of the answer.")
    job_id: str = ""
    status: str = ""
    severity: str = ""
    owner: str = Field("", description="A user name.")
    team: str = Field("", description="A team's slug.")


class IncidentListOut(Schema):
    """A page of incidents, newest first; `next` is the `cursor` of the following page."""

    incidents: list[IncidentRowOut]
    next: str | None


class LineOut(Schema):
    """One line of a stored text; `is_cut` if it was too long to show whole."""

    line: int
    text: str
    is_cut: bool


class LinesOut(Schema):
    """Lines of a stored text."""

    lines: list[LineOut]
    line_count: int


class LogBookEntryOut(Schema):
    """What was done about an incident."""

    id: int
    kind: str
    who: str
    at: datetime
    data: dict[str, Any]


class ReproductionIn(BaseModel):
    """Which script to run, and with what numbers. Code is never taken."""

    model_config = ConfigDict(extra="forbid")

    slug: str = Field("", max_length=100, description="The pitfall; default: the nearest one.")
    fixed: bool = Field(False, description="With the entry's own fix.")
    options: dict[str, int] = Field(
        {},
        description="world-size, num-workers, shm-mb, classes: whole numbers within the ranges "
        "that the entry declares.",
    )


class ReproductionOut(Schema):
    """A run. `state`: waiting (for what stands in `waits_for`), queued, running, done, failed or
    cancelled. `same_failure`: whether the engine named in its output what the incident was named;
    null until then, and of a run with the fix."""

    id: int
    incident: str
    slug: str
    fixed: bool
    options: dict[str, int]
    where: str
    state: str
    waits_for: str
    error: str
    named: str
    same_failure: bool | None
    result: dict[str, Any] | None
    output: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class DestroyedOut(Schema):
    """How many texts were destroyed."""

    destroyed: int


class TokenOut(Schema):
    """An API token, without its key."""

    id: int
    name: str
    prefix: str
    scope: str
    owner: str
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
