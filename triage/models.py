"""The schema on one page: incidents, texts, diagnoses, log book, reproductions, API tokens."""

from __future__ import annotations

import re

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse

from triage.querysets import (
    ApiTokenQuerySet,
    IncidentQuerySet,
    RunQuerySet,
    SubmissionQuerySet,
    WorkerQuerySet,
)

_REFERENCE = re.compile(r"(?:INC-)?(\d{1,18})\Z", re.IGNORECASE)


class Leased(models.Model):
    """A row that one worker at a time works at: see services/leases.py."""

    lease_owner = models.CharField(max_length=64, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class Incident(Leased):
    """One failure of one job attempt, however many texts tell of it."""

    class State(models.TextChoices):
        RECEIVED = "received"
        SCANNING = "scanning"
        DIAGNOSING = "diagnosing"
        DIAGNOSED = "diagnosed"
        FAILED = "failed"
        DESTROYED = "destroyed"

    class Verdict(models.TextChoices):
        NAMED = "named"
        UNDETERMINED = "undetermined"
        CLEAN = "clean"

    title = models.CharField(max_length=200, blank=True)
    state = models.CharField(max_length=12, choices=State, default=State.RECEIVED)
    verdict = models.CharField(max_length=12, choices=Verdict, blank=True, default="")
    error = models.TextField(blank=True, default="")

    job_id = models.CharField(max_length=200, blank=True, default="")
    attempt = models.PositiveIntegerField(default=0)
    scheduler = models.CharField(max_length=40, blank=True, default="")
    gpus = models.PositiveIntegerField(null=True, blank=True)
    job = models.JSONField(default=dict, blank=True)

    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="incidents",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    diagnosed_at = models.DateTimeField(null=True, blank=True)

    # What makes the same paste twice one incident: a hash over the sender and the texts, where
    # no job names the incident. None once the texts are destroyed.
    intake_key = models.CharField(max_length=64, null=True, blank=True, unique=True)
    # Texts ever received; the number of the next one comes from here, under the row's lock.
    texts_received = models.PositiveIntegerField(default=0)
    # Raised whenever a text arrives, is scanned or destroyed; a diagnosis is owed while it is
    # ahead of diagnosed_revision.
    evidence_revision = models.PositiveIntegerField(default=0)
    diagnosed_revision = models.PositiveIntegerField(default=0)
    diagnosis_attempts = models.PositiveSmallIntegerField(default=0)
    current_diagnosis = models.ForeignKey(
        "Diagnosis", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    objects = IncidentQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job_id", "attempt"],
                condition=~Q(job_id=""),
                name="one_incident_a_job_attempt",
            )
        ]
        indexes = [
            models.Index(fields=["state", "lease_until"], name="incident_owed_work"),
            models.Index(fields=["created_at"], name="incident_created_at"),
        ]

    def __str__(self) -> str:
        return self.reference

    def get_absolute_url(self) -> str:
        """The address of its page."""
        return reverse("triage:incident", args=[self.reference])

    @property
    def reference(self) -> str:
        """The name people use for it, such as `INC-123`."""
        return f"INC-{self.pk}"

    @staticmethod
    def number_of(reference: str) -> int | None:
        """The primary key in `INC-123`, `inc-123` or `123`; None for anything else."""
        found = _REFERENCE.match(reference.strip())
        return int(found[1]) if found else None

    @property
    def is_settled(self) -> bool:
        """Whether no more comes of it by itself."""
        return self.state in (self.State.DIAGNOSED, self.State.FAILED, self.State.DESTROYED)


