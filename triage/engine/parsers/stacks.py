"""Stack dumps: py-spy, pystack, faulthandler, gdb and the kernel's, with wait channels of ps."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from triage.engine.evidence import Frame, StackDump, Thread
from triage.engine.limits import Limits
from triage.engine.lines import Line
from triage.engine.regex import regex

_PROCESS = regex(r"^Process (?P<pid>\d{1,18})(?: \(PID:? \d+\))?: (?P<command>.*)$")
_CAPTURED = regex(r"^=+ ?pid (?P<pid>\d{1,18})(?: ppid (?P<parent>\d{1,18}))?")
_PYSPY_THREAD = regex(
    r"^Thread(?: (?P<id>0x[0-9A-Fa-f]+|\d+))?(?: \((?P<state>idle|active|active\+gil)\))?"
    r"(?:: \"(?P<name>[^\"]*)\")?\s*$"
)
_PARENT = regex(r"^Parent Process (?P<pid>\d{1,18}): ")
# Names of C++ hold brackets: `at::(anonymous namespace)::f (libtorch_cpu.so)`; so do some paths.
_PYSPY_FRAME = regex(
    r"^\s{2,}(?P<function>\S[^\n]{0,400}?) \((?P<path>[^()\n]{1,400}?|"
    r"[^()\n]{1,200}\([^()\n]{1,40}\)[^()\n]{1,200}?)(?::(?P<line>\d{1,18}))?\)$"
)
# Of `py-spy dump --locals`, whose lines are indented further than the frames.
_LOCAL_RANK = regex(r"^\s{8,}(?:global_)?rank: (?P<rank>\d{1,6})$")
_PYSTACK_THREAD = regex(
    r"^Traceback for thread (?P<id>\d{1,18})(?: \((?P<name>[^)]*)\))? \[(?P<state>[^\]]*)\] "
    r"\(most recent call last\):"
)
_PYSTACK_FRAME = regex(
    r'^\s*\((?P<kind>Python|C)\) File "(?P<path>[^"\n]+)", line (?P<line>\d{1,9}), '
    r"in (?P<function>[^\n]{1,400}?)(?: \((?P<library>[^()\n]{1,400})\))?$"
)
_FAULT_THREAD = regex(
    r"^(?:Current t|T)hread (?P<id>0x[0-9a-fA-F]+)(?: \[(?P<name>[^\]]*)\])?"
    r"(?: \((?P<note>most recent call first)\))?:"
)
_FAULT_FRAME = regex(
    r'^\s*File "(?P<path>[^"\n]+)", line (?P<line>\d{1,18}|\?\?\?),? in (?P<function>.+)$'
)
_GDB_THREAD = regex(
    r"^Thread (?P<number>\d{1,18}) \((?P<what>Thread 0x[0-9a-f]+ \(LWP (?P<lwp>\d{1,18})\)"
    r"|LWP (?P<lwp2>\d{1,18})|"
    r"process (?P<pid>\d{1,18}))(?: \"(?P<name>[^\"]*)\")?\)?"
)
_GDB_FRAME = regex(
    r"^#(?P<number>\d{1,18})\s+(?:0x[0-9a-f]+ in )?(?P<function>[^\s(][^(\n]{0,300}?) ?\("
)
# Without a heading only what no numbered list looks like begins a dump.
_BARE_FRAME = regex(r"#(?:0\s|\d{1,4}\s+0x[0-9a-f])")
_GDB_AT = regex(r" (?:at|from) (?P<path>[^\s:]+)(?::(?P<line>\d{1,18}))?\s*$")
_PY_IN_GDB = regex(
    r"[Ff]rame (?:at )?0x[0-9a-f]+, (?:for )?file '?(?P<path>[^',]{1,400})'?, "
    r"line (?P<line>\d{1,9}), (?:in|code) (?P<function><\w{1,200}>|\w{1,200})"
)
_WCHAN = regex(
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
_KERNEL = regex(r"\[<[0-9a-f]{1,16}>\] (?P<function>[A-Za-z_][\w.]{0,120})\+0x")
_KERNEL_HEADING = regex(
    r"(?:==> |\W{0,4}(?:sudo )?(?:cat )?)/proc/(?P<pid>\d{1,18})/(?:task/\d{1,18}/)?stack\b"
)
_JSON_ITEM = regex(
    r'"(?P<key>pid|thread_id|thread_name|os_thread_id|active|owns_gil|name|filename|'
    r'short_filename|line)"\s?:\s?(?:"(?P<text>(?:[^"\\]|\\.){0,1000})"|(?P<bare>-?\d{1,20}|true|'
    r"false|null))"
)
# What a JVM's dump prints in brackets behind a method.
_NOT_PATHS = ("Native Method", "Unknown Source")
# Where gdb says that the process stopped, before any command; and which process that is.
_GDB_STOP = regex(
    r"^(?:0x[0-9a-f]+ in (?P<function>[^\s(][^(\n]{0,300}?) ?\(|"
    r"(?P<plain>[A-Za-z_][\w@.:~]{2,100}) \(.{0,1000}\) at \S+:\d+$)"
)
_ATTACHES = regex(
    r"(?:^Attaching to (?:program: .{1,300}, )?process |\(gdb\) attach |"
    r"\bgdb\b.{0,80}? (?:-p|--pid)[ =]?|\bpystack remote (?:-\S+ ){0,4})(?P<pid>\d{1,18})\b"
)
_DETACHED = regex(r"^\[Inferior \d{1,3} \(process (?P<pid>\d{1,18})\) detached\]")
_BUILT_IN = regex(r"^\s*<built-in (?:method|function) (?P<function>\w{1,100})\b")
# gdb's py-bt, and the heading that `head` and `tail` put over each of several files.
_PY_BT = "Traceback (most recent call first):"
_FILE_HEADING = regex(r"^==> .{0,200}?(?:rank[_-]?(?P<rank>\d{1,6}))?\D{0,40} <==$")
# A short line before a dump that says whose it is: `--- rank 3 (gpu14)`, `RANK=3`.
_RANK_SAID = regex(r"(?i)^[^\n]{0,30}?\brank[ _=:#-]{0,2}(?P<rank>\d{1,6})\b[^\n]{0,30}$")
_RANK_LINES = 3
# Rows of `ps` with pid, perhaps ppid and tid, state and wait channel; without their heading only
# what is a kernel function counts.
_PS = regex(
    r"^\s*(?P<PID>\d{1,18})\s+(?:(?P<PPID>\d{1,18})\s+)?(?:(?P<TID>\d{1,18})\s+)?"
    r"(?P<STAT>[RSDTtZXI][<NLsl+]{0,5})\s+(?P<WCHAN>[a-z]\w*_[\w.]{1,40})\s+\S"
)
_PS_HEADING = regex(r"^\s*(?=.*\bPID\b)(?=.*\bWCHAN\b)[A-Z%]+(?:\s+[A-Z%]+)+\s*$")
_STATE = regex(r"^[RSDTtZXIW][<NLsl+]{0,5}$")
_CHANNEL = regex(r"^(?:[a-z_][\w.]{1,60}|-|0)$")
_WCHAN_FILE = regex(
    r"^/proc/(?P<pid>\d{1,18})/(?:task/(?P<tid>\d{1,18})/)?wchan:(?P<channel>\w[\w.]{1,60})$"
)
#: The wait channel of a process in state D, where `ps` shows none.
UNINTERRUPTIBLE = "uninterruptible"
# What a launcher, a mail or a chat puts before every line of a dump: `worker-1: `, `[0]: `, `> `.
_PREFIXED = regex(
    r"^(?P<prefix>(?:\S.{0,60}?)?[:>|\]] ?)(?:Process \d{1,18}: |"
    r"Thread (?:0x[0-9A-Fa-f]+|\d+) \((?:idle|active|most recent)|Current thread 0x[0-9a-f]+ \()"
)
_RANK_OF_PREFIX = regex(r"^(?:\[[a-z_]{0,12}(?P<a>\d{1,6})\]:?|(?P<b>\d{1,6})[:>|]) ?$")
_MAX_PREFIXES = 256
_MAX_READERS = 4_096
# Processes at a place of their own that are kept once the bound on threads is reached.
_MAX_ODD = 4_096
_MAX_SHARED = 200_000
# Threads at the same place, beside the main ones, that are kept of a large dump.
_MAX_COPIES = 64
# After so many lines without a frame nothing belongs to the dump before.
_STALE = 200
_MAX_CODE = 200
# Compiled frames kept of a thread whose Python frames follow.
_NATIVE_KEPT = 16
# The first words of a dump that a process prints of itself.
_OF_FAULTHANDLER = ("Fatal Python error:", "Windows fatal exception:", "Timeout (")
_TREE = regex(r"^\s*(?P<pid>\d{1,18}) ppid (?P<parent>\d{1,18}) ")


#: Lines that stand between a process's heading and its first thread, and what names its rank.
LINES_BEFORE_THREAD = 4
_HEADING = regex(rb"(?:Traceback for t|Current t|T|t)hread ")
_ADDRESS = regex(rb"0x[0-9a-f]+")
_MAX_PLACES = 512
_MAX_FRAMES_COMPARED = 40


class DumpPlaces:
    """Tells by the raw bytes of a long text which threads stand where none before them did."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def is_new(self, data: bytes, begin: int) -> bool:
        """Whether the frames below the heading of a thread, or process, that begins there are new.

        Never after some hundred new ones, which are as many as anybody reads.
        """
        if len(self._seen) >= _MAX_PLACES:
            return False
        for _ in range(LINES_BEFORE_THREAD + 1):
            end = data.find(b"\n", begin)
            heading = _HEADING.search(data, begin, end) if end >= 0 else None
            if end < 0 or heading is not None:
                break
            begin = end + 1
        if heading is None:
            return False
        prefix, frames = heading.start() - begin, []
        for _ in range(_MAX_FRAMES_COMPARED):
            start, end = end + 1, data.find(b"\n", end + 1)
            frame = data[start + prefix : end if end >= 0 else len(data)]
            if end < 0 or not frame.startswith((b" ", b"\t", b"#")):
                break
            frames.append(_ADDRESS.sub(b"", frame))
        place = hash(b"".join(frames))
        if not frames or place in self._seen:
            return False
        self._seen.add(place)
        return True


