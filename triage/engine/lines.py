"""Step 1: bytes → blocks of whole lines → Line, with colours, bars and prefixes split off."""

from __future__ import annotations

import codecs
import json
import mmap
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from triage.engine.evidence import Progress
from triage.engine.limits import Limits
from triage.engine.regex import regex

#: How often a byte stands in bytes or a view of them; without the wheel in bytes alone.
count_in: Callable[[Any, bytes], int] = bytes.count
_find: Callable[[Any, bytes], int] | None = None
with suppress(ImportError):
    # Four times as fast as bytes.count, which costs as much as the search for all patterns.
    import stringzilla

    count_in, _find = stringzilla.count, stringzilla.find

WINDOW_BYTES = 256 * 1024


class ByteStream(Protocol):
    """What a scan reads from: any binary file."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a text as UTF-8 without colour codes and NUL bytes.

    `first_line` is the number of the first one, counted from 1. A block that ends inside an
    overlong line has `is_open` set: the next block goes on in the same line. Where `data` is a
    memoryview, its bytes are those of another block as soon as the next but one has been read.
    """

    first_line: int
    data: bytes | memoryview
    newlines: int
    is_open: bool = False


@dataclass(slots=True)
class Line:
    """One line, or one part of a line that carriage returns or a bar divide.

    `text` has neither colours nor prefixes, `full` keeps the prefixes; both are cut at some
    thousand characters, and `whole` is then all that stood there, else empty. `level` is E, W, I
    or "" (unknown); `source` the C++ or Python file that a log stamp names. `time` counts
    seconds from an arbitrary day, so only differences mean something.
    """

    number: int
    text: str
    full: str
    rank: int | None = None
    host: str | None = None
    time: float | None = None
    level: str = ""
    source: str = ""
    group: str = ""
    is_code: bool = False
    is_boxed: bool = False
    bar: Progress | None = None
    whole: str = ""


# ------------------------------------------------------------------------------ bytes → blocks

