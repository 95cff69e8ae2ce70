"""Tells a flight-recorder dump from a text by its first bytes; a text goes on as it came."""

from __future__ import annotations

from dataclasses import dataclass

from triage.engine.evidence import Evidence, EvidenceError
from triage.engine.lines import ByteStream
from triage.engine.parsers import flight_recorder


@dataclass(frozen=True, slots=True)
class Opened:
    """`evidence` of a dump; without it, `stream` is the whole text and `note` may warn of it."""

    stream: ByteStream
    evidence: Evidence | None = None
    note: str = ""


def open_stream(stream: ByteStream, name: str) -> Opened:
    """Reads a dump to its end, and of anything else only what it takes to see that it is none."""
    source = _Rewindable(stream)
    start = source.take(flight_recorder.START_BYTES)
    if flight_recorder.is_pickle(start):
        return Opened(source, _read_pickle(source.take(flight_recorder.MAX_DUMP_BYTES + 1), name))
    if not flight_recorder.may_be_json(start) or not flight_recorder.is_json_dump(
        source.take(flight_recorder.JSON_SAMPLE_BYTES)
    ):
        return Opened(source)
    data = source.take(flight_recorder.MAX_DUMP_BYTES + 1)
    try:
        dump = flight_recorder.read_json(data, name)
    except EvidenceError as error:
        note = f"it begins like a flight-recorder dump and was read as text: {error}"
        return Opened(source, note=note)
    evidence = _evidence(name, data)
    evidence.lines = data.count(b"\n") + (not data.endswith(b"\n"))
    evidence.flight = dump
    evidence.ranks = () if dump.rank is None else (dump.rank,)
    return Opened(source, evidence)


def _read_pickle(data: bytes, name: str) -> Evidence:
    evidence = _evidence(name, data)
    evidence.lines = 1
    try:
        evidence.flight = flight_recorder.read_pickle(data, name)
    except EvidenceError as error:
        evidence.refused = f"a Python pickle, but no flight-recorder dump: {error}"
        evidence.notes.append(f"not read: {evidence.refused}")
        return evidence
    evidence.ranks = () if evidence.flight.rank is None else (evidence.flight.rank,)
    return evidence


def _evidence(name: str, data: bytes) -> Evidence:
    return Evidence(name=name, bytes=len(data))


class _Rewindable:
    """A stream that gives again what was taken of it, then goes on at the stream's own speed."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._taken = b""
        self._at = 0

    def take(self, size: int) -> bytes:
        """The first `size` bytes, fewer at the end; reading starts before them again."""
        pieces = [self._taken]
        missing = size - len(self._taken)
        while missing > 0 and (piece := self._stream.read(min(missing, 1 << 20))):
            pieces.append(piece)
            missing -= len(piece)
        self._taken = b"".join(pieces)
        return self._taken

    def read(self, size: int = -1, /) -> bytes:
        if self._at >= len(self._taken):
            return self._stream.read(size)
        end = len(self._taken) if size < 0 else self._at + size
        piece = self._taken[self._at : end]
        self._advance(len(piece))
        return piece + self._stream.read() if size < 0 else piece

    def readinto(self, buffer: memoryview) -> int:
        """As a file's readinto; a stream that has none is read piece by piece."""
        readinto = getattr(self._stream, "readinto", None)
        if readinto is not None and self._at >= len(self._taken):
            return int(readinto(buffer) or 0)
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _advance(self, size: int) -> None:
        self._at += size
        if self._at >= len(self._taken):
            self._taken, self._at = b"", 0
