"""Runs one reproduction and lets the engine read what it printed, and nothing else."""

from __future__ import annotations

import codecs
import io
import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kb.catalog import Catalog, Pitfall, Reproduction
from kb.catalog.model import END_LINE
from triage.engine import Verdict, diagnose, scan
from triage.reproduction import processes, sandbox
from triage.reproduction.capture import capture
from triage.reproduction.processes import Process
from triage.reproduction.sandbox import Box, Capability, Command, Group, NoSandboxError

MAX_OUTPUT_BYTES = 1 << 20
_LEAST_LIMIT_S = 30
_SPARE_FACTOR = 3
# Torch's libraries are shared and count little; their first touch in a control group counts fully.
_LEAST_MEMORY_MIB = 1024
# A tree that used no more CPU than this for so long stands still.
_STILL_S = 5.0
_STILL_CPU_S = 0.05
_WATCH_S = 0.1
_END_TIMEOUT_S = 10

Listener = Callable[[str], None]


class OptionError(ValueError):
    """An option that the entry does not take, or a number outside its range."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went. `output` is all that the engine read for `verdict`.

    `exit_status` is the script's own, 128 and the signal's number where one ended it, None where
    it was stopped: then `stopped` says why: "hung", "time", "memory", "processes", "output" or
    "cancelled". `notes` are sentences about limits that were met.
    """

    slug: str
    fixed: bool
    options: Mapping[str, int]
    output: str
    verdict: Verdict
    exit_status: int | None
    stopped: str
    seconds: float
    memory_mib: int
    capability: Capability
    notes: tuple[str, ...] = ()
    where: str = "cpu"

    @property
    def ran_to_its_end(self) -> bool:
        """Whether the script printed its last line and ended well."""
        return self.exit_status == 0 and END_LINE in self.output.splitlines()

    @property
    def named(self) -> str:
        """The slug that the engine answers with; "" where it names none."""
        return self.verdict.diagnoses[0].slug if self.verdict.diagnoses else ""

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        words = {
            "": f"ended with exit status {self.exit_status}",
            "hung": "stood still; its stacks were taken from outside",
            "time": "ran into its time limit; its stacks were taken from outside",
            "memory": "was stopped: it used more memory than it may",
            "processes": "was stopped: it started more processes than it may",
            "output": "was stopped: it printed more than it may",
            "cancelled": "was cancelled",
        }
        return words[self.stopped]

    def to_json(self) -> dict[str, Any]:
        """As `reproduce --json` prints it."""
        return {
            "slug": self.slug,
            "fixed": self.fixed,
            "options": dict(self.options),
            "device": device_of(self.capability, self.where),
            "torch": self.capability.torch,
            "exit_status": self.exit_status,
            "stopped": self.stopped,
            "seconds": round(self.seconds, 1),
            "memory_mib": self.memory_mib,
            "notes": list(self.notes),
            "named": self.named,
            **self.verdict.to_json(),
            "output": self.output,
        }


def device_of(capability: Capability, where: str = "cpu") -> str:
    """The device that a proof is about: "cpu", or the name of the first GPU."""
    return "cpu" if where == "cpu" or not capability.devices else capability.devices[0]


def checked_options(pitfall: Pitfall, options: Mapping[str, int]) -> dict[str, int]:
    """The options, each within the range that the entry declares; OptionError for any other."""
    known = {o.name: o for o in pitfall.reproduction.options} if pitfall.reproduction else {}
    for name, value in options.items():
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no options"
            raise OptionError(f"{pitfall.slug} {takes}, not {name}")
        lowest, highest = known[name].lowest, known[name].highest
        if type(value) is not int or not lowest <= value <= highest:
            raise OptionError(f"{name} is a whole number from {lowest} to {highest}, not {value}")
    return dict(options)


def memory_limit_mib(reproduction: Reproduction) -> int:
    """The most memory that a run of it may take, MiB."""
    return max(2 * reproduction.memory_mib, _LEAST_MEMORY_MIB)