@dataclass(slots=True)
class _Thread:
    """`kind` is the tool: "py-spy", "pystack" (outermost first), "faulthandler" or "gdb"."""

    line: int
    kind: str
    name: str = ""
    state: str = ""
    thread_id: str = ""
    number: str = ""
    indent: int | None = None
    frames: list[Frame] = field(default_factory=list)

    @property
    def is_through(self) -> bool:
        """Whether the frames reach the module that began the process."""
        if self.kind == "pystack":
            return any(frame.function == "<module>" for frame in self.frames)
        return bool(self.frames) and self.frames[-1].function in (
            "<module>",
            "_run_module_as_main",
        )

    @property
    def is_native(self) -> bool:
        """Whether only compiled code was seen so far."""
        return bool(self.frames) and not any(f.path.endswith((".py", ">")) for f in self.frames)


@dataclass(slots=True)
class _Process:
    line: int
    pid: int | None = None
    command: str = ""
    rank: int | None = None
    end: int = 0
    threads: list[_Thread] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    kernel: list[str] = field(default_factory=list)
    kernel_line: int = 0


class StackParser:
    """Feed it lines in order, then `finish`; `stacks` holds the processes, in text order.

    The dumps of several ranks may be interleaved line by line: each rank's lines are read apart.
    Beyond the bound on threads a process is kept, by its main thread, if none before it stands at
    the same place: the odd one of thousands is not lost.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._readers: dict[tuple[int | None, str], _Reader] = {}
        self._prefixes: list[str] = []
        self._shared = _Shared()
        self.stacks: list[StackDump] = []

    def feed(self, line: Line) -> None:
        """Takes the next line."""
        prefix = self._prefix(line.text)
        if prefix:
            line = dataclasses.replace(line, text=line.text[len(prefix) :])
        reader = self._readers.get((line.rank, prefix))
        if reader is None:
            if len(self._readers) >= _MAX_READERS:
                return
            reader = _Reader(self._limits, self._shared, _rank_of_prefix(prefix))
            self._readers[line.rank, prefix] = reader
        reader.feed(line)

    def _prefix(self, text: str) -> str:
        """What stands before a line of a dump, as before the dump's heading; "" for nothing."""
        if ("Process " in text or "hread " in text) and (found := _PREFIXED.match(text)):
            prefix = found["prefix"]
            if prefix not in self._prefixes and len(self._prefixes) < _MAX_PREFIXES:
                self._prefixes.append(prefix)
        return next((p for p in self._prefixes if text.startswith(p)), "")

    def finish(self) -> None:
        """Closes the last processes and fills in parents, and wait channels that `ps` showed."""
        for reader in self._readers.values():
            reader.close()
        self.stacks = [
            self._completed(stack) for stack in sorted(self._shared.stacks, key=lambda s: s.line)
        ]

    def _completed(self, stack: StackDump) -> StackDump:
        channels, parent = self._shared.channels, self._shared.parents.get(stack.pid or 0)
        threads = stack.threads
        if channels:
            threads = tuple(
                t
                if t.wait_channel or t.thread_id not in channels
                else dataclasses.replace(t, wait_channel=channels[t.thread_id])
                for t in threads
            )
        return dataclasses.replace(stack, parent_pid=parent, threads=threads)


