"""Scan a text; diagnose an incident from the evidence of all its texts.

Both claim their row by a conditional update and hold it by a lease, which progress renews. Their
result is written only by the holder of the lease, in one transaction, so a worker that was thought
dead and comes back late writes nothing, and what a killed worker owed is done once, by another.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from triage.engine import Evidence, Limits, diagnose, scan
from triage.models import Diagnosis, Finding, Incident, Submission
from triage.querysets import PENDING_SCAN
from triage.services import exhibits, leases, log_book, queue, response
from triage.services.catalog import current_catalog
from triage.services.storable import clean_json
from triage.services.texts import open_text

logger = logging.getLogger(__name__)

#: A task cut off this often is not tried again.
MAX_ATTEMPTS = 3


class LeaseLostError(Exception):
    """Somebody else has the row by now, or it was destroyed; what was found is dropped."""


def scan_submission(pk: int) -> bool:
    """Scans this text if that is owed and nobody else is at it; whether this call did it.

    A fault of the engine or the storage is tried again by the sweep, at most MAX_ATTEMPTS times in
    all, then stands on the page.
    """
    owner = _claim_scan(pk)
    if owner is None:
        return False
    submission = Submission.objects.defer("evidence").select_related("incident").get(pk=pk)
    Incident.objects.filter(pk=submission.incident_id, state=Incident.State.RECEIVED).update(
        state=Incident.State.SCANNING
    )
    started = time.monotonic()
    try:
        evidence = _scan(submission, owner)
    except LeaseLostError:
        logger.info("%s: the scan was taken over or its text destroyed", submission)
        return False
    except SoftTimeLimitExceeded:
        _fail_scan(
            submission,
            owner,
            f"Reading took longer than {settings.PITSTOP_SCAN_LIMIT_S} s and was stopped. "
            "Send the last part of the log.",
        )
        return False
    except FileNotFoundError:
        logger.exception("%s: not in storage", submission)
        _fail_scan(submission, owner, "The stored text is no longer there. Send it again.")
        return False
    except Exception as error:
        logger.exception("%s: the scan failed", submission)
        _retry_or_fail_scan(submission, owner, error)
        return False
    return _store_evidence(submission, owner, evidence, time.monotonic() - started)


def diagnose_incident(pk: int) -> bool:
    """Diagnoses this incident if that is owed and nobody is at it; whether this call did it."""
    owner = _claim_diagnosis(pk)
    if owner is None:
        return False
    incident = Incident.objects.get(pk=pk)
    revision = incident.evidence_revision
    started = time.monotonic()
    try:
        # diagnose() tells no progress.
        with leases.kept(lambda: Incident.objects.filter(pk=pk, lease_owner=owner)):
            catalog = current_catalog()
            positions, evidence = _load_evidence(incident)
            result = diagnose(evidence, catalog).to_json() if evidence else None
            shown = exhibits.collect(evidence)
            fresh = response.texts_since_resolved(incident)
            newer = [e for p, e in zip(positions, evidence, strict=True) if p in fresh]
            fails_again = bool(newer) and diagnose(newer, catalog).kind != "clean"
    except SoftTimeLimitExceeded:
        _fail_diagnosis(
            pk, owner, revision, f"It took longer than {settings.PITSTOP_DIAGNOSE_LIMIT_S} s."
        )
        return False
    except Exception as error:
        logger.exception("%s: the diagnosis failed", incident)
        if incident.diagnosis_attempts >= MAX_ATTEMPTS:
            _fail_diagnosis(pk, owner, revision, f"{type(error).__name__}: {error}")
        else:
            _release_diagnosis(pk, owner)
        return False
    if result is None:
        _fail_diagnosis(pk, owner, revision, _unread_texts(incident))
        return False
    return _store_diagnosis(
        pk,
        owner,
        clean_json(result),
        shown,
        revision=revision,
        positions=positions,
        catalog_version=catalog.version,
        duration_ms=int((time.monotonic() - started) * 1000),
        reopens=sorted(fresh) if fails_again else [],
    )


# ------------------------------------------------------------------------------ scan


def _claim_scan(pk: int) -> str | None:
    """The owner's name under which this process holds the text; None if it is not to be had."""
    owed = Submission.objects.filter(pk=pk).owed_scan(timezone.now())
    cut_off = owed.filter(scan_attempts__gte=MAX_ATTEMPTS).first()
    lease = leases.new()
    if cut_off is not None:
        if owed.filter(scan_attempts__gte=MAX_ATTEMPTS).update(**lease):
            _fail_scan(
                cut_off,
                lease["lease_owner"],
                f"Reading was cut off {MAX_ATTEMPTS} times, as when memory runs out. "
                "Send the last part of the log.",
            )
        return None
    claimed = owed.update(
        state=Submission.State.SCANNING,
        scan_attempts=F("scan_attempts") + 1,
        bytes_scanned=0,
        findings_so_far=0,
        **lease,
    )
    return lease["lease_owner"] if claimed else None


