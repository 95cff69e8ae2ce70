"""Stack dumps: py-spy (text and JSON), faulthandler, gdb and the kernel's, with wait channels."""

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
    r"[Ff]rame (?:at )?0x[0-9a-f]+, (?:for )?file '?(?P<path>[^',]{1,400})'?, "
    r"line (?P<line>\d{1,9}), (?:in|code) (?P<function><\w{1,200}>|\w{1,200})"
)
_WCHAN = re.compile(
    r"^\s+(?P<tid>\d{1,18}) (?P<name>[\w\-./: ]{1,40}?) (?P<wchan>[A-Za-z_][\w.]+|0|-)"
    r"(?: (?P<call>\d{1,4}|running))?$"
)
# What waits, of x86-64's system calls, where the kernel hides the wait channel.
_CALLS = {
    "0": "read", "7": "poll", "23": "select", "35": "nanosleep", "43": "inet_accept",
    "45": "sk_wait_recvfrom", "47": "sk_wait_recvmsg", "61": "do_wait", "202": "futex",
    "230": "hrtimer_nanosleep", "232": "ep_poll", "270": "select", "271": "poll",
    "281": "ep_poll", "288": "inet_accept",
}  # fmt: skip
# A line of /proc/PID/stack, and the headings that name the process.
_KERNEL = re.compile(r"\[<[0-9a-f]{1,16}>\] (?P<function>[A-Za-z_][\w.]{0,120})\+0x")
_KERNEL_HEADING = re.compile(r"(?:==> |\W{0,3})/proc/(?P<pid>\d{1,18})/(?:task/\d{1,18}/)?stack\b")
_JSON_ITEM = re.compile(
    r'"(?P<key>pid|thread_id|thread_name|os_thread_id|active|owns_gil|name|filename|'
    r'short_filename|line)"\s?:\s?(?:"(?P<text>(?:[^"\\]|\\.){0,1000})"|(?P<bare>-?\d{1,20}|true|'
    r"false|null))"
)
# What a JVM's dump prints in brackets behind a method.
_NOT_PATHS = ("Native Method", "Unknown Source")
# gdb's py-bt, and the heading that `head` and `tail` put over each of several files.
_PY_BT = "Traceback (most recent call first):"
_FILE_HEADING = re.compile(r"^==> .{0,200}?(?:rank[_-]?(?P<rank>\d{1,6}))?\D{0,40} <==$")
_MAX_READERS = 4_096
_TREE = re.compile(r"^\s*(?P<pid>\d{1,18}) ppid (?P<parent>\d{1,18}) ")


@dataclass(slots=True)
class _Thread:
    line: int
    name: str = ""
    state: str = ""
    thread_id: str = ""
    number: str = ""
    is_faulthandler: bool = False
    frames: list[Frame] = field(default_factory=list)

    @property
    def is_through(self) -> bool:
        """Whether the frames reach the module that began the process."""
        return bool(self.frames) and self.frames[-1].function in (
            "<module>",
            "_run_module_as_main",
        )


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
    kernel: list[str] = field(default_factory=list)
    kernel_line: int = 0


