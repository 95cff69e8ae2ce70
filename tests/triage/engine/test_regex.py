"""Regexes of the engine are compiled late, and all of them can be."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import triage.engine
from triage.engine.regex import regex


def test_it_answers_like_a_compiled_one() -> None:
    late = regex(r"rank (?P<rank>\d+)", re.IGNORECASE)
    found = late.search("on RANK 3")
    assert found is not None
    assert found["rank"] == "3"
    assert late.pattern == r"rank (?P<rank>\d+)"
    assert late.findall("rank 1, Rank 2") == ["1", "2"]
    assert regex(rb"\d+").sub(b"N", b"a1") == b"aN"


def test_a_bad_one_fails_when_it_is_used() -> None:
    with pytest.raises(re.error):
        regex("(unclosed").search("")


def test_every_regex_of_the_engine_compiles() -> None:
    late_type = type(regex(""))
    seen = 0
    for module in pkgutil.walk_packages(triage.engine.__path__, "triage.engine."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, late_type):
                assert isinstance(value.pattern, (str, bytes))
                seen += 1
    assert seen > 100