_ANSI = regex(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_()][0-9A-Za-z]?)"
)
# Docker's json-file driver puts each line of a container into an object of its own.
_DOCKER_SEEN_BYTES = 16 * 1024
_DOCKER_START = b'{"log":'
_DOCKER = regex(
    rb'^\{"log": ?(?P<log>"(?:[^"\\\r\n]|\\[^\r\n])*"), ?"stream": ?"(?:stdout|stderr)",'
    rb'[^\r\n]{0,2000}"time": ?"(?P<time>[0-9T:.+Z\-]{19,40})"\}\r?$',
    re.MULTILINE,
)
# Tab, line ends, form feed, backspace, escape and bell, and all that may be part of a character.
_PRINTED = bytes([7, 8, 9, 10, 12, 13, 27, *range(32, 127), *range(128, 256)])
_UTF16_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class BlockReader:
    """Reads a stream into Blocks; afterwards `bytes_read`, `lines`, `notes` and `encoding` tell.

    However the stream hands out its bytes, the blocks are the same. With `in_place` most of them
    are memoryviews, which saves a copy: for who is done with a block before the next but one.
    """

    def __init__(self, stream: ByteStream, limits: Limits, *, in_place: bool = False) -> None:
        self._stream = stream
        self._limits = limits
        self._in_place = in_place and _find is not None
        self.bytes_read = 0
        self.lines = 0
        self.notes: list[str] = []
        self.encoding = "utf-8"

    def __iter__(self) -> Iterator[Block]:
        chunks = self._chunks()
        carry = b""
        line = 1
        skipping = False
        ends_with_newline = True
        for chunk in chunks:
            if isinstance(chunk, memoryview) and not carry and not skipping:
                newlines = count_in(chunk, b"\n")
                yield Block(line, _clean_view(chunk), newlines)
                line += newlines
                ends_with_newline = True
                continue
            data = carry + chunk if carry else bytes(chunk)
            if skipping:
                data, skipping = _skip_line(data)
                if skipping:
                    carry = b""
                    continue
            cut = data.rfind(b"\n") + 1
            if cut == 0 and len(data) <= self._limits.max_line_bytes:
                carry = data
                continue
            is_open = cut == 0
            if is_open:
                cut = data.rfind(b"\r") + 1
                if cut == 0:
                    cut = self._limits.max_line_bytes
                    skipping = True
                    self._note_long_line(line)
            body, carry = data[:cut], data[cut:]
            if skipping:
                carry, skipping = _skip_line(carry)
                if skipping:
                    carry = b""
            newlines = count_in(body, b"\n")
            yield Block(line, _clean_block(body), newlines, is_open)
            line += newlines
            ends_with_newline = not is_open
        if carry:
            newlines = carry.count(b"\n")
            yield Block(line, _clean_block(carry), newlines, True)
            line += newlines
            ends_with_newline = carry.endswith(b"\n")
        self.lines = line - 1 if ends_with_newline else line
        if self.bytes_read == 0:
            self.lines = 0

    def _note_long_line(self, line: int) -> None:
        if len(self.notes) < 20:
            limit = self._limits.max_line_bytes
            self.notes.append(f"line {line} is longer than {limit} bytes; its rest was skipped")

    def _chunks(self) -> Iterator[bytes | memoryview]:
        """The stream in pieces of WINDOW_BYTES, as UTF-8 whatever it came in.

        Those in place are whole lines.
        """
        first = _read_fully(self._stream, WINDOW_BYTES)
        encoding = _find_encoding(first)
        if encoding is None and _is_binary(first):
            self.encoding = "binary"
            self.notes.append("this does not read as text: most of its bytes are not characters")
        if encoding is None:
            yield from self._utf8_chunks(first)
            return
        self.encoding = encoding
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        piece = first
        while piece:
            self.bytes_read += len(piece)
            text = decoder.decode(piece)
            yield text.lstrip("\ufeff").encode("utf-8", "replace")
            piece = _read_fully(self._stream, WINDOW_BYTES)
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest.encode("utf-8", "replace")

    def _utf8_chunks(self, first: bytes) -> Iterator[bytes | memoryview]:
        self.bytes_read += len(first)
        yield first.removeprefix(b"\xef\xbb\xbf")
        if len(first) < WINDOW_BYTES:
            return
        readinto = getattr(self._stream, "readinto", None)
        if readinto is None:
            while piece := _read_fully(self._stream, WINDOW_BYTES):
                self.bytes_read += len(piece)
                yield piece
            return
        # Page-aligned: read() into an odd address runs at a third of the speed. What follows the
        # last newline is moved in front of the next piece, so that all else is copied only once.
        # Two take turns, for the block before is still in use; nobody closes them under a block.
        window = WINDOW_BYTES
        buffer, other = mmap.mmap(-1, 2 * window), mmap.mmap(-1, 2 * window)
        start = window
        while True:
            whole = memoryview(buffer)
            end = window
            while end < 2 * window:
                got = readinto(whole[end:])
                if not got:
                    break
                end += got
            if end == window:
                if start < window:
                    yield bytes(whole[start:window])
                return
            self.bytes_read += end - window
            cut = buffer.rfind(b"\n", window, end) + 1
            lines = whole[start : cut or end]
            yield lines if cut and self._in_place else bytes(lines)
            start = window - (end - cut if cut else 0)
            other[start:window] = buffer[cut or end : end]
            buffer, other = other, buffer


def _skip_line(data: bytes) -> tuple[bytes, bool]:
    """What follows the rest of an overlong line, and whether that rest goes on."""
    newline, ret = data.find(b"\n"), data.find(b"\r")
    if newline < 0 and ret < 0:
        return b"", True
    end = min(p for p in (newline, ret) if p >= 0)
    return data[end:], False