def reproduce(
    pitfall: Pitfall,
    catalog: Catalog,
    *,
    fixed: bool = False,
    options: Mapping[str, int] | None = None,
    python: str | None = None,
    on_output: Listener | None = None,
    cancelled: threading.Event | None = None,
) -> Outcome:
    """Runs the entry's script, broken or fixed, and reads its output against the catalog.

    `on_output` gets the output piece by piece as it comes. Raises NoSandboxError where this machine
    cannot run it, OptionError for an option out of range, ValueError for an entry without a script.
    """
    reproduction = pitfall.reproduction
    if reproduction is None or not reproduction.is_runnable:
        raise ValueError(f"{pitfall.slug} has no reproduction that can be run")
    given = checked_options(pitfall, options or {})
    capability = sandbox.probe(python or sandbox.interpreter())
    if missing := capability.lacks(reproduction.where):
        raise NoSandboxError(missing)
    arguments = ["--fixed"] if fixed else []
    for name, value in given.items():
        # The size of /dev/shm is the sandbox's; the script sees it there.
        arguments += [] if name == "shm-mb" else [f"--{name}", str(value)]
    box = Box(
        memory_mib=memory_limit_mib(reproduction),
        shm_mib=given.get("shm-mb", reproduction.shm_mib),
        scratch_mib=reproduction.scratch_mib,
        gpu=reproduction.where != "cpu",
    )
    run = Run(
        pitfall.script.read_bytes(),
        arguments,
        box,
        capability,
        limit_s=max(_SPARE_FACTOR * reproduction.seconds, _LEAST_LIMIT_S),
        may_stand_still=not _hangs(reproduction, fixed=fixed),
        on_output=on_output or (lambda piece: None),
        cancelled=cancelled or threading.Event(),
    )
    run.go()
    output = run.output()
    if output.startswith("bwrap: ") and run.exit_status == 1:
        raise NoSandboxError(f"no sandbox here: {output.strip()}")
    return Outcome(
        slug=pitfall.slug,
        fixed=fixed,
        options=given,
        output=output,
        verdict=read(output, catalog),
        exit_status=run.exit_status,
        stopped=run.stopped,
        seconds=run.seconds,
        memory_mib=run.peak_mib,
        capability=capability,
        notes=tuple(run.notes),
        where=reproduction.where,
    )


def _hangs(reproduction: Reproduction, *, fixed: bool) -> bool:
    return reproduction.ends == "hang" and not fixed


def read(output: str, catalog: Catalog) -> Verdict:
    """What the engine says of an output."""
    stream = io.BytesIO(output.encode("utf-8", "replace"))
    return diagnose([scan(stream, catalog=catalog, name="output")], catalog)


