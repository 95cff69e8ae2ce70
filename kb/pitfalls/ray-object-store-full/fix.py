"""Feeding tasks without filling the object store."""

from __future__ import annotations

# part: window
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ray


def run_bounded(
    task: Any, items: Iterable[Any], take: Callable[[Any], Any], limit: int = 16
) -> Iterator[Any]:
    """Results of task.remote(item) with at most `limit` objects alive in the store."""
    pending: list[Any] = []
    for item in items:
        if len(pending) >= limit:
            done, pending = ray.wait(pending, num_returns=1)
            yield take(ray.get(done[0]))  # take() copies what is kept; the object is then free
            del done
        pending.append(task.remote(item))
    while pending:
        done, pending = ray.wait(pending, num_returns=1)
        yield take(ray.get(done[0]))


# end: window