def _held(submission_pk: int, owner: str) -> Any:
    return Submission.objects.filter(pk=submission_pk, state__in=PENDING_SCAN, lease_owner=owner)


def _scan(submission: Submission, owner: str) -> Evidence:
    renew_every_s = settings.PITSTOP_LEASE_S / leases.RENEWALS_A_LEASE
    # Progress on the page moves a few times a second at most; each step is a write.
    show_every_s = min(0.5, renew_every_s)
    shown_at = time.monotonic()

    def on_progress(bytes_read: int, findings: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - shown_at < show_every_s:
            return
        shown_at = now
        renewed = _held(submission.pk, owner).update(
            bytes_scanned=bytes_read,
            findings_so_far=findings,
            lease_until=leases.end(),
        )
        if not renewed:
            raise LeaseLostError

    limits = Limits(
        max_line_bytes=settings.PITSTOP_MAX_LINE_BYTES,
        max_evidence_bytes=settings.PITSTOP_MAX_EVIDENCE_BYTES,
    )
    with open_text(submission) as stream:
        return scan(
            stream,
            catalog=current_catalog(),
            name=submission.name,
            limits=limits,
            progress=on_progress,
        )


def _store_evidence(
    submission: Submission, owner: str, evidence: Evidence, duration_s: float
) -> bool:
    with transaction.atomic():
        stored = _held(submission.pk, owner).update(
            state=Submission.State.SCANNED,
            evidence=clean_json(evidence.to_json()),
            bytes_scanned=submission.size_bytes,
            scanned_at=timezone.now(),
            error="",
            **leases.FREE,
        )
        if not stored:
            logger.info("%s: scanned by another meanwhile", submission)
            return False
        # A merge or a split may have given it another place while it was read.
        place = Submission.objects.only("incident", "position").get(pk=submission.pk)
        log_book.write(
            place.incident,
            log_book.SCANNED,
            {
                "text": place.position,
                "name": submission.name,
                "bytes": submission.size_bytes,
                "lines": submission.line_count,
                "kind": evidence.kind,
                "duration_ms": int(duration_s * 1000),
            },
        )
        _after_scan(place.incident_id)
    return True


def _after_scan(incident_pk: int) -> None:
    """Marks newer evidence, and queues the diagnosis after the last text. In a transaction."""
    # The update locks the incident's row, so of scans that end at once the last one sees all.
    Incident.objects.filter(pk=incident_pk).update(evidence_revision=F("evidence_revision") + 1)
    pending = Submission.objects.filter(incident_id=incident_pk).pending().exists()
    if not pending:
        Incident.objects.filter(pk=incident_pk).update(
            state=Incident.State.DIAGNOSING, diagnosis_attempts=0
        )
        queue.enqueue(queue.DIAGNOSE_INCIDENT, incident_pk)


def _retry_or_fail_scan(submission: Submission, owner: str, error: Exception) -> None:
    problem = f"{type(error).__name__}: {error}"
    if submission.scan_attempts >= MAX_ATTEMPTS:
        _fail_scan(submission, owner, f"Reading failed {MAX_ATTEMPTS} times: {problem}")
        return
    # The lease stays until it ends: the pause before the sweep queues the next attempt.
    _held(submission.pk, owner).update(state=Submission.State.STORED, error=problem)


def _fail_scan(submission: Submission, owner: str, error: str) -> None:
    with transaction.atomic():
        failed = _held(submission.pk, owner).update(
            state=Submission.State.FAILED, error=error, **leases.FREE
        )
        if failed:
            place = Submission.objects.only("incident", "position").get(pk=submission.pk)
            log_book.write(
                place.incident,
                log_book.SCANNED,
                {"text": place.position, "name": submission.name, "error": error},
            )
            _after_scan(place.incident_id)


# ------------------------------------------------------------------------------ diagnosis


def _claim_diagnosis(pk: int) -> str | None:
    """The owner's name under which this process holds the incident; None if it is not to be had."""
    owed = Incident.objects.filter(pk=pk).owed_diagnosis(timezone.now())
    lease = leases.new()
    cut_off = owed.filter(diagnosis_attempts__gte=MAX_ATTEMPTS)
    if cut_off.update(**lease):
        revision = Incident.objects.values_list("evidence_revision", flat=True).get(pk=pk)
        _fail_diagnosis(pk, lease["lease_owner"], revision, f"It was cut off {MAX_ATTEMPTS} times.")
        return None
    claimed = owed.update(
        state=Incident.State.DIAGNOSING,
        diagnosis_attempts=F("diagnosis_attempts") + 1,
        **lease,
    )
    return lease["lease_owner"] if claimed else None


def _load_evidence(incident: Incident) -> tuple[list[int], list[Evidence]]:
    """Positions and evidence of the scanned texts, in the order of their positions."""
    rows = (
        incident.submissions.filter(state=Submission.State.SCANNED)
        .order_by("position")
        .values_list("position", "evidence")
    )
    positions: list[int] = []
    evidence: list[Evidence] = []
    for position, found in rows.iterator(chunk_size=64):
        positions.append(position)
        evidence.append(Evidence.from_json(found))
    return positions, evidence


def _unread_texts(incident: Incident) -> str:
    errors = incident.submissions.filter(state=Submission.State.FAILED).values_list(
        "position", "error"
    )
    return " ".join(f"T{position}: {error}" for position, error in errors[:5])


def _store_diagnosis(
    pk: int,
    owner: str,
    result: dict[str, Any],
    shown: exhibits.Exhibits,
    *,
    revision: int,
    positions: list[int],
    catalog_version: str,
    duration_ms: int,
    reopens: list[int],
) -> bool:
    try:
        with transaction.atomic():
            now = timezone.now()
            held = Incident.objects.filter(pk=pk, lease_owner=owner)
            if not held.update(**leases.FREE):
                raise LeaseLostError
            diagnosis = Diagnosis.objects.create(
                incident_id=pk,
                revision=revision,
                catalog_version=catalog_version,
                verdict=result["verdict"],
                sentence=result["sentence"],
                next=result["next"],
                fingerprint=result["fingerprint"][:200],
                texts=positions,
                stack_tree=clean_json(shown.stack_tree),
                series=clean_json(shown.series),
                duration_ms=duration_ms,
            )
            Finding.objects.bulk_create(
                _finding(diagnosis, number, found)
                for number, found in enumerate(result["diagnoses"])
            )
            answer = result["diagnoses"][0] if result["diagnoses"] else {}
            incident = Incident.objects.get(pk=pk)
            incident.current_diagnosis = diagnosis
            incident.verdict = diagnosis.verdict
            incident.slug = answer.get("slug", "")
            incident.fingerprint = diagnosis.fingerprint
            incident.diagnosed_revision = revision
            incident.diagnosed_at = incident.diagnosed_at or now
            incident.diagnosis_attempts = 0
            incident.error = ""
            has_newer = incident.evidence_revision > revision
            if not has_newer:
                incident.state = Incident.State.DIAGNOSED
            incident.save(
                update_fields=[
                    "current_diagnosis", "verdict", "slug", "fingerprint", "diagnosed_revision",
                    "diagnosed_at", "diagnosis_attempts", "error", "state", "updated_at",
                ]
            )  # fmt: skip
            log_book.write(
                incident,
                log_book.DIAGNOSED,
                {
                    "verdict": diagnosis.verdict,
                    "slug": answer.get("slug", ""),
                    "confidence": answer.get("confidence", ""),
                    "sentence": diagnosis.sentence,
                    "catalog": catalog_version,
                    "revision": revision,
                    "duration_ms": duration_ms,
                },
            )
            if reopens:
                response.reopen(incident, reopens)
            if has_newer:
                queue.enqueue(queue.DIAGNOSE_INCIDENT, pk)
    except LeaseLostError:
        logger.info("INC-%s: diagnosed by another meanwhile", pk)
        return False
    except IntegrityError:
        # The unique constraint: this revision has its diagnosis already.
        logger.info("INC-%s: revision %s is diagnosed already", pk, revision)
        return False
    return True


def _finding(diagnosis: Diagnosis, number: int, found: dict[str, Any]) -> Finding:
    return Finding(
        diagnosis=diagnosis,
        position=number,
        slug=found["slug"],
        role=found["role"],
        confidence=found["confidence"],
        rank=found["rank"],
        host=(found["host"] or "")[:255],
        because=found["because"],
        evidence=found["evidence"],
        values=found["values"],
        explains=found["explains"],
        advice=found["advice"],
    )


def _release_diagnosis(pk: int, owner: str) -> None:
    # The lease's end is the pause before the sweep queues the next attempt.
    Incident.objects.filter(pk=pk, lease_owner=owner).update(
        lease_owner="", lease_until=leases.end()
    )


def _fail_diagnosis(pk: int, owner: str, revision: int, error: str) -> None:
    with transaction.atomic():
        failed = Incident.objects.filter(pk=pk, lease_owner=owner).update(
            state=Incident.State.FAILED,
            error=error,
            diagnosed_revision=revision,
            diagnosis_attempts=0,
            **leases.FREE,
        )
        if failed:
            incident = Incident.objects.get(pk=pk)
            log_book.write(incident, log_book.DIAGNOSED, {"error": error, "revision": revision})
