"""What every match of a pattern must contain, and the regex that finds all candidates."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.catalog import Catalog, syntax
from triage.engine import Evidence
from triage.engine.patterns import MIN_LITERAL_BYTES, Pattern, prefilter_regex, required_literals

_WORDS = ("CUDA error", "out of memory", "NCCL", "rank", "Timeout(ms)=", "é", "a", "")
_CLASSES = (r"\d", r"\w", "[abc]", "[^:]", ".", r"\s")
_COUNTS = ("", "?", "{0,3}", "{1,4}", "+", "*", "{2}")

words = st.sampled_from(_WORDS).map(re.escape)
atoms = st.one_of(words, st.sampled_from(_CLASSES))
pieces = st.builds(
    lambda atom, count: atom if count == "" or not atom else f"(?:{atom}){count}",
    atoms,
    st.sampled_from(_COUNTS),
)
sequences = st.lists(pieces, min_size=1, max_size=4).map("".join)
branches = st.lists(sequences, min_size=1, max_size=3).map(lambda p: f"(?P<x>{'|'.join(p)})")
patterns = st.builds(
    lambda parts, flag, start: flag + start + "".join(parts),
    st.lists(st.one_of(sequences, branches), min_size=1, max_size=3).filter(
        lambda parts: sum("(?P<x>" in part for part in parts) <= 1
    ),
    st.sampled_from(("", "(?i)")),
    st.sampled_from(("", "^")),
)


@given(patterns, st.data())
def test_every_match_contains_a_required_literal(pattern: str, data: st.DataObject) -> None:
    try:
        literals = required_literals(syntax.parse(pattern))
    except syntax.PatternError:
        return
    if literals is None:
        return
    text = data.draw(st.from_regex(pattern))
    found = re.search(pattern, text)
    assert found is not None
    match = found[0].encode("utf-8", "replace")
    assert any(
        literal in match if not ignore_case else _folded(literal) in _folded(match)
        for literal, ignore_case in literals
    ), f"{pattern!r} matched {found[0]!r} without any of {literals}"
    assert min(len(literal) for literal, _ in literals) >= MIN_LITERAL_BYTES


def _folded(text: bytes) -> str:
    return text.decode("utf-8", "replace").casefold()


@given(patterns, st.data())
def test_the_prefilter_finds_whatever_the_pattern_finds(pattern: str, data: st.DataObject) -> None:
    try:
        syntax.parse(pattern)
    except syntax.PatternError:
        return
    text = data.draw(st.from_regex(pattern))
    line = next((part for part in text.split("\n") if re.search(pattern, part)), None)
    if line is None or not line.isascii():
        return
    prefixed = b"[rank3]: " + line.encode() + b"  "
    assert re.search(prefilter_regex(pattern), prefixed), f"{pattern!r} in {line!r}"


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("CUDA out of memory", {b"CUDA out of memory"}),
        (r"worker \d+ is killed by signal", {b" is killed by signal"}),
        ("(?:CUDA|HIP) out of memory", {b"CUDA out of memory", b"HIP out of memory"}),
        (r"^exit(?:ed)? with code 1$", {b"exited with code 1", b"exit with code 1"}),
        (r"skipped: {1,2}[1-2]", {b"skipped: 1", b"skipped: 2", b"skipped:  1", b"skipped:  2"}),
        (r"a?b?c?\d+", None),
        (r"abc", None),
    ],
)
def test_known_patterns(pattern: str, literals: set[bytes] | None) -> None:
    found = required_literals(syntax.parse(pattern))
    assert (None if found is None else {text for text, _ in found}) == literals


def test_case_is_ignored_where_the_pattern_says_so() -> None:
    found = required_literals(syntax.parse("(?i)Out of memory"))
    assert found is not None
    assert all(ignore_case for _, ignore_case in found)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^Killed$", b"[rank0]: Killed"),
        (r"a\$b", b"a$b"),
        (r"[$^] cost", b"$ cost"),
        (r"x{2,3}y", b"xxxxxy"),
        (r"x\{2,3\}", b"x{2,3}"),
        (r"(?P<pid>\d+) died", b"77 died"),
    ],
)
def test_the_prefilter_drops_anchors_names_and_upper_bounds(pattern: str, text: bytes) -> None:
    assert re.search(prefilter_regex(pattern), text)


def test_every_hit_in_the_examples_contains_a_literal_of_its_pattern(
    catalog: Catalog, scan_text: Callable[..., Evidence]
) -> None:
    literals = {
        text: Pattern(text).literals
        for pitfall in catalog
        for signature in pitfall.signatures
        for text in signature.patterns
    }
    checked = set()
    for pitfall in catalog:
        for example in pitfall.positives:
            for hit in scan_text(example.path.read_bytes()).hits:
                wanted = literals.get(hit.pattern)
                if wanted is None or hit.end_line is not None:
                    continue
                checked.add(hit.pattern)
                raw = hit.text.encode() + b" "  # a line's last blank is not kept
                assert any(
                    literal.lower() in raw.lower() if nocase else literal in raw
                    for literal, nocase in wanted
                ), (example.path, hit.pattern, hit.text)
    assert len(checked) > 100


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(?=x)abcdef", r"(abc)\1", "(unclosed", "x*"])
def test_what_is_no_pattern_is_refused_when_it_is_written(pattern: str) -> None:
    with pytest.raises(syntax.PatternError):
        Pattern(pattern)
