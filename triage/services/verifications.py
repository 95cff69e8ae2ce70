"""Which entries are owed a verification, their runs, and the proofs that came of them.

A proof is a row here, and a table of `proof.toml` where `manage.py verify` could write one. Pages
take both together, so that a site shows what it saw itself beside what the catalog came with.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable

from celery.exceptions import SoftTimeLimitExceeded
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from kb.catalog import Pitfall, Proof
from kb.catalog.badges import is_due
from kb.catalog.proof import digest_of
from triage.models import Reproduction, Verification
from triage.reproduction import Checked, NoSandboxError, verify
from triage.services import leases, queue, workers
from triage.services.catalog import current_catalog
from triage.services.storable import clean_json

logger = logging.getLogger(__name__)

#: Characters kept of each run's output.
MAX_OUTPUT_CHARS = 100_000


def proofs_of(pitfall: Pitfall) -> tuple[Proof, ...]:
    """All that is known of this entry: the newest proof of each device, wherever it stands."""
    rows = Verification.objects.filter(slug=pitfall.slug, state=Verification.State.DONE).defer(
        "broken_output", "fixed_output"
    )
    digest = digest_of(pitfall) if pitfall.script.is_file() else ""
    newest: dict[str, Proof] = {}
    for proof in [*pitfall.proofs, *map(_proof, rows.order_by("ended_at"))]:
        known = newest.get(proof.device)
        # One of the script as it is now tells more than a later one of another.
        if known is None or (proof.entry == digest, proof.date) >= (
            known.entry == digest,
            known.date,
        ):
            newest[proof.device] = proof
    return tuple(newest.values())


def record(checked: Checked) -> Verification:
    """The row of a verification that was done by a command, on the spot."""
    now = timezone.now()
    row = Verification(slug=checked.broken.slug, started_at=now, ended_at=now)
    for name, value in _columns(checked).items():
        setattr(row, name, value)
    row.save()
    return row


def ask(pitfall: Pitfall) -> Verification | None:
    """The pending verification of this entry, made if there is none; None if it cannot be run."""
    reproduction = pitfall.reproduction
    if reproduction is None or not reproduction.is_runnable:
        return None
    pending = Verification.objects.filter(slug=pitfall.slug).pending()
    try:
        with transaction.atomic():
            if found := pending.first():
                return found
            row = Verification.objects.create(slug=pitfall.slug, where=reproduction.where)
    except IntegrityError:
        return pending.first()
    return row


def ask_where_due() -> int:
    """Asks for each entry that changed, or whose proof is old, if a worker could do it; how many.

    Called by the clock: so a catalog is verified monthly, and a changed entry within the hour.
    """
    catalog = current_catalog()
    today = timezone.now().date()
    proofs = _all_proofs(catalog)
    asked = 0
    for where in {p.reproduction.where for p in catalog.active if p.reproduction}:
        if not workers.is_any_able(where):
            continue
        for pitfall in catalog.active:
            reproduction = pitfall.reproduction
            if reproduction is None or not reproduction.is_runnable or reproduction.where != where:
                continue
            digest = digest_of(pitfall)
            if all(is_due(proof, digest, today) for proof in proofs[pitfall.slug]):
                asked += ask(pitfall) is not None
    return asked


def queue_next() -> int:
    """Queues the oldest pending verification, if nothing else is to be run; how many were queued.

    One at a time, and after what people wait for: at a month's turn there are a hundred.
    """
    now = timezone.now()
    if Reproduction.objects.filter(state__in=["queued", "running"]).exists():
        return 0
    if Verification.objects.filter(state="running", lease_until__gte=now).exists():
        return 0
    catalog = current_catalog()
    # One that came back for want of a sandbox goes behind those never tried.
    for row in Verification.objects.owed(now).order_by(F("started_at").asc(nulls_first=True), "pk"):
        pitfall = catalog.get(row.slug)
        if pitfall is None or pitfall.reproduction is None:
            Verification.objects.filter(pk=row.pk).delete()
            continue
        route = workers.route(pitfall.reproduction)
        state = Verification.State.QUEUED if route.queue else Verification.State.WAITING
        Verification.objects.filter(pk=row.pk).owed(now).update(
            state=state, waits_for=route.waits_for
        )
        if route.queue:
            queue.enqueue(queue.RUN_VERIFICATION, row.pk, queue=route.queue)
            return 1
    return 0


def run(pk: int) -> bool:
    """Verifies one entry if that is owed and nobody is at it; whether this call did it."""
    owner = leases.claim(Verification, pk)
    if owner is None:
        return False
    row = Verification.objects.get(pk=pk)
    catalog = current_catalog()
    pitfall = catalog.get(row.slug)
    cancelled = threading.Event()
    if pitfall is None:
        return _end(row, owner, error="The catalog no longer has this entry.")
    if row.attempts > leases.MAX_ATTEMPTS:
        return _end(row, owner, error=f"It was cut off {leases.MAX_ATTEMPTS} times.")
    try:
        with leases.kept(lambda: leases.held(Verification, pk, owner), cancelled):
            checked = verify(pitfall, catalog, now=timezone.now(), cancelled=cancelled)
    except NoSandboxError as error:
        leases.hand_back(Verification, pk, owner, str(error))
        return False
    except SoftTimeLimitExceeded:
        return _end(row, owner, error="It took longer than any run may and was stopped.")
    except Exception as error:
        logger.exception("%s failed", row)
        return _end(row, owner, error=f"{type(error).__name__}: {error}")
    if cancelled.is_set():
        return False
    return bool(
        leases.held(Verification, pk, owner).update(
            **_columns(checked), ended_at=timezone.now(), error="", **leases.FREE
        )
    )


def pending_state(slug: str) -> str:
    """How the verification stands that is owed for this entry; "" where none is."""
    rows = Verification.objects.filter(slug=slug).pending()
    return rows.values_list("state", flat=True).first() or ""


def _end(row: Verification, owner: str, *, error: str) -> bool:
    # With its digest: an entry whose run breaks is tried again when it changed, or in a month.
    pitfall = current_catalog().get(row.slug)
    leases.held(Verification, row.pk, owner).update(
        state=Verification.State.FAILED,
        error=error,
        entry_digest=digest_of(pitfall) if pitfall else "",
        ended_at=timezone.now(),
        **leases.FREE,
    )
    return False


def _columns(checked: Checked) -> dict[str, object]:
    proof = checked.proof
    fixed_output = checked.fixed.output if checked.fixed else ""
    columns = {
        "state": Verification.State.DONE,
        "device": proof.device[:200],
        "torch": proof.torch,
        "python": proof.python,
        "cuda": proof.cuda,
        "driver": proof.driver,
        "catalog_version": proof.catalog,
        "entry_digest": proof.entry,
        "reproduced": proof.reproduced,
        "fix_verified": proof.fix_verified,
        "reason": proof.reason,
        "seconds": proof.seconds,
        "broken_lines": list(proof.broken_lines),
        "fixed_lines": list(proof.fixed_lines),
        "broken_output": checked.broken.output[-MAX_OUTPUT_CHARS:],
        "fixed_output": fixed_output[-MAX_OUTPUT_CHARS:],
    }
    return {name: clean_json(value) for name, value in columns.items()}


def _proof(row: Verification) -> Proof:
    at = row.ended_at or row.created_at
    return Proof(
        device=row.device,
        reproduced=row.reproduced,
        fix_verified=row.fix_verified,
        seconds=row.seconds,
        date=at.date().isoformat(),
        torch=row.torch,
        python=row.python,
        catalog=row.catalog_version,
        entry=row.entry_digest,
        reason=row.reason,
        cuda=row.cuda,
        driver=row.driver,
        broken_lines=tuple(row.broken_lines),
        fixed_lines=tuple(row.fixed_lines),
    )


def _all_proofs(catalog: Iterable[Pitfall]) -> dict[str, list[Proof]]:
    """By slug, of all entries in one query; a run that failed counts as old as it is."""
    found: dict[str, list[Proof]] = defaultdict(list)
    for pitfall in catalog:
        found[pitfall.slug] += pitfall.proofs
    ended = Verification.objects.exclude(ended_at=None).defer("broken_output", "fixed_output")
    for row in ended:
        found[row.slug].append(_proof(row))
    return found
