"""A verdict on a terminal, and the one JSON line of it that scripts read."""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import stat
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from kb.catalog import Catalog, CatalogError
from triage.engine.evidence import Evidence, TextError
from triage.engine.pipeline import compile_catalog, diagnose, scan
from triage.engine.regex import save_compiled
from triage.engine.site import site_catalog
from triage.engine.verdict import Diagnosis, Verdict

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A process costs 0.1 s to start and to hear from.
_WORTH_A_PROCESS_BYTES = 16 << 20
_ADVICE = {
    "retry": "A retry may well succeed.",
    "retry-elsewhere": "Retry on another node; this one needs a look.",
    "do-not-retry": "Do not just retry: the same will happen again.",
}


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

    A file that cannot be read yields a TextError in its place. Big files are read side by side.
    """
    evidences: list[Evidence] = []
    read: list[str] = []
    for name, scanned in zip(names, scan_files(names, catalog), strict=True):
        if isinstance(scanned, TextError):
            yield scanned
        elif together:
            evidences.append(scanned)
            read.append(name)
        else:
            yield Answer((name,), diagnose([scanned], catalog))
    if together and evidences:
        yield Answer(tuple(read), diagnose(evidences, catalog))


def scan_files(names: Sequence[str], catalog: Catalog) -> Iterator[Evidence | TextError]:
    """What each file shows, in their order; several big ones in as many processes as there are
    cores for, at most.
    """
    big = [name for name in names if _size_bytes(name) >= _WORTH_A_PROCESS_BYTES]
    workers = min(len(big), len(_cores()))
    if workers < 2:
        yield from (_scan_safely(name, catalog) for name in names)
        return
    # Most calls read one file, and the import takes longer than a short one.
    from concurrent.futures.process import (  # noqa: PLC0415
        BrokenProcessPool,
        ProcessPoolExecutor,
    )

    compile_catalog(catalog)
    with ProcessPoolExecutor(workers, initializer=_keep_catalog, initargs=(catalog,)) as pool:
        started = {name: pool.submit(_scan_kept, name) for name in dict.fromkeys(big)}
        try:
            for name in names:
                if name not in started:
                    yield _scan_safely(name, catalog)
                    continue
                try:
                    yield started[name].result()
                except BrokenProcessPool:
                    # A worker was killed, for want of memory perhaps: one at a time needs less.
                    yield _scan_safely(name, catalog)
        finally:
            pool.shutdown(cancel_futures=True)


def _size_bytes(name: str) -> int:
    try:
        about = Path(name).stat()
    except (OSError, ValueError):
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else 0


def _cores() -> Collection[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


def _scan_safely(name: str, catalog: Catalog) -> Evidence | TextError:
    try:
        return scan_file(name, catalog)
    except OSError as error:
        return error if isinstance(error, TextError) else TextError(f"{name}: {error.strerror}")


_kept: list[Catalog] = []


def _keep_catalog(catalog: Catalog) -> None:
    """The start of a worker process; what it compiled before the fork is there already."""
    _kept[:] = [catalog]


def _scan_kept(name: str) -> Evidence | TextError:
    return _scan_safely(name, _kept[0])


def scan_file(name: str, catalog: Catalog) -> Evidence:
    """The Evidence of a file, gzip, zstd or plain, or of standard input where the name is `-`.

    Raises TextError for a broken or exploding archive, OSError for what cannot be read.
    """
    if name == "-":
        return scan(_opened(sys.stdin.buffer, name), catalog=catalog, name=name)
    with Path(name).open("rb", buffering=0) as file:
        return scan(_opened(file, name), catalog=catalog, name=name)


def _opened(stream: BinaryIO, name: str) -> BinaryIO:
    """The stream, or what it holds where it is compressed, bounded against what explodes."""
    if not stream.seekable():
        stream = io.BufferedReader(cast("io.RawIOBase", stream))
        start = stream.peek(4)[:4]
    else:
        start = stream.read(4)
        stream.seek(0)
    if start[:2] != _GZIP_MAGIC and start != _ZSTD_MAGIC:
        return stream
    from triage.engine import archives  # noqa: PLC0415 (a plain text needs no decompressor)

    return (
        archives.open_gzip(stream, name)
        if start != _ZSTD_MAGIC
        else archives.open_zstd(stream, name)
    )


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
    # What was loaded stays; to look through it for garbage again and again takes a fiftieth of all.
    gc.freeze()
    gc.set_threshold(20_000)
    try:
        status = run(options.files, catalog, as_json=options.json, together=options.together)
    except BrokenPipeError:
        # Whoever reads wanted no more, as `head` does; the interpreter must not try to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    save_compiled()
    return status


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