def _read_fully(stream: ByteStream, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _find_encoding(start: bytes) -> str | None:
    """utf-16 of either order by its mark or by its NUL bytes, else None for UTF-8."""
    if start[:2] in _UTF16_BOMS and start[:4] != b"\xff\xfe\x00\x00":
        return _UTF16_BOMS[start[:2]]
    sample = start[:4096]
    if len(sample) >= 16:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        half = len(sample) // 2
        if odd > half * 0.6 and even < half * 0.1:
            return "utf-16-le"
        if even > half * 0.6 and odd < half * 0.1:
            return "utf-16-be"
    return None


def _is_binary(start: bytes) -> bool:
    """Whether a picture, a pickle or the like begins so: control bytes that no log prints."""
    sample = start[:4096]
    control = len(sample.translate(None, _PRINTED))
    return control > 0.1 * len(sample)


def _clean_view(view: memoryview) -> bytes | memoryview:
    """As _clean_block; the view itself, where there is nothing to clean."""
    is_clean = _find is not None and (
        _find(view[:_DOCKER_SEEN_BYTES], _DOCKER_START) < 0
        and _find(view, b"\x1b") < 0
        and _find(view, b"\0") < 0
    )
    return view if is_clean else _clean_block(bytes(view))


def _clean_block(data: bytes) -> bytes:
    # Docker wraps every line of a file, and its lines are short.
    if _DOCKER_START in data[:_DOCKER_SEEN_BYTES]:
        data = _DOCKER.sub(_docker_line, data)
    if b"\x1b" in data:
        data = _ANSI.sub(b"", data)
    if b"\0" in data:
        data = data.replace(b"\0", b"")
    return data


def _docker_line(found: re.Match[bytes]) -> bytes:
    """The line that Docker wrapped, behind its time; as it stands where it is no JSON string."""
    try:
        text: str = json.loads(found["log"])
    except ValueError:
        return found[0]
    whole = text.rstrip("\r\n").replace("\n", "\\n").encode("utf-8", "replace")
    return found["time"] + b" " + whole


# ------------------------------------------------------------------------------- bytes → Line

# A bar is found by its middle; its name is what stands before it.
_BAR = regex(
    r"(?:(?P<percent>\d{1,3})%\|[^|\r\n]{0,400}\|\s*"
    r"(?P<done>[\d.]{1,15})(?P<unit>[kMGT]?)B?/(?P<total>[\d.?]{1,15})(?P<total_unit>[kMGT]?)B?"
    r"|\|[ \u2580-\u259f#=\-]{0,400}\|\s?(?P<open_done>\d{1,15})/\?"
    r"|(?P<plain_percent>\d{1,3})%\s{1,4}(?P<plain_done>\d{1,15})/(?P<plain_total>\d{1,15})"
    r"|(?P<bare_done>\d{1,15})(?:it| [a-z]{2,14}))"
    r"\s{0,3}\[(?P<elapsed>(?:\d{1,4}:)?\d{1,4}:\d\d)[^\]\r\n]{0,200}\]"
)
# Every bar has one, and few other lines do.
_BAR_CLOCK = regex(r"\[\d{1,4}:\d\d")
_MAX_BAR_NAME = 120
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000, "T": 1_000_000_000_000}

_DATE = r"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:[.,]\d{1,9})?)"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)?"
_MONTH_NAMES = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_MONTHS = {m: n for n, m in enumerate(_MONTH_NAMES.split("|"), 1)}
_LEVELS = {
    "E": "E", "F": "E", "C": "E", "W": "W", "I": "I", "V": "I", "D": "I", "ERROR": "E",
    "CRITICAL": "E", "FATAL": "E", "WARNING": "W", "WARN": "W", "INFO": "I", "DEBUG": "I",
    "SUCCESS": "I", "TRACE": "I", "NOTICE": "I",
}  # fmt: skip
_LEVEL_WORDS = "ERROR|CRITICAL|FATAL|WARNING|WARN|INFO|DEBUG|SUCCESS|TRACE|NOTICE"

# One blank belongs to the stamp; more are indentation, unless another prefix follows.
_AFTER_STAMP = r"\]?(?:\s*[,|]\s*|\s+-\s+|:?\s(?:\s+(?=\[|(?:" + _LEVEL_WORDS + r")\b))?|$)"