@dataclass(slots=True)
class _Shared:
    """What the readers of one text have in common."""

    stacks: list[StackDump] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)
    channels: dict[str, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    frames: dict[Frame, Frame] = field(default_factory=dict)
    places: set[tuple[Frame, ...]] = field(default_factory=set)
    copies: Counter[tuple[Frame, ...]] = field(default_factory=Counter)
    kept_threads: int = 0
    odd: int = 0

    def is_rare(self, frames: tuple[Frame, ...]) -> bool:
        """Whether few threads were seen at that place; counts this one."""
        self.copies[frames] += 1
        return self.copies[frames] <= _MAX_COPIES

    def same(self, frame: Frame) -> Frame:
        """The frame, one object for all that are equal."""
        if len(self.frames) >= _MAX_SHARED:
            return self.frames.get(frame, frame)
        return self.frames.setdefault(frame, frame)


class _Reader:
    """Reads the dumps in one rank's lines."""

    def __init__(self, limits: Limits, shared: _Shared, rank: int | None) -> None:
        self._limits = limits
        self._shared = shared
        self._rank = rank
        self._process: _Process | None = None
        self._thread: _Thread | None = None
        self._in_waits = False
        self._item: dict[str, str] = {}
        self._file_rank: int | None = None
        self._said: tuple[int, int] | None = None
        self._attached: tuple[int, int] | None = None
        self._stop: tuple[Frame, int] | None = None

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
        if "/stack" in text and (found := _KERNEL_HEADING.match(text)):
            self._begin_process(line, int(found["pid"]), "")
            return
        if first in " \t#":
            self._inner(line, text)
            return
        self._in_waits = False
        if first not in "[]{}":
            self._item = {}
        if first == "=" and (found := _CAPTURED.match(text)):
            self._begin_process(line, int(found["pid"]), "")
            if found["parent"]:
                self._shared.parents[int(found["pid"])] = int(found["parent"])
        elif first == "=" and (found := _FILE_HEADING.match(text)):
            self.close()
            self._file_rank = int(found["rank"]) if found["rank"] else None
        elif text.startswith(_PY_BT):
            self._begin_py_bt(line)
        elif first == "P" and (found := _PROCESS.match(text)):
            self._begin_process(line, int(found["pid"]), found["command"])
        elif first == "P" and (found := _PARENT.match(text)):
            if self._process is not None and self._process.pid is not None:
                self._shared.parents[self._process.pid] = int(found["pid"])
        elif first in "TC" and "hread " in text:
            self._begin_thread(line, text)
        elif text.startswith("threads (tid"):
            self._in_waits = True
        elif first.isdigit() and (found := _TREE.match(text)):
            self._shared.parents[int(found["pid"])] = int(found["parent"])
        elif text.startswith(_OF_FAULTHANDLER):
            self._begin_process(line, None, text)
        elif not self._aside(line, text) and self._thread is not None and first != "-":
            self._thread = None

    def _aside(self, line: Line, text: str) -> bool:
        """Takes what is said of the processes around their dumps; True: it ends no dump."""
        first = text[0]
        if (first.isdigit() or "WCHAN" in text) and self._row_of_ps(text):
            return True
        if first == "/" and (found := _WCHAN_FILE.match(text)):
            self._shared.channels[found["tid"] or found["pid"]] = found["channel"]
        elif "gdb" in text or "pystack" in text or text.startswith("Attaching"):
            if found := _ATTACHES.search(text[:1_000]):
                self._attached = (int(found["pid"]), line.number)
        elif first == "[" and (found := _DETACHED.match(text)):
            if self._process is not None and self._process.pid is None:
                self._process.pid = int(found["pid"])
        elif (first == "0" or ") at " in text) and (found := _GDB_STOP.match(text[:2_000])):
            name = found["function"] or found["plain"]
            self._stop = (Frame("", None, name.strip()[:200]), line.number)
        elif (
            len(text) <= 80
            and ("ank" in text or "ANK" in text)
            and (found := _RANK_SAID.match(text))
        ):
            self._said = (int(found["rank"]), line.number)
        return False

    def _new_process(self, line: Line, pid: int | None, command: str = "") -> _Process:
        """Closes the one before, and knows of the new one what was said ahead of it."""
        self.close()
        rank = self._rank if line.rank is None else line.rank
        if rank is None:
            rank = self._file_rank
        if rank is None and self._said is not None and line.number - self._said[1] <= _RANK_LINES:
            rank = self._said[0]
        if pid is None and self._attached is not None:
            pid = self._attached[0] if line.number - self._attached[1] <= _STALE else None
        self._attached = self._said = None
        self._process = _Process(line.number, pid, command, rank=rank)
        return self._process

    def _begin_process(self, line: Line, pid: int | None, command: str) -> None:
        current = self._process
        if current is not None and current.pid == pid and not current.threads and pid is not None:
            current.command = command
            return
        self._new_process(line, pid, command)

    def _begin_thread(self, line: Line, text: str) -> None:
        self._thread = None
        thread = _thread_of(line, text)
        if thread is None:
            return
        if self._process is None or self._is_stale(line) or self._is_of_next(thread):
            self._new_process(line, None)
        self._add_thread(line, thread)

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
        # faulthandler and pystack print the main thread last.
        return thread.kind in ("faulthandler", "pystack") and (
            threads[-1].kind == thread.kind and threads[-1].is_through
        )

    def _is_stale(self, line: Line) -> bool:
        return (
            self._process is not None
            and line.number - max(self._process.end, self._process.line) > _STALE
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
        if "hread " in text and _thread_of(line, text.strip()) is not None:
            self._begin_thread(line, text.strip())
            return
        if self._row_of_ps(text):
            return
        if self._thread is None and text[0] != "#":
            return
        frame = self._frame(text)
        if frame is None:
            self._code(text)
            return
        if self._thread is None:
            if not _BARE_FRAME.match(text):
                return
            self._add_thread(line, _Thread(line.number, "gdb"), is_new=True)
        if self._thread is not None:
            if len(self._thread.frames) < self._limits.max_frames:
                self._thread.frames.append(frame)
            elif self._thread.kind == "pystack":
                # Both ends tell: what began the thread, and where it stands.
                del self._thread.frames[self._limits.max_frames // 2]
                self._thread.frames.append(frame)
        if self._process is not None:
            self._process.end = line.number

    def _code(self, text: str) -> None:
        """Takes the source line that pystack and gdb print below a frame."""
        thread = self._thread
        if thread is None or thread.kind not in ("pystack", "gdb") or not thread.frames:
            return
        last, code = thread.frames[-1], text.strip()[:_MAX_CODE]
        if last.path.endswith(".py") and not last.code and code not in ("Arguments:", "Locals:"):
            thread.frames[-1] = dataclasses.replace(last, code=code)

    def _row_of_ps(self, text: str) -> bool:
        """Takes a row of `ps` that shows wait channels, or its heading; True: it was one."""
        shared = self._shared
        if "WCHAN" in text and _PS_HEADING.match(text):
            shared.columns = text.split()
            return True
        row: dict[str, str] = {}
        if shared.columns:
            cells = text.split(None, len(shared.columns) - 1)
            row = dict(zip(shared.columns, cells, strict=False))
            if not _is_row(row):
                shared.columns, row = [], {}
        elif found := _PS.match(text):
            row = {name: cell for name, cell in found.groupdict().items() if cell}
        if not row:
            return False
        pid, channel = row["PID"], row["WCHAN"]
        if channel in ("0", "-") and row.get("STAT", row.get("S", "")).startswith("D"):
            channel = UNINTERRUPTIBLE
        thread = next((row[n] for n in ("TID", "LWP", "SPID") if row.get(n, "").isdigit()), pid)
        if len(shared.channels) < _MAX_SHARED:
            if channel not in ("0", "-"):
                shared.channels[thread] = channel
            if row.get("PPID"):
                shared.parents[int(pid)] = int(row["PPID"])
        return True

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
            process = self._new_process(line, None)
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
                if self._said is not None and line.number - self._said[1] <= _RANK_LINES:
                    self._item["rank"] = str(self._said[0])
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
        state = "idle" if item.get("active") != "true" else "active+gil" if owns_gil else "active"
        name, thread_id = item.get("thread_name", ""), item.get("os_thread_id", "")
        thread = _Thread(line.number, "py-spy", "" if name == "null" else name, state, thread_id)
        current = self._process
        # The same thread again is another dump of the process.
        if (
            current is None
            or current.pid != pid
            or any(t.thread_id == thread_id != "" for t in current.threads)
        ):
            process = self._new_process(line, pid)
            if process.rank is None and "rank" in item:
                process.rank = int(item["rank"])
        self._add_thread(line, thread)

    def _add_thread(self, line: Line, thread: _Thread, *, is_new: bool = False) -> None:
        """`is_new`: the thread has no heading, and begins a process."""
        if is_new or self._process is None:
            self._new_process(line, None)
        self._thread = thread
        if self._process is not None:
            if len(self._process.threads) < self._limits.max_stack_threads:
                self._process.threads.append(thread)
            self._process.end = line.number

    def _begin_py_bt(self, line: Line) -> None:
        """The Python frames of a thread, whose compiled ones gdb may have printed before."""
        if self._thread is None or self._thread.frames:
            last = self._process.threads[-1] if self._process and self._process.threads else None
            if (
                last is not None
                and last.kind == "gdb"
                and last.is_native
                and not self._is_stale(line)
            ):
                del last.frames[_NATIVE_KEPT:]
                self._thread = last
                return
            stop, self._stop = self._stop, None
            self._add_thread(line, _Thread(line.number, "gdb"), is_new=True)
            if stop is not None and self._thread is not None and line.number - stop[1] <= _STALE:
                self._thread.frames.append(stop[0])

    def _frame(self, text: str) -> Frame | None:
        if text[0] == "#":
            return _gdb_frame(text)
        thread = self._thread
        if thread is None:
            return None
        if thread.kind == "pystack":
            return _pystack_frame(text)
        if thread.kind != "py-spy":
            if found := _FAULT_FRAME.match(text):
                number = found["line"]
                return Frame(
                    found["path"],
                    int(number) if number.isdigit() else None,
                    found["function"].strip()[:200],
                )
            if thread.kind == "gdb" and (found := _BUILT_IN.match(text)):
                return Frame("", None, found["function"])
            return None
        indent = len(text) - len(text.lstrip())
        if thread.indent is not None and indent > thread.indent + 3:
            if self._process is not None and self._process.rank is None:
                found = _LOCAL_RANK.match(text)
                self._process.rank = int(found["rank"]) if found else None
            return None
        if not (found := _PYSPY_FRAME.match(text)):
            return None
        number, path = found["line"], found["path"]
        if path.endswith((".java", ".kt", ".scala")) or path in _NOT_PATHS:
            return None
        thread.indent = indent if thread.indent is None else thread.indent
        return Frame(path, int(number[:9]) if number else None, found["function"].strip()[:200])

    def close(self) -> None:
        """Keeps the process that was read, if it has frames."""
        process, self._process, self._thread = self._process, None, None
        if process is None:
            return
        if process.pid is None:
            process.pid = _pid_by_threads(process.threads)
        main = str(process.pid)
        if process.kernel and not process.threads:
            process.threads.append(_Thread(process.kernel_line, "gdb", "MainThread", "", main))
            process.threads[0].frames = [Frame("[kernel]", None, f) for f in process.kernel]
        elif process.kernel and process.waits.get(main, "0") in ("0", "-"):
            process.waits[main] = process.kernel[0]
        shared = self._shared
        threads = tuple(
            Thread(
                name=t.name,
                frames=tuple(shared.same(f) for f in _innermost_first(t)),
                line=t.line,
                state=t.state,
                wait_channel=process.waits.get(t.thread_id, ""),
                thread_id=t.thread_id,
            )
            for t in process.threads
            if t.frames
        )
        threads = self._within_bounds(threads)
        if threads:
            shared.stacks.append(
                StackDump(
                    pid=process.pid,
                    line=process.line,
                    end_line=max(process.end, process.line),
                    threads=threads,
                    command=process.command[:500],
                    rank=process.rank,
                )
            )

    def _within_bounds(self, threads: tuple[Thread, ...]) -> tuple[Thread, ...]:
        """All threads; once there are many, fewer copies, then only a main one at a new place."""
        shared, most = self._shared, self._limits.max_stack_threads
        if not threads:
            return ()
        main = next((t for t in threads if t.name == "MainThread"), threads[-1])
        if shared.kept_threads > most // 4:
            threads = tuple(t for t in threads if t is main or shared.is_rare(t.frames))
        room = most - shared.kept_threads
        if room <= 0:
            if main.frames in shared.places or shared.odd >= _MAX_ODD:
                return ()
            shared.odd += 1
            threads = (main,)
        elif len(threads) > room:
            threads = (main, *(t for t in threads if t is not main))[:room]
        shared.places.add(main.frames)
        shared.kept_threads += len(threads)
        return threads


def _rank_of_prefix(prefix: str) -> int | None:
    found = _RANK_OF_PREFIX.match(prefix)
    return int(found["a"] or found["b"]) if found else None


def _is_row(row: dict[str, str]) -> bool:
    """Whether the cells under a heading of `ps` are what the heading says."""
    numbers = [row.get(name, "0") for name in ("PPID", "TID", "LWP", "SPID")]
    return (
        all(n.isdigit() and len(n) <= 18 for n in (row.get("PID", ""), *numbers))
        and _STATE.match(row.get("STAT", row.get("S", "S"))) is not None
        and _CHANNEL.match(row.get("WCHAN", "")) is not None
    )


def _thread_of(line: Line, text: str) -> _Thread | None:
    """The thread that a heading opens, whatever the tool; None: it is no heading."""
    if found := _PYSPY_THREAD.match(text):
        return _Thread(
            line.number, "py-spy", found["name"] or "", found["state"] or "", found["id"] or ""
        )
    if found := _PYSTACK_THREAD.match(text):
        state = "active+gil" if "Has the GIL" in found["state"] else ""
        return _Thread(line.number, "pystack", found["name"] or "", state, found["id"])
    if found := _FAULT_THREAD.match(text):
        # The current thread is the one that printed the dump, at work or not.
        state = "current" if text.startswith("Current") else ""
        return _Thread(line.number, "faulthandler", found["name"] or "", state, found["id"])
    if found := _GDB_THREAD.match(text):
        number = found["number"]
        lwp = found["lwp"] or found["lwp2"] or found["pid"] or number
        return _Thread(line.number, "gdb", found["name"] or "", "", lwp, number)
    return None


def _pid_by_threads(threads: Sequence[_Thread]) -> int | None:
    """The number of the main thread, where the tool says which that is, is the process's."""
    for thread in threads:
        is_main = thread.number == "1" or (thread.kind == "pystack" and thread.is_through)
        if is_main and thread.thread_id.isdigit():
            return int(thread.thread_id)
    return None


def _innermost_first(thread: _Thread) -> Sequence[Frame]:
    return thread.frames[::-1] if thread.kind == "pystack" else thread.frames


def _gdb_frame(text: str) -> Frame | None:
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


def _pystack_frame(text: str) -> Frame | None:
    found = _PYSTACK_FRAME.match(text)
    if found is None:
        return None
    function = found["function"].removesuffix(" (inlined)").strip()[:200]
    if found["kind"] == "C":
        return Frame(found["library"] or found["path"], None, function)
    return Frame(found["path"], int(found["line"]), function)
