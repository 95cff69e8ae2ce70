"""Dumps of PyTorch's flight recorder, JSON or pickle, read without running anything in them.

A dump is what `torch.distributed` writes when a collective times out: a file a rank, by default
`nccl_trace_rank_N` as a pickle, `_dump_fr_trace_json()` as JSON. Source:
torch/csrc/distributed/c10d/FlightRecorderDetail.hpp.

The module `pickle` never sees such a file. Its opcodes are walked one by one; those that build
lists, tuples, dicts, strings and numbers are carried out here, every other one is refused, so no
name is looked up and no function called. What a few bytes can blow up to is counted and bounded.
"""

from __future__ import annotations

import json
import math
import pickletools
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from triage.engine.evidence import EvidenceError, FlightDump, FlightEntry, FlightGroup, Frame
from triage.engine.regex import regex

# 20,000 records with whole stacks, the largest buffer in use, come to about 40 MiB.
MAX_DUMP_BYTES = 64 * 1024 * 1024
_MAX_VALUES = 4_000_000
_MAX_COPIES = 2_000_000
_MAX_CHARS = 128 * 1024 * 1024
_MAX_DEPTH = 12

# Kept of a dump: the last records of each process group, with what tells them apart.
_MAX_GROUPS = 128
_ENTRIES_PER_GROUP = 256
_MAX_ENTRIES = 2_048
_ENTRIES_BEFORE_STUCK = 32
_MAX_SIZES = 16
_MAX_DIMENSIONS = 12
_MAX_TEXT_CHARS = 300
_CALLERS = 2
_STACK_FRAMES = 48

_KEYS = (
    rb"version|entries|pg_config|pg_status|comm_lib_version|nccl_version|nccl_comm_state|"
    rb"rank|host_name"
)
_JSON_START = regex(rb"(?:\xef\xbb\xbf)?\s{0,64}\{\s{0,64}\"(?:" + _KEYS + rb")\"\s{0,8}:")
_JSON_MARKS = (b'"entries"', b'"pg_config"')
_PICKLE_START = regex(rb"\x80[\x02-\x05]")

#: Bytes that is_pickle and may_be_json need to see, unless the text is shorter.
START_BYTES = 256
#: Bytes within which a JSON dump shows one of its own keys.
JSON_SAMPLE_BYTES = 256 * 1024


def is_pickle(start: bytes) -> bool:
    """Whether a text begins like a Python pickle of protocol 2 to 5; no log does."""
    return _PICKLE_START.match(start) is not None


def may_be_json(start: bytes) -> bool:
    """Whether a text begins like a dump in JSON; is_json_dump looks closer."""
    return _JSON_START.match(start) is not None


def is_json_dump(sample: bytes) -> bool:
    """Whether the first JSON_SAMPLE_BYTES of a text that may_be_json name a dump's own keys."""
    return any(mark in sample for mark in _JSON_MARKS)


def read_pickle(data: bytes, name: str = "") -> FlightDump:
    """The dump in these bytes; EvidenceError says why they are refused."""
    return _read(_load_pickle(data), name)


def read_json(data: bytes, name: str = "") -> FlightDump:
    """The dump in this JSON text; EvidenceError if it is broken, too large or something else."""
    return _read(_load_json(data), name)


def pickle_to_json(data: bytes) -> bytes:
    """A pickled dump as JSON text, one record a line; EvidenceError says why it is refused.

    read_json of the result gives what read_pickle of the bytes gives.
    """
    document = _load_pickle(data)
    entries = _entries_of(document)
    head = document if isinstance(document, dict) else {}
    plain = _Plain()
    lines = [f'{{"version": {json.dumps(plain.copy(head.get("version", "")))}']
    for key, value in head.items():
        if key not in ("version", "entries"):
            lines.append(f"{json.dumps(key)}: {json.dumps(plain.copy(value))}")
    records = []
    for entry in entries:
        record = {key: plain.copy(_shortened(key, value)) for key, value in entry.items()}
        records.append(json.dumps(record))
    return (",\n".join(lines) + ',\n"entries": [\n' + ",\n".join(records) + "\n]}\n").encode()


