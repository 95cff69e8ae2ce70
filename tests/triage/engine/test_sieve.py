"""The coarse pass over long texts loses nothing, whatever it learns to be common."""

from __future__ import annotations

import random

import pytest

from kb.catalog import Catalog
from triage.engine.multipattern import build_matcher
from triage.engine.patterns import Pattern, healthy_text
from triage.engine.pipeline import compile_catalog
from triage.engine.sieve import ATOM_BYTES, choose_atoms, needs_of

PATTERNS = [
    Pattern(text)
    for text in (
        "NCCL communicator was aborted on rank",
        "NCCL communicator was destroyed on rank",
        r"(?i)cuda error: (?P<op>\w+) launch failure",
        r"^Killed by me$",
        r"nan iterations: +[1-9]",
        r"\b(?:TIMEOUT|PREEMPTED) +0:\d+",
        r"x{3,9}\d",
    )
]
# Common words that hold parts of the patterns' literals, so that the sieve must learn.
NOISE = (
    b"step 1 nan iterations: 0 |\n",
    b"NCCL communicator was fine\n",
    b"job 17 TIMEOUT in config\n",
    b"Killed by me, they say\n",
    b"cuda error: none\n",
    b"xxx and xxxx\n",
)
HITS = (
    b"[rank3]: NCCL communicator was aborted on rank 3\n",
    b"node-1: CUDA error: unspecified launch failure\r\n",
    b"[rank0]: Killed by me\n",
    b"| number of nan iterations:   4 |\n",
    b"17.batch TIMEOUT 0:15\n",
    b"\xff\xfe xxxxx7 \xff\n",
    b'{"log": "a\\nKilled by me\\nb"}\n',
)


def _pairs(finder: object, blocks: list[bytes]) -> set[tuple[int, int, int]]:
    """(block, line in it, pattern) of each match that the events of a search lead to."""
    found = set()
    for index, block in enumerate(blocks):
        for offset, number in finder.find(block):  # type: ignore[attr-defined]
            start = block.rfind(b"\n", 0, offset) + 1
            line = block[start : block.find(b"\n", offset) + 1 or None].decode("utf-8", "replace")
            if PATTERNS[number].may_occur_in(line):
                found.add((index, block.count(b"\n", 0, offset), number))
    return found


@pytest.mark.parametrize("engine", ["hyperscan", "re2", "re"])
def test_it_finds_what_the_whole_search_finds_before_and_after_it_learned(engine: str) -> None:
    try:
        matcher = build_matcher(PATTERNS, engine)
    except ImportError as error:
        pytest.skip(str(error))
    choose = random.Random(5)
    blocks = []
    for _ in range(24):
        lines = [choose.choice(NOISE) for _ in range(9_000)]
        for _ in range(5):
            lines[choose.randrange(len(lines))] = choose.choice(HITS)
        blocks.append(b"".join(lines))
    blocks[-1] = blocks[-1].rstrip(b"\n")
    assert sum(map(len, blocks)) > 4 << 20
    sieve = matcher.for_long_text()
    assert _pairs(sieve, blocks) == _pairs(matcher, blocks)
    assert _pairs(sieve, blocks) == _pairs(matcher, blocks)


def test_patterns_that_are_muted_cost_no_more_looks() -> None:
    matcher = build_matcher(PATTERNS)
    sieve = matcher.for_long_text()
    block = HITS[0] * 6_000
    assert sieve.find(block)
    for pattern in (0, 1):  # they share a part of their literals
        sieve.mute(pattern)
    for _ in range(12):
        sieve.find(block)
    if matcher.name == "hyperscan":
        assert sieve.find(block) == []
    assert {number for _, number in sieve.find(HITS[3] * 3)} == {4}


def test_where_most_marked_lines_match_the_coarse_pass_is_left_out_for_a_while() -> None:
    matcher = build_matcher(PATTERNS)
    sieve = matcher.for_long_text()
    choose = random.Random(3)
    dense = [b"".join(choose.choices((*HITS, NOISE[0]), k=400)) for _ in range(40)]
    sparse = [HITS[0] + NOISE[0] * 400, NOISE[0] * 10]
    for blocks in (dense, sparse, dense[:3], sparse):
        assert _pairs(sieve, blocks) == _pairs(matcher, blocks)


def test_every_literal_of_the_catalog_holds_the_atom_that_stands_for_it(catalog: Catalog) -> None:
    needs = needs_of(compile_catalog(catalog).patterns)
    atoms = choose_atoms(needs, healthy_text())
    served = set()
    for atom in atoms:
        for index in atom.needs:
            text, ignore_case = needs[index].literal
            assert atom.ignore_case == ignore_case
            assert atom.text in (text.lower() if ignore_case else text)
            served.add(index)
    assert served == set(range(len(needs)))
    assert len(atoms) < len(needs) / 3
    assert max(len(atom.text) for atom in atoms) >= ATOM_BYTES
