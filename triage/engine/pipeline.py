"""scan() and diagnose() themselves: one line a step."""

from __future__ import annotations

import itertools
import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kb.catalog import Catalog, builtin_folder
from kb.catalog.syntax import PatternError
from kb.catalog.syntax import parse as parse_pattern
from triage.engine import episodes, ranking, signatures, store, vetting
from triage.engine.dumps import open_stream
from triage.engine.evidence import Evidence, Hit, Traceback
from triage.engine.limits import Limits
from triage.engine.lines import Block, BlockReader, ByteStream, CodeMarker, Line, split_line
from triage.engine.multipattern import Finder, Matcher, build_matcher
from triage.engine.parsers.collectives import TRIGGERS as COLLECTIVE_TRIGGERS
from triage.engine.parsers.collectives import CollectiveParser
from triage.engine.parsers.launcher import LauncherParser
from triage.engine.parsers.metrics import MetricsParser
from triage.engine.parsers.stacks import LINES_BEFORE_THREAD, DumpPlaces, StackParser
from triage.engine.parsers.tracebacks import HEADER, TracebackParser
from triage.engine.patterns import Found, Literal, Pattern
from triage.engine.regex import regex
from triage.engine.verdict import Verdict
from triage.engine.wording import Surroundings, is_handled, is_mention

logger = logging.getLogger(__name__)

ProgressReport = Callable[[int, int], None]

# Headings of processes and threads in a stack dump.
_DUMPS = (
    r"Process \d+: ",
    r"(?:Thread|thread) (?:0x)?[0-9a-f]{3,18} \(",
    r"most recent call first",
    r"Traceback for thread \d+ ",
)
# Lines that open a window in a long text although no catalog pattern speaks of them.
_STRUCTURE = (
    *(re.escape(t) for t in COLLECTIVE_TRIGGERS),
    re.escape(HEADER),
    r"Fatal Python error:",
    r"first observed failure",
    r"\(exitcode: ",
    r"terminated with (?:signal|exit code)",
    r'"os_thread_id": ',
    *_DUMPS,
)
_ERROR_LIKE = regex(
    r"(?:(?:Error|Exception)\b|\bERROR\b|\bFATAL\b|\bCRITICAL\b|\bfatal\b|[Ff]ailed\b|\b[Ee]rror:|"
    r"\bterminate called\b|\babort(?:ed|ing)\b|\bkilled\b|\bcore dumped\b|\bhang\b|\bstuck\b"
    r"|\bpanic\b)"
)
# One of these stands in whatever _ERROR_LIKE matches, and is found much faster.
_ERROR_WORDS = (
    "rror", "Exception", "ERROR", "FATAL", "CRITICAL", "fatal", "ailed", "terminate called",
    "abort", "killed", "core dumped", "hang", "stuck", "panic",
)  # fmt: skip
_READ_AT_ONCE_BYTES = 64 * 1024
_SIZE_WORDS = ("world", "nranks", "num_processes", "ngpu")
_NO_ERROR = regex(
    r"(?i)\b(?:0|no|zero|without) (?:errors?|failures?|failed)\b|errors?[:=]\s*(?:0|none)\b|"
    r"failed[:=]\s*0\b|error[_ ]?(?:rate|handling|bound|msg)|mean\w* error|squared error|"
    r"\bACPI (?:BIOS )?Error\b|module verification failed"
)
_TORCH_VERSION = regex(
    r"(?i)\b(?:py)?torch(?: version)?\s?(?:==|[:=]|\s)\s?[v'\"]?(?P<version>\d\.\d{1,2}"
    r"(?:\.\d{1,2})?)(?:[+a-z0-9.]*)\b"
)
_WORLD_SIZE = regex(
    r"(?i)\b(?:world[_ ]?size|nranks|num_processes|ngpus?)['\"]?\s?[:=]?\s?(?P<size>\d{1,5})\b"
)


@dataclass(frozen=True, slots=True)
class _Compiled:
    patterns: tuple[Pattern, ...]
    structure: int
    matcher: Matcher
    notes: tuple[str, ...]