def _shortened(key: str, value: Any) -> Any:
    return value[:_STACK_FRAMES] if key == "frames" and isinstance(value, list | tuple) else value


class _Plain:
    """Copies values as they go into JSON, and counts them: shared parts come out many times."""

    def __init__(self) -> None:
        self._values = 0
        self._chars = 0

    def copy(self, value: Any, depth: int = 0) -> Any:
        self._values += 1
        if isinstance(value, str):
            self._chars += len(value)
        if self._values > _MAX_COPIES or self._chars > _MAX_CHARS:
            raise EvidenceError("it unfolds to more than a dump ever holds")
        if depth > _MAX_DEPTH:
            raise EvidenceError("it is nested deeper than a dump ever is")
        if isinstance(value, list | tuple):
            return [self.copy(item, depth + 1) for item in value]
        if isinstance(value, dict):
            self._chars += sum(len(key) for key in value)
            return {key: self.copy(item, depth + 1) for key, item in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value


# ------------------------------------------------------------------------------------- JSON


def _load_json(data: bytes) -> Any:
    if len(data) > MAX_DUMP_BYTES:
        raise EvidenceError(f"it is larger than {MAX_DUMP_BYTES >> 20} MiB")
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_VALUES:
        raise EvidenceError(f"it holds more than {_MAX_VALUES} values")
    try:
        return json.loads(data.decode("utf-8-sig", "replace"))
    except RecursionError:
        raise EvidenceError("it is nested deeper than a dump ever is") from None
    except ValueError as error:
        raise EvidenceError(f"it is no whole JSON text: {error}") from None


# ----------------------------------------------------------------------------------- pickle

_MARK = object()
_OPCODES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_NAMES_CODE = {
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1",
    "EXT2", "EXT4", "PERSID", "BINPERSID",
}  # fmt: skip


def _load_pickle(data: bytes) -> Any:
    if len(data) > MAX_DUMP_BYTES:
        raise EvidenceError(f"it is larger than {MAX_DUMP_BYTES >> 20} MiB")
    try:
        return _Machine(data).run()
    except EvidenceError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, struct.error) as error:
        raise EvidenceError(f"it is a broken pickle: {error}") from None


