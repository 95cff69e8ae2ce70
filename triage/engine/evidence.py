"""The values that parsers yield, and the compact Evidence of one text."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


class EvidenceError(ValueError):
    """A stored evidence document is not one, or is of a form this version cannot read."""


class TextError(OSError):
    """A file that cannot be read as a text; its message says what to do."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a catalog pattern matched.

    `pattern` is the pattern's text. `warning` says that the line is a warning, `handled` that the
    line itself says that the error was dealt with, `mention` that the words are advice, a setting
    or quoted code rather than an event.
    """

    pattern: str
    line: int
    text: str
    rank: int | None = None
    host: str | None = None
    time: float | None = None
    values: dict[str, str] = field(default_factory=dict)
    warning: bool = False
    handled: bool = False
    mention: bool = False
    end_line: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a Python stack: path, line number (None where it is not printed), function."""

    path: str
    line: int | None
    function: str
    code: str = ""

    @property
    def is_library(self) -> bool:
        """Whether the frame belongs to an installed package or to Python itself."""
        path = self.path.replace("\\", "/")
        return (
            "site-packages/" in path
            or "dist-packages/" in path
            or "/lib/python" in path
            or "/lib64/python" in path
            or path.startswith(("<", "torch/", "multiprocessing/", "threading.py", "runpy.py"))
            or ("/lib/" in path and "anaconda" in path.lower())
        )


@dataclass(frozen=True, slots=True)
class Traceback:
    """A Python traceback: frames outermost first, then the exception.

    `link` is "" for the first of a chain, "cause" or "context" for one that another one led to.
    `inside` names the process that it was carried out of (a DataLoader worker, a pin-memory
    thread), where the text says so.
    """

    line: int
    end_line: int
    exception: str
    message: str
    frames: tuple[Frame, ...] = ()
    rank: int | None = None
    host: str | None = None
    time: float | None = None
    link: str = ""
    inside: str = ""
    warning: bool = False

    @property
    def culprit(self) -> Frame | None:
        """The deepest frame outside libraries, else the deepest one."""
        for frame in reversed(self.frames):
            if not frame.is_library:
                return frame
        return self.frames[-1] if self.frames else None


@dataclass(frozen=True, slots=True)
class CollectiveEvent:
    """What one rank says of one collective; durations are milliseconds, as printed.

    `kind` is "timeout" (this rank's own collective timed out), "state" (last enqueued and
    completed numbers), "observed" (it only saw another rank's signal), "mismatch" (a fingerprint
    of TORCH_DISTRIBUTED_DEBUG=DETAIL), "absent" (a peer says that this rank did not join), "wait"
    (its wait for the store ran out), "joined" (it came to a group of `size` ranks; `op` is START or
    COMPLETE), "called" (a call that NCCL logged). NCCL's RAS adds "launched" (calls of `op` up to
    `seq_num`, by this rank or by `size` ranks), "status", and of processes "dead" and "silent".
    `is_named_by_peer`: another rank's line tells of this one.
    """

    kind: str
    line: int
    rank: int | None
    group: str = ""
    seq_num: int | None = None
    op: str = ""
    numel_in: int | None = None
    numel_out: int | None = None
    shape: str = ""
    timeout_ms: int | None = None
    ran_ms: int | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None
    size: int | None = None
    is_named_by_peer: bool = False
    host: str | None = None
    time: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a stack dump; frames innermost first.

    `state` is what the dump says ("idle", "active", ""), `wait_channel` what the kernel says.
    """

    name: str
    frames: tuple[Frame, ...]
    line: int
    state: str = ""
    wait_channel: str = ""
    thread_id: str = ""


@dataclass(frozen=True, slots=True)
class StackDump:
    """The threads of one process at one moment."""

    pid: int | None
    line: int
    end_line: int
    threads: tuple[Thread, ...]
    command: str = ""
    rank: int | None = None
    parent_pid: int | None = None

    @property
    def main(self) -> Thread | None:
        """The main thread, else the first one that a dump without names shows."""
        for thread in self.threads:
            if thread.name in ("MainThread", "main"):
                return thread
        unnamed = [t for t in self.threads if not t.name]
        return unnamed[-1] if unnamed else None


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended, as a launcher, a shell or the parent process says."""

    line: int
    source: str
    exit_code: int | None = None
    signal: str = ""
    rank: int | None = None
    pid: int | None = None
    host: str | None = None
    is_first: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """One position of a progress bar or step counter; `elapsed_s` is seconds."""

    line: int
    name: str
    done: int
    total: int | None = None
    elapsed_s: float | None = None
    rank: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """One number of a series, and the step that its line names.

    `series` is loss, val_loss, grad_norm, learning_rate, loss_scale, skipped_step (the scale at
    which a step was skipped), skipped_total (skipped so far), gpu_memory and host_memory (MiB),
    step_time and epoch_time (seconds), or graph_nodes:NAME.
    """

    series: str
    line: int
    value: float
    rank: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class FlightEntry:
    """One record of a flight recorder: a collective, or a send or receive, that a rank enqueued.

    `seq` counts the rank's collectives of this process group (its point-to-point calls where
    `is_p2p`); `op` is the name without the backend. `state` is scheduled, started or completed.
    `inputs` and `outputs` are the first shapes, `numel_in` and `numel_out` the elements of all.
    `source` and `destination` are ranks within the group. `frames` is where the call was made:
    torch's own frame, where there is one, then the deepest frames outside libraries.
    """

    seq: int
    op: str
    is_p2p: bool = False
    state: str = "scheduled"
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    numel_in: int = 0
    numel_out: int = 0
    dtype_in: str = ""
    dtype_out: str = ""
    source: int | None = None
    destination: int | None = None
    frames: tuple[Frame, ...] = ()
    created_ns: int | None = None
    timeout_ms: int | None = None

    @property
    def call_site(self) -> Frame | None:
        """The deepest frame outside libraries, else the only one that is known."""
        own = [frame for frame in self.frames if not frame.is_library]
        return own[0] if own else next(iter(self.frames), None)


