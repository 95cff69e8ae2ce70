"""What ranks say of collectives: NCCL watchdog of every age, monitored barriers, fingerprints.

Sources: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (WorkNCCL::checkTimeout,
ProcessGroupNCCL::watchdogHandler, HeartbeatMonitor), ProcessGroupWrapper.cpp (fingerprints),
ProcessGroupGloo.cpp (monitoredBarrier), TraceUtils.h (desync report); NCCL src/init.cc and
src/enqueue.cc (NCCL_DEBUG=INFO); the module ras reads NCCL's RAS.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import replace

from triage.engine.evidence import CollectiveEvent
from triage.engine.limits import Limits
from triage.engine.lines import Line
from triage.engine.parsers import ras
from triage.engine.regex import regex

TRIGGERS = (
    "WorkNCCL(",
    "WorkXCCL(",
    "WorkHCCL(",
    "ast enqueued ",
    "Observed flight recorder dump signal",
    "monitoredBarrier",
    "CollectiveFingerPrint(",
    "waitForInput",
    "missing ranks:",
    "but didn't join collective #",
    "are the lagging ranks that caused",
    "store based barrier on rank: ",
    "MEMBER: ",
    "retrieving ncclUniqueId from [",
    *ras.TRIGGERS,
)
_WORK = regex(
    r"Work[NXH]CCL\((?:SeqNum=(?P<seq>\d{1,18}),\s{0,4})?OpType=(?P<op>\w+)"
    r"(?:,\s{0,4}TensorShape=\[(?P<shape>[^\]]{0,300})\])?"
    r"(?:,\s{0,4}NumelIn=(?P<numel_in>\d{1,18}),\s{0,4}NumelOut=(?P<numel_out>\d{1,18}))?"
    r"(?:,\s{0,4}[^)]{0,300}?)?,?\s{0,4}Timeout\(ms\)=(?P<timeout>\d{1,18})\)"
    r"(?:\s{0,4}ran for (?P<ran>\d{1,18}) milliseconds before timing out)?"
)
_RANK = regex(r"\b[Rr]ank:? (?P<rank>\d{1,18})\b")
_STATE = regex(
    r"last enqueued (?:[NXH]CCL )?work: ?(?P<enqueued>-?\d{1,18}), last completed "
    r"(?:[NXH]CCL )?work: ?"
    r"(?P<completed>-?\d{1,18})",
    re.IGNORECASE,
)
_AT_WORK = regex(r"(?:at work|at [NXH]CCL work|work sequence id): ?(?P<seq>\d{1,18})")
_GROUP = regex(r"PG (?:ID )?(?P<pg>\w+)(?: PG GUID (?P<guid>[^\]\s]*))?")
_BARRIER = regex(
    r"Rank (?P<rank>\d{1,18}) successfully reached monitoredBarrier, but received errors "
    r"while waiting for send/recv from rank (?P<absent>\d{1,18})"
)
_BARRIER_FAILED = regex(
    r"[Rr]anks? (?P<absent>[\d, ]+) failed to pass monitoredBarrier in (?P<timeout>\d{1,18}) ?ms"
)
# The flight recorder's analyser (torchfrtrace) prints a set of ranks.
_MISSING = regex(r"missing ranks: ?\{(?P<ranks>[\d, ]+)\}")
_LAGGING = regex(
    r"\[(?P<ranks>[\d, ]{1,400})\] (?:finished collective #(?P<seq>\d{1,18}), but didn't join "
    r"collective|are the lagging ranks that caused this timeout)"
)
# Those who say this came; Lightning numbers the members from 1.
_CAME = regex(
    r"store based barrier on rank: (?P<rank>\d{1,9}), for key: (?P<key>\S{1,120}) \(world_size="
    r"(?P<size>\d{1,9})|GLOBAL_RANK: (?P<member>\d{1,9}), MEMBER: \d{1,9}/(?P<members>\d{1,9})"
)
_INIT = regex(
    r"comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,9}) n[Rr]anks (?P<size>\d{1,9}) "
    r".{0,160}?(?:commId (?P<id>0x[0-9a-f]{1,16}) )?- Init (?P<phase>START|COMPLETE)"
)
_CALL = regex(
    r"NCCL INFO (?P<op>[A-Z]\w{2,24}): opCount (?P<number>[0-9a-f]{1,16}) sendbuff .{0,120}? count "
    r"(?P<numel>\d{1,18}) .{0,80}? comm (?P<comm>0x[0-9a-f]{1,16}) \[nranks=(?P<size>\d{1,9})\]"
)
_PROCESS = regex(r"(?P<process>[\w.\-]{1,80}:\d{1,9}):\d{1,9} \[")
_UNIQUE_ID = regex(
    r"\[(?P<rank>\d{1,9})\] is setting up NCCL communicators? and retrieving ncclUniqueId from .*"
    r"got error: (?:Socket Timeout|Timeout|[Ww]ait timeout|Timed out)(?:.{0,80}? (?:after )?"
    r"(?P<ms>\d{1,12}) ?ms)?"
)
_STORE_LIMIT = regex(r"timed out after (?P<ms>\d{1,12})ms")
_FINGERPRINT = regex(
    r"Rank (?P<rank>\d{1,18}) is running (?:collective"
    r"|inconsistent collective): CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<seq>\d{1,18}), ?)?OpType=(?P<op>\w+)(?:, ?TensorShape=\["
    r"(?P<shape>[^\]]*)\])?"
)

_CALLS_PER_RANK = 48
_MAX_COMMUNICATORS = 2_048


class CollectiveParser:
    """Feed it lines in order; `events` holds what ranks say, in the order of the text."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen: set[tuple[str, int | None, str, int | None, str]] = set()
        self._said: set[tuple[str, int | None, int | None, str]] = set()
        self._is_wrapped = False
        self._events: list[CollectiveEvent] = []
        self._ras = ras.RasParser(self._from_ras)
        self._communicators: dict[tuple[str, str], str] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._calls: dict[tuple[str, int], deque[CollectiveEvent]] = defaultdict(
            lambda: deque(maxlen=_CALLS_PER_RANK)
        )

    @property
    def events(self) -> list[CollectiveEvent]:
        """What ranks said so far, in the order of the text; of logged calls the last ones."""
        last = [event for calls in self._calls.values() for event in calls]
        room = max(0, self._limits.max_collectives - len(self._events))
        return (
            sorted([*self._events, *last[-room:]], key=lambda e: e.line) if last else self._events
        )

    def feed(self, line: Line, text: str | None = None, *, may_be_marked: bool = True) -> None:
        """Takes a line; `text` stands for its text where a wrapped line was joined.

        Without `may_be_marked` the caller knows that none of TRIGGERS stands in it.
        """
        body = line.text if text is None else text
        self._is_wrapped = text is not None
        is_marked = may_be_marked and any(trigger in body for trigger in TRIGGERS)
        if text is None:
            self._ras.feed(line, body, is_marked=is_marked)
            if "NCCL INFO" in body:
                self._nccl(line, body)
        if not is_marked:
            return
        if work := _WORK.search(body):
            self._work(line, body, work)
        if "last enqueued" in body or "Last enqueued" in body:
            self._state(line, body)
        if "Observed flight recorder dump signal" in body:
            self._add(line, body, "observed")
        if "monitoredBarrier" in body:
            self._barrier(line, body)
        if "waitForInput" in body:
            limit = _STORE_LIMIT.search(body)
            self._add(line, body, "wait", timeout_ms=int(limit["ms"]) if limit else None)
        if waited := _UNIQUE_ID.search(body):
            self._add(line, body, "wait", timeout_ms=_number(waited["ms"]))
        if (listed := _MISSING.search(body)) is not None:
            for number in re.findall(r"\d{1,9}", listed["ranks"])[:64]:
                self._add(line, body, "absent", rank=int(number))
        if "collective" in body and (lagging := _LAGGING.search(body)) is not None:
            seq = _number(lagging["seq"])
            for number in re.findall(r"\d{1,9}", lagging["ranks"])[:64]:
                seq_num = None if seq is None else seq + 1
                self._add(line, body, "absent", rank=int(number), seq_num=seq_num)
        if came := _CAME.search(body):
            rank, size = came["rank"] or came["member"], came["size"] or came["members"]
            self._add(
                line, body, "joined", rank=int(rank), op="START", group=came["key"] or "members",
                size=int(size),
            )  # fmt: skip
        for index, found in enumerate(_FINGERPRINT.finditer(body)):
            self._add(
                line, body, "mismatch", rank=int(found["rank"]), op=found["op"],
                seq_num=_number(found["seq"]), shape=found["shape"] or "", by_peer=index > 0,
            )  # fmt: skip

    def _work(self, line: Line, body: str, work: re.Match[str]) -> None:
        self._add(
            line, body, "timeout",
            op=work["op"], seq_num=_number(work["seq"]), numel_in=_number(work["numel_in"]),
            numel_out=_number(work["numel_out"]), timeout_ms=_number(work["timeout"]),
            ran_ms=_number(work["ran"]), shape=work["shape"] or "",
        )  # fmt: skip

    def _state(self, line: Line, body: str) -> None:
        found = _STATE.search(body)
        if found is None:
            return
        at_work = _AT_WORK.search(body)
        self._add(
            line, body, "state", seq_num=_number(at_work["seq"]) if at_work else None,
            last_enqueued=int(found["enqueued"]), last_completed=int(found["completed"]),
        )  # fmt: skip

    def _barrier(self, line: Line, body: str) -> None:
        if found := _BARRIER.search(body):
            self._add(line, body, "timeout", rank=int(found["rank"]), op="BARRIER")
            self._add(line, body, "absent", rank=int(found["absent"]), op="BARRIER")
        elif found := _BARRIER_FAILED.search(body):
            for rank in re.findall(r"\d{1,9}", found["absent"])[:64]:
                self._add(
                    line, body, "absent", rank=int(rank), op="BARRIER",
                    timeout_ms=int(found["timeout"]),
                )  # fmt: skip

    def _nccl(self, line: Line, body: str) -> None:
        """A communicator that comes about, and the calls on it.

        A run with NCCL_DEBUG=INFO prints them all the time: they open no window of their own.
        """
        if " - Init " not in body and ": opCount " not in body:
            return
        found = _PROCESS.search(line.full)
        process = found["process"] if found else ""
        if init := _INIT.search(body):
            rank, size = int(init["rank"]), int(init["size"])
            if len(self._communicators) >= _MAX_COMMUNICATORS:
                return
            self._communicators[(process, init["comm"])] = init["id"] or ""
            # The rank in the largest communicator is the one that torch knows.
            self._places[process] = max(self._places.get(process, (0, 0)), (size, rank))
            if init["id"] and size > 1:
                self._add(
                    line, body, "joined", rank=rank, op=init["phase"], group=init["id"], size=size,
                )  # fmt: skip
        elif call := _CALL.search(body):
            group = self._communicators.get((process, call["comm"]))
            if not group:
                return
            rank = self._places[process][1]
            self._calls[(group, rank)].append(
                CollectiveEvent(
                    kind="called", line=line.number, rank=rank, group=group, op=call["op"],
                    seq_num=int(call["number"], 16), numel_in=int(call["numel"]),
                    size=int(call["size"]), host=line.host, time=line.time,
                    text=line.full[: self._limits.max_text_chars],
                )
            )  # fmt: skip

    def _from_ras(self, event: CollectiveEvent) -> None:
        if len(self._events) < self._limits.max_collectives:
            self._events.append(replace(event, text=event.text[: self._limits.max_text_chars]))

    def _add(
        self,
        line: Line,
        body: str,
        kind: str,
        *,
        rank: int | None = None,
        op: str = "",
        seq_num: int | None = None,
        group: str = "",
        size: int | None = None,
        numel_in: int | None = None,
        numel_out: int | None = None,
        shape: str = "",
        timeout_ms: int | None = None,
        ran_ms: int | None = None,
        last_enqueued: int | None = None,
        last_completed: int | None = None,
        by_peer: bool = False,
    ) -> None:
        if len(self._events) >= self._limits.max_collectives:
            return
        if rank is None:
            rank = line.rank
        if rank is None and (named := _RANK.search(body) or _RANK.search(line.full)):
            rank = int(named["rank"][:9])
        group = group or line.group
        if not group and (named_group := _GROUP.search(line.full)):
            group = named_group["guid"] or named_group["pg"]
        key = (kind, rank, group, seq_num if kind != "wait" else timeout_ms, op)
        said = (kind, rank, key[3], op)
        # The first of two joined lines may name another group than the second.
        if key in self._seen or (self._is_wrapped and said in self._said):
            return
        self._seen.add(key)
        self._said.add(said)
        self._events.append(
            CollectiveEvent(
                kind=kind, line=line.number, rank=rank, group=group, seq_num=seq_num, op=op,
                numel_in=numel_in, numel_out=numel_out, shape=shape, timeout_ms=timeout_ms,
                ran_ms=ran_ms, last_enqueued=last_enqueued, last_completed=last_completed,
                size=size, is_named_by_peer=by_peer,
                host=line.host, time=line.time, text=line.full[: self._limits.max_text_chars],
            )
        )  # fmt: skip


def _number(text: str | None) -> int | None:
    return int(text[:18]) if text else None
