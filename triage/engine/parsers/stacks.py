"""Stack dumps: py-spy, faulthandler and gdb, one or many processes, with wait channels."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

from triage.engine.evidence import Frame, StackDump, Thread
from triage.engine.limits import Limits
from triage.engine.lines import Line

_PROCESS = re.compile(r"^Process (?P<pid>\d{1,18})(?: \(PID:? \d+\))?: (?P<command>.*)$")
_CAPTURED = re.compile(r"^=+ ?pid (?P<pid>\d{1,18})(?: ppid (?P<parent>\d{1,18}))?")
_PYSPY_THREAD = re.compile(
    r"^Thread(?: (?P<id>0x[0-9A-Fa-f]+|\d+))?(?: \((?P<state>idle|active|active\+gil)\))?"
    r"(?:: \"(?P<name>[^\"]*)\")?\s*$"
)
_PYSPY_FRAME = re.compile(
    r"^\s{2,}(?P<function>[^()\n]{1,200}?) \((?P<path>[^()\n]{1,400}?)(?::(?P<line>\d{1,18}))?\)$"
)
_FAULT_THREAD = re.compile(
    r"^(?:Current t|T)hread (?P<id>0x[0-9a-fA-F]+)(?: \[(?P<name>[^\]]*)\])?"
    r"(?: \((?P<note>most recent call first)\))?:"
)
_FAULT_FRAME = re.compile(
    r'^\s*File "(?P<path>[^"\n]+)", line (?P<line>\d{1,18}|\?\?\?),? in (?P<function>.+)$'
)
_GDB_THREAD = re.compile(
    r"^Thread (?P<number>\d{1,18}) \((?P<what>Thread 0x[0-9a-f]+ \(LWP (?P<lwp>\d{1,18})\)"
    r"|LWP (?P<lwp2>\d{1,18})|"
    r"process (?P<pid>\d{1,18}))(?: \"(?P<name>[^\"]*)\")?\)?"
)
_GDB_FRAME = re.compile(
    r"^#(?P<number>\d{1,18})\s+(?:0x[0-9a-f]+ in )?(?P<function>[^\s(][^(\n]{0,300}?) ?\("
)
# Without a heading only what no numbered list looks like begins a dump.
_BARE_FRAME = re.compile(r"#(?:0\s|\d{1,4}\s+0x[0-9a-f])")
_GDB_AT = re.compile(r" (?:at|from) (?P<path>[^\s:]+)(?::(?P<line>\d{1,18}))?\s*$")
_PY_IN_GDB = re.compile(
    r"[Ff]rame 0x[0-9a-f]+, for file (?P<path>[^,]+), line (?P<line>\d{1,18}), in (?P<function>\w+)"
)
_WCHAN = re.compile(
    r"^\s+(?P<tid>\d{1,18}) (?P<name>[\w\-./: ]{1,40}?) (?P<wchan>[A-Za-z_]\w+|0|-)(?: \d+"
    r"| running)?$"
)
# gdb's py-bt, and the heading that `head` and `tail` put over each of several files.
_PY_BT = "Traceback (most recent call first):"
_FILE_HEADING = re.compile(r"^==> .{0,200}?(?:rank[_-]?(?P<rank>\d{1,6}))?\D{0,40} <==$")
_TREE = re.compile(r"^\s*(?P<pid>\d{1,18}) ppid (?P<parent>\d{1,18}) ")


@dataclass(slots=True)
class _Thread:
    line: int
    name: str = ""
    state: str = ""
    thread_id: str = ""
    frames: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class _Process:
    line: int
    pid: int | None = None
    command: str = ""
    rank: int | None = None
    rank_of_file: int | None = None
    end: int = 0
    threads: list[_Thread] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)


class StackParser:
    """Feed it lines in order, then `finish`; `stacks` holds the processes, in text order."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: _Process | None = None
        self._thread: _Thread | None = None
        self._threads_seen = 0
        self._parents: dict[int, int] = {}
        self._waits: dict[str, str] = {}
        self._in_waits = False
        self._last_frame_line = 0
        self.stacks: list[StackDump] = []

    def feed(self, line: Line) -> None:
        """Takes the next line."""
        text = line.text
        if not text or line.bar is not None:
            return
        first = text[0]
        if self._is_of_another(line, text):
            return
        if first in " \t#":
            self._inner(line, text)
            return
        self._in_waits = False
        if first == "=" and (found := _CAPTURED.match(text)):
            self._close()
            self._process = _Process(line.number, int(found["pid"]), rank=line.rank)
            if found["parent"]:
                self._parents[int(found["pid"])] = int(found["parent"])
        elif first == "=" and (found := _FILE_HEADING.match(text)):
            self._close()
            named = int(found["rank"]) if found["rank"] else None
            self._process = _Process(line.number, rank=line.rank, rank_of_file=named)
        elif text.startswith(_PY_BT):
            if self._thread is None or self._thread.frames:
                self._begin_bare(line)
        elif first == "P" and (found := _PROCESS.match(text)):
            self._begin_process(line, int(found["pid"]), found["command"])
        elif first in "TC" and "hread " in text:
            self._begin_thread(line, text)
        elif text.startswith("threads (tid"):
            self._in_waits = True
        elif first.isdigit() and (found := _TREE.match(text)):
            self._parents[int(found["pid"])] = int(found["parent"])
        elif text.startswith("Fatal Python error:"):
            self._begin_process(line, None, text)
        elif self._thread is not None and first != "-":
            self._thread = None

    def _is_of_another(self, line: Line, text: str) -> bool:
        """Whether the line is another rank's print that fell between the lines of a dump."""
        process = self._process
        if process is None or line.rank == process.rank:
            return False
        return not text.startswith(("Process ", "Thread ", "Current thread", "===", "Fatal Python"))

    def _begin_process(self, line: Line, pid: int | None, command: str) -> None:
        current = self._process
        if current is not None and current.pid == pid and not current.threads and pid is not None:
            current.command = command
            return
        self._close()
        self._process = _Process(line.number, pid, command, rank=line.rank)

    def _begin_thread(self, line: Line, text: str) -> None:
        thread = None
        if found := _PYSPY_THREAD.match(text):
            thread = _Thread(
                line.number, found["name"] or "", found["state"] or "", found["id"] or ""
            )
        elif found := _FAULT_THREAD.match(text):
            thread = _Thread(line.number, found["name"] or "", "", found["id"])
            if text.startswith("Current"):
                thread.state = "active"
        elif found := _GDB_THREAD.match(text):
            lwp = found["lwp"] or found["lwp2"] or found["pid"]
            thread = _Thread(line.number, found["name"] or "", "", lwp or found["number"])
        if thread is None:
            self._thread = None
            return
        if self._process is None or self._is_stale(line):
            self._close()
            self._process = _Process(line.number, rank=line.rank)
        is_second_main = thread.name == "MainThread" and any(
            t.name == "MainThread" for t in self._process.threads
        )
        if is_second_main or (self._process.rank != line.rank and self._process.threads):
            self._close()
            self._process = _Process(line.number, rank=line.rank)
        self._thread = thread
        self._threads_seen += 1
        if self._threads_seen <= self._limits.max_stack_threads:
            self._process.threads.append(thread)
        self._process.end = line.number
        self._last_frame_line = line.number

    def _is_stale(self, line: Line) -> bool:
        return (
            self._process is not None
            and line.number - max(self._process.end, self._process.line) > 200
        )

    def _inner(self, line: Line, text: str) -> None:
        if self._in_waits and (found := _WCHAN.match(text)):
            if self._process is not None:
                self._process.waits[found["tid"]] = found["wchan"]
            return
        if found := _TREE.match(text):
            self._parents[int(found["pid"])] = int(found["parent"])
            return
        if (found := _PYSPY_THREAD.match(text.strip())) and "Thread" in text:
            self._begin_thread(line, text.strip())
            return
        frame = self._frame(text)
        if frame is None:
            return
        if self._thread is None:
            if not _BARE_FRAME.match(text):
                return
            self._begin_bare(line)
        if self._thread is not None and len(self._thread.frames) < self._limits.max_frames:
            self._thread.frames.append(frame)
        if self._process is not None:
            self._process.end = line.number

    def _begin_bare(self, line: Line) -> None:
        """A gdb `bt` of one thread has frames and no heading."""
        self._close()
        self._process = _Process(line.number, rank=line.rank)
        self._thread = _Thread(line.number, "")
        self._process.threads.append(self._thread)

    def _frame(self, text: str) -> Frame | None:
        if text[0] == "#":
            if found := _PY_IN_GDB.search(text):
                return Frame(found["path"], int(found["line"]), found["function"])
            if found := _GDB_FRAME.match(text):
                at = _GDB_AT.search(text)
                return Frame(
                    at["path"] if at else "",
                    int(at["line"]) if at and at["line"] else None,
                    found["function"].strip()[:200],
                )
            return None
        if found := _FAULT_FRAME.match(text):
            number = found["line"]
            return Frame(
                found["path"],
                int(number) if number.isdigit() else None,
                found["function"].strip()[:200],
            )
        if self._thread is not None and (found := _PYSPY_FRAME.match(text)):
            number = found["line"]
            return Frame(
                found["path"], int(number[:9]) if number else None, found["function"].strip()
            )
        return None

    def _close(self) -> None:
        process, self._process, self._thread = self._process, None, None
        if process is None:
            return
        threads = tuple(
            Thread(
                name=t.name,
                frames=tuple(t.frames),
                line=t.line,
                state=t.state,
                wait_channel=process.waits.get(t.thread_id, ""),
                thread_id=t.thread_id,
            )
            for t in process.threads
            if t.frames
        )
        if threads:
            self.stacks.append(
                StackDump(
                    pid=process.pid,
                    line=process.line,
                    end_line=max(process.end, process.line),
                    threads=threads,
                    command=process.command[:500],
                    rank=process.rank if process.rank is not None else process.rank_of_file,
                )
            )

    def finish(self) -> None:
        """Closes the last process and fills in who is whose parent."""
        self._close()
        self.stacks = [
            dataclasses.replace(s, parent_pid=self._parents.get(s.pid)) if s.pid else s
            for s in self.stacks
        ]
