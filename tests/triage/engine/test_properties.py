"""What holds for any bytes: an answer, the same however it is read, in bounded space and work."""

from __future__ import annotations

import importlib
import io
import json
import pkgutil
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import triage.engine
from kb.catalog import Catalog
from triage.engine import Evidence, Limits, Verdict, diagnose, scan
from triage.engine.lines import WINDOW_BYTES
from triage.engine.pipeline import compile_catalog

FRAGMENTS = (
    b"Traceback (most recent call last):\n",
    b'  File "a.py", line 3, in f\n',
    b"    x = y\n",
    b"KeyError: 'lr'\n",
    b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    b"[rank3]: ",
    b"[default0]:[rank12]:",
    b"\x1b[31m",
    b"\xff\xfe",
    b"\0",
    b"\r",
    b"\r\n",
    b" 41%|####  | 41/100 [00:10<00:14]",
    (
        b"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
        b"NumelIn=1, NumelOut=1, Timeout(ms)=1000) ran for 1002 milliseconds before timing out.\n"
    ),
    b'Thread 31 (idle): "MainThread"\n    f (a.py:3)\n',
    b"step 4/9 loss nan\n",
    b"Root Cause (first observed failure):\n  rank      : 6 (local_rank: 2)\n",
    b"  exitcode  : -9 (pid: 42)\n",
    b"Rank 1 is running collective: CollectiveFingerPrint(OpType=",
    b"9" * 5_000,
    "│ ".encode(),
    "\ufeff步骤".encode("utf-16"),
    b'{"log": "a\\nb\\nc"}\n',
)
texts = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=40)), max_size=12).map(
    b"".join
)


class Dripping:
    """A stream that hands out its bytes in pieces of its own choice; never more than asked for."""

    def __init__(self, raw: bytes, seed: int) -> None:
        self._rest = io.BytesIO(raw)
        self._random = random.Random(seed)

    def read(self, size: int = -1, /) -> bytes:
        """At least one byte until the end."""
        limit = 1 << 20 if size < 0 else size
        return self._rest.read(min(limit, self._random.choice((1, 7, 4_096, 100_000))))


@pytest.fixture(scope="module")
def read(catalog: Catalog) -> Callable[..., Evidence]:
    """Scans a stream with the smallest limits, so that short texts reach every part."""
    limits = Limits(head_bytes=256, tail_bytes=256, max_line_bytes=2_048, hits_per_pattern=4)
    return lambda stream: scan(stream, catalog=catalog, limits=limits)


@settings(max_examples=100)
@given(raw=texts)
def test_any_bytes_give_an_answer(
    raw: bytes, catalog: Catalog, read: Callable[..., Evidence]
) -> None:
    evidence = read(io.BytesIO(raw))
    again = Evidence.from_json(json.loads(json.dumps(evidence.to_json(), allow_nan=False)))
    verdict = diagnose([again], catalog)
    assert verdict.kind in ("named", "undetermined", "clean")
    assert (verdict.kind == "clean") <= (not verdict.diagnoses)
    assert evidence.bytes == len(raw)
    assert "\0" not in json.dumps(verdict.to_json(), allow_nan=False)
    for diagnosis in verdict.diagnoses:
        for line in diagnosis.evidence:
            assert 1 <= line.line <= line.end_line <= max(evidence.lines, 1)


@settings(max_examples=25)
@given(raw=st.builds(lambda parts, n: parts * n, texts, st.integers(1, 40)), seed=st.integers())
def test_however_a_stream_hands_out_its_bytes_the_evidence_is_the_same(
    raw: bytes, seed: int, read: Callable[..., Evidence]
) -> None:
    # As documents: a NaN in them equals itself.
    assert read(Dripping(raw, seed)).to_json() == read(io.BytesIO(raw)).to_json()


def test_a_long_utf16_text_is_read_the_same_in_any_pieces(read: Callable[..., Evidence]) -> None:
    raw = ("步骤 loss 2.5\n" * 60_000 + "CUDA out of memory. Tried to allocate 2 GiB\n").encode(
        "utf-16"
    )
    whole = read(io.BytesIO(raw))
    assert read(Dripping(raw, 3)) == whole
    assert whole.lines == 60_001
    assert whole.hits


