"""Stacks of a tree of processes that hangs, taken from outside: nothing runs in the target.

py-spy gives the Python frames, else gdb the compiled ones; the kernel's wait channels come from
/proc always, since a `with lock:` has no Python frame of its own. All numbers are those that the
processes have inside their sandbox.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from triage.reproduction import processes
from triage.reproduction.processes import Process

_MAX_PROCESSES = 32
_MAX_THREADS = 64
_MAX_FRAMES = 64
_TOOL_TIMEOUT_S = 30
_HEADING = re.compile(r"\AProcess \d+: .*?\n(?=Python v)", re.DOTALL)
# py-spy cannot tell across a namespace, and calls each thread active.
_ACTIVE = re.compile(r"^(Thread (\d+)) \(active\)", re.MULTILINE)
_WALL = "bwrap"
_NATIVE_BACKTRACE = "\nStack backtrace:"
_SHARED_OBJECTS = "libpython|libc\\.so|libgomp|libnccl|libcuda|libgloo"
_HELD_BY_GDB = ("#", "Thread ", "[Inferior")


def capture(
    root: int,
    py_spy: str | None,
    *,
    settle_s: float = 1.0,
    is_over: Callable[[], bool] = lambda: False,
) -> str:
    """What the processes below `root` do, as text that the engine reads; `root` itself is left out.

    Ends early, with what it has, when `is_over` says so: a process may take a minute.

    Each process with its state, its wait channels and its stacks. What cannot be read says why.
    """
    at_first = {p.pid: p.cpu_s for p in processes.tree(root)}
    threads_at_first = {pid: _cpu_of_threads(pid) for pid in at_first}
    time.sleep(settle_s)
    found = [p for p in processes.tree(root) if p.name != _WALL][:_MAX_PROCESSES]
    inner = {p.pid: processes.inner_pid(p.pid) for p in found}
    lines = ["=== process tree (cpu seconds twice: equal means idle)"]
    for process in found:
        before = at_first.get(process.pid, process.cpu_s)
        lines.append(
            f"{'  ' * max(process.depth - 2, 0)}{inner[process.pid]} "
            f"ppid {inner.get(process.parent, 1)} state {process.state} "
            f"threads {process.threads} cpu {before:.2f}->{process.cpu_s:.2f} "
            f"[{process.name}] {_command(process.pid)}"
        )
    for process in found:
        if is_over():
            break
        before_of_threads = threads_at_first.get(process.pid, {})
        now = _cpu_of_threads(process.pid)
        idle = {str(tid) for tid, cpu_s in now.items() if before_of_threads.get(tid) == cpu_s}
        about = _one(process, inner[process.pid], inner.get(process.parent, 1), py_spy, idle)
        lines += ["", *about]
    return "\n".join(lines) + "\n"


def _cpu_of_threads(pid: int) -> dict[int, float]:
    """The CPU seconds of each thread, by the number it has inside."""
    return {
        processes.inner_pid(pid, thread): processes.cpu_of_thread(pid, thread)
        for thread in processes.threads(pid)[:_MAX_THREADS]
    }


def _command(pid: int) -> str:
    return " ".join(processes.read_text(f"/proc/{pid}/cmdline", 400).replace("\0", " ").split())


def _one(
    process: Process, pid: int, parent: int, py_spy: str | None, idle: Set[str]
) -> Iterator[str]:
    yield f"=== pid {pid} ppid {parent} state {process.state}"
    if process.is_zombie:
        yield "ended, and not waited for; no stacks"
        return
    yield "threads (tid comm wchan syscall-number):"
    yield from _waits(process.pid)
    yield from _stacks(process.pid, pid, py_spy, idle)


def _waits(pid: int) -> Iterator[str]:
    for thread in processes.threads(pid)[:_MAX_THREADS]:
        place = f"/proc/{pid}/task/{thread}"
        name = processes.read_text(f"{place}/comm").strip() or "?"
        channel = processes.read_text(f"{place}/wchan").strip() or "0"
        call = processes.read_text(f"{place}/syscall").split(" ")[0].strip()
        row = f"  {processes.inner_pid(pid, thread)} {name} {channel}"
        yield f"{row} {call}" if call.isdigit() or call == "running" else row


def _stacks(outer: int, pid: int, py_spy: str | None, idle: Set[str]) -> Iterator[str]:
    why = "py-spy is not installed"
    if py_spy is not None:
        status, text = _run([py_spy, "dump", "--nonblocking", "--pid", str(outer)])
        if status == 0:
            text = _ACTIVE.sub(lambda m: f"{m[1]} (idle)" if m[2] in idle else m[0], text)
            yield f"Process {pid}: {_command(outer)}"
            yield _HEADING.sub("", text).rstrip()
            return
        why = text.partition(_NATIVE_BACKTRACE)[0].strip().replace("\n", " ")[:300]
    if not _is_python(outer):
        yield "no stacks: it runs no Python"
        return
    if shutil.which("gdb") is None:
        yield f"no stacks: {why}; gdb is not installed"
        return
    status, text = _run(
        ["gdb", "-p", str(outer), "-batch", "-nx", "-iex", "set auto-solib-add off",
         "-iex", "set debuginfod enabled off", "-ex", "set pagination off",
         "-ex", f"sharedlibrary ({_SHARED_OBJECTS})", "-ex", f"thread apply all bt {_MAX_FRAMES}"]
    )  # fmt: skip
    kept = [line for line in text.splitlines() if line.startswith(_HELD_BY_GDB)]
    yield f"Process {pid}: {_command(outer)}"
    yield from kept or [f"no stacks: {why}; gdb ended with {status}"]


def _is_python(pid: int) -> bool:
    try:
        return "python" in Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return False


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Exit status and output; 124 where it took too long."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_TOOL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} took longer than {_TOOL_TIMEOUT_S} s"
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")