class StackParser:
    """Feed it lines in order, then `finish`; `stacks` holds the processes, in text order.

    The dumps of several ranks may be interleaved line by line: each rank's lines are read apart.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._readers: dict[int | None, _Reader] = {}
        self._shared = _Shared()
        self.stacks: list[StackDump] = []

    def feed(self, line: Line) -> None:
        """Takes the next line."""
        reader = self._readers.get(line.rank)
        if reader is None:
            if len(self._readers) >= _MAX_READERS:
                return
            reader = self._readers[line.rank] = _Reader(self._limits, self._shared)
        reader.feed(line)

    def finish(self) -> None:
        """Closes the last processes and fills in who is whose parent."""
        for reader in self._readers.values():
            reader.close()
        parents = self._shared.parents
        self.stacks = [
            dataclasses.replace(s, parent_pid=parents.get(s.pid)) if s.pid else s
            for s in sorted(self._shared.stacks, key=lambda s: s.line)
        ]


@dataclass(slots=True)
class _Shared:
    """What the readers of one text have in common."""

    stacks: list[StackDump] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)
    threads_seen: int = 0


class _Reader:
    """Reads the dumps in one rank's lines."""

    def __init__(self, limits: Limits, shared: _Shared) -> None:
        self._limits = limits
        self._shared = shared
        self._process: _Process | None = None
        self._thread: _Thread | None = None
        self._in_waits = False
        self._item: dict[str, str] = {}

    def feed(self, line: Line) -> None:
        """Takes the next line."""
        text = line.text
        if not text or line.bar is not None:
            return
        first = text[0]
        if first in " \t[{}" and (self._item or '"pid"' in text) and self._json(line, text):
            return
        if "[<" in text and self._kernel(line, text):
            return
        if first in " \t#":
            self._inner(line, text)
            return
        self._in_waits = False
        if first not in "[]{}":
            self._item = {}
        if first == "=" and (found := _CAPTURED.match(text)):
            self.close()
            self._process = _Process(line.number, int(found["pid"]), rank=line.rank)
            if found["parent"]:
                self._shared.parents[int(found["pid"])] = int(found["parent"])
        elif "/stack" in text and (found := _KERNEL_HEADING.match(text)):
            self.close()
            self._process = _Process(line.number, int(found["pid"]), rank=line.rank)
        elif first == "=" and (found := _FILE_HEADING.match(text)):
            self.close()
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
            self._shared.parents[int(found["pid"])] = int(found["parent"])
        elif text.startswith("Fatal Python error:"):
            self._begin_process(line, None, text)
        elif self._thread is not None and first != "-":
            self._thread = None

    def _begin_process(self, line: Line, pid: int | None, command: str) -> None:
        current = self._process
        if current is not None and current.pid == pid and not current.threads and pid is not None:
            current.command = command
            return
        self.close()
        self._process = _Process(line.number, pid, command, rank=line.rank)

    def _begin_thread(self, line: Line, text: str) -> None:
        thread = None
        if found := _PYSPY_THREAD.match(text):
            thread = _Thread(
                line.number, found["name"] or "", found["state"] or "", found["id"] or ""
            )
        elif found := _FAULT_THREAD.match(text):
            # The current thread is the one that printed the dump, at work or not.
            state = "current" if text.startswith("Current") else ""
            thread = _Thread(
                line.number, found["name"] or "", state, found["id"], is_faulthandler=True
            )
        elif found := _GDB_THREAD.match(text):
            lwp = found["lwp"] or found["lwp2"] or found["pid"]
            number = found["number"]
            thread = _Thread(line.number, found["name"] or "", "", lwp or number, number)
        if thread is None:
            self._thread = None
            return
        if self._process is None or self._is_stale(line):
            self.close()
            self._process = _Process(line.number, rank=line.rank)
        if self._is_of_next(thread):
            self.close()
            self._process = _Process(line.number, rank=line.rank)
        self._thread = thread
        self._add_thread(line)

    def _is_of_next(self, thread: _Thread) -> bool:
        """Whether the thread belongs to another process, although nothing says so."""
        threads = self._process.threads if self._process is not None else []
        if not threads:
            return False
        if thread.name == "MainThread" and any(t.name == "MainThread" for t in threads):
            return True
        if thread.number:
            # gdb counts the threads of each process from 1.
            return any(t.number == thread.number for t in threads)
        # faulthandler prints the main thread last.
        return thread.is_faulthandler and threads[-1].is_faulthandler and threads[-1].is_through

    def _is_stale(self, line: Line) -> bool:
        return (
            self._process is not None
            and line.number - max(self._process.end, self._process.line) > 200
        )

    def _inner(self, line: Line, text: str) -> None:
        if self._in_waits and (found := _WCHAN.match(text)):
            if self._process is not None:
                channel = found["wchan"]
                if channel in ("0", "-"):
                    channel = _CALLS.get(found["call"] or "", channel)
                self._process.waits[found["tid"]] = channel
            return
        if found := _TREE.match(text):
            self._shared.parents[int(found["pid"])] = int(found["parent"])
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

    def _kernel(self, line: Line, text: str) -> bool:
        """Takes lines of /proc/PID/stack, alone or as the capture joins them; True: they were."""
        functions = _KERNEL.findall(text[:2_000])
        if not functions:
            return False
        begins_alone = text.startswith("[<")
        process = self._process
        is_through = bool(process and process.kernel and process.kernel[-1].startswith("entry_"))
        if process is None or (begins_alone and (is_through or self._is_stale(line))):
            if not begins_alone:
                return False
            self.close()
            process = self._process = _Process(line.number, rank=line.rank)
        if not process.kernel:
            process.kernel_line = line.number
        process.kernel.extend(functions[: self._limits.max_frames - len(process.kernel)])
        process.end = line.number
        return True

    def _json(self, line: Line, text: str) -> bool:
        """Takes a line of `py-spy dump --json`, pretty or in one line; True: it was one."""
        is_one = False
        for found in _JSON_ITEM.finditer(text):
            key, value = found["key"], found["text"]
            value = found["bare"] if value is None else value
            if key == "pid":
                self._item = {"pid": value}
            elif key == "thread_id" and "pid" in self._item:
                self._item["thread"] = value
            elif "thread" in self._item:
                self._json_item(line, key, value)
            else:
                break
            is_one = True
        return is_one

    def _json_item(self, line: Line, key: str, value: str) -> None:
        item = self._item
        if key in ("thread_name", "os_thread_id", "active"):
            item[key] = value
        elif key == "owns_gil":
            self._begin_json_thread(line, value == "true")
        elif key in ("name", "filename", "short_filename"):
            item[key] = value
        elif key == "line" and self._thread is not None and item.get("name", "null") != "null":
            path = item.get("short_filename", "null")
            path = item.get("filename", "") if path == "null" else path
            number = int(value) if value.isdigit() and value != "0" else None
            if len(self._thread.frames) < self._limits.max_frames:
                self._thread.frames.append(Frame(path, number, item["name"][:200]))
            if self._process is not None:
                self._process.end = line.number
            for name in ("name", "filename", "short_filename"):
                item.pop(name, None)

    def _begin_json_thread(self, line: Line, owns_gil: bool) -> None:
        item = self._item
        pid = int(item["pid"]) if item["pid"].isdigit() else None
        if self._process is None or self._process.pid != pid:
            self.close()
            self._process = _Process(line.number, pid, rank=line.rank)
        state = "idle" if item.get("active") != "true" else "active+gil" if owns_gil else "active"
        name = item.get("thread_name", "")
        self._thread = _Thread(
            line.number, "" if name == "null" else name, state, item.get("os_thread_id", "")
        )
        self._add_thread(line)

    def _add_thread(self, line: Line) -> None:
        if self._process is None or self._thread is None:
            return
        self._shared.threads_seen += 1
        if self._shared.threads_seen <= self._limits.max_stack_threads:
            self._process.threads.append(self._thread)
        self._process.end = line.number

    def _begin_bare(self, line: Line) -> None:
        """A gdb `bt` of one thread has frames and no heading."""
        self.close()
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
            if found["path"].endswith((".java", ".kt", ".scala")) or found["path"] in _NOT_PATHS:
                return None
            return Frame(
                found["path"], int(number[:9]) if number else None, found["function"].strip()
            )
        return None

    def close(self) -> None:
        process, self._process, self._thread = self._process, None, None
        if process is None:
            return
        if process.pid is None:
            # gdb's thread 1 is the main thread, and its number the process's.
            first = next((t for t in process.threads if t.number == "1"), None)
            process.pid = int(first.thread_id) if first and first.thread_id.isdigit() else None
        main = str(process.pid)
        if process.kernel and not process.threads:
            process.threads.append(_Thread(process.kernel_line, "MainThread", "", main))
            process.threads[0].frames = [Frame("[kernel]", None, f) for f in process.kernel]
        elif process.kernel and process.waits.get(main, "0") in ("0", "-"):
            process.waits[main] = process.kernel[0]
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
            self._shared.stacks.append(
                StackDump(
                    pid=process.pid,
                    line=process.line,
                    end_line=max(process.end, process.line),
                    threads=threads,
                    command=process.command[:500],
                    rank=process.rank if process.rank is not None else process.rank_of_file,
                )
            )
