"""Holding a row: claimed by one worker, kept by a lease, written by its holder alone."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection, models
from django.db.models import F
from django.utils import timezone

from triage.models import SandboxRun

logger = logging.getLogger(__name__)

#: A run whose worker was lost this often is not tried again.
MAX_ATTEMPTS = 2
#: A lease is renewed this many times before it would end, so that one slow write loses nothing.
RENEWALS_A_LEASE = 4
#: What a row holds that nobody holds.
FREE: dict[str, Any] = {"lease_owner": "", "lease_until": None}
_TICK_S = 0.5


def new() -> dict[str, Any]:
    """The columns of a lease that begins now, with an owner's name of its own."""
    return {"lease_owner": uuid.uuid4().hex, "lease_until": end()}


def end() -> datetime:
    """When a lease ends that is renewed now."""
    return timezone.now() + timedelta(seconds=settings.PITSTOP_LEASE_S)


def claim(kind: type[SandboxRun], pk: int) -> str | None:
    """The owner's name under which this process holds the row; None if it is not to be had."""
    now = timezone.now()
    lease = new()
    owed = kind.objects.filter(pk=pk).owed(now)
    claimed = owed.update(
        state=SandboxRun.State.RUNNING,
        waits_for="",
        started_at=now,
        attempts=F("attempts") + 1,
        **lease,
    )
    return lease["lease_owner"] if claimed else None


def held(kind: type[SandboxRun], pk: int, owner: str) -> models.QuerySet:
    """The row, as long as this owner holds it; else nothing."""
    return kind.objects.filter(pk=pk, state=SandboxRun.State.RUNNING, lease_owner=owner)


def hand_back(kind: type[SandboxRun], pk: int, owner: str, why: str) -> None:
    """Gives up a run that could not begin: it waits for what is missing, and may be tried again."""
    held(kind, pk, owner).update(
        state=SandboxRun.State.WAITING, waits_for=why[:300], attempts=F("attempts") - 1, **FREE
    )


@contextmanager
def kept(
    rows: Callable[[], models.QuerySet],
    cancelled: threading.Event | None = None,
    *,
    changes: Callable[[], dict[str, Any]] = dict,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Renews the lease from a thread while the block runs, and writes what `changes` gives.

    Sets `cancelled` when the row is no longer held, or `is_cancelled` says so.
    """
    cancelled = cancelled or threading.Event()
    is_over = threading.Event()

    def keep() -> None:
        renewed_at = time.monotonic()
        try:
            while not is_over.wait(_TICK_S):
                update = changes()
                is_time = time.monotonic() - renewed_at > (
                    settings.PITSTOP_LEASE_S / RENEWALS_A_LEASE
                )
                try:
                    if update or is_time:
                        renewed_at = time.monotonic()
                        if not rows().update(**update, lease_until=end()):
                            cancelled.set()
                    if is_cancelled():
                        cancelled.set()
                except DatabaseError as error:
                    # Of a lease there is more than one renewal: the next one may do.
                    logger.warning("a lease was not renewed: %s", error)
                    # In a thread nobody else drops a connection that broke.
                    connection.close()
                    renewed_at = float("-inf")
        finally:
            connection.close()

    keeper = threading.Thread(target=keep, name="lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        is_over.set()
        keeper.join()
