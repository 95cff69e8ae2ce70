"""Finds states that are owed work and queues it again: the database is the truth, not the queue.

And cuts timers that somebody forgot.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone

from triage.models import Incident, Submission
from triage.services import queue, reproductions, time_book, verifications

#: Queued in one sweep; the next one is seconds away.
MOST_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Swept:
    """How much work was found and queued."""

    scans: int
    diagnoses: int
    reproductions: int = 0
    verifications: int = 0
    timers: int = 0


def sweep() -> Swept:
    """Queues every scan, diagnosis and reproduction that is owed and that nobody holds.

    Work that waits in the queue already is queued once more; whoever claims its row first does it,
    the others return at once.
    """
    now = timezone.now()
    scans = list(
        Submission.objects.owed_scan(now).order_by("pk").values_list("pk", flat=True)[:MOST_AT_ONCE]
    )
    diagnoses = list(
        Incident.objects.owed_diagnosis(now)
        .order_by("pk")
        .values_list("pk", flat=True)[:MOST_AT_ONCE]
    )
    for pk in scans:
        queue.enqueue(queue.SCAN_SUBMISSION, pk)
    for pk in diagnoses:
        queue.enqueue(queue.DIAGNOSE_INCIDENT, pk)
    return Swept(
        scans=len(scans),
        diagnoses=len(diagnoses),
        reproductions=reproductions.queue_owed(),
        verifications=verifications.queue_next(),
        timers=time_book.close_forgotten(),
    )
