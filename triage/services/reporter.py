"""A worker of reproductions says what it has, every few seconds for as long as it lives.

One whose probe fails says so and takes nothing from its queue.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from django.db import Error as DatabaseError
from django.db import connection

from triage.reproduction import Capability, interpreter, probe
from triage.services import workers

logger = logging.getLogger(__name__)

_EVERY_S = 10
_END_TIMEOUT_S = 3

_is_over = threading.Event()
_threads: list[threading.Thread] = []


def start(name: str, queue: str, app: Any) -> None:
    """Nothing; from now on the worker of this name reports, from a thread of its own."""
    _is_over.clear()
    thread = threading.Thread(target=_report, args=(name, queue, app), name="reporter", daemon=True)
    thread.start()
    _threads.append(thread)


def stop() -> None:
    """Nothing; takes back what was announced."""
    _is_over.set()
    while _threads:
        _threads.pop().join(_END_TIMEOUT_S)


def _report(name: str, queue: str, app: Any) -> None:
    capability = probe(interpreter())
    missing = capability.lacks("gpu1" if queue == "gpu" else "cpu")
    if missing:
        logger.warning("%s runs no reproductions: %s", name, missing)
        app.control.cancel_consumer(queue, destination=[name])
    else:
        logger.info("%s runs reproductions: %s", name, _in_words(capability))
    first = True
    try:
        while first or not _is_over.wait(_EVERY_S):
            try:
                workers.announce(name, queue, capability)
                if first:
                    # Somebody may have waited for just this one.
                    app.send_task("triage.tasks.sweep")
                first = False
            except DatabaseError as error:
                logger.warning("%s could not report: %s", name, error)
                first = False
        workers.leave(name)
    except DatabaseError as error:
        logger.warning("%s could not take its leave: %s", name, error)
    finally:
        connection.close()


def _in_words(capability: Capability) -> str:
    devices = ", ".join(capability.devices) or "no GPU"
    return f"torch {capability.torch}, {devices}, {capability.memory_mib} MiB of memory"