class Submission(Leased):
    """A text someone sent: one stream of one process group. `T1`, `T2` … in links to its lines."""

    class State(models.TextChoices):
        STORED = "stored"
        SCANNING = "scanning"
        SCANNED = "scanned"
        FAILED = "failed"
        DESTROYED = "destroyed"

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="submissions")
    position = models.PositiveIntegerField()
    name = models.CharField(max_length=200, blank=True)
    sent_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    token = models.ForeignKey(
        "ApiToken", null=True, blank=True, on_delete=models.SET_NULL, related_name="submissions"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    # Of the text as stored: UTF-8, secrets replaced, NUL bytes left out.
    sha256 = models.CharField(max_length=64, blank=True)
    size_bytes = models.PositiveBigIntegerField(default=0)
    line_count = models.PositiveBigIntegerField(default=0)
    secrets_replaced = models.PositiveIntegerField(default=0)
    # Where Django's storage keeps it, as gzip members; empty once destroyed or expired.
    stored_at = models.CharField(max_length=200, blank=True)
    # One [line, starts_a_line, offset_bytes] a gzip member: see services/texts.py.
    line_index = models.JSONField(default=list, blank=True)

    state = models.CharField(max_length=12, choices=State, default=State.STORED)
    error = models.TextField(blank=True, default="")
    bytes_scanned = models.PositiveBigIntegerField(default=0)
    findings_so_far = models.PositiveIntegerField(default=0)
    # What the engine's scan found (Evidence.to_json), None until then.
    evidence = models.JSONField(null=True, blank=True)
    scanned_at = models.DateTimeField(null=True, blank=True)
    scan_attempts = models.PositiveSmallIntegerField(default=0)

    objects = SubmissionQuerySet.as_manager()

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["incident", "position"], name="one_text_a_position"),
            models.UniqueConstraint(
                fields=["incident", "sha256"],
                condition=~Q(sha256=""),
                name="same_text_once_an_incident",
            ),
        ]
        indexes = [models.Index(fields=["state", "lease_until"], name="submission_owed_work")]

    def __str__(self) -> str:
        return f"INC-{self.incident_id} {self.label}"

    @property
    def label(self) -> str:
        """Its name in links to lines, such as `T2`."""
        return f"T{self.position}"

    @property
    def is_pending(self) -> bool:
        """Whether its scan is still owed."""
        return self.state in (self.State.STORED, self.State.SCANNING)


class Diagnosis(models.Model):
    """What the engine said of all evidence of an incident, at one revision and catalog version."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="diagnoses")
    revision = models.PositiveIntegerField()
    catalog_version = models.CharField(max_length=64)
    verdict = models.CharField(max_length=12, choices=Incident.Verdict)
    sentence = models.TextField(blank=True, default="")
    next = models.JSONField(default=list, blank=True)
    fingerprint = models.CharField(max_length=200, blank=True, default="", db_index=True)
    # The order of the texts that `text_index` of a finding's evidence counts in.
    texts = models.JSONField(default=list, blank=True)
    # What the page draws of the evidence, made small: see services/exhibits.py.
    stack_tree = models.JSONField(null=True, blank=True)
    series = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    duration_ms = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name_plural = "diagnoses"
        constraints = [
            # Two workers may diagnose the same evidence; only one of them can store it.
            models.UniqueConstraint(
                fields=["incident", "revision", "catalog_version"],
                name="one_diagnosis_a_revision",
            )
        ]

    def __str__(self) -> str:
        return f"INC-{self.incident_id} revision {self.revision}: {self.verdict}"


class Finding(models.Model):
    """One stored line of a diagnosis; position 0 is the answer."""

    diagnosis = models.ForeignKey(Diagnosis, on_delete=models.CASCADE, related_name="findings")
    position = models.PositiveSmallIntegerField()
    slug = models.CharField(max_length=100, db_index=True)
    role = models.CharField(max_length=12)
    confidence = models.CharField(max_length=20)
    rank = models.IntegerField(null=True, blank=True)
    host = models.CharField(max_length=255, blank=True, default="")
    because = models.JSONField(default=list, blank=True)
    evidence = models.JSONField(default=list, blank=True)
    values = models.JSONField(default=dict, blank=True)
    explains = models.JSONField(default=list, blank=True)
    advice = models.CharField(max_length=20, blank=True, default="")

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["diagnosis", "position"], name="one_finding_a_position")
        ]

    def __str__(self) -> str:
        return f"{self.slug} ({self.role}, {self.confidence})"


class LogBookEntry(models.Model):
    """What was done about an incident; append-only, written by services/log_book.py alone."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="log_book")
    kind = models.CharField(max_length=40)
    who = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    at = models.DateTimeField()
    data = models.JSONField(default=dict, blank=True)

    class Meta:
        verbose_name_plural = "log book entries"
        ordering = ["at", "pk"]
        indexes = [models.Index(fields=["kind", "at"], name="log_book_kind_at")]

    def __str__(self) -> str:
        return f"INC-{self.incident_id} {self.kind}"


