"""Any page of a stored text is read without the rest, and line numbers are those of the text."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.factories import make_submission
from triage.models import Submission
from triage.services import texts
from triage.services.texts import TextWriter, find, open_text, read_lines

pytestmark = pytest.mark.django_db


@pytest.fixture
def small_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of 64 bytes, so that short texts have many."""
    monkeypatch.setattr(texts, "MEMBER_BYTES", 64)


def _numbered(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


def test_a_page_from_the_middle(small_members: None) -> None:
    submission = make_submission(_numbered(500))

    lines = read_lines(submission, 250, 3)

    assert [(line.number, line.text) for line in lines] == [
        (250, "line 250"),
        (251, "line 251"),
        (252, "line 252"),
    ]
    assert len(submission.line_index) > 50


def test_pages_beyond_the_end_are_empty() -> None:
    submission = make_submission(_numbered(3))

    assert [line.number for line in read_lines(submission, 3, 10)] == [3]
    assert read_lines(submission, 4, 10) == []
    assert read_lines(submission, 0, 10) == []


def test_a_page_reads_no_more_than_its_members(
    small_members: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = make_submission(_numbered(2_000))
    inflated = []
    real = texts.zlib.decompressobj
    monkeypatch.setattr(
        texts.zlib, "decompressobj", lambda bits: inflated.append(bits) or real(bits)
    )

    read_lines(submission, 1_000, 5)

    assert len(inflated) <= 3


def test_a_line_longer_than_members_is_cut_and_said_so(
    small_members: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "SHOWN_LINE_BYTES", 100)
    submission = make_submission("first\n" + "x" * 1_000 + "\nlast\n")

    first, long, last = read_lines(submission, 1, 10)

    assert (first.text, first.is_cut) == ("first", False)
    assert (long.text, long.is_cut) == ("x" * 100, True)
    assert (last.number, last.text) == (3, "last")
    assert read_lines(submission, 3, 1) == [last]


def test_find_counts_lines_from_where_it_stands(small_members: None) -> None:
    submission = make_submission(_numbered(300))

    assert find(submission, "LINE 29") == 29
    assert find(submission, "line 29", after_line=29) == 290
    assert find(submission, "line 29", after_line=299) is None
    assert find(submission, "") is None
    assert find(submission, "line 299", max_bytes=500) is None


def test_the_whole_text_streams_back(small_members: None) -> None:
    text = _numbered(400)

    with open_text(make_submission(text)) as stream:
        assert stream.read() == text.encode()


def test_a_text_that_is_gone_says_so() -> None:
    submission = make_submission(stored_at="")

    with pytest.raises(FileNotFoundError, match="no longer kept"):
        read_lines(submission, 1, 1)
    with pytest.raises(FileNotFoundError, match="no longer kept"):
        open_text(submission)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    blocks=st.lists(st.text(alphabet="ab\n", max_size=120), max_size=12),
    first=st.integers(1, 40),
    count=st.integers(1, 9),
)
def test_lines_are_those_of_the_text_however_it_is_written(
    small_members: None, blocks: list[str], first: int, count: int
) -> None:
    with TextWriter() as writer:
        for block in blocks:
            writer.write(block.encode())
        submission = Submission(
            stored_at=writer.save(), line_index=writer.line_index, line_count=writer.line_count
        )
    whole = "".join(blocks)
    expected = whole.split("\n")
    if expected[-1] == "":
        expected.pop()

    assert submission.line_count == len(expected)
    assert [line.text for line in read_lines(submission, first, count)] == expected[
        first - 1 : first - 1 + count
    ]
