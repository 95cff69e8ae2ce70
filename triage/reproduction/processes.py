"""Reads of /proc: the tree below a process, and what each of its processes uses."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One process as /proc shows it; `depth` counts from the root of the tree."""

    pid: int
    parent: int
    name: str
    state: str
    threads: int
    cpu_s: float
    depth: int = 0

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended and was not waited for."""
        return self.state in "ZX"


def read_text(path: str, limit: int = 1 << 20) -> str:
    """The start of a file of /proc; "" for one that is gone or closed to us."""
    try:
        with Path(path).open("rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def tree(root: int) -> list[Process]:
    """The process and all below it, parents before their children; empty if it is gone."""
    children: dict[int, list[Process]] = defaultdict(list)
    found: Process | None = None
    for process in _all():
        children[process.parent].append(process)
        if process.pid == root:
            found = process
    return list(_below(found, children, 0)) if found else []


def _all() -> Iterator[Process]:
    for name in os.listdir("/proc"):  # noqa: PTH208 (read ten times a second)
        if name.isdigit() and (process := _read(int(name))) is not None:
            yield process


def _read(pid: int) -> Process | None:
    text = read_text(f"/proc/{pid}/stat")
    begin, end = text.find("("), text.rfind(")")
    if begin < 0 or end < 0:
        return None
    rest = text[end + 2 :].split()
    return Process(
        pid=pid,
        parent=int(rest[1]),
        name=text[begin + 1 : end],
        state=rest[0],
        threads=int(rest[17]),
        cpu_s=(int(rest[11]) + int(rest[12])) / _TICKS_PER_SECOND,
    )


def _below(process: Process, children: dict[int, list[Process]], depth: int) -> Iterator[Process]:
    yield Process(
        process.pid, process.parent, process.name, process.state, process.threads, process.cpu_s,
        depth,
    )  # fmt: skip
    for child in sorted(children[process.pid], key=lambda p: p.pid):
        yield from _below(child, children, depth + 1)


def threads(pid: int) -> list[int]:
    """The numbers of its threads; none if it is gone."""
    try:
        return sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def cpu_of_thread(pid: int, thread: int) -> float:
    """The CPU seconds of one thread; 0 if it is gone."""
    rest = read_text(f"/proc/{pid}/task/{thread}/stat").rpartition(")")[2].split()
    return (int(rest[11]) + int(rest[12])) / _TICKS_PER_SECOND if len(rest) > 12 else 0.0


def inner_pid(pid: int, thread: int | None = None) -> int:
    """The number that the process, or its thread, has in its own namespace."""
    path = f"/proc/{pid}/status" if thread is None else f"/proc/{pid}/task/{thread}/status"
    for line in read_text(path).splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid if thread is None else thread


def memory_mib(processes: list[Process], precise_above_mib: int) -> int:
    """What the processes hold together, MiB; what they share counts once if that matters.

    Pages shared after a fork count for each process in the quick sum. Where that passes the
    bound, the slow and precise one decides.
    """
    quick = sum(_anonymous_kib(p.pid) for p in processes) >> 10
    if quick <= precise_above_mib:
        return quick
    return sum(_proportional_kib(p.pid) for p in processes) >> 10 or quick


def _anonymous_kib(pid: int) -> int:
    rows = read_text(f"/proc/{pid}/status").splitlines()
    return sum(int(r.split()[1]) for r in rows if r.startswith(("RssAnon:", "RssShmem:")))


def _proportional_kib(pid: int) -> int:
    rows = read_text(f"/proc/{pid}/smaps_rollup").splitlines()
    wanted = ("Pss_Anon:", "Pss_Shmem:")
    return sum(int(r.split()[1]) for r in rows if r.startswith(wanted))
