"""How processes ended: torchrun's report, srun and slurmstepd, mp.spawn, shells, Kubernetes.

Sources: torch/distributed/elastic/multiprocessing/{api.py,errors/__init__.py},
torch/multiprocessing/spawn.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from triage.engine.evidence import ExitStatus
from triage.engine.limits import Limits
from triage.engine.lines import Line
from triage.engine.regex import regex

_FAILED = regex(
    r"failed \(exitcode: (?P<code>-?\d{1,18})\) local_rank: (?P<local>\d{1,18}) \(pid: "
    r"(?P<pid>\d{1,18})\)"
)
_REPORT_RANK = regex(r"^\s*rank\s*: (?P<rank>\d{1,18}) \(local_rank: (?P<local>\d{1,18})\)")
_REPORT_CODE = regex(r"^\s*exitcode\s*: (?P<code>-?\d{1,18}) \(pid: (?P<pid>\d{1,18})\)")
_REPORT_HOST = regex(r"^\s*host\s*: (?P<host>\S+)")
_REPORT_SIGNAL = regex(
    r"Signal (?P<number>\d{1,18}) \((?P<name>SIG\w+)\) received by PID (?P<pid>\d{1,18})"
)
_SRUN = regex(
    r"(?:srun|slurmstepd): (?:error: )?(?P<host>[\w.\-]+): tasks? (?P<tasks>[\d,\-]+): "
    r"(?P<how>Exited with exit code (?P<code>\d{1,18})|Out Of Memory|Killed|Terminated|"
    r"Segmentation fault|Aborted|Bus error)"
)
# Open MPI names the first process that failed, over several lines or in one.
_MPI_FIRST = regex(r"Process name: \[\[\d{1,9},\d{1,9}\],(?P<rank>\d{1,9})\]")
_MPI_CODE = regex(r"^\s{0,8}Exit code:\s{1,12}(?P<code>\d{1,9})\s*$")
_MPI_SIGNAL = regex(
    r"(?:mpirun|mpiexec|prterun|orterun) noticed that process rank (?P<rank>\d{1,9}) with PID "
    r"(?P<pid>\d{1,18}) on node (?P<host>\S{1,80}) exited on signal (?P<number>\d{1,3})"
)
_SPAWN_SIGNAL = regex(r"process (?P<rank>\d{1,18}) terminated with signal (?P<name>SIG\w+)")
_SPAWN_CODE = regex(r"process (?P<rank>\d{1,18}) terminated with exit code (?P<code>\d{1,18})")
_FINISHED = regex(
    r"(?:Process finished with|exited with|[Ee]xit(?:ed)?(?: with)?) (?:exit )?code:? "
    r"(?P<code>-?\d{1,18})"
)
_SUBPROCESS = regex(
    r"returned non-zero exit status (?P<code>\d{1,18})|died with <Signals\.(?P<name>SIG\w+): "
    r"(?P<number>\d{1,18})>"
)
_SHELL = regex(
    r"^(?:.*?line \d+:\s+(?P<pid>\d{1,18})\s+)?(?P<how>Killed|Terminated|Segmentation fault|Aborted"
    r"|Bus error)(?: \(core dumped\))?(?:\s|$)"
)
_SIGNALS = {
    "Killed": "SIGKILL", "Terminated": "SIGTERM", "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT", "Bus error": "SIGBUS", "Out Of Memory": "SIGKILL",
}  # fmt: skip
_BY_NUMBER = {
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}


def signal_of(exit_code: int | None) -> str:
    """The signal that an exit code stands for (-9 and 137 are SIGKILL), or ""."""
    if exit_code is None:
        return ""
    if exit_code < 0:
        return _BY_NUMBER.get(-exit_code, "")
    return _BY_NUMBER.get(exit_code - 128, "") if exit_code > 128 else ""


@dataclass(slots=True)
class _Report:
    line: int
    first: bool
    host: str | None = None
    rank: int | None = None


class LauncherParser:
    """Feed it lines in order; `exits` holds endings, `launchers` what started the job."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._report: _Report | None = None
        self._first_next = False
        self._mpi_rank: int | None = None
        self.exits: list[ExitStatus] = []
        self.launchers: dict[str, None] = {}

    def feed(self, line: Line) -> None:
        """Takes the next line."""
        text = line.text
        if not text or line.bar is not None or line.is_code:
            return
        if "elastic" in text or "torchrun" in text or "torch.distributed.run" in text:
            self.launchers.setdefault("torchrun")
        elif "srun" in text or "slurmstepd" in text:
            self.launchers.setdefault("slurm")
        elif "deepspeed" in text and "launcher" in text:
            self.launchers.setdefault("deepspeed")
        elif "(RayTrainWorker" in line.full or "ray::" in text:
            self.launchers.setdefault("ray")
        if len(self.exits) < self._limits.max_exits:
            self._elastic(line, text)
            self._others(line, text)

    def _elastic(self, line: Line, text: str) -> None:
        if "Root Cause (first observed failure)" in text:
            self._first_next = True
            self._report = None
        elif "local_rank" in text:
            if found := _FAILED.search(text):
                self._add(line, "torchrun", code=int(found["code"]), pid=int(found["pid"]))
            elif found := _REPORT_RANK.match(text):
                report = self._report or _Report(line.number, self._first_next)
                report.rank, report.line = int(found["rank"]), line.number
                report.first = self._first_next
                self._report = report
        elif "host" in text and (found := _REPORT_HOST.match(text)):
            self._report = _Report(line.number, self._first_next, host=found["host"])
        elif "exitcode" in text and self._report and (found := _REPORT_CODE.match(text)):
            self._add(
                line, "torchrun", code=int(found["code"]), pid=int(found["pid"]),
                rank=self._report.rank, host=self._report.host, first=self._report.first,
            )  # fmt: skip
            self._report = None

    def _others(self, line: Line, text: str) -> None:
        if found := _SHELL.match(text):
            if len(text) < 400 and line.level != "I":
                self._add(line, "shell", signal=_SIGNALS[found["how"]], pid=_int(found["pid"]))
            return
        if "task" in text and (found := _SRUN.search(text)):
            tasks = re.match(r"\d{1,9}", found["tasks"])
            # Of several tasks in one line none was the first; kills follow from a failure.
            is_first = (
                found["tasks"].isdecimal()
                and found["how"] not in ("Killed", "Terminated")
                and not any(ending.source == "slurm" for ending in self.exits)
            )
            self._add(
                line, "slurm", code=_int(found["code"]),
                signal=_SIGNALS.get(found["how"], ""), host=found["host"],
                rank=int(tasks[0]) if tasks else None, first=is_first,
            )  # fmt: skip
        elif "rocess" in text and (found := _MPI_SIGNAL.search(text)):
            self._add(
                line, "mpi", code=-int(found["number"]), pid=_int(found["pid"]),
                rank=int(found["rank"]), host=found["host"], first=True,
            )  # fmt: skip
        elif "Process name: [[" in text and (found := _MPI_FIRST.search(text)):
            self._mpi_rank = int(found["rank"])
        elif self._mpi_rank is not None and (found := _MPI_CODE.match(text)):
            self._add(line, "mpi", code=int(found["code"]), rank=self._mpi_rank, first=True)
            self._mpi_rank = None
        elif "terminated with" in text:
            if found := _SPAWN_SIGNAL.search(text):
                self._add(line, "mp.spawn", signal=found["name"], rank=int(found["rank"]))
            elif found := _SPAWN_CODE.search(text):
                self._add(line, "mp.spawn", code=int(found["code"]), rank=int(found["rank"]))
        elif "received by PID" in text and (found := _REPORT_SIGNAL.search(text)):
            self._add(line, "torchrun", signal=found["name"], pid=int(found["pid"]))
        elif "died with <Signals" in text or "non-zero exit status" in text:
            if found := _SUBPROCESS.search(text):
                self._add(line, "subprocess", code=_int(found["code"]), signal=found["name"] or "")
        elif "code" in text and (found := _FINISHED.search(text)):
            code = int(found["code"][:9])
            if code:
                self._add(line, "process", code=code)

    def _add(
        self,
        line: Line,
        source: str,
        *,
        code: int | None = None,
        signal: str = "",
        pid: int | None = None,
        rank: int | None = None,
        host: str | None = None,
        first: bool = False,
    ) -> None:
        self.exits.append(
            ExitStatus(
                line=line.number, source=source, exit_code=code, signal=signal or signal_of(code),
                rank=rank if rank is not None else line.rank, pid=pid, host=host or line.host,
                is_first=first, text=line.full[:300],
            )
        )  # fmt: skip


def _int(text: str | None) -> int | None:
    return int(text[:9]) if text else None
