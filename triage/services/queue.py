"""Hands work to the workers by name, once the transaction at hand is committed."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

SCAN_SUBMISSION = "triage.tasks.scan_submission"
DIAGNOSE_INCIDENT = "triage.tasks.diagnose_incident"
RUN_REPRODUCTION = "triage.tasks.run_reproduction"
RUN_VERIFICATION = "triage.tasks.run_verification"


def enqueue(name: str, *args: Any, queue: str | None = None) -> None:
    """Queues this task after the commit; at once where no transaction is open.

    It goes to `queue`, else where the settings route it.

    The row that owes the work is the truth and the sweep finds it again, so a queue that is away
    is no error here.
    """
    transaction.on_commit(partial(_send, name, args, queue))


def _send(name: str, args: tuple[Any, ...], queue: str | None = None) -> None:
    try:
        current_app.tasks[name].apply_async(args=args, queue=queue, retry=False)
    except (OperationalError, ConnectionError) as error:
        logger.warning("%s%r waits for the sweep: the queue is away (%s)", name, args, error)
