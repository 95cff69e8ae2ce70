"""One document makes a native tokenizer read through a bad pointer, in a process of a pool."""

import ctypes
import sys


def count_tokens(text):
    if not text.isprintable():
        ctypes.string_at(1, 4)  # what native code does with an input it does not expect
    return len(text.split())


# part: fixed
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any


def run_alone(task: Callable[[Any], Any], item: Any) -> Any:
    """task(item) in a process of its own; None if that process dies of it."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        try:
            return pool.submit(task, item).result()
        except BrokenProcessPool:
            print(f"left out: {str(item)[:80]!r} ends the process that works on it", flush=True)
            return None


def run(
    task: Callable[[Any], Any], items: Iterable[Any], processes: int = 4, part: int = 1000
) -> Iterator[Any]:
    """task over items, in order; where a pool breaks, that part is done again one by one."""
    items = list(items)
    for start in range(0, len(items), part):
        some = items[start : start + part]
        with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
            try:
                done = list(pool.map(task, some))
            except BrokenProcessPool:
                done = [run_alone(task, item) for item in some]
        yield from done


# end: fixed


def run_in_one_pool(task, items, processes):
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        yield from pool.map(task, items)


if __name__ == "__main__":
    documents = [f"document {number} of the set" for number in range(40)]
    documents[7] = "\x00\x01"
    work = run if "--fixed" in sys.argv else run_in_one_pool
    counts = [count for count in work(count_tokens, documents, processes=2) if count is not None]
    print(f"{len(counts)} documents, {sum(counts)} tokens")
    print("ran to its end")
