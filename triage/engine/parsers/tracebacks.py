"""Python tracebacks, of several ranks interleaved, in boxes, with a cut start or end."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

from triage.engine.evidence import Frame, Traceback
from triage.engine.limits import Limits
from triage.engine.lines import Line

HEADER = "Traceback (most recent call last)"
_FRAME = re.compile(
    r'^\s*(?:>\s*)?File "(?P<path>[^"\n]{1,1000})", line (?P<line>\d{1,18})(?:, in '
    r"(?P<function>.{1,200}))?"
)
_RICH_FRAME = re.compile(
    r"^\s*(?P<path>(?:/|[A-Za-z]:\\|<|\.{0,2}/)[^:\n]{1,400}):(?P<line>\d{1,18}) in "
    r"(?P<function>[\w<>.]+)"
)
# The interpreter prints a qualified name, then a colon and the message; both may be cut short.
_EXCEPTION = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,8}_?[A-Z]\w{1,80}?|(?:[A-Za-z_]\w{0,80}\.){1,8}|(?=Exc))"
    r"(?P<suffix>Error|Exception|Interrupt|Exit|Failure|Failed|Timeout|Unsupported|Killed|Fault"
    r"|Cancelled|Abort|Expired|NotFound|NotFoundError|Overflow|ZeroDivision|Iteration|Break"
    r"|Refused|Mismatch|Warning|OutOfResources|OutOfMemory)(?P<rest>:\s?.*|\s*)$"
)
_CAUSE = "The above exception was the direct cause of the following exception"
_CONTEXT = "During handling of the above exception, another exception occurred"
_INSIDE = re.compile(
    r"Caught (?P<name>\w+) in (?P<inside>DataLoader worker process \d+"
    r"|pin memory thread for device "
    r"\d+|replica \d+ on device \d+)"
)
_COUNTER = re.compile(r"(?i)\b(?:step|epoch|iter(?:ation)?|batch|update)\b[ =:#\[]{0,3}\d")
_SPAWNED = re.compile(r"-- Process (?P<rank>\d{1,18}) terminated with the following error")


@dataclass(slots=True)
class _Open:
    line: Line
    end: int
    frames: list[Frame] = field(default_factory=list)
    dropped: int = 0
    link: str = ""
    awaits_code: bool = False
    rank: int | None = None


class TracebackParser:
    """Feed it lines in order; `tracebacks` holds what is complete, `finish` closes the rest."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[tuple[int | None, str | None], _Open] = {}
        self._links: dict[tuple[int | None, str | None], str] = {}
        self._spawned_rank: int | None = None
        self._growing: tuple[tuple[int | None, str | None], int] | None = None
        self._growing_source = ""
        self.tracebacks: list[Traceback] = []
        self.dropped = 0

    def goes_on(self, line: int) -> bool:
        """Whether a traceback has no end yet whose last frame stands shortly before this line."""
        return any(line - current.end <= 12 for current in self._open.values())

    def feed(self, line: Line) -> None:
        """Takes the next line."""
        if line.bar is not None:
            return
        text = line.text
        key = (line.rank, line.host)
        if HEADER in text:
            self._open[key] = _Open(line, line.number, link=self._links.pop(key, ""))
            self._growing = None
            return
        if not text:
            self._growing = None
            return
        if "Process" in text and (spawned := _SPAWNED.search(text)):
            self._spawned_rank = int(spawned["rank"])
            return
        if "above exception" in text:
            if _CAUSE in text:
                self._links[key] = "cause"
            elif _CONTEXT in text:
                self._links[key] = "context"
            return
        current = self._open.get(key)
        frame = self._frame(line)
        if frame is not None:
            if current is None:
                # A cut start: frames without their header are a traceback all the same.
                current = self._open[key] = _Open(line, line.number, link=self._links.pop(key, ""))
            self._add_frame(current, frame)
            current.end = line.number
            return
        if current is not None and line.is_code:
            current.end = line.number
            if current.awaits_code and current.frames:
                last = current.frames[-1]
                current.frames[-1] = Frame(last.path, last.line, last.function, text.strip()[:300])
                current.awaits_code = False
            return
        if text[0] not in " \t":
            self._exception(line, key, current)

    def _frame(self, line: Line) -> Frame | None:
        text = line.text
        if "line " in text and (found := _FRAME.match(text)):
            return Frame(found["path"], int(found["line"][:9]), found["function"] or "")
        if " in " in text and line.is_boxed and (found := _RICH_FRAME.match(text)):
            return Frame(found["path"], int(found["line"][:9]), found["function"])
        return None

    def _add_frame(self, current: _Open, frame: Frame) -> None:
        current.frames.append(frame)
        current.awaits_code = True
        if len(current.frames) > self._limits.max_frames:
            # The first frames say where it started, the last ones where it broke.
            del current.frames[self._limits.max_frames // 4]
            current.dropped += 1

    def _exception(
        self, line: Line, key: tuple[int | None, str | None], current: _Open | None
    ) -> None:
        found = _EXCEPTION.match(line.text)
        if found is None:
            self._grow(line, key)
            return
        if current is None and not found["rest"].startswith(":"):
            return
        name = found["name"] + found["suffix"]
        if name.endswith("Warning") and current is None:
            return
        message = found["rest"].lstrip(": ")[: self._limits.max_text_chars]
        if len(self.tracebacks) >= self._limits.max_tracebacks:
            self._open.pop(key, None)
            self.dropped += 1
            return
        inside = _INSIDE.search(message)
        if current is None and not self._is_bare_failure(line):
            return
        rank = line.rank if line.rank is not None else self._spawned_rank
        self.tracebacks.append(
            Traceback(
                line=current.line.number if current else line.number,
                end_line=line.number,
                exception=name,
                message=message,
                frames=tuple(current.frames) if current else (),
                rank=rank,
                host=line.host,
                time=line.time
                if line.time is not None
                else (current.line.time if current else None),
                link=current.link if current else self._links.pop(key, ""),
                inside=inside["inside"] if inside else "",
                warning=line.level == "W" and not name.endswith("Warning"),
            )
        )
        self._open.pop(key, None)
        self._growing = (key, 0)
        self._growing_source = line.source

    @staticmethod
    def _is_bare_failure(line: Line) -> bool:
        return line.level != "I" and not line.is_code

    def _grow(self, line: Line, key: tuple[int | None, str | None]) -> None:
        """Messages of several lines: the lines right behind the exception belong to it."""
        if self._growing is None or self._growing[0] != key or self._growing[1] >= 6:
            return
        if line.source != self._growing_source or _COUNTER.search(line.text):
            # A log line with a stamp of its own, or with the run's counter, is not the message's.
            self._growing = None
            return
        last = self.tracebacks[-1]
        if line.number - last.end_line > 8 or len(last.message) > self._limits.max_text_chars:
            self._growing = None
            return
        self._growing = (key, self._growing[1] + 1)
        message = f"{last.message}\n{line.text}"[: self._limits.max_text_chars]
        inside = _INSIDE.search(message)
        self.tracebacks[-1] = dataclasses.replace(
            last,
            message=message,
            end_line=line.number,
            inside=last.inside or (inside["inside"] if inside else ""),
        )

    def finish(self) -> None:
        """Keeps what the text's end cut off: frames without an exception."""
        for current in self._open.values():
            if current.frames and len(self.tracebacks) < self._limits.max_tracebacks:
                self.tracebacks.append(
                    Traceback(
                        line=current.line.number,
                        end_line=current.end,
                        exception="",
                        message="",
                        frames=tuple(current.frames),
                        rank=current.line.rank,
                        host=current.line.host,
                        time=current.line.time,
                        link=current.link,
                    )
                )
        self._open.clear()
        self.tracebacks.sort(key=lambda t: (t.line, t.end_line))
