"""Stored texts: written as gzip members of whole lines, read a page of lines at a time.

A stored text is one gzip file of many members, about a mebibyte of text each, so that any page can
be read by inflating the one or two members that hold it. The line index has an entry a member:
[number of the line its first byte belongs to, 1 if that line starts there else 0, offset of the
member in bytes].
"""

from __future__ import annotations

import gzip
import tempfile
import uuid
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from types import TracebackType
from typing import BinaryIO, Self, cast

from django.conf import settings
from django.core.files import File
from django.core.files.storage import default_storage

from triage.models import Submission

#: Text of one gzip member: small enough to inflate in milliseconds, large enough to shrink well.
MEMBER_BYTES = 2**20
#: Compressed bytes kept in memory before a temporary file takes over.
_IN_MEMORY_BYTES = 2**20
# Logs shrink to nearly the same size at level 3, in half the time of level 6.
_LEVEL = 3
_READ_BYTES = 2**16
#: What is shown of one line; no message is longer.
SHOWN_LINE_BYTES = 2**16
_GZIP = 31

LineIndex = list[list[int]]


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line of a stored text, as it is shown: `text` is cut at SHOWN_LINE_BYTES."""

    number: int
    text: str
    is_cut: bool = False


class TextWriter:
    """Takes the blocks of a text, keeps them compressed, and knows hash, size and lines.

    Nothing is in Django's storage until `save`; leaving the `with` block drops what is not saved.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 (closed on exit)
            max_size=_IN_MEMORY_BYTES, dir=settings.FILE_UPLOAD_TEMP_DIR
        )
        self._hash = sha256()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._newlines = 0
        self._ends_with_newline = True
        self._has_words = False
        self.size_bytes = 0
        self.line_index: LineIndex = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def sha256(self) -> str:
        """Of the text, not of its compressed form."""
        return self._hash.hexdigest()

    @property
    def line_count(self) -> int:
        """Lines, the last one without a line end included."""
        return self._newlines + (0 if self._ends_with_newline else 1)

    @property
    def is_blank(self) -> bool:
        """Whether nothing but white space was written."""
        return not self._has_words

    def write(self, block: bytes) -> None:
        """Adds a piece of the text."""
        if not block:
            return
        self._hash.update(block)
        self._has_words = self._has_words or not block.isspace()
        self.size_bytes += len(block)
        self._waiting.append(block)
        self._waiting_bytes += len(block)
        if self._waiting_bytes >= MEMBER_BYTES:
            self._flush(is_last=False)

    def save(self) -> str:
        """Puts the text into storage; returns the name it has there."""
        self._flush(is_last=True)
        self._file.seek(0)
        now = datetime.now().astimezone()
        name = f"{now:%Y/%m/%d}/{uuid.uuid4().hex}.log.gz"
        return default_storage.save(name, File(cast("BinaryIO", self._file), name=name))

    def _flush(self, *, is_last: bool) -> None:
        text = b"".join(self._waiting)
        self._waiting = []
        at = 0
        while len(text) - at >= MEMBER_BYTES or (is_last and at < len(text)):
            end = min(at + MEMBER_BYTES, len(text))
            # Members end with a line, unless one line is longer than a member.
            if not (is_last and end == len(text)):
                end = text.rfind(b"\n", at, end) + 1 or end
            self._write_member(text[at:end])
            at = end
        rest = text[at:]
        self._waiting_bytes = len(rest)
        if rest:
            self._waiting.append(rest)

    def _write_member(self, text: bytes) -> None:
        self.line_index.append(
            [self._newlines + 1, int(self._ends_with_newline), self._file.tell()]
        )
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._file.write(compressor.compress(text))
        self._file.write(compressor.flush())
        self._newlines += text.count(b"\n")
        self._ends_with_newline = text.endswith(b"\n")


class _InflatedFile(gzip.GzipFile):
    """A GzipFile that closes what it reads from."""

    def __init__(self, file: File[bytes]) -> None:
        self._compressed = file
        super().__init__(fileobj=cast("BinaryIO", file), mode="rb")

    def close(self) -> None:
        super().close()
        self._compressed.close()