class SandboxRun(Leased):
    """What is owed a run in the sandbox: who may do it, who holds it, how it stands."""

    class State(models.TextChoices):
        WAITING = "waiting"
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    slug = models.CharField(max_length=100, db_index=True)
    # Where it can run: "cpu", "gpu1" or "gpuN", as the entry said when it was asked for.
    where = models.CharField(max_length=8, default="cpu")
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    # What no living worker has, in words; empty unless it waits.
    waits_for = models.CharField(max_length=300, blank=True, default="")
    # Why it failed.
    error = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)

    objects = RunQuerySet.as_manager()

    class Meta:
        abstract = True

    @property
    def is_pending(self) -> bool:
        """Whether more comes of it by itself."""
        return self.state in (self.State.WAITING, self.State.QUEUED, self.State.RUNNING)


class Reproduction(SandboxRun):
    """One run of an entry's script that somebody asked for, and what the engine said of it."""

    incident = models.ForeignKey(
        Incident, null=True, blank=True, on_delete=models.CASCADE, related_name="reproductions"
    )
    fixed = models.BooleanField(default=False)
    options = models.JSONField(default=dict, blank=True)
    cancel_requested = models.BooleanField(default=False)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    token = models.ForeignKey(
        "ApiToken", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    # The end of what it printed while it runs, all of it (bounded) once it has ended.
    output = models.TextField(blank=True, default="")
    # How it ended, and on what: Outcome.to_json without its output; None until then.
    result = models.JSONField(null=True, blank=True)
    # The pitfall that the engine named in its output.
    named = models.CharField(max_length=100, blank=True, default="")
    # Of a broken run: whether that is what the incident was named as; None where it says nothing.
    same_failure = models.BooleanField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["state", "lease_until"], name="reproduction_owed_work")]

    def __str__(self) -> str:
        return f"R{self.pk} {self.slug}{' fixed' if self.fixed else ''}"


class Verification(SandboxRun):
    """A broken and a fixed run of an entry, and what they proved; written by `verify` alone."""

    device = models.CharField(max_length=200, blank=True, default="")
    torch = models.CharField(max_length=40, blank=True, default="")
    python = models.CharField(max_length=40, blank=True, default="")
    cuda = models.CharField(max_length=40, blank=True, default="")
    driver = models.CharField(max_length=40, blank=True, default="")
    catalog_version = models.CharField(max_length=64, blank=True, default="")
    entry_digest = models.CharField(max_length=64, blank=True, default="")
    reproduced = models.BooleanField(default=False)
    fix_verified = models.BooleanField(default=False)
    reason = models.TextField(blank=True, default="")
    seconds = models.FloatField(default=0)
    broken_lines = models.JSONField(default=list, blank=True)
    fixed_lines = models.JSONField(default=list, blank=True)
    broken_output = models.TextField(blank=True, default="")
    fixed_output = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["state", "lease_until"], name="verification_owed_work")]
        constraints = [
            models.UniqueConstraint(
                fields=["slug"],
                condition=Q(state__in=["waiting", "queued", "running"]),
                name="one_pending_verification",
            )
        ]

    def __str__(self) -> str:
        return f"V{self.pk} {self.slug}"


class WorkerCapability(models.Model):
    """What a living worker of the queues `cpu` and `gpu` said it has, and when it last did."""

    name = models.CharField(max_length=200, unique=True)
    queue = models.CharField(max_length=20)
    is_able = models.BooleanField(default=False)
    # What it lacks, in words; empty where it can run at all.
    why = models.CharField(max_length=300, blank=True, default="")
    # Capability.to_json of its sandbox's probe.
    capability = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()

    objects = WorkerQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "worker capabilities"

    def __str__(self) -> str:
        return f"{self.name} ({self.queue})"


class ApiToken(models.Model):
    """A key to the API: only its hash is kept. Scopes: see services/tokens.py."""

    class Scope(models.TextChoices):
        SUBMIT = "submit"
        READ = "read"
        WRITE = "write"
        ADMIN = "admin"

    name = models.CharField(max_length=100)
    key_hash = models.CharField(max_length=64, unique=True, editable=False)
    # The first characters of the key, so that its owner can tell which one it is.
    prefix = models.CharField(max_length=16, editable=False)
    scope = models.CharField(max_length=8, choices=Scope, default=Scope.SUBMIT)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="api_tokens",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} ({self.scope})"