# Each is one prefix, behind the character it begins with: a bracket, a digit or a letter; a line is
# stripped of up to eight of them.
_PREFIXES = (
    (
        "[",
        (
            r"\[(?:rank|default|RANK|Rank|RANK:|local_rank|worker)[ =:]{0,2}(?P<rank>\d{1,6})\]"
            r"(?:\s*\|\|)?:?\s?"
        ),
    ),
    (
        "[",
        (
            r"\[(?!(?:epoch|step|iter|batch|fold|stage))[a-z]{2,20}(?P<role_rank>\d{1,6})"
            r"(?:\|\d+)?\]:\s?"
        ),
    ),
    (
        "[",
        (
            r"\[(?P<mpi_job>\d{1,18}),(?:mpirank:)?(?P<mpi_rank>\d{1,18})(?:,algo-\d{1,6})?\]"
            r"<(?:stdout|stderr|stddiag)>:?\s?"
        ),
    ),
    # containerd's log files; kubectl logs --prefix; docker compose
    ("a", r"(?P<stream>stdout|stderr) [FP] "),
    ("[", r"\[pod/(?P<pod>[\w.\-]{1,253}/[\w.\-]{1,63})\] "),
    ("a", r"(?P<service>[a-z][\w.\-]{0,60}[\-_]\d\w{0,9})\s{1,30}\| "),
    (
        "[",
        (
            r"\[PG (?:ID )?(?P<pg>\w+)(?: PG GUID (?P<guid>[^\]\s]*))?"
            r"(?: Rank (?P<pg_rank>\d{1,18}))?\]\s?"
        ),
    ),
    ("[", r"\[(?P<pg_any>PG [^\]]{1,80}) Rank (?P<pg_any_rank>\d{1,18})\]\s?"),
    (
        "(",
        (
            r"\((?P<actor>[A-Za-z_][\w.:\-]*) pid=(?P<pid>\d{1,18})(?:, ip=(?P<ip>[\d.]+))?\)\s?"
        ),
    ),
    (
        "[a",
        (
            r"\[?(?P<glog>[IWEFCV])(?P<glog_date>\d{3,4}) " + _CLOCK.replace("P<", "P<g_")
            + r"(?:\s+\d+)?\s+(?P<glog_source>[\w./\-<>]+:\d+)\]\s?"
        ),
    ),
    ("[", r"\[(?P<letter>[IWEFCD]) (?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"),
    ("[", r"\[(?P<tag>[IWEFCV]) (?P<tag_source>[\w./]+\.(?:cpp|cc|h|hpp|py):\d+)\]\s?"),
    ("[0", r"\[?" + _DATE + r"[T_ ]" + _CLOCK + _ZONE + _AFTER_STAMP),
    ("[0", r"\[?" + _CLOCK.replace("P<", "P<t_") + _AFTER_STAMP),
    # dmesg -T
    (
        "[",
        r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<k_month>" + _MONTH_NAMES + r")\s+"
        + r"(?P<k_day>\d{1,2}) " + _CLOCK.replace("P<", "P<k_") + r" \d{4}\] ",
    ),
    ("[", r"\[\s*(?P<uptime>\d{1,9}\.\d{3,9})\]\s+"),
    (
        "a",
        (
            r"(?P<sys_month>" + _MONTH_NAMES + r")\s+(?P<sys_day>\d{1,2}) "
            + _CLOCK.replace("P<", "P<s_") + r" (?P<sys_host>[\w.\-]+) (?=[\w.\-/]+(?:\[\d+\])?:)"
        ),
    ),
    ("0", r"(?P<srun>\d{1,5}): (?=\S| {2,}|$)"),
    ("[", r"\[(?P<level>" + _LEVEL_WORDS + r")\s*\]:?\s?"),
    (
        "a",
        (
            r"(?P<bare_level>" + _LEVEL_WORDS + r")(?:\s*[|:]\s+|\s*-\s+"
            r"|\s+(?=[\w./]+\.py:|[a-z][\w.\-]{1,40}: ))"
        ),
    ),
    ("[", r"\[(?P<py_source>[\w./\-]+\.py:\d+(?::\w+)?)\]\s?"),
    (
        "a",
        (
            r"(?i:rank) ?#?(?P<word_rank>\d{1,5})"
            r"(?: ?[:|] | (?=Traceback \(|  +\S|[\w.]{1,60}Error: |(?:step|epoch|iter) \d))"
        ),
    ),
    # A bare number is a rank only where a traceback stands behind it: [1] is a shell's job too.
    (
        "[",
        r"\[(?P<bare_rank>\d{1,5})\] (?=Traceback \(|  File \"|    +\S|[\w.]{1,60}Error: )",
    ),
    (
        "a",
        (
            r"(?i:rank)[ =](?P<counting_rank>\d{1,5}),? "
            r"(?=(?i:step|epoch|iter|iteration|batch|loss)[ =:\[])"
        ),
    ),
    ("0a", r"(?P<loguru>[\w.<>]{1,80}:[\w.<>]{1,80}:\d{1,6}) - "),
    ("a", r"(?P<logger>[A-Za-z_][\w.]{1,60}) - (?=(?:" + _LEVEL_WORDS + r") - )"),
    (
        "0a",
        (
            r"(?P<host>(?:\d{1,3}(?:\.\d{1,3}){3})|(?:[A-Za-z][A-Za-z0-9\-]{1,40}[\-.]?\d+"
            r"(?:\.[a-z][\w\-.]{1,80})?)): (?=\S| {2,})"
        ),
    ),
    ("a", r"(?P<kernel>kernel): "),
)  # fmt: skip
_PREFIX_BY_START = {
    start: regex("|".join(text for starts, text in _PREFIXES if start in starts))
    for start in "[(0a"
}
_NOT_HOSTS = regex(
    r"(?i)(?:epoch|step|iter(?:ation)?|rank|gpu|cuda|layer|worker|sm|batch|fold|node_rank|level|"
    r"stage|note|error|torch|python|bf|fp|int|float|uint|utf|block|expert|head|shard|loss|acc|top|"
    r"version|line|frame|thread|process|proc|cpu|pid|task|job|exit|code|http|ipv|train|val|test)"
    r"[\-_]?\d"
)
_MEMBER_RANK = regex(r"\[Rank (?P<rank>\d{1,18})\]\s?")
_BOX = regex(r"[│┃|]\s?(?P<inner>.*)[│┃]\Z")
_BOX_CORNERS = frozenset("╭╰┏┗┌└├")
_BOX_EDGE = regex(r"[╭╰┏┗┌└├][─━╌\s\w().\[\]:]*[╮╯┓┛┐┘┤]?\Z")
_FRAME = regex(r'^\s*(?:>\s*)?File "[^"\n]{1,1000}", line \d+')
_RICH_CODE = regex(r"^\s*(?:❱\s*)?\d+ │? ")
_WARNING_LINE = regex(
    r"\b(?:User|Future|Deprecation|Runtime|Import|PendingDeprecation|Resource|Syntax|Beta|"
    r"Lightning|Possible\w*|NumbaPerformance|Sparsity\w*|Undefined\w*|Convergence|Bytes|Unicode|"
    r"Performance|Experimental\w*|Dtype|Settingwithcopy)Warning\b|^\s*(?:WARNING|Warning)\b[: ]"
)
_LEVEL_FIELD = regex(
    r"(?i)[\s{,]\"?(?:lvl|level|levelname|log_?level|severity)\"?\s?[=:]\s?\"?(?:warn|warning)\b"
)
_RANK_FIELD = regex(r'[{,]\s?"(?:global_|world_)?rank": ?"?(?P<rank>\d{1,6})"?\s?[,}]')
_ERROR_LINE = regex(r"^\s*(?:ERROR|Error|FATAL|CRITICAL)\b[: ]")


