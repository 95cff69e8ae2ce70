"""What ranks say of collectives: NCCL watchdog of every age, monitored barriers, fingerprints.

Sources: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (WorkNCCL::checkTimeout,
ProcessGroupNCCL::watchdogHandler, HeartbeatMonitor), ProcessGroupWrapper.cpp (fingerprints),
ProcessGroupGloo.cpp (monitoredBarrier).
"""

from __future__ import annotations

import re

from triage.engine.evidence import CollectiveEvent
from triage.engine.limits import Limits
from triage.engine.lines import Line

TRIGGERS = (
    "WorkNCCL(",
    "last enqueued NCCL work",
    "Observed flight recorder dump signal",
    "monitoredBarrier",
    "CollectiveFingerPrint(",
    "waitForInput",
    "missing ranks:",
)
_WORK = re.compile(
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,18}),\s*)?OpType=(?P<op>\w+)"
    r"(?:,\s*(?:TensorShape=\[[^\]]{0,300}\],\s*)?NumelIn=(?P<numel_in>\d{1,18}),\s*NumelOut=(?P<numel_out>\d{1,18}))?"
    r"(?:,\s*[^)]{0,300}?)?,?\s*Timeout\(ms\)=(?P<timeout>\d{1,18})\)"
    r"(?:\s*ran for (?P<ran>\d{1,18}) milliseconds before timing out)?"
)
_RANK = re.compile(r"\b[Rr]ank:? (?P<rank>\d{1,18})\b")
_STATE = re.compile(
    r"last enqueued (?:NCCL )?work: ?(?P<enqueued>-?\d{1,18}), last completed (?:NCCL )?work: ?"
    r"(?P<completed>-?\d{1,18})",
    re.IGNORECASE,
)
_AT_WORK = re.compile(r"(?:at work|at NCCL work|work sequence id): ?(?P<seq>\d{1,18})")
_GROUP = re.compile(r"PG (?:ID )?(?P<pg>\w+)(?: PG GUID (?P<guid>[^\]\s]*))?")
_BARRIER = re.compile(
    r"Rank (?P<rank>\d{1,18}) successfully reached monitoredBarrier, but received errors "
    r"while waiting for send/recv from rank (?P<absent>\d{1,18})"
)
_BARRIER_FAILED = re.compile(
    r"[Rr]anks? (?P<absent>[\d, ]+) failed to pass monitoredBarrier in (?P<timeout>\d{1,18}) ?ms"
)
# The flight recorder's analyser (torchfrtrace) prints a set of ranks.
_MISSING = re.compile(r"missing ranks: ?\{(?P<ranks>[\d, ]+)\}")
_STORE_LIMIT = re.compile(r"timed out after (?P<ms>\d{1,12})ms")
_FINGERPRINT = re.compile(
    r"Rank (?P<rank>\d{1,18}) is running (?:collective"
    r"|inconsistent collective): CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<seq>\d{1,18}), ?)?OpType=(?P<op>\w+)(?:, ?TensorShape=\["
    r"(?P<shape>[^\]]*)\])?"
)


class CollectiveParser:
    """Feed it lines in order; `events` holds what ranks say, in the order of the text."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen: set[tuple[str, int | None, str, int | None, str]] = set()
        self._barrier_ranks: set[int] = set()
        self.events: list[CollectiveEvent] = []

    def feed(self, line: Line, text: str | None = None) -> None:
        """Takes a line; `text` stands for its text where a wrapped line was joined."""
        body = line.text if text is None else text
        if not any(trigger in body for trigger in TRIGGERS):
            return
        if len(self.events) >= self._limits.max_collectives:
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
        if (listed := _MISSING.search(body)) is not None:
            for number in re.findall(r"\d{1,9}", listed["ranks"])[:64]:
                self._add(line, body, "absent", rank=int(number))
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
            ran_ms=_number(work["ran"]),
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

    def _add(
        self,
        line: Line,
        body: str,
        kind: str,
        *,
        rank: int | None = None,
        op: str = "",
        seq_num: int | None = None,
        numel_in: int | None = None,
        numel_out: int | None = None,
        shape: str = "",
        timeout_ms: int | None = None,
        ran_ms: int | None = None,
        last_enqueued: int | None = None,
        last_completed: int | None = None,
        by_peer: bool = False,
    ) -> None:
        if rank is None:
            rank = line.rank
        if rank is None and (named := _RANK.search(body) or _RANK.search(line.full)):
            rank = int(named["rank"][:9])
        group = line.group
        if not group and (named_group := _GROUP.search(line.full)):
            group = named_group["guid"] or named_group["pg"]
        key = (kind, rank, group, seq_num if kind != "wait" else timeout_ms, op)
        if key in self._seen:
            return
        self._seen.add(key)
        self.events.append(
            CollectiveEvent(
                kind=kind, line=line.number, rank=rank, group=group, seq_num=seq_num, op=op,
                numel_in=numel_in, numel_out=numel_out, shape=shape, timeout_ms=timeout_ms,
                ran_ms=ran_ms, last_enqueued=last_enqueued, last_completed=last_completed,
                is_named_by_peer=by_peer,
                host=line.host, time=line.time, text=line.full[: self._limits.max_text_chars],
            )
        )  # fmt: skip


def _number(text: str | None) -> int | None:
    return int(text[:18]) if text else None