@dataclass
class Run:
    """One script in its sandbox, from start to the last process gone. `go` runs it, once."""

    script: bytes
    arguments: list[str]
    box: Box
    capability: Capability
    limit_s: float
    may_stand_still: bool = True
    on_output: Listener = lambda piece: None
    cancelled: threading.Event = field(default_factory=threading.Event)
    exit_status: int | None = None
    stopped: str = ""
    seconds: float = 0.0
    peak_mib: int = 0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._capture = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._first: int | None = None
        self._still_since = 0.0
        self._still_cpu_s = 0.0
        self._orphans = 0
        self._oom_kills = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def output(self) -> str:
        """What the run printed, what a shell says of its end, and the stacks of one that hung."""
        text = b"".join(self._pieces).decode("utf-8", "replace")
        told = "".join([*self._said_of_the_end(), self._capture])
        return text + ("\n" if told and text and not text.endswith("\n") else "") + told

    def _said_of_the_end(self) -> Iterator[str]:
        """What a launcher and the control group say, where a signal ended the script."""
        if self._oom_kills:
            yield f"memory.events\noom_kill {self._oom_kills}\n"
        status = self.exit_status or 0
        with suppress(ValueError):
            yield f"exit code {status} ({signal.Signals(status - 128).name})\n"

    def go(self) -> None:
        """Runs the script; OSError where the sandbox cannot be started."""
        group = Group(self.box.memory_mib)
        started = time.monotonic()
        try:
            self._start(group)
            self._watch(started)
        finally:
            self.seconds = time.monotonic() - started
            self._end()
            self._tell_limits(group)
            group.remove()

    def _start(self, group: Group) -> None:
        """The sandbox tells its first process and waits: nothing runs outside the group."""
        info_in, info_out = os.pipe()
        block_in, block_out = os.pipe()
        options = ["--info-fd", str(info_out), "--block-fd", str(block_in)]
        try:
            with Command(
                self.capability.interpreter,
                self.script,
                self.arguments,
                self.box,
                mode=self.capability.mode,
                options=options,
            ) as command:
                self._process = subprocess.Popen(
                    command.argv,
                    pass_fds=[*command.fds, info_out, block_in],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
        finally:
            os.close(info_out)
            os.close(block_in)
            self._first = _first_process(info_in)
            if self._first is not None:
                group.add(self._first)
            os.close(info_in)
            # The end of the pipe lets it go on.
            os.close(block_out)

    # ------------------------------------------------------------------------------- the watch

    def _watch(self, started: float) -> None:
        """Reads the output until the script has ended, or a limit is met."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._still_since = started
        next_look = started
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not self.stopped:
                ready = selector.select(_WATCH_S)
                piece = _read_ready(process.stdout.fileno()) if ready else None
                self._keep(piece or b"")
                if process.poll() is not None:
                    self.exit_status = process.returncode
                    return
                if piece == b"":
                    # All of them closed their output and go on: wait without reading.
                    selector.unregister(process.stdout)
                now = time.monotonic()
                if now >= next_look:
                    next_look = now + _WATCH_S
                    self._look(now, started)

    def _look(self, now: float, started: float) -> None:
        process = self._process
        assert process is not None
        if self.cancelled.is_set():
            self.stopped = "cancelled"
            return
        tree = [p for p in processes.tree(process.pid) if p.name != "bwrap"]
        if sum(p.threads for p in tree) >= sandbox.MAX_PROCESSES - 8:
            self.stopped = "processes"
            return
        held = processes.memory_mib(tree, self.box.memory_mib)
        self.peak_mib = max(self.peak_mib, held)
        if tree:
            self._orphans = sum(_is_orphan(p) for p in tree)
        if held > self.box.memory_mib:
            self.stopped = "memory"
        elif now - started > self.limit_s:
            self.stopped = "time"
        elif not self.may_stand_still and self._stands_still(now, tree):
            self.stopped = "hung"
        if self.stopped in ("time", "hung"):
            py_spy = sandbox.find_py_spy(self.capability.interpreter)
            self._capture = capture(process.pid, py_spy, is_over=self.cancelled.is_set)
            if self.cancelled.is_set():
                self.stopped = "cancelled"

    def _stands_still(self, now: float, tree: list[Process]) -> bool:
        """Whether nothing has run for a while, nor waits for a core or a disk."""
        cpu_s = sum(p.cpu_s for p in tree)
        if abs(cpu_s - self._still_cpu_s) > _STILL_CPU_S or any(p.state in "RD" for p in tree):
            self._still_since, self._still_cpu_s = now, cpu_s
        return now - self._still_since > _STILL_S

    def _keep(self, piece: bytes) -> None:
        """Keeps a piece of the output as far as there is room; what overflows stops the run."""
        room = max(MAX_OUTPUT_BYTES - self._size, 0)
        self._size += len(piece)
        if kept := piece[:room]:
            self._pieces.append(kept)
            self.on_output(self._decoder.decode(kept))
        if len(piece) > room and self.exit_status is None:
            self.stopped = self.stopped or "output"

    # --------------------------------------------------------------------------------- the end

    def _end(self) -> None:
        """Ends the sandbox, and returns when its last process is gone."""
        process = self._process
        if process is None:
            return
        first = _handle(self._first)
        process.kill()
        process.wait(_END_TIMEOUT_S)
        if first is not None:
            with selectors.DefaultSelector() as selector:
                # The first process of a namespace ends after all others of it.
                selector.register(first, selectors.EVENT_READ)
                if not selector.select(_END_TIMEOUT_S):
                    self.notes.append("processes of the sandbox did not end when they were killed")
            os.close(first)
        if process.stdout is not None:
            while piece := _read_ready(process.stdout.fileno()):
                self._keep(piece)
            process.stdout.close()

    def _tell_limits(self, group: Group) -> None:
        events = group.events()
        self._oom_kills = events["oom_kill"]
        if self._oom_kills:
            self.notes.append(
                f"the kernel killed {self._oom_kills} processes of the sandbox for want of memory"
            )
        if events["pids_max"]:
            self.notes.append("the sandbox was refused more processes")
        if self._orphans > 0 and not self.stopped:
            self.notes.append(f"left {self._orphans} processes behind, which were killed")
        if self._size > MAX_OUTPUT_BYTES:
            self.notes.append(f"only the first {MAX_OUTPUT_BYTES >> 10} KiB of its output are kept")


def _is_orphan(process: Process) -> bool:
    """Whether the sandbox's first process has it for a child, and it is not the script itself."""
    return process.depth == 2 and not process.is_zombie and processes.inner_pid(process.pid) != 2


def _first_process(info_in: int) -> int | None:
    """The sandbox's first process, by its number here; None where none was started."""
    text = b""
    while piece := os.read(info_in, 4096):
        text += piece
    try:
        return int(json.loads(text)["child-pid"])
    except (ValueError, KeyError):
        return None


def _handle(pid: int | None) -> int | None:
    """A descriptor that becomes readable when the process has ended; None if it has already."""
    with suppress(OSError):
        return os.pidfd_open(pid) if pid is not None else None
    return None


def _read_ready(fd: int) -> bytes | None:
    """What stands ready, b"" at the end, None where nothing does."""
    try:
        return os.read(fd, 65_536)
    except BlockingIOError:
        return None
