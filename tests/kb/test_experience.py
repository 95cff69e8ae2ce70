"""The order of fixes that comes of what people said, and how it is told."""

from __future__ import annotations

import pytest

from kb.catalog import Fix
from kb.catalog.experience import Experience, Tally, order_fixes


def test_the_order_of_fixes() -> None:
    fixes = [Fix("a", ""), Fix("b", ""), Fix("c", ""), Fix("d", "")]
    said = Experience(fixes={"b": Tally(0, 2), "c": Tally(5, 6), "d": Tally(1, 1)})
    assert [r.fix.title for r in order_fixes(fixes, said, {"c": True})] == ["c", "d", "a", "b"]
    assert order_fixes(fixes, said, {"c": True})[0].mine is True
    assert [r.fix.title for r in order_fixes(fixes, Experience())] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("tally", "words"),
    [
        (Tally(), ""),
        (Tally(1, 1), "worked once"),
        (Tally(0, 1), "did not work the one time it was tried"),
        (Tally(5, 6), "worked 5 of 6 times"),
    ],
)
def test_a_tally_in_words(tally: Tally, words: str) -> None:
    assert tally.worked == words
