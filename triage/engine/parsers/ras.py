"""What NCCL's RAS tells of a job's communicators: dead processes, unlike counts of operations.

`ncclras`, or port 28028 of any process of the job, prints it as text or as JSON. Sources: NCCL
src/ras/client_support.cc (rasClientRunInit, rasClientRunComms, rasDumpCommsToJSON).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from triage.engine.evidence import CollectiveEvent
from triage.engine.lines import Line
from triage.engine.regex import regex

#: Words that open a window in a long text: no other line has them.
TRIGGERS = ("managed by process", "considered dead (unreachable via the RAS")

_STARTS = ("Job summary", "Communicators...", "#", '"nccl_version":', "DEAD", "INCOMPLETE")
_MAX_LINES_APART = 400
_MAX_RANKS = 64

_ROW = regex(
    r"\s{0,8}(?P<group>\d{1,6})\s+(?P<comms>\d{1,9})\s+\d{1,9}\s+[\d\-]{1,12}\s+(?P<ranks>\d{1,9})"
    r"\s+\d{1,9}\s+(?P<status>[A-Z]{3,9})\s+[A-Z,]{2,40}\s*$"
)
_TOTALS = regex(r"\s{0,8}\d{1,9}(?:\s+\d{1,9})*\s+(?P<gpus>\d{1,9})\s*$")
_COMM = regex(
    r"#(?P<group>\d{1,6})-(?P<number>\d{1,6}) \((?P<hash>[0-9a-f]{1,16})\) (?P<what>[A-Z]{4,10})\b"
)
_FUNCTION = regex(r"Communicator ranks have different (?P<op>\w{1,20}) operation counts")
_MANY = regex(
    r"(?P<size>\d{1,9}) ranks have (?:launched up to operation (?P<seq>\d{1,18})"
    r"|not launched any operations|status (?P<status>[A-Z]{3,9}))"
)
_ONE = regex(
    r"Rank (?P<rank>\d{1,9}) has (?:launched up to operation (?P<seq>\d{1,18})"
    r"|not launched any operations|status (?P<status>[A-Z]{3,9})) -- "
)
_LISTED = regex(r"Rank (?P<rank>\d{1,9}) -- (?:GPU|\[process)")
_ON_NODE = regex(r"process (?P<pid>\d{1,18}) on node (?P<host>\S{1,80})")
_PROCESS = regex(r"Process (?P<pid>\d{1,18}) on node (?P<host>\S{1,80}) managing GPU")
_VALUE = regex(r'\s*"(?P<key>\w{1,40})": "?(?P<value>[^",]{1,80})"?,?\s*$')


@dataclass(slots=True)
class _Communicator:
    """The communicator that the lines speak of; `is_world` says that its ranks are the job's."""

    title: str
    what: str = ""
    is_world: bool = False
    op: str = ""
    seq: int | None = None
    status: str = ""


@dataclass(slots=True)
class _JsonCommunicator:
    size: int = 0
    rank: int | None = None
    host: str = ""
    pid: str = ""
    is_missing: bool = False
    counts: dict[str, dict[int, tuple[int, str, Line]]] = field(
        default_factory=lambda: defaultdict(dict)
    )