def test_a_tail_of_several_blocks_is_read_as_it_came(catalog: Catalog) -> None:
    raw = b"".join(
        b"step %d loss 2.5\n" % n + b"RuntimeError: CUDA out of memory %d\n" % n * (n % 4_099 == 0)
        for n in range(100_000)
    )
    limits = Limits(tail_bytes=900_000)
    whole = scan(io.BytesIO(raw), catalog=catalog, limits=limits)
    assert scan(Dripping(raw, 5), catalog=catalog, limits=limits).to_json() == whole.to_json()
    assert whole.lines == 100_000 + 25
    assert any(hit.line > 98_000 for hit in (*whole.errors, *whole.hits))


def outline(verdict: Verdict, order: list[int]) -> list[tuple[object, ...]]:
    """What a verdict says, with the texts' own numbers."""
    return [
        (
            d.slug, d.role, d.confidence, d.rank, d.host, d.because, tuple(d.values.items()),
            tuple((order[e.text_index], e.line, e.text) for e in d.evidence), d.explains,
        )
        for d in verdict.diagnoses
    ]  # fmt: skip


def test_the_order_of_an_incidents_texts_does_not_matter(
    catalog: Catalog, scan_text: Callable[..., Evidence]
) -> None:
    evidences = [
        scan_text(p.positives[0].path.read_bytes(), name=p.slug) for p in catalog if p.positives
    ]
    chance = random.Random(5)
    for _ in range(60):
        chosen = chance.sample(evidences, chance.choice((2, 3, 5)))
        order = list(range(len(chosen)))
        wanted = diagnose(chosen, catalog)
        chance.shuffle(order)
        got = diagnose([chosen[index] for index in order], catalog)
        assert (got.kind, got.sentence, got.next) == (wanted.kind, wanted.sentence, wanted.next)
        assert got.fingerprint == wanted.fingerprint
        assert outline(got, order) == outline(wanted, list(range(len(chosen))))


def said(verdict: Verdict) -> list[tuple[object, ...]]:
    """What a verdict says, whatever the texts' lines are called."""
    return [(d.slug, d.role, d.confidence, d.rank, d.explains) for d in verdict.diagnoses]


def first_positives(catalog: Catalog) -> Iterator[bytes]:
    for pitfall in catalog:
        for example in pitfall.positives[:1]:
            yield example.path.read_bytes()


def test_line_ends_of_windows_change_nothing(catalog: Catalog, ask: Callable[..., Verdict]) -> None:
    for raw in first_positives(catalog):
        unix = raw.replace(b"\r\n", b"\n")
        if b"\r" in unix:
            # Bars that redraw themselves have ends of their own.
            continue
        here, there = ask(unix), ask(unix.replace(b"\n", b"\r\n"))
        assert here.kind == there.kind
        assert outline(there, [0]) == outline(here, [0])


def test_broken_utf8_around_a_text_changes_nothing(
    catalog: Catalog, ask: Callable[..., Verdict]
) -> None:
    for raw in first_positives(catalog):
        broken = (
            b"caf\xe9 \xc3\x28 \xf0\x9f\x98 \xed\xa0\x80\n\n"
            + raw.rstrip(b"\n")
            + b"\n\n\xff\xfe\n"
        )
        assert said(ask(broken)) == said(ask(raw))


