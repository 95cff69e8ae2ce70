"""Questions to the database as words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from django.db import models
from django.db.models import F, Q

#: States of a text that is owed a scan.
PENDING_SCAN = ("stored", "scanning")
#: States of a run in the sandbox that is owed or at work.
PENDING_RUN = ("waiting", "queued", "running")
#: A worker that was silent for longer is gone: it reports every few seconds.
WORKER_SILENCE = timedelta(seconds=45)
#: Columns that hold megabytes; pages and lists never load them by accident.
HEAVY_SUBMISSION_COLUMNS = ("evidence", "line_index")
#: Columns of a diagnosis that one page alone draws.
HEAVY_DIAGNOSIS_COLUMNS = ("stack_tree", "series")


def _lease_is_free(now: datetime) -> Q:
    return Q(lease_until=None) | Q(lease_until__lt=now)


class IncidentQuerySet(models.QuerySet):
    """Incidents, most questions of pages, API and sweep."""

    def newest_first(self) -> Self:
        """By number, the newest first."""
        return self.order_by("-pk")

    def caused_by(self, slug: str) -> Self:
        """Whose current diagnosis answers with this pitfall."""
        return self.filter(slug=slug)

    def of_teams(self, teams: models.QuerySet) -> Self:
        """Of nobody's team, of one of these teams, or shared by theirs."""
        return self.filter(Q(team=None) | Q(is_shared=True) | Q(team__in=teams))

    def seen_since(self, moment: datetime) -> Self:
        """Created at this moment or later."""
        return self.filter(created_at__gte=moment)

    def sent_by_token(self, token: models.Model) -> Self:
        """To which this API token has sent at least one text."""
        return self.filter(submissions__token=token).distinct()

    def with_answer(self) -> Self:
        """With the current diagnosis and its findings loaded, in two more queries at most."""
        heavy = (f"current_diagnosis__{column}" for column in HEAVY_DIAGNOSIS_COLUMNS)
        return (
            self.select_related("current_diagnosis", "created_by", "owner", "team")
            .defer(*heavy)
            .prefetch_related("current_diagnosis__findings")
        )

    def owed_diagnosis(self, now: datetime) -> Self:
        """With newer evidence than diagnosis, no text left to scan, and nobody at work on it."""
        return self.filter(
            _lease_is_free(now), evidence_revision__gt=F("diagnosed_revision")
        ).exclude(submissions__state__in=PENDING_SCAN)


class SubmissionQuerySet(models.QuerySet):
    """Texts, without their megabytes unless asked for."""

    def light(self) -> Self:
        """Without evidence and line index."""
        return self.defer(*HEAVY_SUBMISSION_COLUMNS)

    def pending(self) -> Self:
        """Not yet scanned."""
        return self.filter(state__in=PENDING_SCAN)

    def owed_scan(self, now: datetime) -> Self:
        """Not yet scanned, and nobody at work on them."""
        return self.pending().filter(_lease_is_free(now))

    def readable(self) -> Self:
        """Whose text is still kept."""
        return self.exclude(stored_at="")


class RunQuerySet(models.QuerySet):
    """Runs in the sandbox: reproductions and verifications."""

    def pending(self) -> Self:
        """Of which more is to come."""
        return self.filter(state__in=PENDING_RUN)

    def owed(self, now: datetime) -> Self:
        """Not ended, and nobody at work on them."""
        return self.pending().filter(_lease_is_free(now))


class WorkerQuerySet(models.QuerySet):
    """Workers that run reproductions."""

    def alive(self, now: datetime) -> Self:
        """Heard of lately."""
        return self.filter(heartbeat_at__gte=now - WORKER_SILENCE)


class ApiTokenQuerySet(models.QuerySet):
    """API tokens."""

    def usable(self, now: datetime) -> Self:
        """Neither revoked nor expired."""
        return self.filter(revoked_at=None).filter(Q(expires_at=None) | Q(expires_at__gt=now))


class TimeEntryQuerySet(models.QuerySet):
    """Time that people spent."""

    def standing(self) -> Self:
        """Not taken back."""
        return self.filter(voided_at=None)

    def running(self) -> Self:
        """Timers that run."""
        return self.standing().filter(ended_at=None)

    def counted(self) -> Self:
        """Those that have ended, and so count."""
        return self.standing().exclude(ended_at=None)

    def total_minutes(self) -> int:
        """The minutes that these count."""
        return self.counted().aggregate(total=models.Sum("minutes"))["total"] or 0