def seconds_of(elapsed: str) -> float:
    """Seconds of `12:34` or `1:02:03`."""
    total = 0.0
    for part in elapsed.split(":"):
        total = total * 60 + float(part)
    return total


def split_line(raw: bytes, number: int, limits: Limits) -> Iterator[Line]:
    """The Lines that one physical line holds: one, or more where bars or escapes divide it."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    if "\r" in text:
        pieces = [piece for piece in text.split("\r") if piece.strip()]
        # A bar redraws itself thousands of times in one line; both ends tell its course.
        if len(pieces) > 64:
            pieces = pieces[:16] + _telling(pieces[16:-48]) + pieces[-48:]
    else:
        pieces = [text]
    for piece in pieces or [""]:
        if len(piece) > 40 and "\\n" in piece and _is_escaped(piece):
            rank = _rank_field(piece)
            for part in _ESCAPE.sub(_unescape, piece).split("\n")[:4_000]:
                for line in _split_bars(part, number, limits):
                    line.rank = rank if line.rank is None else line.rank
                    yield line
        else:
            yield from _split_bars(piece, number, limits)


def _telling(pieces: list[str]) -> list[str]:
    """Of the middle of a bar's life, what is more than a bar."""
    return [p for p in pieces if not ((bar := _BAR.search(p)) and bar.end() >= len(p) - 2)][:2_000]


_ESCAPE = regex(r"\\u001[bB]\[[0-9;]{0,20}[A-Za-z]|\\u(?P<code>[0-9a-fA-F]{4})|\\(?:r\\n|.)")
_ESCAPES = {"\\r\\n": "\n", "\\n": "\n", "\\t": "\t", '\\"': '"', "\\\\": "\\"}


def _unescape(found: re.Match[str]) -> str:
    if found[0].startswith("\\u"):
        code = int(found["code"], 16) if found["code"] else 0
        return "" if not code else "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
    return _ESCAPES.get(found[0], found[0])