_compiled: dict[tuple[str, str], _Compiled] = {}


def compile_catalog(catalog: Catalog, engine: str = "") -> _Compiled:
    """The catalog's patterns, each once, and the matcher over them; kept for the process.

    A pattern outside the common subset is left out; `notes` and one line of the log say so, the
    evidence does not: the fault is the catalog's and not the text's.
    """
    key = (catalog.version, engine)
    if key not in _compiled:
        if len(_compiled) > 8:
            _compiled.clear()
        _compiled[key] = _compile(catalog, engine)
    return _compiled[key]


def _compile(catalog: Catalog, engine: str) -> _Compiled:
    places: dict[str, str] = {}
    for pitfall in catalog.active:
        for number, signature in enumerate(pitfall.signatures):
            for kind, text in signature.kinds_and_patterns():
                places.setdefault(text, f"{pitfall.slug}: signature[{number}].{kind}")
    foreign = set(_foreign_patterns(catalog))
    problems = vetting.refused(sorted(foreign))
    key = store.key_of("catalog", engine, [*places, *_STRUCTURE, "", *problems])
    saved = store.load(key)
    known: dict[str, Pattern] = {}
    if saved is not None:
        problems = saved[0]["problems"]
        untelling = set(saved[0]["untelling"])
        for text, rows in saved[0]["literals"]:
            literals = rows and tuple(Literal((t.encode("latin-1"), flag)) for t, flag in rows)
            known[text] = Pattern.analysed(text, literals, reviewed=text not in foreign)
    else:
        for text in (*places, *_STRUCTURE):
            try:
                if text not in problems:
                    known[text] = Pattern(text, reviewed=text not in foreign)
            except PatternError as error:
                problems[text] = str(error)
        rows = [
            (text, p.literals and [(t.decode("latin-1"), flag) for t, flag in p.literals])
            for text, p in known.items()
        ]
        untelling = {text for text, pattern in known.items() if not pattern.is_telling}
        store.save(key, {"problems": problems, "literals": rows, "untelling": sorted(untelling)})
    patterns = [known[text] for text in places if text in known]
    structure = [known.get(text) or Pattern(text, reviewed=True) for text in _STRUCTURE]
    notes = [f"{places[text]} was left out: {text!r} {why}" for text, why in problems.items()]
    for note in notes:
        logger.warning("%s", note)
    everything = (*patterns, *structure)
    # What a short literal alone gives away, and what only guards another pattern, is looked for
    # where lines are read, and only there.
    aside = untelling | _guards(catalog)
    skipped = [number for number, pattern in enumerate(patterns) if pattern.text in aside]
    matcher = build_matcher(everything, engine, key, skipped)
    return _Compiled(everything, len(patterns), matcher, tuple(notes))


def _guards(catalog: Catalog) -> set[str]:
    """The patterns that only ever keep a signature from matching."""
    signatures = [s for pitfall in catalog.active for s in pitfall.signatures]
    sought = {text for signature in signatures for text in signature.patterns}
    return {text for signature in signatures for text in signature.none} - sought


_foreign: dict[str, tuple[str, ...]] = {}


def _foreign_patterns(catalog: Catalog) -> tuple[str, ...]:
    """The patterns of entries that do not come with Pitstop; kept for the process."""
    if catalog.version not in _foreign:
        builtin = builtin_folder()
        texts = {
            text
            for pitfall in catalog.active
            if pitfall.folder.parent != builtin
            for signature in pitfall.signatures
            for _, text in signature.kinds_and_patterns()
        }
        if len(_foreign) > 8:
            _foreign.clear()
        _foreign[catalog.version] = tuple(sorted(text for text in texts if _is_pattern(text)))
    return _foreign[catalog.version]


def _is_pattern(text: str) -> bool:
    try:
        parse_pattern(text)
    except PatternError:
        return False
    return True


