"""Evidence as a JSON document, there and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.catalog import Catalog
from triage.engine import Evidence, EvidenceError


def through_json(evidence: Evidence) -> Evidence:
    return Evidence.from_json(json.loads(json.dumps(evidence.to_json(), allow_nan=False)))


def test_the_evidence_of_every_example_comes_back_equal(
    catalog: Catalog, scan_text: Callable[..., Evidence]
) -> None:
    for pitfall in catalog:
        for example in pitfall.positives[:1]:
            evidence = scan_text(example.path.read_bytes(), name=example.path.name)
            assert through_json(evidence) == evidence, example.path.name


def test_numbers_that_json_has_no_word_for_come_back(
    scan_text: Callable[..., Evidence],
) -> None:
    points = scan_text("step 1 loss nan\nstep 2 loss inf\nstep 3 loss -inf\n")
    values = [point.value for point in through_json(points).points]
    assert values[0] != values[0]
    assert values[1:] == [float("inf"), float("-inf")]


def test_a_document_carries_its_format(scan_text: Callable[..., Evidence]) -> None:
    document = scan_text("hello\n").to_json()
    assert document["format"] == 1
    with pytest.raises(EvidenceError, match="format 1"):
        Evidence.from_json({**document, "format": 2})


@pytest.mark.parametrize(
    "change",
    [
        {"lines": "many"},
        {"lines": None},
        {"hits": [{"pattern": "x"}]},
        {"hits": 3},
        {"unknown": 1},
        {"counts": [1]},
        {"tracebacks": [{"line": 1, "end_line": 1, "exception": "E", "message": "", "frames": 2}]},
        {"points": [{"series": "loss", "line": 1, "value": True}]},
        {"ranks": ["0"]},
    ],
)
def test_a_changed_document_is_refused(
    change: dict[str, Any], scan_text: Callable[..., Evidence]
) -> None:
    document = scan_text("RuntimeError: CUDA out of memory\n").to_json()
    with pytest.raises(EvidenceError):
        Evidence.from_json({**document, **change})


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_keys = st.sampled_from(list(Evidence.__dataclass_fields__))


@given(_json | st.dictionaries(_keys, _json, max_size=4).map(lambda d: {"format": 1, **d}))
def test_junk_is_refused_or_read_but_never_crashes(document: Any) -> None:
    try:
        evidence = Evidence.from_json(document)
    except EvidenceError:
        return
    assert evidence.to_json()["format"] == 1


def test_the_kind_of_a_text_in_words(scan_text: Callable[..., Evidence]) -> None:
    assert scan_text("hello\n").kind == "log"
    assert scan_text("[rank3]: hello\n").kind == "rank 3"
    assert scan_text("[rank3]: hello\n[rank4]: hi\n").kind == "2 ranks"


def test_the_last_lines_of_a_rank_are_kept_with_their_numbers(
    scan_text: Callable[..., Evidence],
) -> None:
    text = "".join(f"[rank{n % 2}]: line {n}\n" for n in range(1, 21)) + "the end\n"
    said = dict(scan_text(text).said_last())
    assert said[None] == [(21, "the end")]
    assert said[0] == [(n, f"line {n}") for n in (20, 18, 16, 14, 12)]
    assert said[1][0] == (19, "line 19")


def test_of_many_ranks_the_last_line_alone_is_kept(scan_text: Callable[..., Evidence]) -> None:
    text = "".join(f"[rank{n % 300}]: line {n}\n" for n in range(900))
    said = dict(scan_text(text).said_last())
    assert len(said) == 300
    assert said[7] == [(608, "line 607")]
