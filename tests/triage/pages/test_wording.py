"""Sizes, durations and counts as people say them."""

from __future__ import annotations

import pytest

from triage.pages.wording import (
    age_in_words,
    count_in_words,
    duration_in_words,
    size_in_words,
)


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1_200_000, "1.2 MB"), (5 * 10**9, "5 GB"),
     (812_345, "812 kB"), (999_999, "1 MB"), (7 * 10**15, "7000 TB")],
)  # fmt: skip
def test_size(size_bytes: int, words: str) -> None:
    assert size_in_words(size_bytes) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.084, "84 ms"), (1.44, "1.4 s"), (41, "41 s"), (720, "12 min"), (5_400, "1 h 30 min"),
     (3_600, "1 h"), (273_600, "3 d 4 h"), (259_200, "3 d")],
)  # fmt: skip
def test_duration(seconds: float, words: str) -> None:
    assert duration_in_words(seconds) == words


def test_counts_and_ages() -> None:
    assert count_in_words(1, "line") == "1 line"
    assert count_in_words(4_127, "line") == "4,127 lines"
    assert age_in_words(3) == "just now"
    assert age_in_words(700) == "12 min ago"
