"""Python tracebacks, of several ranks interleaved, in boxes, with a cut start or end."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from triage.engine.evidence import Frame, Traceback
from triage.engine.limits import Limits
from triage.engine.lines import Line
from triage.engine.regex import regex

HEADER = "Traceback (most recent call last)"
_FRAME = regex(
    r'^\s*(?:>\s*)?File "(?P<path>[^"\n]{1,1000})", line (?P<line>\d{1,18})(?:, in '
    r"(?P<function>.{1,200}))?"
)
_RICH_FRAME = regex(
    r"^\s*(?P<path>(?:/|[A-Za-z]:\\|<|\.{0,2}/)[^:\n]{1,400}):(?P<line>\d{1,18}) in "
    r"(?P<function>[\w<>.]+)"
)
# The interpreter prints a qualified name, then a colon and the message; both may be cut short.
_EXCEPTION = regex(
    r"^(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,8}_?[A-Z]\w{1,80}?|(?:[A-Za-z_]\w{0,80}\.){1,8}|(?=Exc))"
    r"(?P<suffix>Error|Exception|Interrupt|Exit|Failure|Failed|Timeout|Unsupported|Killed|Fault"
    r"|Cancelled|Abort|Expired|NotFound|NotFoundError|Overflow|ZeroDivision|Iteration|Break"
    r"|Refused|Mismatch|Warning|OutOfResources|OutOfMemory)(?P<rest>:\s?.*|\s*)$"
)
# Right behind its frames the exception may have any name: `zlib.error: …`, `queue.Empty`.
_BEHIND_FRAMES = regex(
    r"^(?P<name>(?:[A-Za-z_]\w{0,80}\.){1,8}(?:_?[A-Z]\w{0,80}|\w{0,80}error|timeout))"
    r"(?P<rest>:\s.*|:?\s*)$"
)
# Rich leaves out the module, so that an exception of the program's own has any name.
_BEHIND_BOX = regex(r"^(?P<name>[A-Z]\w{2,80})(?P<rest>:\s.*)$")
# IPython names the exception in the header, and lists the source around each frame.
_NOTEBOOK_HEADER = regex(r"^(?P<name>[A-Za-z_]\w{1,80})\s{4,200}Traceback \(most recent")
_NOTEBOOK_FRAME = regex(
    r"^(?:File )?(?P<path>(?:/|~|<ipython|[A-Za-z]:\\)[^\n]{0,400}?)"
    r"(?::(?P<line>\d{1,18}),)? in (?P<function>[\w<>.]{1,200})"
    r"|^(?:Cell|Input) In ?(?P<cell>\[\d{1,18}\]), (?:line (?P<cell_line>\d{1,18})|in )"
)
_NOTEBOOK_CODE = regex(r"^(?:-{1,9}> ?(?P<line>\d{1,18})|\s{1,12}\d{1,18})(?:\s(?P<code>.*))?$")
# pytest: `path:12: in function` above its code, `E   Name: message`, then `path:40: Name`.
_PYTEST_FRAME = regex(
    r"^(?P<path>(?:[A-Za-z]:)?[^\s:][^:\n]{0,400}\.py):(?P<line>\d{1,18}): ?"
    r"(?:in (?P<function>[\w<>.]{1,200})|(?P<name>[A-Za-z_][\w.]{0,120}))?$"
)
_PYTEST_ERROR = regex(r"^E {3,12}(?=\S)")
_PYTEST_SUMMARY = regex(
    r"^(?:FAILED|ERROR) (?P<path>[^\s:]{1,400}\.py)(?:::(?P<test>\S{1,200}))? - (?P<what>\S.*)$"
)
_GROUPED = regex(r"^ {2,80}\| ?")
_RANK = regex(r"Traceback \(most recent call last\): \(RANK (?P<rank>\d{1,18})\)")
_CAUSE = "The above exception was the direct cause of the following exception"
_CONTEXT = "During handling of the above exception, another exception occurred"
_INSIDE = regex(
    r"Caught (?P<name>\w+) in (?P<inside>DataLoader worker process \d+"
    r"|pin memory thread for device "
    r"\d+|replica \d+ on device \d+)"
)
_COUNTER = regex(r"(?i)\b(?:step|epoch|iter(?:ation)?|batch|update)\b[ =:#\[]{0,3}\d")
_SPAWNED = regex(r"-- Process (?P<rank>\d{1,18}) terminated with the following error")


@dataclass(slots=True)
class _Open:
    line: Line
    end: int
    frames: list[Frame] = field(default_factory=list)
    link: str = ""
    awaits_code: bool = False
    rank: int | None = None
    named: str = ""
    is_behind_frames: bool = False
    depth: int = 0
    is_boxed: bool = False


class TracebackParser:
    """Feed it lines in order; `tracebacks` holds what is complete, `finish` closes the rest."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[tuple[int | None, str | None], _Open] = {}
        self._links: dict[tuple[int | None, str | None], str] = {}
        self._spawned_rank: int | None = None
        self._growing: tuple[tuple[int | None, str | None], int] | None = None
        self._growing_source = ""
        self._pytest_line = 0
        self._pytest_key: tuple[int | None, str | None] | None = None
        self.tracebacks: list[Traceback] = []

    def goes_on(self, line: int) -> bool:
        """Whether a traceback has no end yet whose last frame stands shortly before this line."""
        return any(line - current.end <= 12 for current in self._open.values())

    def feed(self, line: Line) -> None:
        """Takes the next line; marks it as code where a notebook's traceback lists the source."""
        if line.bar is not None:
            return
        text = line.text
        if "|" in text[:12]:
            # Each exception of a group stands behind a bar, indented as deep as the group.
            text = _GROUPED.sub("", text)
        key = (line.rank, line.host)
        if HEADER in text:
            self._open[key] = self._begin(line, text, key)
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
        if current is not None and current.named and self._notebook(line, current):
            return
        if text[0] in "EF" and self._pytest(line, text, key, current):
            return
        frame = self._frame(line, text)
        if frame is None and ".py:" in text and (found := _PYTEST_FRAME.match(text)):
            frame = Frame(found["path"], int(found["line"][:9]), found["function"] or "")
            if found["name"]:
                self._complete(line, frame, found["name"], key)
                return
        if frame is not None:
            if current is None:
                # A cut start: frames without their header are a traceback all the same.
                current = self._open[key] = _Open(line, line.number, link=self._links.pop(key, ""))
                current.depth = max(_depth(text) - 2, 0)
            self._add_frame(current, frame)
            current.is_boxed = line.is_boxed
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
            self._exception(line, text, key, current)
        elif current is not None and current.depth and _depth(text) == current.depth:
            # The whole traceback is indented, as a block of code is in Markdown.
            self._exception(line, text.strip(), key, current)

    def _begin(self, line: Line, text: str, key: tuple[int | None, str | None]) -> _Open:
        current = _Open(line, line.number, link=self._links.pop(key, ""), depth=_depth(text))
        if "(RANK " in text and (found := _RANK.search(text)):
            # torch.distributed.checkpoint gathers what the ranks raised and prints all of it.
            current.rank = int(found["rank"])
        elif found := _NOTEBOOK_HEADER.match(text):
            current.named = found["name"]
        return current

    def _notebook(self, line: Line, current: _Open) -> bool:
        """Whether the line is a frame of IPython's, or of the source that it lists there."""
        if current.frames and (found := _NOTEBOOK_CODE.match(line.text)):
            line.is_code = True
            current.end = line.number
            last = current.frames[-1]
            if found["line"] is not None and not last.code:
                at = last.line if last.line is not None else int(found["line"][:9])
                code = (found["code"] or "").strip()[:300]
                current.frames[-1] = Frame(last.path, at, last.function, code)
            return True
        found = _NOTEBOOK_FRAME.match(line.text)
        if found is None:
            return False
        at_line = found["line"] or found["cell_line"]
        self._add_frame(
            current,
            Frame(
                # `<ipython-input-3-…>` is no library's.
                (found["path"] or f"cell {found['cell']}").strip("<>"),
                int(at_line[:9]) if at_line else None,
                found["function"] or "<module>",
            ),
        )
        current.end = line.number
        return True

    def _pytest(
        self,
        line: Line,
        text: str,
        key: tuple[int | None, str | None],
        current: _Open | None,
    ) -> bool:
        """Whether the line is pytest's word on an exception; notes the exception."""
        if found := _PYTEST_ERROR.match(text):
            if self._pytest_line and line.number - self._pytest_line == 1:
                self._grow(line, key)
            else:
                self._exception(line, _with_name(text[found.end() :]), key, current)
                self._pytest_key = key
            self._pytest_line = line.number
            return True
        if self._pytest_line or (found := _PYTEST_SUMMARY.match(text)) is None:
            return False
        # The summary alone: the part with the frames was cut off.
        current = _Open(line, line.number, [Frame(found["path"], None, found["test"] or "")])
        self._exception(line, _with_name(found["what"]), key, current)
        return True

    def _complete(
        self, line: Line, frame: Frame, name: str, key: tuple[int | None, str | None]
    ) -> None:
        """Adds the deepest frame, which pytest prints behind the exception."""
        last = self.tracebacks[-1] if self.tracebacks else None
        if (
            last is not None
            and self._pytest_key == key
            and last.exception.endswith(name)
            and line.number - last.end_line <= 8
        ):
            self._pytest_key = None
            self.tracebacks[-1] = dataclasses.replace(
                last, frames=(*last.frames, frame), end_line=line.number
            )

    def _frame(self, line: Line, text: str) -> Frame | None:
        if "line " in text and (found := _FRAME.match(text)):
            # faulthandler's frames, `line 9 in step`, are of a stack dump.
            if text.startswith(" in ", found.end()):
                return None
            return Frame(found["path"], int(found["line"][:9]), found["function"] or "")
        if " in " in text and line.is_boxed and (found := _RICH_FRAME.match(text)):
            return Frame(found["path"], int(found["line"][:9]), found["function"])
        return None

    def _add_frame(self, current: _Open, frame: Frame) -> None:
        current.frames.append(frame)
        current.awaits_code = current.is_behind_frames = True
        if len(current.frames) > self._limits.max_frames:
            # The first frames say where it started, the last ones where it broke.
            del current.frames[self._limits.max_frames // 4]

    def _exception(
        self, line: Line, text: str, key: tuple[int | None, str | None], current: _Open | None
    ) -> None:
        name, rest = self._name(text, current)
        if not name:
            if current is not None:
                current.is_behind_frames = False
            self._grow(line, key)
            return
        if current is None and not rest.startswith(":"):
            return
        if name.endswith("Warning") and current is None:
            return
        message = rest.lstrip(": ")[: self._limits.max_text_chars]
        if len(self.tracebacks) >= self._limits.max_tracebacks:
            self._open.pop(key, None)
            return
        inside = _INSIDE.search(message)
        if current is None and not self._is_bare_failure(line):
            return
        rank = line.rank if line.rank is not None else self._spawned_rank
        if current is not None and current.rank is not None:
            rank = current.rank
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
    def _name(text: str, current: _Open | None) -> tuple[str, str]:
        """The exception that the line names and what follows its name; ("", "") if none."""
        if found := _EXCEPTION.match(text):
            return found["name"] + found["suffix"], found["rest"]
        if current is None:
            return "", ""
        if current.named and text.startswith(f"{current.named}:"):
            return current.named, text[len(current.named) :]
        if current.is_behind_frames and (found := _BEHIND_FRAMES.match(text)):
            return found["name"], found["rest"]
        if current.is_boxed and (found := _BEHIND_BOX.match(text)):
            return found["name"], found["rest"]
        return "", ""

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
                        rank=current.line.rank if current.rank is None else current.rank,
                        host=current.line.host,
                        time=current.line.time,
                        link=current.link,
                    )
                )
        self._open.clear()
        self.tracebacks.sort(key=lambda t: (t.line, t.end_line))


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _with_name(told: str) -> str:
    """The exception as the interpreter would print it: pytest shows a bare assert by its code."""
    return f"AssertionError: {told}" if told.startswith("assert ") else told
