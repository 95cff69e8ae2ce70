"""A verdict on a terminal, and the one JSON line of it that scripts read."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from kb.catalog import Catalog, CatalogError, builtin_folder, load_catalog
from triage.engine.evidence import Evidence
from triage.engine.pipeline import diagnose, scan
from triage.engine.verdict import Diagnosis, Verdict

_MAX_RATIO = 200
_ADVICE = {
    "retry": "A retry may well succeed.",
    "retry-elsewhere": "Retry on another node; this one needs a look.",
    "do-not-retry": "Do not just retry: the same will happen again.",
}


class TextError(OSError):
    """A file that cannot be read as a text; its message says what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict over one file, or over several that tell of one incident."""

    names: tuple[str, ...]
    verdict: Verdict

    def to_json_line(self) -> str:
        """One line: `file` and the fields of Verdict.to_json; lone surrogates are escaped."""
        return json.dumps({"file": ", ".join(self.names), **self.verdict.to_json()})


def answers(
    names: Sequence[str], catalog: Catalog, *, together: bool
) -> Iterator[Answer | TextError]:
    """One Answer a file, in their order, or one for all; `-` is standard input.

    A file that cannot be read yields a TextError in its place.
    """
    evidences: list[Evidence] = []
    read: list[str] = []
    for name in names:
        try:
            evidence = scan_file(name, catalog)
        except OSError as error:
            yield error if isinstance(error, TextError) else TextError(f"{name}: {error.strerror}")
            continue
        if together:
            evidences.append(evidence)
            read.append(name)
        else:
            yield Answer((name,), diagnose([evidence], catalog))
    if together and evidences:
        yield Answer(tuple(read), diagnose(evidences, catalog))


def scan_file(name: str, catalog: Catalog) -> Evidence:
    """The Evidence of a file, gzip or not, or of standard input where the name is `-`.

    Raises TextError for broken or exploding gzip, OSError for what cannot be read.
    """
    if name == "-":
        return scan(_opened(sys.stdin.buffer, name), catalog=catalog, name=name)
    with Path(name).open("rb", buffering=0) as file:
        return scan(_opened(file, name), catalog=catalog, name=name)


def _opened(stream: BinaryIO, name: str) -> BinaryIO:
    """The stream, or what it holds where it is gzip, bounded against archives that explode."""
    if not stream.seekable():
        stream = io.BufferedReader(cast("io.RawIOBase", stream))
        start = stream.peek(2)[:2]
    else:
        start = stream.read(2)
        stream.seek(0)
    return _BoundedGzip(stream, name) if start == b"\x1f\x8b" else stream  # type: ignore[return-value]


class _BoundedGzip(io.RawIOBase):
    """Decompresses up to _MAX_RATIO times the bytes read, then refuses."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._name = name
        self._source = _Counted(stream)
        self._gzip = gzip.GzipFile(fileobj=self._source)  # type: ignore[call-overload]
        self._produced = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._gzip.read(len(buffer))
        except (EOFError, OSError, zlib.error) as error:
            raise TextError(f"{self._name}: broken gzip: {error}") from error
        self._produced += len(piece)
        if self._produced > 16 << 20 and self._produced > _MAX_RATIO * self._source.count:
            raise TextError(
                f"{self._name}: more than {_MAX_RATIO} times its compressed size; "
                "decompress it yourself and give the part that matters"
            )
        buffer[: len(piece)] = piece
        return len(piece)


class _Counted:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self.count += len(piece)
        return piece


def render(answer: Answer, out: TextIO) -> None:
    """Writes the verdict as a person reads it: what, where, why, what now."""
    verdict = answer.verdict
    print(f"{', '.join(answer.names)}: {verdict.lines} lines, {verdict.bytes} bytes", file=out)
    mark = {"named": "●", "undetermined": "?", "clean": "✓"}[verdict.kind]
    print(f"{mark} {verdict.sentence}", file=out)
    for position, diagnosis in enumerate(verdict.diagnoses):
        _render_diagnosis(diagnosis, out, is_answer=position == 0)
    if verdict.next:
        print("  next:", file=out)
        for command in verdict.next:
            print(f"    {command}", file=out)


def _render_diagnosis(diagnosis: Diagnosis, out: TextIO, *, is_answer: bool) -> None:
    place = f", rank {diagnosis.rank}" if diagnosis.rank is not None else ""
    place += f" on {diagnosis.host}" if diagnosis.host else ""
    bullet = "  " if is_answer else "  ○ "
    print(f"{bullet}{diagnosis.slug} ({diagnosis.role}, {diagnosis.confidence}{place})", file=out)
    if not is_answer:
        return
    for reason in diagnosis.because:
        print(f"    because {reason}", file=out)
    for line in diagnosis.evidence[:6]:
        print(f"    line {line.line}: {printable(line.text)[:160]}", file=out)
    if diagnosis.explains:
        print(f"    explains {', '.join(diagnosis.explains)}", file=out)
    print(f"    {_ADVICE[diagnosis.advice]}", file=out)


def printable(text: str) -> str:
    """The text without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files and how to answer."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a log, or - for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--together", action="store_true", help="all files tell of one incident")


def site_catalog() -> Catalog:
    """The entries that come with Pitstop and those of the folders that PITSTOP_CATALOG names.

    Raises CatalogError for the first fault.
    """
    extra = [Path(p) for p in os.environ.get("PITSTOP_CATALOG", "").split(os.pathsep) if p]
    return load_catalog([builtin_folder(), *extra])


def main(arguments: Sequence[str], program: str) -> int:
    """Prints an answer a file; 1 if the catalog is broken, 2 if a file could not be read."""
    parser = argparse.ArgumentParser(prog=program)
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        catalog = site_catalog()
    except CatalogError as error:
        print(f"the catalog is broken: {error}", file=sys.stderr)
        return 1
    return run(options.files, catalog, as_json=options.json, together=options.together)


def run(names: Sequence[str], catalog: Catalog, *, as_json: bool, together: bool) -> int:
    """Prints an answer a file; 0, or 2 if a file could not be read."""
    status = 0
    for answer in answers(names, catalog, together=together):
        if isinstance(answer, TextError):
            print(answer, file=sys.stderr)
            status = 2
        elif as_json:
            print(answer.to_json_line(), flush=True)
        else:
            render(answer, sys.stdout)
    return status