def _is_escaped(text: str) -> bool:
    """Whether this is a message whose line ends were escaped, as in JSON."""
    return text.count("\\n") >= 2 and (
        "Traceback (most recent call last):\\n" in text
        or text.lstrip().startswith(("{", '"'))
        or '\\n  File \\"' in text
    )


def _split_bars(text: str, number: int, limits: Limits) -> Iterator[Line]:
    line = _parse(text, number, limits)
    rest, whole = line.text, line.whole
    for _ in range(64):
        if "]" not in rest or _BAR_CLOCK.search(rest) is None:
            break
        found = _BAR.search(rest)
        if found is None:
            break
        before = rest[: found.start()].strip()
        if len(before) > _MAX_BAR_NAME:
            yield Line(number, before, line.full, line.rank, line.host, line.time, line.level)
            before = ""
        yield _bar_line(found, line, before)
        rest = rest[found.end() :].strip()
        if not rest and not whole:
            return
        inner = _parse(rest, number, limits)
        if inner.rank is None:
            inner.rank = line.rank if inner.text == rest else None
        inner.host = inner.host or line.host
        line, rest = inner, inner.text
    line.text, line.whole = rest, whole
    yield line


def _bar_line(found: re.Match[str], line: Line, name: str) -> Line:
    total, total_unit = found["total"] or found["plain_total"] or "", found["total_unit"] or ""
    done = found["done"] or found["open_done"] or found["plain_done"] or found["bare_done"]
    whole = int(_amount(total, total_unit)) if total and "?" not in total else None
    text = f"{name} {found[0]}".strip()
    bar = Progress(
        line=line.number,
        name=name.strip().rstrip(":|").strip(),
        done=int(_amount(done, found["unit"] or "")),
        total=whole,
        elapsed_s=seconds_of(found["elapsed"]),
        rank=line.rank,
        text=text[-200:],
    )
    return Line(line.number, text, line.full, line.rank, line.host, line.time, "I", bar=bar)


def _amount(digits: str, unit: str) -> float:
    whole, _, rest = digits.partition(".")
    return float(f"{whole or 0}.{rest.replace('.', '') or 0}") * _UNITS[unit]


def _parse(text: str, number: int, limits: Limits) -> Line:
    """The line without its prefixes, and what they say."""
    # The JSON of a process's stacks is one long message.
    is_whole = len(text) <= limits.max_text_chars * 4 or text.startswith(('[{"pid"', '{"pid"'))
    full = text if is_whole else text[: limits.max_text_chars * 4]
    line = Line(number, full, full, whole="" if len(full) == len(text) else text)
    at = _strip_prefixes(line, full)
    body = full[at:]
    if (body and body[0] in " \t│┃|") or "│" in body or "┃" in body:
        boxed = _BOX.match(body.strip())
        if boxed:
            line.is_boxed = True
            body = boxed["inner"].rstrip()
    if len(body) > 8 and body.lstrip()[0:1] in _BOX_CORNERS and _BOX_EDGE.match(body.strip()):
        body = ""
    line.text = body
    if line.rank is None:
        line.rank = _rank_field(body)
    if not line.level or line.level == "I":
        if _is_warning(body):
            line.level = "W"
        elif not line.level and _ERROR_LINE.match(body):
            line.level = "E"
    return line


def _rank_field(text: str) -> int | None:
    """The rank that a line of JSON gives in a field of its own."""
    if not text.startswith("{"):
        return None
    found = _RANK_FIELD.search(text, 0, 500)
    return int(found["rank"]) if found else None


def _is_warning(body: str) -> bool:
    if ("Warning" in body or body.lstrip()[:7] == "WARNING") and _WARNING_LINE.search(body, 0, 500):
        return True
    return body[:1] == "{" and _LEVEL_FIELD.search(body, 0, 500) is not None


def _strip_prefixes(line: Line, text: str) -> int:
    at = 0
    for _ in range(8):
        indent = len(text) - len(text[at:].lstrip(" ")) if at == 0 else at
        found = _match_prefix(text, indent if at == 0 and indent <= 2 else at)
        if found is None:
            break
        kind = found.lastgroup
        if kind == "host" and _NOT_HOSTS.match(found["host"]):
            break
        _take(line, found)
        at = found.end()
        if at >= len(text):
            break
    rank = _MEMBER_RANK.match(text, at)
    if rank:
        line.rank = int(rank["rank"])
        at = rank.end()
    return at