class RasParser:
    """Feed it lines in order; it hands events of the kinds launched, status, dead, silent on.

    An event of one rank names it where its communicator holds the whole job: the ranks of a
    smaller one are numbered anew. `is_named_by_peer` marks what is said of single ranks, the ones
    that stand out.
    """

    def __init__(self, sink: Callable[[CollectiveEvent], None]) -> None:
        self._sink = sink
        self._last = -_MAX_LINES_APART
        self._section = ""
        self._gpus: int | None = None
        self._sizes: dict[int, tuple[int, int]] = {}
        self._comm = _Communicator("")
        self._json: _JsonCommunicator | None = None
        self._is_only_one = False
        self._pids: dict[str, str] = {}

    def feed(self, line: Line, body: str, *, is_marked: bool) -> None:
        """Takes a line; `is_marked` says that one of a caller's triggers, or of these, is in it."""
        is_near = line.number - self._last < _MAX_LINES_APART
        if body.lstrip().startswith(_STARTS):
            self._last = line.number
            self._begin(body.strip())
        elif not is_near and not is_marked:
            return
        if '": ' in body:
            self._json_line(line, body)
        elif "ank" in body or "Process " in body:
            self._sentence(line, body)
        elif is_near:
            self._number_row(body)

    def _add(self, line: Line, text: str, kind: str, **told: Any) -> None:
        event = CollectiveEvent(
            kind=kind, line=line.number, text=text.strip(), time=line.time, **told
        )
        self._sink(event)

    def _begin(self, text: str) -> None:
        if text == "Job summary":
            self._gpus, self._sizes = None, {}
        elif text in ("DEAD", "INCOMPLETE"):
            self._section = text
        elif text.startswith('"nccl_version"'):
            self._json = _JsonCommunicator()
        elif found := _COMM.match(text):
            self._section = found["what"]
            group = int(found["group"])
            comms, ranks = self._sizes.get(group, (1 if group == 0 else 0, 0))
            known = ranks and self._gpus
            self._comm = _Communicator(
                f"#{found['group']}-{found['number']} ({found['hash']})",
                found["what"],
                is_world=ranks == self._gpus if known else comms == 1 and group == 0,
            )

    def _number_row(self, body: str) -> None:
        if found := _ROW.match(body):
            self._sizes[int(found["group"])] = (int(found["comms"]), int(found["ranks"]))
        elif not self._sizes and (found := _TOTALS.match(body)):
            self._gpus = int(found["gpus"])

    def _sentence(self, line: Line, body: str) -> None:
        text, comm = body.strip(), self._comm
        if found := _FUNCTION.match(text):
            comm.op, comm.status = found["op"], ""
        elif text.startswith("Communicator ranks have different status"):
            comm.op = ""
        elif found := _MANY.match(text):
            comm.status, comm.seq = found["status"] or "", int(found["seq"] or 0)
            self._tell(line, text, None, int(found["size"]), is_odd=False)
        elif found := _ONE.match(text):
            comm.status, comm.seq = found["status"] or "", int(found["seq"] or 0)
            self._tell(line, text, int(found["rank"]), 1, is_odd=True)
        elif found := _LISTED.match(text):
            if comm.what == "INCOMPLETE" and self._section == "INCOMPLETE":
                self._lost(line, text, int(found["rank"]))
            else:
                self._tell(line, text, int(found["rank"]), 1, is_odd=True)
        elif found := _PROCESS.match(text):
            kind = "dead" if self._section == "DEAD" else "silent"
            self._pids[found["pid"]] = kind
            self._add(line, body, kind, rank=None, op=found["pid"], host=found["host"])

    def _tell(self, line: Line, text: str, rank: int | None, size: int, *, is_odd: bool) -> None:
        comm = self._comm
        if not comm.op and not comm.status:
            return
        self._add(
            line, text, "status" if comm.status else "launched",
            rank=rank if comm.is_world else None, op=comm.status or comm.op,
            seq_num=None if comm.status else comm.seq, group=comm.title, size=size,
            is_named_by_peer=is_odd, host=_host(text),
        )  # fmt: skip

    def _lost(self, line: Line, text: str, rank: int) -> None:
        """A rank of whose process RAS has no data: the process was called dead, or is silent."""
        found = _ON_NODE.search(text)
        kind = self._pids.get(found["pid"], "silent") if found else "silent"
        self._add(
            line, text, kind, rank=rank if self._comm.is_world else None, group=self._comm.title,
            op=found["pid"] if found else "", is_named_by_peer=True, host=_host(text),
        )  # fmt: skip

    # ------------------------------------------------------------------------------- JSON

    def _json_line(self, line: Line, body: str) -> None:
        comm, found = self._json, _VALUE.match(body)
        if comm is None:
            return
        self._last = line.number
        if '"missing_ranks": [' in body:
            self._json_counts(comm)
            comm.is_missing = True
        if found is None:
            return
        key, value = found["key"], found["value"]
        if key == "communicators_count":
            self._is_only_one = value == "1"
        elif key == "hash":
            self._json = _JsonCommunicator()
            self._comm = _Communicator(value, is_world=self._is_only_one)
        elif key == "size" and value.isdecimal():
            comm.size = int(value)
        elif key == "rank" and value.isdecimal():
            comm.rank = int(value)
        elif key == "host":
            comm.host = value
        elif key == "pid":
            comm.pid = value
        elif key in ("unresponsive", "considered_dead"):
            if value == "true" and comm.is_missing:
                kind = "dead" if key == "considered_dead" else "silent"
                self._add(
                    line, f"rank {comm.rank}, process {comm.pid} on node {comm.host}: {key}", kind,
                    rank=comm.rank if self._comm.is_world else None, op=comm.pid,
                    group=self._comm.title, is_named_by_peer=True, host=comm.host,
                )  # fmt: skip
        elif value.isdecimal() and key[:1].isupper() and comm.rank is not None:
            comm.counts[key][comm.rank] = (int(value[:18]), comm.host, line)

    def _json_counts(self, comm: _JsonCommunicator) -> None:
        for op, by_rank in comm.counts.items():
            ranks: dict[int, list[int]] = defaultdict(list)
            for rank, (count, _, _) in by_rank.items():
                ranks[count].append(rank)
            sides = sorted(ranks.items(), key=lambda side: (-len(side[1]), -side[0]))
            if len(sides) < 2:
                continue
            first = by_rank[sides[0][1][0]][2]
            self._add(
                first, f"{len(sides[0][1])} ranks: {op} {sides[0][0]}", "launched", rank=None,
                op=op, seq_num=sides[0][0], group=self._comm.title, size=len(sides[0][1]),
            )  # fmt: skip
            for count, odd in sides[1:]:
                for rank in odd[:_MAX_RANKS]:
                    _, host, line = by_rank[rank]
                    self._add(
                        line, f"rank {rank} on node {host}: {op} {count}", "launched",
                        rank=rank if self._comm.is_world else None, op=op, seq_num=count,
                        group=self._comm.title, size=1, is_named_by_peer=True, host=host,
                    )  # fmt: skip


def _host(text: str) -> str | None:
    found = _ON_NODE.search(text)
    return found["host"] if found else None
