"""Preprocessing in a pool that cannot grow without end."""

from __future__ import annotations

# part: pool
import faulthandler
import resource
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def _prepare(limit_bytes: int) -> None:
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))  # MemoryError, not SIGKILL


def run(task: Callable[[Any], Any], items: Iterable[Any], limit_gib: int = 8) -> Iterator[Any]:
    """task over items in 4 fresh processes of at most `limit_gib` address space each."""
    with ProcessPoolExecutor(
        max_workers=4,
        mp_context=get_context("spawn"),  # no locks or CUDA state from the parent
        initializer=_prepare,
        initargs=(limit_gib << 30,),
        max_tasks_per_child=500,  # Python >= 3.11
    ) as pool:
        yield from pool.map(task, items, chunksize=16)


# end: pool