def _match_prefix(text: str, at: int) -> re.Match[str] | None:
    start = text[at : at + 1]
    if start not in ("[", "("):
        if not (start.isalnum() or start in ("_", ".", "<")):
            return None
        start = "0" if start.isdigit() else "a"
    return _PREFIX_BY_START[start].match(text, at)


def _take(line: Line, found: re.Match[str]) -> None:
    """Writes what one prefix says into the line; its last group tells which one it is."""
    kind = found.lastgroup or ""
    if kind in _RANK_GROUPS:
        if line.rank is None or kind in ("pg_rank", "rank"):
            line.rank = int(found[kind])
        if kind != "pg_rank":
            return
    if kind in _GROUP_GROUPS:
        line.group = found["guid"] or found["pg"]
        return
    if kind in _HOST_GROUPS:
        line.host = found[kind]
    elif kind in _LEVEL_GROUPS:
        line.level = _LEVELS[found[kind]]
        return
    elif kind in _SOURCE_GROUPS:
        line.source = found[kind]
        if kind in _LEVEL_OF_SOURCE:
            line.level = _LEVELS[found[_LEVEL_OF_SOURCE[kind]]]
    if line.time is None and kind in _STAMPS:
        # The outermost stamp is on every line and of one clock; those behind it are the program's.
        line.time = _time_of(found, kind)


_RANK_GROUPS = frozenset(
    (
        "rank",
        "mpi_rank",
        "role_rank",
        "pg_rank",
        "pg_any_rank",
        "srun",
        "word_rank",
        "bare_rank",
        "counting_rank",
    )
)
_GROUP_GROUPS = frozenset(("pg", "guid", "pg_rank"))
_HOST_GROUPS = frozenset(("host", "ip", "sys_host"))
_LEVEL_GROUPS = frozenset(("letter", "level", "bare_level"))
_SOURCE_GROUPS = frozenset(("glog_source", "tag_source", "py_source"))
_LEVEL_OF_SOURCE = {"glog_source": "glog", "tag_source": "tag"}
_STAMPS = frozenset(("glog_source", "second", "k_second", "sys_host"))


def _time_of(found: re.Match[str], kind: str) -> float:
    """Seconds since the start of the year, by a calendar of months of 31 days."""
    if kind == "glog_source":
        date = found["glog_date"]
        return _moment(int(date[:-2]), int(date[-2:]), found, "g_")
    if kind == "second":
        return _moment(int(found["month"]), int(found["day"]), found, "")
    if kind == "k_second":
        return _moment(_MONTHS[found["k_month"]], int(found["k_day"]), found, "k_")
    return _moment(_MONTHS[found["sys_month"]], int(found["sys_day"]), found, "s_")


def _moment(month: int, day: int, found: re.Match[str], prefix: str) -> float:
    clock = (
        int(found[prefix + "hour"]) * 3600
        + int(found[prefix + "minute"]) * 60
        + float(found[prefix + "second"].replace(",", "."))
    )
    return (month * 31 + day) * 86400 + clock


class CodeMarker:
    """Marks the lines of source code that a traceback quotes, one stream a rank.

    Code stands deeper than its frame: so the exception of a traceback that is indented as a whole
    is no code, although frames without source may still owe theirs.
    """

    def __init__(self) -> None:
        self._owed: dict[tuple[int | None, str | None], int] = {}
        self._depth: dict[tuple[int | None, str | None], int] = {}

    def mark(self, line: Line) -> None:
        """Sets `is_code` where frames before it, of the same rank, still owe their code line."""
        if line.bar is not None:
            return
        if line.is_boxed and _RICH_CODE.match(line.text):
            line.is_code = True
            return
        key = (line.rank, line.host)
        owed = self._owed.get(key)
        if _FRAME.match(line.text):
            # Without prefixes the frames of several ranks mix; each still owes one line of code.
            self._owed[key] = min((owed or 0) + 1, 16)
            self._depth[key] = _depth(line.text)
        elif owed is None:
            return
        elif line.text[:1] in (" ", "\t") and not line.text.strip(" ^~"):
            line.is_code = True
        elif owed > 0 and _depth(line.text) > self._depth[key]:
            line.is_code = True
            self._owed[key] = owed - 1
        else:
            del self._owed[key]


def _depth(text: str) -> int:
    """How many blanks the text begins with."""
    return len(text) - len(text.lstrip(" \t"))