def scan(
    stream: ByteStream,
    *,
    catalog: Catalog,
    name: str = "",
    limits: Limits | None = None,
    progress: ProgressReport | None = None,
    engine: str = "",
) -> Evidence:
    """The Evidence of one text, read once in bounded memory.

    The stream yields bytes, plain or UTF-16; `progress` is called with (bytes read, findings so
    far) after each block of 256 KiB, and more often where lines are read one by one. Any bytes
    give an Evidence; only the stream's own errors come through.
    """
    limits = limits or Limits()
    opened = open_stream(stream, name)
    if opened.evidence is not None:
        opened.evidence.catalog = catalog.version
        if progress is not None:
            progress(opened.evidence.bytes, 0)
        return opened.evidence
    compiled = compile_catalog(catalog, engine)
    scanner = _Scanner(compiled, limits)
    reader = BlockReader(opened.stream, limits, in_place=True)

    def report() -> None:
        if progress is not None:
            progress(reader.bytes_read, scanner.findings)

    for block in reader:
        scanner.feed(block, report)
        report()
    evidence = scanner.finish(report)
    evidence.name = name
    evidence.lines = reader.lines
    evidence.bytes = reader.bytes_read
    evidence.encoding = reader.encoding
    evidence.catalog = catalog.version
    if opened.note:
        evidence.notes.append(opened.note)
    evidence.notes.extend(reader.notes)
    return evidence


def diagnose(evidences: Sequence[Evidence], catalog: Catalog) -> Verdict:
    """The Verdict over all texts of one incident: the same in whatever order they are given.

    The first diagnosis is the answer; it is a root where one is shown, else the symptom that is
    visible. No exception for any Evidence.
    """
    order = sorted(range(len(evidences)), key=lambda index: _text_key(evidences[index]))
    texts = [evidences[index] for index in order]
    vetting.refused(_foreign_patterns(catalog))
    parts = episodes.split(texts)
    found = signatures.match_parts(catalog, texts, parts)
    told = [ranking.Episode(part, matches) for part, matches in zip(parts, found, strict=True)]
    return _renumber(ranking.decide(catalog, texts, told), order)


def _text_key(evidence: Evidence) -> tuple[object, ...]:
    """Where a text stands among those of its incident: the same wherever the caller put it."""
    hits = tuple((hit.line, hit.pattern, hit.text) for hit in evidence.hits)
    return (
        evidence.name, evidence.lines, evidence.bytes, hits, tuple(evidence.last_lines.items()),
        repr(evidence.flight),
    )  # fmt: skip


def _renumber(verdict: Verdict, order: Sequence[int]) -> Verdict:
    """The verdict with the caller's numbers of the texts in place of the sorted ones."""
    if list(order) == sorted(order):
        return verdict
    diagnoses = (
        replace(
            diagnosis,
            evidence=tuple(
                replace(line, text_index=order[line.text_index]) for line in diagnosis.evidence
            ),
        )
        for diagnosis in verdict.diagnoses
    )
    return replace(verdict, diagnoses=tuple(diagnoses))


