"""The worker's and the scheduler's entry point: `celery -A triage.config worker`."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, signals

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.config.settings")

app = Celery("pitstop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@signals.worker_init.connect
def _check_key(**_: Any) -> None:
    from triage.config.serving import refuse_ephemeral_key  # noqa: PLC0415 (needs set-up Django)

    refuse_ephemeral_key()


@signals.worker_ready.connect
def _sweep_at_once(**_: Any) -> None:
    # What a killed worker left behind waits for nobody's schedule.
    app.send_task("triage.tasks.sweep")


@signals.heartbeat_sent.connect
def _show_that_a_worker_lives(**_: Any) -> None:
    # A worker of reproductions alone reads no texts: it is not the one that pages wait for.
    if app.conf.task_default_queue not in app.amqp.queues.consume_from:
        return
    from triage.pages.health import note_worker_heartbeat  # noqa: PLC0415 (needs set-up Django)

    note_worker_heartbeat()


@signals.worker_process_init.connect
def _die_with_the_worker(**_: Any) -> None:
    from triage.management.supervision.lifeline import (  # noqa: PLC0415 (Linux only at run time)
        die_with_parent,
    )

    # Else a pool process whose worker was killed would finish its task unseen.
    die_with_parent()
