"""The schema on one page: people, incidents, texts, diagnoses, log book, reproductions, tokens."""

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
    TimeEntryQuerySet,
    WorkerQuerySet,
)

_REFERENCE = re.compile(r"(?:INC-)?(\d{1,18})\Z", re.IGNORECASE)


class Leased(models.Model):
    """A row that one worker at a time works at: see services/leases.py."""

    lease_owner = models.CharField(max_length=64, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class Team(models.Model):
    """People who see each other's incidents."""

    name = models.CharField(max_length=80, unique=True)
    slug = models.SlugField(max_length=80, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    members = models.ManyToManyField(
        settings.AUTH_USER_MODEL, through="Membership", related_name="teams"
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """That a person is of a team; the first one is the team of what they send."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships"
    )
    since = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["team", "person"], name="once_a_member_of_a_team")
        ]

    def __str__(self) -> str:
        return f"{self.person} of {self.team}"


class Profile(models.Model):
    """What Pitstop knows of a person beside their account; see services/people.py."""

    class Role(models.TextChoices):
        VIEWER = "viewer"
        RESPONDER = "responder"
        CURATOR = "curator"
        ADMIN = "admin"

    person = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="profile"
    )
    role = models.CharField(max_length=10, choices=Role, default=Role.RESPONDER)
    # An IANA name; empty: what the browser says, else UTC.
    time_zone = models.CharField(max_length=64, blank=True, default="")

    def __str__(self) -> str:
        return f"{self.person} ({self.role})"


class AuditEntry(models.Model):
    """A sign-in or a change of who may do what; append-only, by services/audit.py alone."""

    kind = models.CharField(max_length=40)
    who = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    # Whom it is about, where that is somebody else than who did it.
    about = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    at = models.DateTimeField()
    address = models.GenericIPAddressField(null=True, blank=True)
    # Names as they were: accounts and teams may be renamed or gone when somebody reads it.
    data = models.JSONField(default=dict, blank=True)

    class Meta:
        verbose_name_plural = "audit entries"
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.kind} {self.at:%Y-%m-%d %H:%M}"


class Incident(Leased):
    """One failure of one job attempt, however many texts tell of it.

    `state` is how far the reading of its texts is, `status` what people do about it.
    """

    class Status(models.TextChoices):
        OPEN = "open"
        INVESTIGATING = "investigating"
        MITIGATED = "mitigated"
        RESOLVED = "resolved"
        REOPENED = "reopened"

    class Severity(models.TextChoices):
        LOW = "low"
        NORMAL = "normal"
        HIGH = "high"
        CRITICAL = "critical"

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

    status = models.CharField(max_length=14, choices=Status, default=Status.OPEN)
    severity = models.CharField(max_length=8, choices=Severity, default=Severity.NORMAL)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="owned_incidents",
    )
    # None: everybody who may sign in sees it.
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.SET_NULL, related_name="incidents"
    )
    # Whether other teams see it besides.
    is_shared = models.BooleanField(default=False)
    resolved_at = models.DateTimeField(null=True, blank=True)
    reopened_count = models.PositiveSmallIntegerField(default=0)
    # Where its texts are now; a merged incident stays as a pointer.
    merged_into = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="merged"
    )
    # How long its GPUs stood idle: given with the job or by hand; None while nobody said.
    idle_minutes = models.PositiveIntegerField(null=True, blank=True)
    # Made by `manage.py demo`, and removed with it.
    is_demo = models.BooleanField(default=False)
    # The answer of the current diagnosis and its fingerprint, kept here for lists and reports.
    slug = models.CharField(max_length=100, blank=True, default="")
    fingerprint = models.CharField(max_length=200, blank=True, default="")

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
            models.Index(fields=["status", "-id"], name="incident_status"),
            models.Index(fields=["slug", "-id"], name="incident_slug"),
            models.Index(fields=["fingerprint", "-id"], name="incident_fingerprint"),
            models.Index(fields=["team", "-id"], name="incident_team"),
            models.Index(fields=["owner", "-id"], name="incident_owner"),
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
    def gpu_hours_lost(self) -> float | None:
        """GPUs × idle time in hours; None while one of them is not known."""
        if self.gpus is None or self.idle_minutes is None:
            return None
        return self.gpus * self.idle_minutes / 60

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


class TimeEntry(models.Model):
    """Time that a person spent on an incident: a timer that ran or runs, or minutes by hand.

    See services/time_book.py for overlaps and forgotten timers.
    """

    class Source(models.TextChoices):
        TIMER = "timer"
        HAND = "hand"

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="time_entries")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="time_entries"
    )
    source = models.CharField(max_length=8, choices=Source)
    # Work by hand is a span, too: it ended when it was written down, unless somebody says when.
    started_at = models.DateTimeField()
    # None while the timer runs.
    ended_at = models.DateTimeField(null=True, blank=True)
    # What it counts, without what an earlier entry of the person covers; None while it runs.
    minutes = models.PositiveIntegerField(null=True, blank=True)
    note = models.CharField(max_length=500, blank=True, default="")
    # A timer that was forgotten and cut at its cap; its person is asked to put it right.
    is_capped = models.BooleanField(default=False)
    # Taken back; it counts no more, and the log book tells of it.
    voided_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TimeEntryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "time entries"
        ordering = ["started_at", "pk"]
        constraints = [
            # Two tabs, the API and Slack may start one at the same moment.
            models.UniqueConstraint(
                fields=["person"],
                condition=Q(ended_at=None, voided_at=None),
                name="one_running_timer_a_person",
            )
        ]
        indexes = [models.Index(fields=["person", "started_at"], name="time_entry_person")]

    def __str__(self) -> str:
        return f"INC-{self.incident_id} {self.person} {self.started_at:%Y-%m-%d %H:%M}"

    @property
    def is_running(self) -> bool:
        """Whether it is a timer that nobody has stopped."""
        return self.ended_at is None and self.voided_at is None


class Feedback(models.Model):
    """What a person said of a diagnosis or of a fix; the newest of each person counts."""

    class About(models.TextChoices):
        DIAGNOSIS = "diagnosis"
        FIX = "fix"

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="feedback")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    about = models.CharField(max_length=10, choices=About)
    # The answer that it is about, and for a fix, its title.
    slug = models.CharField(max_length=100, db_index=True)
    fix_title = models.CharField(max_length=200, blank=True, default="")
    # Right or wrong; worked or did not.
    is_good = models.BooleanField()
    # Which pitfall it was instead, where the person knows.
    other_slug = models.CharField(max_length=100, blank=True, default="")
    note = models.CharField(max_length=500, blank=True, default="")
    at = models.DateTimeField()
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "feedback"
        ordering = ["at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["incident", "person", "about", "slug", "fix_title"],
                condition=Q(withdrawn_at=None),
                name="one_opinion_a_person",
            )
        ]

    def __str__(self) -> str:
        return f"INC-{self.incident_id} {self.about} {'good' if self.is_good else 'bad'}"


class MonthlyReport(models.Model):
    """The figures of a month as they were when it had ended; written once, by beat."""

    month = models.CharField(max_length=7, unique=True)
    # Figures.to_json of reports/figures.py
    figures = models.JSONField()
    written_at = models.DateTimeField()

    class Meta:
        ordering = ["-month"]

    def __str__(self) -> str:
        return self.month


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