def test_a_line_across_the_ends_of_blocks_is_read_whole(scan_text: Callable[..., Evidence]) -> None:
    error = b"[rank3]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 3)\n"
    filler = b"a line of the log that says nothing at all\n"
    before = filler * (WINDOW_BYTES // len(filler) - 2)
    behind = filler * (WINDOW_BYTES // len(filler))
    limits = Limits(head_bytes=256, tail_bytes=256)
    patterns = {hit.pattern for hit in scan_text(error).hits}
    assert len(patterns) > 1
    for missing in range(0, len(error) + 6, 7):
        padding = b"." * (WINDOW_BYTES - len(before) - missing - 1) + b"\n"
        evidence = scan_text(before + padding + error + behind, limits=limits)
        assert {hit.pattern for hit in evidence.hits} == patterns, missing
        assert {(hit.rank, hit.text) for hit in evidence.hits} == {(3, error.decode().strip())}


# ------------------------------------------------------------------------- bounded, whatever


def cost(work: Callable[..., object], *given: object, times: int = 3) -> float:
    """Seconds of this process's CPU, the least of some tries."""
    tries = []
    for _ in range(times):
        start = time.process_time()
        work(*given)
        tries.append(time.process_time() - start)
    return min(tries)


def lines_of(unit: str, width: int) -> str:
    return (unit * (width // len(unit) + 1))[:width] + "x\n"


@pytest.mark.parametrize(
    "unit",
    [
        " ", "\t", "│ ", "|", "└ ", "> ", "[", "[|:]", "100%|", "a.", "A", "File \"",
        "WorkNCCL(", "line 1: ", "if you ", "loss ", "loss_", "Rank 1 ", "#0 ", "1",
        "WorkNCCL(OpType=A,", "a1: ", "\\n", '{"', "CUDA out of memory ", "= ",
    ],
)  # fmt: skip
def test_work_grows_with_the_length_of_a_line_not_with_its_square(
    unit: str, scan_text: Callable[..., Evidence]
) -> None:
    """Four times the length costs four times the work; quadratic work shows as sixteen."""
    short, long = lines_of(unit, 1_900) * 8, lines_of(unit, 7_600) * 8
    scan_text(short)
    base = cost(lambda: scan_text("x\n" * 8))
    of_short = max(cost(lambda: scan_text(short)) - base, 1e-3)
    factor = (cost(lambda: scan_text(long)) - base) / of_short
    assert factor < 11, f"four times the length, {factor:.1f} times the work"


def member(items: Any) -> str:
    """A character of a class."""
    is_negated = items[0][0] is sre.NEGATE
    for operator, argument in () if is_negated else items:
        if operator is sre.LITERAL:
            return chr(argument)
        if operator is sre.RANGE:
            return chr(argument[0])
        if operator is sre.CATEGORY:
            blanks = (sre.CATEGORY_SPACE, sre.CATEGORY_NOT_WORD)
            return "1" if argument is sre.CATEGORY_DIGIT else " " if argument in blanks else "a"
    refused = {chr(argument) for operator, argument in items if operator is sre.LITERAL}
    return next(c for c in "a1 -~" if c not in refused)


def sample(items: Any) -> str:
    """A text that a parsed pattern matches, but for what it looks around for."""
    parts = []
    for operator, argument in items:
        if operator is sre.LITERAL:
            parts.append(chr(argument))
        elif operator is sre.IN:
            parts.append(member(argument))
        elif operator in (sre.ANY, sre.NOT_LITERAL):
            parts.append("a" if argument != ord("a") else "b")
        elif operator in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            parts.append(sample(argument[2]) * max(argument[0], 1))
        elif operator is sre.SUBPATTERN:
            parts.append(sample(argument[3]))
        elif operator is sre.BRANCH:
            parts.append(sample(argument[1][0]))
    return "".join(parts)


def near_misses(items: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Ways to come close to a match and to fail: what stands first, and what then goes on for ever.

    Every long repeat goes on behind what leads to it; every start of the pattern comes again.
    """
    for operator, argument in items:
        if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            if argument[1] > 8:
                yield before, sample(argument[2])
            yield from near_misses(argument[2], before)
        elif operator is sre.SUBPATTERN:
            yield from near_misses(argument[3], before)
        elif operator is sre.BRANCH:
            for branch in argument[1]:
                yield from near_misses(branch, before)
        before += sample([(operator, argument)])
        yield "", before


def near_miss_lines(tree: Any, width: int, count: int) -> list[str]:
    shapes = dict.fromkeys(shape for shape in near_misses(tree) if shape[1])
    # What stands before a repeat is the rarer find; the starts alone make the rest.
    chosen = sorted(shapes, key=lambda shape: not shape[0])[:count]
    return [
        (before + unit * (width // len(unit) + 1))[:width].replace("\n", " ") + "\n"
        for before, unit in chosen
    ]


def regexes_of_the_engine() -> Iterator[tuple[str, Any]]:
    for module in pkgutil.walk_packages(triage.engine.__path__, "triage.engine."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(getattr(value, "pattern", None), str) and hasattr(value, "match"):
                    yield f"{module.name}.{name}", _parser.parse(value.pattern, value.flags)


def regexes_of_the_catalog(catalog: Catalog) -> Iterator[tuple[str, Any]]:
    for pitfall in catalog:
        for number, signature in enumerate(pitfall.signatures):
            for _, text in signature.kinds_and_patterns():
                yield f"{pitfall.slug}[{number}]: {text}", _parser.parse(text)


@pytest.mark.parametrize(("whose", "count"), [("engine", 24), ("catalog", 4)])
def test_near_misses_of_a_regex_cost_no_more_than_their_length(
    whose: str, count: int, catalog: Catalog, scan_text: Callable[..., Evidence]
) -> None:
    """Twice the width, twice the work: lines that nearly match are where backtracking shows."""
    regexes = regexes_of_the_engine() if whose == "engine" else regexes_of_the_catalog(catalog)
    scan_text("x\n")
    slow, tried = [], 0
    for batch in iter(lambda: list(islice(regexes, 8)), []):
        texts = ["".join(near_miss_lines(t, w, count)) for _, t in batch for w in (900, 1_800)]
        narrow, wide = "".join(texts[::2]), "".join(texts[1::2])
        tried += wide.count("\n")
        if cost(scan_text, wide, times=1) < 0.1:
            continue
        factor = cost(scan_text, wide) / max(cost(scan_text, narrow), 1e-3)
        if factor > 2.9:
            slow.append(f"{factor:.1f} times the work: one of {[name for name, _ in batch]}")
    assert tried > 1_000
    assert not slow, "\n".join(slow)


def sizes(evidence: Evidence) -> dict[str, int]:
    return {
        "hits": len(evidence.hits),
        "tracebacks": len(evidence.tracebacks),
        "frames": sum(len(t.frames) for t in evidence.tracebacks),
        "progress": len(evidence.progress),
        "points": len(evidence.points),
        "collectives": len(evidence.collectives),
        "exits": len(evidence.exits),
        "errors": len(evidence.errors),
        "document": len(json.dumps(evidence.to_json())),
    }


def test_a_line_of_five_million_bytes_is_one_line(
    ask: Callable[..., Verdict], scan_text: Callable[..., Evidence]
) -> None:
    line = "CUDA error: [" * 400_000
    assert len(line) > 5_000_000
    evidence = scan_text(line + "\nKeyError: 'lr'\n")
    assert evidence.lines == 2
    assert sizes(evidence)["document"] < 100_000
    assert any("longer than" in note for note in evidence.notes)
    assert ask(line + "\nKeyError: 'lr'\n").diagnoses[0].slug == "python-exception"


@pytest.mark.parametrize(
    "block",
    [
        '  File "/home/u/net.py", line 12, in forward\n    return self.forward(x)\n',
        " 41%|####      | 41/100 [00:10<00:14,  4.1it/s]\r",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
        (
            "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
            "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1000) ran for 1002 milliseconds\n"
        ),
        "step 3/9 loss 2.0 mem 512 MB rss: 2 GB\n",
        "srun: error: n1: task 3: Killed\n",
    ],
)
def test_evidence_does_not_grow_with_the_text(
    block: str, scan_text: Callable[..., Evidence]
) -> None:
    limits = Limits(
        head_bytes=16_384, tail_bytes=16_384, windows_per_pattern=8, hits_per_pattern=24,
        max_points=200, max_progress=200,
    )  # fmt: skip
    text = "Traceback (most recent call last):\n" + block * (560_000 // len(block))
    small, large = (sizes(scan_text(text * times, limits=limits)) for times in (1, 3))
    assert large["document"] < limits.max_evidence_bytes
    for name, size in large.items():
        assert size <= max(small[name] * 1.5, small[name] + 200), name


def test_a_log_of_only_progress_bars_is_clean(ask: Callable[..., Verdict]) -> None:
    def bars(count: int) -> Iterator[str]:
        for n in range(count):
            share = 100 * n // count
            yield f"\rtrain: {share}%|{'#' * (share // 10)}| {n}/{count} [00:10<01:00, 4.1it/s]"

    verdict = ask("".join(bars(100_000)))
    assert (verdict.kind, verdict.diagnoses) == ("clean", ())
    assert verdict.lines == 1


def test_memory_is_flat_in_the_size(catalog: Catalog) -> None:
    """A scan holds a few windows of the text at a time: counted in bytes that it has asked for."""
    compile_catalog(catalog)
    block = b"step 1 loss 2.0 and nothing else to see on this line of the log\n" * 4_096
    held: list[int] = []

    class Endless:
        def __init__(self, blocks: int) -> None:
            self._blocks = blocks

        def read(self, size: int = -1, /) -> bytes:
            self._blocks -= 1
            held.append(sum(sys.getsizeof(piece) for piece in pieces()))
            return block[:size] if self._blocks >= 0 else b""

    def pieces() -> list[bytes]:
        import gc

        return [
            item.data
            for item in gc.get_objects()
            if type(item).__name__ == "Block" and hasattr(item, "data")
        ]

    scan(Endless(20), catalog=catalog)
    assert held
    assert max(held) <= 8 * len(block)