@dataclass(frozen=True, slots=True)
class FlightGroup:
    """What one rank did in one process group, in the order in which it enqueued it.

    `ranks` are the group's members, empty where the dump does not list them. `is_cut` says that
    earlier records are lost or left out.
    """

    name: str
    desc: str = ""
    ranks: tuple[int, ...] = ()
    entries: tuple[FlightEntry, ...] = ()
    last_enqueued: int = 0
    last_completed: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class FlightDump:
    """The flight-recorder dump of one rank; `rank` is known from the file's name alone.

    `entries` counts all records of the dump, kept or not.
    """

    version: str = ""
    rank: int | None = None
    groups: tuple[FlightGroup, ...] = ()
    entries: int = 0
    is_cut: bool = False


@dataclass(slots=True)
class Evidence:
    """What one text shows, compact and independent of where it was scanned.

    `lines` and `bytes` are the text's size; `ranks` the ranks that prefixes and messages name,
    `counts` how many lines at least matched a pattern beyond the hits that are kept, `point_counts`
    how many numbers each series had (`loss`, or `loss:3` for rank 3), `last_lines` by rank the last
    lines as "NUMBER<TAB>TEXT", the newest first (see said_last). `refused` says why a file was
    not read at all.
    """

    name: str = ""
    lines: int = 0
    bytes: int = 0
    catalog: str = ""
    encoding: str = "utf-8"
    ranks: tuple[int, ...] = ()
    launchers: tuple[str, ...] = ()
    torch_version: str = ""
    world_size: int | None = None
    first_time: float | None = None
    last_time: float | None = None
    notes: list[str] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    tracebacks: list[Traceback] = field(default_factory=list)
    collectives: list[CollectiveEvent] = field(default_factory=list)
    stacks: list[StackDump] = field(default_factory=list)
    exits: list[ExitStatus] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    point_counts: dict[str, int] = field(default_factory=dict)
    last_lines: dict[str, str] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    errors: list[Hit] = field(default_factory=list)
    flight: FlightDump | None = None
    refused: str = ""

    def said_last(self) -> Iterator[tuple[int | None, list[tuple[int, str]]]]:
        """Each rank's last lines with their numbers, the newest first; rank None for the rest."""
        for rank, lines in self.last_lines.items():
            said = [line.partition("\t") for line in lines.split("\n")]
            yield (
                None if rank == "None" else int(rank),
                [(int(number), text) for number, _, text in said if number.isdecimal()],
            )

    @property
    def kind(self) -> str:
        """What sort of text this is, in words: "8 ranks, torchrun"."""
        words = []
        if len(self.ranks) > 1:
            words.append(f"{len(self.ranks)} ranks")
        elif self.ranks:
            words.append(f"rank {self.ranks[0]}")
        words.extend(self.launchers)
        if self.stacks:
            count = len(self.stacks)
            words.append(f"stack dumps of {count} process{'es' if count != 1 else ''}")
        if self.flight is not None:
            words.append("flight recorder")
        return ", ".join(words) or "log"

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document that from_json reads back to an equal Evidence."""
        document = _dump(self)
        document["format"] = 1
        return typing.cast("dict[str, Any]", document)

    @classmethod
    def from_json(cls, document: Any) -> Evidence:
        """The Evidence that to_json wrote; raises EvidenceError for anything else."""
        if not isinstance(document, dict) or document.get("format") != 1:
            raise EvidenceError("not an evidence document of format 1")
        body = {key: value for key, value in document.items() if key != "format"}
        try:
            return typing.cast("Evidence", _load(cls, body))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise EvidenceError(f"broken evidence document: {error}") from error


def _dump(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        document = {}
        for item in dataclasses.fields(value):
            content = getattr(value, item.name)
            if item.default is dataclasses.MISSING or content != item.default:
                document[item.name] = _dump(content)
        return document
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no word for these, and PostgreSQL refuses Python's.
        return str(value)
    if isinstance(value, list | tuple):
        return [_dump(item) for item in value]
    if isinstance(value, dict):
        return {key: _dump(item) for key, item in value.items()}
    return value


_HINTS: dict[type, dict[str, Any]] = {}


def _load(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        (kind,) = (k for k in typing.get_args(kind) if k is not type(None))
        return _load(kind, value)
    if origin is tuple:
        return tuple(_load(typing.get_args(kind)[0], item) for item in value)
    if origin is list:
        return [_load(typing.get_args(kind)[0], item) for item in value]
    if origin is dict:
        return {str(key): _load(typing.get_args(kind)[1], item) for key, item in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = _HINTS.setdefault(kind, typing.get_type_hints(kind))
        return kind(**{key: _load(hints[key], item) for key, item in value.items()})
    if kind is float and value in ("nan", "inf", "-inf"):
        return float(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value
