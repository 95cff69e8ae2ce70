#!/usr/bin/env python3
"""What scan.py runs in a process of its own: the engine's matching over genlog's patterns.

    python tests/benchmarks/matching.py pairs hyperscan patterns.tsv train.log
    python tests/benchmarks/matching.py warm patterns.tsv paste.txt
    python tests/benchmarks/matching.py naive patterns.tsv part.log
    python tests/benchmarks/matching.py hostile

Each prints one JSON object.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from triage.engine import store  # noqa: E402 (the checkout, wherever it is called from)
from triage.engine.limits import Limits  # noqa: E402
from triage.engine.lines import BlockReader, count_in  # noqa: E402
from triage.engine.multipattern import Matcher, build_matcher  # noqa: E402
from triage.engine.patterns import Literal, Pattern  # noqa: E402

Pair = tuple[int, str]
HOSTILE = (
    (r"(?:a+b?){1,40}c$", b"a"),
    (r"(?:x+x+)y", b"x"),
    (r"Error.*Error.*: \d+x", b"Error: 1 "),
    (r"[\w.]+: copying a param", b"module.layer."),
    (r"(?i)timed out.*fatal.*rank \d+", b"timed out fatal "),
    (r"\s*\d+\s*\d+\s*failed", b" 1"),
    (r"CUDA out of memory.{0,60}tried", b"CUDA out of memory "),
    (r"^(?:[^:]*:){3}\s*abort$", b":a"),
)


def read_patterns(table: Path) -> list[tuple[str, str]]:
    """(slug, regex) of each row."""
    rows = (row.split("\t") for row in table.read_text("utf-8").splitlines()[1:])
    return [(row[1], row[2]) for row in rows]


def matcher_of(texts: list[str], engine: str) -> tuple[list[Pattern], Matcher]:
    """The patterns and their matcher, from the store where they were compiled before."""
    key = store.key_of("benchmark", engine, texts)
    saved = store.load(key)
    if saved is not None:
        patterns = [
            Pattern.analysed(
                text,
                rows and tuple(Literal((t.encode(), flag)) for t, flag in rows),
                reviewed=True,
            )
            for text, rows in zip(texts, saved[0], strict=True)
        ]
    else:
        patterns = [Pattern(text, reviewed=True) for text in texts]
        store.save(
            key, [p.literals and [(t.decode(), flag) for t, flag in p.literals] for p in patterns]
        )
    return patterns, build_matcher(patterns, engine, key)


def find_pairs(stream: BinaryIO, table: Path, engine: str) -> tuple[set[Pair], int]:
    """The (line, slug) pairs of a text by the engine's own blocks, and its number of lines."""
    rows = read_patterns(table)
    return pairs_by(stream, rows, *matcher_of([text for _, text in rows], engine))


def pairs_by(
    stream: BinaryIO, rows: list[tuple[str, str]], patterns: list[Pattern], matcher: Matcher
) -> tuple[set[Pair], int]:
    """The same by a matcher that is there already."""
    finder = matcher.for_long_text()
    reader = BlockReader(stream, Limits())
    pairs: set[Pair] = set()
    slugs = [slug for slug, _ in rows]
    searches = [pattern.search for pattern in patterns]
    for block in reader:
        data = bytes(block.data)
        at, line, end = 0, block.first_line, -1
        text, tried = "", -1
        for offset, number in finder.find(data):
            if offset >= end:
                line += count_in(data[at:offset], b"\n")
                at = offset
                end = data.find(b"\n", offset) + 1 or len(data)
                text = data[data.rfind(b"\n", 0, offset) + 1 : end].decode("utf-8", "replace")
                text = text.rstrip("\r\n")
            elif number == tried:
                continue
            tried = number
            if searches[number](text) is not None:
                pairs.add((line, slugs[number]))
    return pairs, reader.lines


def _pairs(engine: str, table: str, log: str) -> dict[str, Any]:
    with Path(log).open("rb", buffering=0) as stream:
        pairs, lines = find_pairs(stream, Path(table), engine)
    return {"pairs": len(pairs), "digest": digest(pairs), "lines": lines}


def digest(pairs: Iterable[Pair]) -> str:
    """Equal for equal sets."""
    return hashlib.sha256(repr(sorted(pairs)).encode()).hexdigest()[:16]


def _best_s(work: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def _warm(table: str, paste: str) -> dict[str, Any]:
    """One paste in a warm process: the matching stage beside each regex on each line."""
    rows = read_patterns(Path(table))
    patterns, matcher = matcher_of([text for _, text in rows], "")
    data = Path(paste).read_bytes()
    compiled = [re.compile(text) for _, text in rows]

    def ours() -> None:
        for _ in range(100):
            tried = set()
            for offset, number in matcher.find(data):
                start = data.rfind(b"\n", 0, offset) + 1
                if (start, number) not in tried:
                    tried.add((start, number))
                    end = data.find(b"\n", offset) + 1 or len(data)
                    patterns[number].search(data[start:end].decode("utf-8", "replace"))

    def naive() -> None:
        for line in data.decode("utf-8", "replace").splitlines():
            for regex in compiled:
                regex.search(line)

    ours()
    naive()
    return {"ours_us": _best_s(ours, 5) * 1e4, "naive_us": _best_s(naive, 5) * 1e6}


def _naive(table: str, log: str) -> dict[str, Any]:
    """A part of a log: seconds of CPU by the engine and by each regex on each line."""
    rows = read_patterns(Path(table))
    compiled = [re.compile(text.encode()) for _, text in rows]
    patterns, matcher = matcher_of([text for _, text in rows], "")
    data = Path(log).read_bytes()

    def naive() -> None:
        for line in data.splitlines():
            for regex in compiled:
                regex.search(line)

    def ours() -> None:
        pairs_by(io.BytesIO(data), rows, patterns, matcher)

    ours()
    ours_s = _best_s(ours, 5)
    return {"ours_s": ours_s, "naive_s": _best_s(naive, 1)}


def _hostile() -> dict[str, Any]:
    """Lines made to make a backtracking engine explode: seconds for 1 MB, and 2n over n."""
    worst_s = worst_ratio = 0.0
    for text, unit in HOSTILE:
        first_s, second_s = (
            _hostile_s(Pattern(text), unit * (size // len(unit)) + b"!")
            for size in (1_000_000, 2_000_000)
        )
        worst_s = max(worst_s, first_s)
        # Below a millisecond the clock's own grain is what doubles.
        if first_s > 0.001:
            worst_ratio = max(worst_ratio, second_s / first_s)
    return {"worst_s": worst_s, "worst_ratio": worst_ratio}


def _hostile_s(pattern: Pattern, line: bytes) -> float:
    matcher = build_matcher([pattern])

    def work() -> None:
        matcher.find(line)
        pattern.search(line.decode())

    work()
    return _best_s(work, 3)


def main() -> int:
    """Runs what the first argument names and prints its object."""
    kinds: dict[str, Callable[..., dict[str, Any]]] = {
        "pairs": _pairs, "warm": _warm, "naive": _naive, "hostile": _hostile,
    }  # fmt: skip
    print(json.dumps(kinds[sys.argv[1]](*sys.argv[2:])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