class _Machine:
    """Carries out the opcodes that build plain values.

    Keys of dicts are strings only: others cannot be in a dump, and numbers and tuples can be
    chosen so that their hashes collide.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """The value that the pickle describes; EvidenceError at the first foreign opcode."""
        data, end, memo, push = self._data, len(self._data), self._memo, self._stack.append
        for _ in range(_MAX_VALUES):
            at = self._at
            if at >= end:
                raise EvidenceError("it is a broken pickle: its end is missing")
            code = data[at]
            # Half of the opcodes recall a value; a call for each would double the time.
            if code == 0x68:
                push(memo[data[at + 1]])
                self._at = at + 2
                continue
            self._at = at + 1
            if code == 0x2E:
                if len(self._stack) != 1:
                    raise EvidenceError("it is a broken pickle: not one value is left")
                return self._pop()
            step = _STEPS.get(code)
            if step is None:
                raise EvidenceError(self._refusal(code))
            step(self)
        raise EvidenceError(f"it has more than {_MAX_VALUES} opcodes")

    # What follows an opcode.

    def _take(self, size: int) -> bytes:
        start = self._at
        self._at = start + size
        if self._at > len(self._data):
            raise EvidenceError("it is a broken pickle: its end is missing")
        return self._data[start : self._at]

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    # One method an opcode, or a few that differ in a size.

    def skip(self, size: int) -> None:
        """PROTO and FRAME: nothing follows from them."""
        self._take(size)

    def constant(self, value: Any) -> None:
        self._stack.append(value)

    def list_(self) -> None:
        self._stack.append([])

    def dict_(self) -> None:
        self._stack.append({})

    def unsigned(self, size: int) -> None:
        self._stack.append(self._number(size))

    def signed(self) -> None:
        self._stack.append(int.from_bytes(self._take(4), "little", signed=True))

    def long(self) -> None:
        """LONG1; what has more than 64 bits is in no dump."""
        size = self._number(1)
        if size > 9:
            raise EvidenceError("it holds a number of more than 64 bits")
        self._stack.append(int.from_bytes(self._take(size), "little", signed=True))

    def float_(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def text(self, size: int) -> None:
        self._stack.append(self._take(self._number(size)).decode("utf-8", "replace"))

    def put(self, size: int) -> None:
        self._memo[self._number(size)] = self._top()

    def memoize(self) -> None:
        self._memo[len(self._memo)] = self._top()

    def get(self, size: int) -> None:
        self._stack.append(self._memo[self._number(size)])

    def tuple_(self, size: int) -> None:
        items = [self._pop() for _ in range(size)]
        self._stack.append(tuple(reversed(items)))

    def tuple_to_mark(self) -> None:
        self._stack.append(tuple(self._pop_to_mark()))

    def append(self) -> None:
        self._extend([self._pop()])

    def appends(self) -> None:
        self._extend(self._pop_to_mark())

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._update([key, value])

    def set_items(self) -> None:
        self._update(self._pop_to_mark())

    # The stack.

    def _extend(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not list:
            raise EvidenceError("it is a broken pickle: no list where one must be")
        target.extend(items)

    def _update(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not dict or len(items) % 2:
            raise EvidenceError("it is a broken pickle: no dict where one must be")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                raise EvidenceError("it has a key that is no string, so it is no dump")
            target[key] = value

    def _top(self) -> Any:
        value = self._stack[-1]
        if value is _MARK:
            raise EvidenceError("it is a broken pickle: a value is missing")
        return value

    def _pop(self) -> Any:
        value = self._top()
        self._stack.pop()
        return value

    def _pop_to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (value := self._stack.pop()) is not _MARK:
            items.append(value)
        return items[::-1]

    def _refusal(self, code: int) -> str:
        name = _OPCODES.get(code) or f"the unknown opcode {code:#04x}"
        at = self._at - 1
        if name not in _NAMES_CODE:
            return f"it holds {name} at byte {at}, which no dump has"
        what = ""
        if name in ("GLOBAL", "INST"):
            what = self._data[self._at : self._at + 160].decode("utf-8", "replace")
            what = ".".join(what.split("\n")[:2])
        elif name == "STACK_GLOBAL":
            what = ".".join(part for part in self._stack[-2:] if isinstance(part, str))
        named = f" ({_clean(what, 80)})" if what else ""
        return (
            f"it would run code when unpickled: {name}{named} at byte {at}; nothing of it was "
            "run, and a dump has no such thing"
        )


_Step = Callable[[_Machine], None]


def _with(step: Callable[[_Machine, Any], None], argument: Any) -> _Step:
    return lambda machine: step(machine, argument)


#: What each opcode that may occur does; those of protocols 2 to 5 that build plain values.
_STEPS: dict[int, _Step] = {
    0x80: _with(_Machine.skip, 1),  # PROTO
    0x95: _with(_Machine.skip, 8),  # FRAME
    ord("("): _with(_Machine.constant, _MARK),
    ord("N"): _with(_Machine.constant, None),
    0x88: _with(_Machine.constant, True),
    0x89: _with(_Machine.constant, False),
    ord("K"): _with(_Machine.unsigned, 1),
    ord("M"): _with(_Machine.unsigned, 2),
    ord("J"): _Machine.signed,
    0x8A: _Machine.long,
    ord("G"): _Machine.float_,
    0x8C: _with(_Machine.text, 1),
    ord("X"): _with(_Machine.text, 4),
    0x8D: _with(_Machine.text, 8),
    ord("]"): _Machine.list_,
    ord("}"): _Machine.dict_,
    ord(")"): _with(_Machine.tuple_, 0),
    0x85: _with(_Machine.tuple_, 1),
    0x86: _with(_Machine.tuple_, 2),
    0x87: _with(_Machine.tuple_, 3),
    ord("t"): _Machine.tuple_to_mark,
    ord("a"): _Machine.append,
    ord("e"): _Machine.appends,
    ord("s"): _Machine.set_item,
    ord("u"): _Machine.set_items,
    ord("q"): _with(_Machine.put, 1),
    ord("r"): _with(_Machine.put, 4),
    0x94: _Machine.memoize,
    ord("h"): _with(_Machine.get, 1),
    ord("j"): _with(_Machine.get, 4),
}


# ------------------------------------------------------------------------- values → the dump


def _entries_of(document: Any) -> list[Mapping[str, Any]]:
    """The records of a dump; before torch 2.3 the list of them was the whole dump."""
    entries = document.get("entries") if isinstance(document, dict) else document
    if not isinstance(entries, list | tuple):
        raise EvidenceError("it has no list of entries")
    found: list[Mapping[str, Any]] = [entry for entry in entries if isinstance(entry, dict)]
    is_marked = isinstance(document, dict) and ("pg_config" in document or "version" in document)
    if not any("profiling_name" in entry for entry in found) and (entries or not is_marked):
        raise EvidenceError("its entries are no collectives")
    return found


def _read(document: Any, name: str) -> FlightDump:
    entries = _entries_of(document)
    head: Mapping[str, Any] = document if isinstance(document, dict) else {}
    config = _configured(head.get("pg_config"))
    status = head.get("pg_status")
    by_group: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for entry in entries:
        by_group[_group_of(entry)].append(entry)
    for group_name, desc, ranks in config:
        # A group of which the rank never enqueued anything is news, too.
        if group_name and (group_name, desc) not in by_group and len(ranks) > 1:
            by_group[(group_name, desc)] = []
    records = [n for n in (_int(entry.get("record_id")) for entry in entries) if n is not None]
    # A ring that has come round has lost its first records; without numbers, a full one may have.
    is_cut = min(records) > 0 if records else len(entries) >= 1_000
    share = max(16, min(_ENTRIES_PER_GROUP, _MAX_ENTRIES // max(1, len(by_group))))
    groups = [
        _group(key, records_of_group, config, status, is_cut=is_cut, share=share)
        for key, records_of_group in list(by_group.items())[:_MAX_GROUPS]
    ]
    rank = _int(head.get("rank"))
    return FlightDump(
        version=_text(head.get("version"), 20),
        rank=rank if rank is not None else rank_of_name(name),
        groups=tuple(groups),
        entries=len(entries),
        is_cut=is_cut,
    )


_NAMED_RANK = regex(r"(?i)(?:rank|trace|node_?rank|dump)[_\-.= ]{0,3}(\d{1,6})(?!.*rank)")
_LAST_NUMBER = regex(r"(\d{1,6})$")
_ENDINGS = regex(r"(?i)(?:\.(?:json|pkl|pickle|p|gz|zst|txt|bin|dump|trace|fr|log))+$")


def rank_of_name(name: str) -> int | None:
    """The rank in a dump's file name: 3 of nccl_trace_rank_3, rank3.json, fr-3.pkl."""
    base = _ENDINGS.sub("", PurePosixPath(name.replace("\\", "/")).name)
    found = _NAMED_RANK.search(base) or _LAST_NUMBER.search(base)
    return int(found[1]) if found else None


