"""The part of a stored text that the page shows: some lines around one, never the whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from triage.models import Submission
from triage.pages.highlighting import highlight_lines
from triage.services import texts

#: Lines of one page: a few screens, and coloured within milliseconds.
LINES_A_PAGE = 200
#: Lines shown above the one that was asked for.
LINES_BEFORE = 60
#: Tabs shown before the rest goes into a list.
TABS = 12


@dataclass(frozen=True, slots=True)
class Span:
    """Lines of one text that a diagnosis rests on; `position` is the text's, as in `T2`."""

    position: int
    line: int
    end_line: int
    role: str

    def holds(self, line: int) -> bool:
        """Whether the line is one of them."""
        return self.line <= line <= self.end_line


@dataclass(frozen=True, slots=True)
class ShownLine:
    """One line of the page: `classes` say whether it is evidence, and whether it was asked for."""

    number: int
    anchor: str
    html: SafeString
    classes: str


@dataclass(frozen=True, slots=True)
class Tab:
    """One text of the incident, with the number of its evidence lines."""

    position: int
    name: str
    is_current: bool
    evidence_lines: int


@dataclass(frozen=True, slots=True)
class LogWindow:
    """What the log panel shows. `missing` says in words why there are no lines, if so."""

    text: Submission | None
    tabs: Sequence[Tab]
    more_tabs: Sequence[Tab]
    lines: Sequence[ShownLine]
    missing: str = ""
    earlier: int | None = None
    later: int | None = None
    query: str = ""
    match: int | None = None
    is_at_end: bool = False

    @property
    def first(self) -> int:
        """The number of the first line shown; 0 if there is none."""
        return self.lines[0].number if self.lines else 0

    @property
    def last(self) -> int:
        """The number of the last line shown; 0 if there is none."""
        return self.lines[-1].number if self.lines else 0

    @property
    def line_count(self) -> str:
        """Lines of the text, in words."""
        return f"{self.text.line_count:,}" if self.text else ""

    @property
    def find_after(self) -> int:
        """The line after which a repeated search goes on."""
        return self.match or 0

    @property
    def is_query_missed(self) -> bool:
        """Whether something was searched for and not found."""
        return bool(self.query) and self.match is None


def open_log(
    submissions: Sequence[Submission],
    evidence: Sequence[Span],
    *,
    position: int | None = None,
    first: int | None = None,
    line: int | None = None,
    query: str = "",
    after: int = 0,
) -> LogWindow:
    """The window that a reader asked for.

    Without a wish it stands around the first evidence line, or at the end of the first text, where
    a run's last words are. A search goes on after line `after` and starts over at the end.
    """
    text = _choose_text(submissions, evidence, position)
    tabs, more_tabs = _tabs(submissions, evidence, text)
    if text is None:
        return LogWindow(None, tabs, more_tabs, [], missing="There is no text here.")
    if not text.stored_at:
        return LogWindow(text, tabs, more_tabs, [], missing=_why_gone(text))
    spans = [span for span in evidence if span.position == text.position]
    match = None
    try:
        if query:
            match = texts.find(text, query, after)
            if match is None and after:
                match = texts.find(text, query, 0)
            line = match or line
        if line is None and first is None and spans:
            first = _start_around(spans[0].line)
        is_at_end = line is None and first is None
        first = _first_line(text, first, line)
        shown = texts.read_lines(text, first, LINES_A_PAGE)
    except FileNotFoundError:
        return LogWindow(text, tabs, more_tabs, [], missing=_why_gone(text))
    html = highlight_lines([one.text for one in shown])
    lines = [
        ShownLine(
            number=one.number,
            anchor=f"{text.label}-L{one.number}",
            html=coloured,
            classes=_classes(one.number, spans, line),
        )
        for one, coloured in zip(shown, html, strict=True)
    ]
    last = shown[-1].number if shown else 0
    return LogWindow(
        text=text,
        tabs=tabs,
        more_tabs=more_tabs,
        lines=lines,
        earlier=max(1, first - LINES_A_PAGE) if first > 1 else None,
        later=last + 1 if shown and last < text.line_count else None,
        query=query,
        match=match,
        is_at_end=is_at_end,
    )


def _start_around(line: int) -> int:
    return max(1, line - LINES_BEFORE)


def _first_line(text: Submission, first: int | None, line: int | None) -> int:
    if line is not None:
        first = _start_around(min(line, max(text.line_count, 1)))
    if first is None:
        first = text.line_count - LINES_A_PAGE + 1
    return max(1, min(first, text.line_count))


def _choose_text(
    submissions: Sequence[Submission], evidence: Sequence[Span], position: int | None
) -> Submission | None:
    wanted = position if position is not None else (evidence[0].position if evidence else None)
    for submission in submissions:
        if submission.position == wanted:
            return submission
    return submissions[0] if submissions and position is None else None


def _tabs(
    submissions: Sequence[Submission], evidence: Iterable[Span], current: Submission | None
) -> tuple[list[Tab], list[Tab]]:
    lines: dict[int, set[int]] = {}
    for span in evidence:
        lines.setdefault(span.position, set()).add(span.line)
    tabs = [
        Tab(
            position=submission.position,
            name=submission.name or submission.label,
            is_current=current is not None and submission.position == current.position,
            evidence_lines=len(lines.get(submission.position, ())),
        )
        for submission in submissions
    ]
    if len(tabs) <= TABS:
        return tabs, []
    # The text being read and those with evidence come first; the order among them stays.
    tabs.sort(key=lambda tab: (not tab.is_current, not tab.evidence_lines))
    front = sorted(tabs[:TABS], key=lambda tab: tab.position)
    return front, sorted(tabs[TABS:], key=lambda tab: tab.position)


def _classes(number: int, spans: Sequence[Span], target: int | None) -> str:
    classes = []
    roles = {span.role for span in spans if span.holds(number)}
    if roles:
        classes += ["evidence-line", "root" if "root" in roles else "symptom"]
        if any(span.line == number for span in spans[:1]):
            classes.append("first-evidence")
    if number == target:
        classes.append("target")
    return " ".join(classes)


def _why_gone(text: Submission) -> str:
    if text.state == Submission.State.DESTROYED:
        return "This text was destroyed. What was found in it stays above."
    return "This text is no longer kept. What was found in it stays above."
