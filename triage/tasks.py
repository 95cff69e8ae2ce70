"""What a worker runs, on one page: each task loads nothing and calls one function."""

from __future__ import annotations

import io
from typing import Any

from celery import shared_task, signals
from django.conf import settings

from triage.engine import diagnose, scan
from triage.services import diagnosis, monthly, reporter, reproductions, verifications, workers
from triage.services import sweep as sweeping
from triage.services.catalog import current_catalog

# Above the soft limit, which the task answers with a clear error, stands the hard one, which kills
# its process: seconds for writing that error.
_GRACE_S = 20


def _work(name: str, limit_s: int) -> Any:
    """A task that is done again where its worker was lost."""
    return shared_task(
        name=f"triage.tasks.{name}",
        soft_time_limit=limit_s,
        time_limit=limit_s + _GRACE_S,
        acks_late=True,
        reject_on_worker_lost=True,
        ignore_result=True,
    )


@signals.worker_init.connect
def _read_the_catalog(**_: Any) -> None:
    # Before the pool forks: its processes share the compiled patterns, and none makes the first
    # person wait for them. What is compiled when first used is used once.
    catalog = current_catalog()
    diagnose(
        [scan(io.BytesIO(b"Traceback (most recent call last):\nError: x\n"), catalog=catalog)],
        catalog,
    )


@signals.worker_ready.connect
def _announce(sender: Any, **_: Any) -> None:
    queues = [name for name in workers.QUEUES if name in sender.app.amqp.queues.consume_from]
    if queues:
        reporter.start(sender.hostname, queues[0], sender.app)


@signals.worker_shutdown.connect
def _leave(**_: Any) -> None:
    reporter.stop()


@_work("scan_submission", settings.PITSTOP_SCAN_LIMIT_S)
def scan_submission(submission_pk: int) -> None:
    """Scans one text."""
    diagnosis.scan_submission(submission_pk)


@_work("diagnose_incident", settings.PITSTOP_DIAGNOSE_LIMIT_S)
def diagnose_incident(incident_pk: int) -> None:
    """Diagnoses one incident from all its evidence."""
    diagnosis.diagnose_incident(incident_pk)


@_work("run_reproduction", settings.PITSTOP_REPRODUCTION_LIMIT_S)
def run_reproduction(reproduction_pk: int) -> None:
    """Runs one reproduction."""
    reproductions.run(reproduction_pk)


@_work("run_verification", settings.PITSTOP_REPRODUCTION_LIMIT_S)
def run_verification(verification_pk: int) -> None:
    """Runs an entry broken and fixed."""
    verifications.run(verification_pk)


@shared_task(name="triage.tasks.ask_due_verifications", soft_time_limit=60, ignore_result=True)
def ask_due_verifications() -> None:
    """Asks for the entries that changed or were last verified long ago; the sweep queues them."""
    verifications.ask_where_due()


@shared_task(name="triage.tasks.write_reports", soft_time_limit=300, ignore_result=True)
def write_reports() -> None:
    """Writes the months that have ended and were not written yet."""
    monthly.write_due()


@shared_task(name="triage.tasks.sweep", soft_time_limit=60, time_limit=80, ignore_result=True)
def sweep() -> None:
    """Queues again what is owed."""
    sweeping.sweep()
