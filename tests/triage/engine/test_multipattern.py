"""hyperscan, RE2 and `re` find the same: what differs is speed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from kb.catalog import Catalog
from triage.engine import Evidence
from triage.engine.multipattern import EVENTS_PER_BLOCK, build_matcher
from triage.engine.patterns import Pattern

ENGINES = ("hyperscan", "re2", "re")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each matcher that this machine has."""
    name: str = request.param
    try:
        build_matcher([], name)
    except ImportError as error:
        pytest.skip(str(error))
    return name


@pytest.mark.parametrize("other", ["re2", "re"])
def test_the_examples_of_the_catalog_give_the_same_evidence(
    other: str, catalog: Catalog, scan_text: Callable[..., Evidence]
) -> None:
    # All examples one after the other: every pattern of the catalog has its lines in there.
    text = b"".join(
        example.path.read_bytes() + b"\n"
        for pitfall in catalog
        for example in pitfall.positives[:2]
        if len(example.path.read_bytes()) < 20_000
    )
    try:
        wanted, got = scan_text(text, engine="hyperscan"), scan_text(text, engine=other)
    except ImportError as error:
        pytest.skip(str(error))
    for field in dataclasses.fields(Evidence):
        assert getattr(got, field.name) == getattr(wanted, field.name), field.name
    assert len(wanted.hits) > 300


def test_events_carry_a_byte_of_the_match(engine: str) -> None:
    patterns = [Pattern("CUDA out of memory"), Pattern(r"worker (?P<pid>\d+) died")]
    block = b"step 1\nCUDA out of memory\nworker 31 died\n"
    found = build_matcher(patterns, engine).find(block)
    lines = {(block.count(b"\n", 0, offset), number) for offset, number in found}
    assert (1, 0) in lines
    assert (2, 1) in lines


def test_anchored_and_case_blind_patterns_are_candidates_behind_a_prefix(engine: str) -> None:
    patterns = [Pattern("^Killed by me$"), Pattern("(?i)bus ERROR seen")]
    block = b"[rank0]: Killed by me\n[rank1]: Bus error SEEN\n"
    assert {number for _, number in build_matcher(patterns, engine).find(block)} == {0, 1}


def test_events_come_in_the_order_of_the_block_and_a_line_is_bounded(engine: str) -> None:
    patterns = [Pattern("CUDA out of memory"), Pattern("device-side assert")]
    block = b"device-side assert, CUDA out of memory " * 5_000
    events = build_matcher(patterns, engine).find(block)
    assert events == sorted(events)
    assert EVENTS_PER_BLOCK <= len(events) <= EVENTS_PER_BLOCK * len(patterns)


def test_no_line_is_lost_behind_many_others(engine: str) -> None:
    block = b"CUDA out of memory\n" * (2 * EVENTS_PER_BLOCK)
    events = build_matcher([Pattern("CUDA out of memory")], engine).find(block)
    assert len({block.count(b"\n", 0, offset) for offset, _ in events}) == 2 * EVENTS_PER_BLOCK


def test_no_patterns_find_nothing(engine: str) -> None:
    assert build_matcher([], engine).find(b"anything\n") == []


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="grep"):
        build_matcher([], "grep")


def test_where_many_patterns_occur_each_is_found_where_it_stands(engine: str) -> None:
    words = [f"failure number {chr(97 + n)} of the run" for n in range(20)]
    patterns = [Pattern(word) for word in words]
    crowded = b"".join(b"step %d\n" % n * 30 + words[n % 20].encode() + b"\n" for n in range(200))
    quiet = b"step\n" * 9_000 + words[3].encode() + b"\n" + b"step\n" * 9_000
    matcher = build_matcher(patterns, engine)
    for block in (crowded, crowded, quiet, quiet, crowded):
        found = {(block.count(b"\n", 0, at), number) for at, number in matcher.find(block)}
        lines = block.decode().split("\n")
        assert found == {(n, words.index(line)) for n, line in enumerate(lines) if line in words}