def open_text(submission: Submission) -> BinaryIO:
    """The whole text as a stream of bytes, inflated as it is read.

    Raises FileNotFoundError if it is no longer kept.
    """
    if not submission.stored_at:
        raise FileNotFoundError(f"{submission}: the text is no longer kept")
    return cast("BinaryIO", _InflatedFile(default_storage.open(submission.stored_at)))


def read_lines(submission: Submission, first_line: int, count: int) -> list[TextLine]:
    """Up to `count` lines from `first_line` (from 1) on; fewer at the end of the text.

    Reads the members that hold them, no more. Raises FileNotFoundError if the text is no longer
    kept.
    """
    lines: list[TextLine] = []
    if first_line < 1 or count < 1 or first_line > submission.line_count:
        return lines
    for number, start, is_cut in _iterate_lines(submission, first_line):
        if number >= first_line + count:
            break
        text = start.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
        lines.append(TextLine(number, text, is_cut))
    return lines


def find(
    submission: Submission, query: str, after_line: int = 0, *, max_bytes: int = 256 * 2**20
) -> int | None:
    """The number of the first line after `after_line` that contains `query`; None if none does.

    The case of ASCII letters does not count. Gives up after `max_bytes` of text. Raises
    FileNotFoundError if the text is no longer kept.
    """
    wanted = query.encode("utf-8").lower()
    if not wanted or after_line >= submission.line_count:
        return None
    read_bytes = 0
    for number, _, text in _members_from(submission, after_line + 1):
        read_bytes += len(text)
        folded = text.lower()
        at = _offset_of_line(text, number, after_line + 1) if number <= after_line else 0
        found = folded.find(wanted, at) if at is not None else -1
        if found >= 0:
            return number + text.count(b"\n", 0, found)
        if read_bytes >= max_bytes:
            return None
    return None


def delete_stored(name: str) -> None:
    """Removes a text from storage; one that is gone already is no error."""
    if name:
        default_storage.delete(name)


def _offset_of_line(text: bytes, first: int, wanted: int) -> int | None:
    """Where line `wanted` begins in a member that begins in line `first`; None if not in it."""
    at = 0
    for _ in range(wanted - first):
        at = text.find(b"\n", at) + 1
        if at == 0:
            return None
    return at


def _member_of(index: Sequence[Sequence[int]], line: int) -> int:
    """The member in which this line begins."""
    # A member that begins inside line n stands after the one in which line n begins.
    keys = [(number, 0 if starts else 1) for number, starts, _ in index]
    return max(bisect_right(keys, (line, 0)) - 1, 0)


def _members_from(submission: Submission, line: int) -> Iterator[tuple[int, bool, bytes]]:
    """(first line, whether it starts there, text) of each member, from the one with `line` on."""
    if not submission.stored_at:
        raise FileNotFoundError(f"{submission}: the text is no longer kept")
    index = submission.line_index
    with default_storage.open(submission.stored_at) as file:
        for number, starts, offset_bytes in index[_member_of(index, line) :]:
            file.seek(offset_bytes)
            inflate = zlib.decompressobj(_GZIP)
            parts = []
            while not inflate.eof and (block := file.read(_READ_BYTES)):
                parts.append(inflate.decompress(block))
            yield number, bool(starts), b"".join(parts)


def _iterate_lines(submission: Submission, first_line: int) -> Iterator[tuple[int, bytes, bool]]:
    """(number, first SHOWN_LINE_BYTES, whether more was there) of each line from `first_line`."""
    number = 0
    start = b""
    is_cut = False
    for member_line, _, text in _members_from(submission, first_line):
        at = 0
        if number == 0:
            offset = _offset_of_line(text, member_line, first_line)
            if offset is None:
                continue
            at, number = offset, first_line
        while at < len(text):
            end = text.find(b"\n", at) + 1 or len(text)
            room = SHOWN_LINE_BYTES - len(start)
            start += text[at : min(end, at + room)]
            is_cut = is_cut or end - at > room
            at = end
            if text[end - 1 : end] == b"\n":
                yield number, start, is_cut
                number, start, is_cut = number + 1, b"", False
    if start:
        yield number, start, is_cut