def _group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    group = entry.get("process_group")
    if isinstance(group, list | tuple) and group:
        name = _text(group[0], 120)
        desc = _text(group[1], 120) if len(group) > 1 else ""
        return name, "" if desc == "undefined" else desc
    if isinstance(group, str):
        return _clean(group, 120), ""
    number = _int(entry.get("pg_id"))
    return str(number if number is not None else 0), ""


def _configured(config: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    """(name, description, ranks) of each group that the dump lists."""
    if not isinstance(config, dict):
        return []
    listed = []
    for key, value in list(config.items())[: 4 * _MAX_GROUPS]:
        name, desc, ranks = key, "", value
        if isinstance(value, dict):
            name = _text(value.get("name"), 120) or key
            desc = _text(value.get("desc"), 120)
            ranks = value.get("ranks")
        listed.append((_clean(name, 120), "" if desc == "undefined" else desc, _ranks(ranks)))
    return listed


def _ranks(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        numbers: Sequence[Any] = re.findall(r"\d{1,7}", value[: 1 << 20])
    elif isinstance(value, list | tuple):
        numbers = value
    else:
        return ()
    return tuple(sorted({n for n in map(_int, numbers) if n is not None and n >= 0}))[:16_384]


def _group(
    key: tuple[str, str],
    entries: Sequence[Mapping[str, Any]],
    config: Sequence[tuple[str, str, tuple[int, ...]]],
    status: Any,
    *,
    is_cut: bool,
    share: int,
) -> FlightGroup:
    numbers = _status_of(status, entries, key[0])
    enqueued, completed = numbers.get("enqueued"), numbers.get("completed")
    marks = [_mark(entry, completed) for entry in entries]
    first_open = next((i for i, mark in enumerate(marks) if not mark.is_done), len(marks))
    start = max(0, min(len(marks) - share, first_open - _ENTRIES_BEFORE_STUCK))
    kept = [
        _entry(entry, mark)
        for entry, mark in zip(entries[start : start + share], marks[start:], strict=False)
    ]
    collectives = [mark for mark in marks if not mark.is_p2p]
    return FlightGroup(
        name=key[0],
        desc=key[1],
        ranks=_members(key, config),
        entries=tuple(kept),
        last_enqueued=max([enqueued or 0, *(mark.seq for mark in collectives)]),
        last_completed=max([completed or 0, *(mark.seq for mark in collectives if mark.is_done)]),
        is_cut=is_cut or len(kept) < len(entries),
    )


def _members(
    key: tuple[str, str], config: Sequence[tuple[str, str, tuple[int, ...]]]
) -> tuple[int, ...]:
    same = [c for c in config if c[0] == key[0]]
    exact = [c for c in same if c[1] == key[1]]
    for _, _, ranks in exact or same:
        return ranks
    # Gloo writes its configuration without a name, and so only of the group made last.
    if len(config) == 1 and not config[0][0] and key[1] in ("", "default_pg"):
        return config[0][2]
    return ()


def _status_of(status: Any, entries: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    if not isinstance(status, dict):
        return {}
    number = _int(entries[-1].get("pg_id")) if entries else None
    found = status.get(str(number)) if number is not None else status.get(name)
    if not isinstance(found, dict):
        return {}
    numbers = {}
    for word in ("enqueued", "started", "completed"):
        value = _int(found.get(f"last_{word}_collective"))
        if value is not None and value >= 0:
            numbers[word] = value
    return numbers


_PEER = regex(r"(?P<one>\d{1,6})\s?(?P<arrow>->|<-)\s?(?P<other>\d{1,6})")


@dataclass(frozen=True, slots=True)
class _Mark:
    """What places a record among the others."""

    seq: int
    op: str
    peer: str
    is_p2p: bool
    is_done: bool


def _mark(entry: Mapping[str, Any], last_completed: int | None) -> _Mark:
    title = _text(entry.get("profiling_name"), 120)
    op, _, peer = (title.partition(":")[2] or title).partition(" ")
    is_p2p = entry.get("is_p2p") is True or op in ("send", "recv")
    seq = _int(entry.get("p2p_seq_id")) if is_p2p else None
    for key in ("collective_seq_id", "seq_id"):
        if seq is None:
            seq = _int(entry.get(key))
    # Gloo leaves the state as it was scheduled; only the retirement tells of the end.
    is_done = entry.get("retired") is True or entry.get("state") == "completed"
    if not is_p2p and last_completed is not None and seq is not None and seq <= last_completed:
        is_done = True
    return _Mark(seq or 0, op or "collective", peer, is_p2p, is_done)


def _entry(entry: Mapping[str, Any], mark: _Mark) -> FlightEntry:
    source = destination = None
    if found := _PEER.search(mark.peer):
        ends = (int(found["one"]), int(found["other"]))
        source, destination = ends if found["arrow"] == "->" else ends[::-1]
    state = _text(entry.get("state"), 20) or "scheduled"
    return FlightEntry(
        seq=mark.seq,
        op=mark.op,
        is_p2p=mark.is_p2p,
        state="completed" if mark.is_done else state,
        inputs=_sizes(entry.get("input_sizes")),
        outputs=_sizes(entry.get("output_sizes")),
        numel_in=_numels(entry.get("input_sizes")),
        numel_out=_numels(entry.get("output_sizes")),
        dtype_in=_dtypes(entry.get("input_dtypes")),
        dtype_out=_dtypes(entry.get("output_dtypes")),
        source=source,
        destination=destination,
        frames=tuple(_call_site(entry.get("frames"))),
        created_ns=_int(entry.get("time_created_ns")) or None,
        timeout_ms=_int(entry.get("timeout_ms")) or None,
    )


def _shapes(value: Any) -> list[tuple[int, ...]]:
    if not isinstance(value, list | tuple):
        return []
    shapes = []
    for shape in value[:16_384]:
        if isinstance(shape, list | tuple):
            sizes = tuple(n for n in map(_int, shape[:_MAX_DIMENSIONS]) if n is not None)
            shapes.append(sizes)
    return shapes


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(_shapes(value)[:_MAX_SIZES])


def _numels(value: Any) -> int:
    total = 0
    for shape in _shapes(value):
        product = 1
        for size in shape:
            product *= size
        total += product
    return total


def _dtypes(value: Any) -> str:
    """The types of the tensors, each once: `Float` or `BFloat16, Long`."""
    if not isinstance(value, list | tuple):
        return ""
    names = dict.fromkeys(_text(v, 40) for v in value[:16_384])
    return ", ".join(list(names)[:4])


def _call_site(frames: Any) -> Iterator[Frame]:
    """torch's own frame that made the call, then the deepest ones outside libraries."""
    if not isinstance(frames, list | tuple):
        return
    callers = 0
    for index, frame in enumerate(frames[:_STACK_FRAMES]):
        if not isinstance(frame, dict):
            continue
        read = Frame(
            path=_text(frame.get("filename"), _MAX_TEXT_CHARS),
            line=_int(frame.get("line")),
            function=_text(frame.get("name"), 120),
        )
        if not read.is_library:
            callers += 1
            yield read
            if callers == _CALLERS:
                return
        elif index == 0:
            yield read


def _int(value: Any) -> int | None:
    """A whole number of 64 bits, also where JSON has it as a string."""
    if isinstance(value, str):
        if re.fullmatch(r"-?[0-9]{1,18}", value) is None:
            return None
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(2**63) <= value < 2**63 else None


def _text(value: Any, max_chars: int) -> str:
    """A string or number as text; anything else is none: shared parts could unfold without end."""
    if isinstance(value, str):
        return _clean(value, max_chars)
    number = _int(value)
    return "" if number is None else str(number)


def _clean(text: str, max_chars: int) -> str:
    """The text without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text[:max_chars])
