"""What either database refuses never reaches it."""

from __future__ import annotations

import math

from triage.services.storable import clean_json, clean_name


def test_values_that_json_or_postgresql_refuse() -> None:
    value = {
        "a\x00": ["\ud800x", (1, math.nan, -math.inf)],
        3: {"deep": "\x00"},
        "ok": [None, True],
    }

    assert clean_json(value) == {
        "a\ufffd": ["\ufffdx", [1, "nan", "-inf"]],
        "3": {"deep": "\ufffd"},
        "ok": [None, True],
    }


def test_names_are_one_printable_line() -> None:
    assert clean_name(" a\tb\r\n\x00c\u2028d ") == "a b c d"
    assert clean_name("x" * 300, 40) == "x" * 40