class _Scanner:
    """Feeds the parsers: all lines of a text's head and tail, and windows around hits between."""

    def __init__(self, compiled: _Compiled, limits: Limits) -> None:
        self._compiled = compiled
        self._sieve: Finder | None = None
        self._limits = limits
        self._evidence = Evidence()
        self._marker = CodeMarker()
        self._around = Surroundings()
        self._tracebacks = TracebackParser(limits)
        self._collectives = CollectiveParser(limits)
        self._stacks = StackParser(limits)
        self._places = DumpPlaces()
        self._launcher = LauncherParser(limits)
        self._metrics = MetricsParser(limits)
        self._ranks: set[int] = set()
        self._said: dict[int | None, deque[str]] = {}
        self._windows: dict[int, int] = {}
        self._opened = 0
        self._fed = 0
        self._window_end = 0
        self._tail: deque[tuple[Block, list[tuple[int, int]] | None]] = deque()
        self._tail_bytes = 0
        # How many blocks of the tail, from its start, have bytes of their own.
        self._own = 0
        self._hit_keys: set[tuple[int, str]] = set()
        self._per_pattern: dict[str, int] = {}
        self._pending: list[Line] = []
        self._first_time: float | None = None
        self._last_time: float | None = None

    @property
    def findings(self) -> int:
        """Hits so far."""
        return len(self._evidence.hits)

    # ------------------------------------------------------------------ which lines are read

    def feed(self, block: Block, report: Callable[[], None]) -> None:
        """Holds the last blocks back: what turns out to be the tail is read line by line."""
        # A block that follows another is searched while the processor's cache still holds it.
        events = self._search(block) if self._tail else None
        self._tail.append((block, events))
        self._tail_bytes += len(block.data)
        while self._tail_bytes - len(self._tail[0][0].data) >= self._limits.tail_bytes:
            oldest, found = self._tail.popleft()
            self._own = max(self._own - 1, 0)
            self._tail_bytes -= len(oldest.data)
            events = self._search(oldest) if found is None else found
            self._read_middle(oldest, events, report)
        while self._own < len(self._tail) - 1:
            # Its bytes are gone when the next but one has been read.
            held, found = self._tail[self._own]
            self._tail[self._own] = replace(held, data=bytes(held.data)), found
            self._own += 1

    def _search(self, block: Block) -> list[tuple[int, int]]:
        if self._sieve is None:
            self._sieve = self._compiled.matcher.for_long_text()
        return self._sieve.find(block.data)

    def _read_middle(
        self, block: Block, events: list[tuple[int, int]], report: Callable[[], None]
    ) -> None:
        start = 0
        if self._fed < self._limits.head_bytes:
            data = bytes(block.data)
            start = _line_end(data, min(self._limits.head_bytes - self._fed, len(data)))
            self._read_all(data[:start], block.first_line, report)
        self._fed += len(block.data)
        if start < len(block.data):
            self._read_windows(block, start, events)

    def _read_windows(self, block: Block, start: int, events: list[tuple[int, int]]) -> None:
        if not events and self._window_end < block.first_line:
            return
        data = bytes(block.data)
        position, line = start, block.first_line + data.count(b"\n", 0, start)
        if self._window_end >= line:
            end = _lines_ahead(data, position, self._window_end - line + 1)
            self._read(data, position, end, line)
            line += data.count(b"\n", position, end)
            position = end
        for offset, number in events:
            if offset < position:
                continue
            seen = self._windows.get(number, 0)
            begin = data.rfind(b"\n", position, offset) + 1 or position
            is_dump = number >= len(self._compiled.patterns) - len(_DUMPS)
            # Of thousands of processes the one that stands elsewhere is the one to see.
            is_odd = is_dump and self._places.is_new(data, begin)
            if seen >= self._limits.hits_per_pattern and not is_odd:
                self._count(number)
                if not is_dump:
                    self._mute(number)
                continue
            end = _line_end(data, offset + 1)
            if not self._may_match(number, data[begin:end]):
                continue
            self._windows[number] = seen + 1
            wide = (
                is_odd
                or seen < self._limits.windows_always
                or (
                    seen < self._limits.windows_per_pattern
                    and self._opened < self._limits.max_windows
                )
            )
            self._opened += wide
            after = (
                self._limits.lines_after_hit
                if is_odd or self._opened <= self._limits.full_windows
                else self._limits.lines_after_later_hit
            )
            before = self._limits.lines_before_hit if wide else 0
            before += LINES_BEFORE_THREAD if is_odd else 0
            for _ in range(before):
                if begin <= position:
                    break
                begin = data.rfind(b"\n", position, begin - 1) + 1 or position
            line += data.count(b"\n", position, begin)
            if wide:
                end = _lines_ahead(data, end, after)
            self._read(data, begin, end, line)
            line += data.count(b"\n", begin, end)
            position = end
            for _ in range(self._limits.lines_after_hit // after - 1 if wide else 0):
                if end == len(data) or not self._tracebacks.goes_on(line):
                    break
                end = _lines_ahead(data, position, after)
                self._read(data, position, end, line)
                line += data.count(b"\n", position, end)
                position = end
            if wide and end == len(data):
                self._window_end = max(self._window_end, line + after // 2)

    def _may_match(self, number: int, raw: bytes) -> bool:
        """Whether the pattern itself, not only its literal, can match this line."""
        pattern = self._compiled.patterns[number]
        text = raw.decode("utf-8", "replace")
        if not pattern.may_occur_in(text):
            return False
        if number >= self._compiled.structure or not pattern.is_anchored:
            return True
        return any(
            pattern.search(line.whole or line.text) is not None
            for line in split_line(raw, 0, self._limits)
        )

    def _mute(self, number: int) -> None:
        if self._sieve is not None:
            self._sieve.mute(number)

    def _count(self, number: int) -> None:
        if number < self._compiled.structure:
            text = self._compiled.patterns[number].text
            self._evidence.counts[text] = self._evidence.counts.get(text, 0) + 1

    def _read_all(self, data: bytes, line: int, report: Callable[[], None]) -> None:
        """Reads every line, and says after some thousand that it is at work."""
        begin = 0
        while begin < len(data):
            end = _line_end(data, min(begin + _READ_AT_ONCE_BYTES, len(data)))
            self._read(data, begin, end, line)
            line += data.count(b"\n", begin, end)
            begin = end
            report()

    def _read(self, data: bytes, begin: int, end: int, first: int) -> None:
        """Reads the lines between two offsets; `first` is the number of the first one."""
        if end <= begin:
            return
        part = data[begin:end]
        by_line = _numbers_by_line(part, self._compiled.matcher.find(part))
        pieces = part.split(b"\n")
        if not pieces[-1]:
            pieces.pop()
        lines: list[Line] = []
        for index, raw in enumerate(pieces):
            lines.extend(self._parse_line(raw, first + index, by_line.get(index, ())))
        self._join(lines)

    def _parse_line(self, raw: bytes, number: int, patterns: Sequence[int]) -> list[Line]:
        parts = list(split_line(raw, number, self._limits))
        # What a pattern wants, a quote or a letter beyond ASCII, may stand there as an escape.
        unescaped = self._find_in(parts) if len(parts) > 1 and b"\\n" in raw else {}
        structure = self._compiled.structure
        is_structure = len(parts) > 1 or any(pattern >= structure for pattern in patterns)
        for index, line in enumerate(parts):
            self._marker.mark(line)
            if self._around.is_quoted(line):
                line.is_code = True
                continue
            self._parse(line, is_structure)
            if line.bar is None:
                for pattern in (*patterns, *unescaped.get(index, ())):
                    self._confirm(line, pattern, len(parts) == 1)
        return parts

    def _find_in(self, parts: Sequence[Line]) -> dict[int, list[int]]:
        """The pattern numbers by the index of the part."""
        data = "\n".join(line.text.replace("\n", " ") for line in parts).encode("utf-8", "replace")
        return _numbers_by_line(data, self._compiled.matcher.find(data))

    def _parse(self, line: Line, is_structure: bool) -> None:
        if line.rank is not None and line.rank < 100_000:
            self._ranks.add(line.rank)
        if line.time is not None:
            if self._first_time is None:
                self._first_time = line.time
            self._last_time = line.time
        self._tracebacks.feed(line)
        self._collectives.feed(line, may_be_marked=is_structure)
        self._stacks.feed(line)
        self._launcher.feed(line)
        self._metrics.feed(line)
        if line.bar is None and line.text:
            self._notice(line)

    def _notice(self, line: Line) -> None:
        """Keeps versions, last lines and error-like lines that no pattern knows."""
        evidence, text = self._evidence, line.text
        said = self._said.get(line.rank)
        if said is None:
            said = self._said[line.rank] = deque(maxlen=self._limits.last_lines)
            if len(self._said) > 4_096:
                self._said.pop(next(iter(self._said)))
        said.appendleft(f"{line.number}\t{text[:300]}".replace("\n", " "))
        text = text[:2_000]
        if not evidence.torch_version and "orch" in text and (found := _TORCH_VERSION.search(text)):
            evidence.torch_version = found["version"]
        if (
            evidence.world_size is None
            and any(word in text.lower() for word in _SIZE_WORDS)
            and (found := _WORLD_SIZE.search(text))
        ):
            evidence.world_size = int(found["size"])
        if (
            len(evidence.errors) < 200
            and line.level not in ("W", "I")
            and not line.is_code
            and len(text) < 2_000
            and (line.level == "E" or _is_error_like(text))
            and not _NO_ERROR.search(text)
            and not _is_mentioned(line, text)
        ):
            evidence.errors.append(self._hit(line, "", text))

    # ------------------------------------------------------------------------------- patterns

    def _confirm(self, line: Line, number: int, is_whole: bool) -> None:
        if number >= self._compiled.structure:
            return
        pattern = self._compiled.patterns[number]
        text = line.whole or line.text
        found = pattern.search(text)
        if found is None and is_whole and line.full is not line.text and not line.whole:
            text = line.full
            found = pattern.search(text)
        if found is not None:
            self._keep(line, pattern, text, found)

    def _keep(
        self,
        line: Line,
        pattern: Pattern,
        text: str,
        found: Found,
        end_line: int | None = None,
    ) -> None:
        key = (line.number, pattern.text)
        if key in self._hit_keys or line.is_code:
            return
        count = self._per_pattern.get(pattern.text, 0)
        if count >= self._limits.hits_per_pattern:
            self._evidence.counts[pattern.text] = self._evidence.counts.get(pattern.text, 0) + 1
            return
        self._per_pattern[pattern.text] = count + 1
        self._hit_keys.add(key)
        self._evidence.hits.append(self._hit(line, pattern.text, text, found, end_line))

    def _hit(
        self,
        line: Line,
        pattern: str,
        text: str,
        found: Found | None = None,
        end_line: int | None = None,
    ) -> Hit:
        groups = found.groupdict() if found is not None else {}
        shown, start = line.full.strip() or text, found.start() if found is not None else 0
        if found is not None and found.end() > self._limits.max_text_chars * 3 // 4:
            # The message within an overlong line, with what stands around it.
            begin = max(start - self._limits.max_text_chars // 4, 0)
            shown = text = text[begin : begin + self._limits.max_text_chars]
            start -= begin
        return Hit(
            pattern=pattern,
            line=line.number,
            text=shown[: self._limits.max_text_chars],
            rank=line.rank,
            host=line.host,
            time=line.time,
            # RE2 and `re` name the groups in orders of their own.
            values={k: v[:300] for k, v in sorted(groups.items()) if v is not None},
            warning=line.level == "W",
            handled=is_handled(text),
            mention=found is not None and is_mention(line, text, start),
            end_line=end_line,
        )

    def _join(self, lines: list[Line]) -> None:
        """Messages that a terminal or a box wrapped: each line with the next ones of its rank."""
        follows: dict[tuple[int | None, str | None], Line] = {}
        joined: list[tuple[Line, Line, str, int]] = []
        latest: Line | None = None
        candidates = self._pending + [
            line for line in lines if line.bar is None and not line.is_code
        ]
        for line in candidates:
            if not line.text.strip():
                continue
            key = (line.rank, line.host)
            before = follows.get(key)
            if line.rank is None and latest is not None and latest.rank is not None:
                # The terminal put no prefix before the rest of a line.
                before = latest
            latest = line
            if before is not None and line.number - before.number <= 2 and _may_wrap(before, line):
                head, rest = before.text.rstrip()[-1_000:], line.text.strip()[:1_000]
                joined.extend((before, line, head + glue + rest, len(head)) for glue in (" ", ""))
            follows[key] = line
        self._pending = [line for line in candidates[-2:] if line not in self._pending][-1:]
        if not joined:
            return
        data = "\n".join(text.replace("\n", " ") for *_, text, _ in joined).encode()
        events = self._compiled.matcher.find(data)
        if not events:
            return
        for index, numbers in _numbers_by_line(data, events).items():
            first, last, text, seam = joined[index]
            self._confirm_joined(first, last, text, seam, numbers)

    def _confirm_joined(
        self, first: Line, last: Line, text: str, seam: int, numbers: Sequence[int]
    ) -> None:
        for number in numbers:
            pattern = self._compiled.patterns[number]
            if number >= self._compiled.structure:
                if "WorkNCCL(" in text or "last enqueued" in text:
                    self._collectives.feed(first, text)
                continue
            found = pattern.search(text)
            if found is None or not found.start() < seam < found.end():
                continue
            # What one of the two lines says alone was not wrapped.
            if not any(pattern.search(part) for part in (text[:seam], text[seam:])):
                self._keep(first, pattern, text, found, last.number)

    # --------------------------------------------------------------------------------- the end

    def _told(self, hit: Hit) -> Hit:
        return replace(hit, handled=True) if self._around.copes_with(hit) else hit

    def finish(self, report: Callable[[], None]) -> Evidence:
        for block, _ in self._tail:
            self._read_all(bytes(block.data), block.first_line, report)
        self._tracebacks.finish()
        self._stacks.finish()
        evidence = self._evidence
        evidence.hits = [self._told(hit) for hit in evidence.hits]
        evidence.hits.sort(key=lambda h: (h.line, h.pattern))
        evidence.errors = [self._told(hit) for hit in evidence.errors]
        evidence.tracebacks = [
            replace(t, warning=True) if self._around.copes_with(t) or _says_handled(t) else t
            for t in self._tracebacks.tracebacks
        ]
        evidence.collectives = self._collectives.events
        evidence.stacks = self._stacks.stacks
        # Of a thousand ranks the one that says something else shows by its last line.
        kept = self._limits.last_lines if len(self._said) <= 256 else 1
        evidence.last_lines = {
            str(rank): "\n".join(itertools.islice(said, kept)) for rank, said in self._said.items()
        }
        evidence.exits = self._launcher.exits
        evidence.launchers = tuple(self._launcher.launchers)
        evidence.progress = self._metrics.progress
        evidence.points = self._metrics.points
        evidence.point_counts = self._metrics.point_counts
        evidence.batches = self._metrics.batches
        ranks = self._ranks | {e.rank for e in evidence.collectives if e.rank is not None}
        ranks |= {e.rank for e in evidence.exits if e.rank is not None}
        evidence.ranks = tuple(sorted(ranks)[:65_536])
        evidence.first_time, evidence.last_time = self._first_time, self._last_time
        return evidence


def _says_handled(traceback: Traceback) -> bool:
    """Whether a line that names an exception, without frames, says that it was dealt with."""
    first = traceback.message.partition("\n")[0]
    return not traceback.frames and is_handled(f"{traceback.exception}: {first}")


def _is_mentioned(line: Line, text: str) -> bool:
    """Whether the line's first error-like word is only spoken of."""
    found = _ERROR_LIKE.search(text)
    return is_mention(line, text, found.start() if found is not None else 0)


def _is_error_like(text: str) -> bool:
    return any(word in text for word in _ERROR_WORDS) and _ERROR_LIKE.search(text) is not None


def _line_end(data: bytes, offset: int) -> int:
    """The offset behind the line that holds this one."""
    newline = data.find(b"\n", max(offset - 1, 0))
    return len(data) if newline < 0 else newline + 1


def _lines_ahead(data: bytes, offset: int, count: int) -> int:
    """The offset behind the next `count` lines."""
    for _ in range(count):
        newline = data.find(b"\n", offset)
        if newline < 0:
            return len(data)
        offset = newline + 1
    return offset


def _numbers_by_line(data: bytes, events: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Pattern numbers by the index of their line; each once a line."""
    found: dict[int, list[int]] = {}
    position, index = 0, 0
    for offset, number in events:
        index += data.count(b"\n", position, offset)
        position = offset
        numbers = found.setdefault(index, [])
        if number not in numbers:
            numbers.append(number)
    return found


def _may_wrap(before: Line, after: Line) -> bool:
    """Whether `after` can be the rest of `before`: no prefix, no stamp of a logger of its own."""
    if before.is_boxed != after.is_boxed or after.source:
        return False
    return before.is_boxed or after.rank is None or after.rank == before.rank
