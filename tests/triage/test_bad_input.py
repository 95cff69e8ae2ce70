"""Each kind of bad input gets a clear answer, within bounded memory, and nothing hangs."""

from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.factories import BUS_ERROR, HEALTHY, send
from tests.triage.conftest import ApiClient, Generated
from triage.models import Incident, Submission
from triage.services.intake import IntakeError, NamedStream, receive
from triage.services.texts import open_text, read_lines

pytestmark = pytest.mark.django_db

MIB = 2**20
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00" + bytes(range(256)) * 20


@contextmanager
def bounded(memory_mib: int, seconds: float) -> Iterator[None]:
    """Fails if Python's own memory grows by more, or the block takes longer."""
    tracemalloc.start()
    started = time.monotonic()
    try:
        yield
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < memory_mib * MIB
    assert time.monotonic() - started < seconds


def _refusal(*texts: bytes | str) -> IntakeError:
    with pytest.raises(IntakeError) as refused:
        send(*texts, names=("it",))
    assert not Incident.objects.exists()
    assert refused.value.hint
    return refused.value


@pytest.mark.parametrize(
    "text", ["", " \n\t\r\n", "\x00" * 100, gzip.compress(b""), b"\xef\xbb\xbf"]
)
def test_an_empty_text(text: bytes | str) -> None:
    error = _refusal(text)

    assert (error.code, error.status) == ("empty-text", 422)
    assert "no text" in error.problem


def test_300_mib_of_zeros() -> None:
    zeros = Generated(bytes(MIB), 300 * MIB)

    with bounded(memory_mib=16, seconds=60), pytest.raises(IntakeError) as refused:
        receive([NamedStream("core", zeros)])

    assert refused.value.code == "empty-text"
    assert zeros.bytes_read == 300 * MIB


def test_a_log_behind_zeros_is_read(work: Callable[[], Any]) -> None:
    with work():
        incident = send(bytes(4 * MIB) + BUS_ERROR.encode(), names=("rotated.log",)).incident

    incident.refresh_from_db()
    assert incident.submissions.get().line_count == 5
    assert incident.verdict == "named"


def test_one_line_of_200_mb_without_an_end(work: Callable[[], Any]) -> None:
    line = Generated(b"x" * 1_000_000, 200_000_000, start=BUS_ERROR.encode())

    with bounded(memory_mib=64, seconds=120), work():
        incident = receive([NamedStream("dump.log", line)]).incident

    incident.refresh_from_db()
    submission = incident.submissions.get()
    assert (submission.state, submission.line_count) == ("scanned", 6)
    assert (submission.size_bytes, submission.bytes_scanned) == (200_000_000, 200_000_000)
    assert any("longer than" in note for note in submission.evidence["notes"])
    assert incident.verdict == "named"
    last = read_lines(submission, 6, 5)
    assert [(row.number, len(row.text), row.is_cut) for row in last] == [(6, 65_536, True)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_other_encodings_are_stored_as_utf8(encoding: str, work: Callable[[], Any]) -> None:
    text = "训练 失败\n" + BUS_ERROR

    with work():
        incident = send(text.encode(encoding)).incident

    incident.refresh_from_db()
    with open_text(incident.submissions.get()) as stream:
        assert stream.read().decode() == text
    assert incident.verdict == "named"


def test_broken_utf8_and_nul_bytes_within_a_text(work: Callable[[], Any]) -> None:
    with work():
        incident = send(b"\xfa\xff broken \x00\x00 bytes\n\x00" + BUS_ERROR.encode()).incident

    incident.refresh_from_db()
    with open_text(incident.submissions.get()) as stream:
        stored = stream.read()
    assert stored.startswith(b"\xfa\xff broken  bytes\n")
    assert stored.endswith(BUS_ERROR.encode())
    assert incident.verdict == "named"


@pytest.mark.parametrize(
    ("start", "word"),
    [
        (PNG, "picture"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(256)), "picture"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "PDF"),
        (b"PK\x03\x04\x14\x00\x00\x00" + bytes(100), "packed"),
        (b"\x28\xb5\x2f\xfd\x04\x58" + bytes(range(200)), "packed"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "core dump"),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.", "pickle"),
        (b"notes.txt" + bytes(248) + b"ustar  \x00" + bytes(200), "packed"),
        (gzip.compress(gzip.compress(b"log")), "twice"),
        (bytes(range(1, 256)) * 64, "binary"),
    ],
)
def test_files_that_are_no_text(start: bytes, word: str) -> None:
    error = _refusal(start)

    assert (error.code, error.status) == ("not-text", 415)
    assert word in error.problem
    assert error.name == "it"


def test_a_picture_among_logs_is_left_out_and_said_so() -> None:
    received = send(PNG, HEALTHY, "", names=("plot.png", "train.log", "rank7.log"))

    assert [s.name for s in received.incident.submissions.all()] == ["train.log"]
    assert [s.name for s in received.skipped] == ["plot.png", "rank7.log"]
    assert "picture" in received.skipped[0].problem
    entry = received.incident.log_book.get()
    assert [s["name"] for s in entry.data["skipped"]] == ["plot.png", "rank7.log"]


def _gzip_of(block: bytes, blocks: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = [compressor.compress(block) for _ in range(blocks)]
    return b"".join([*packed, compressor.flush()])


@pytest.mark.parametrize("block", [bytes(MIB), b"A" * MIB, b"same line\n" * 100_000])
def test_a_gzip_bomb(block: bytes) -> None:
    bomb = _gzip_of(block, 200)

    with bounded(memory_mib=32, seconds=30):
        error = _refusal(bomb)

    assert (error.code, error.status) == ("archive-bomb", 413)
    assert "200 times" in error.problem


def test_a_short_log_may_shrink_as_it_likes() -> None:
    packed = gzip.compress(b"waiting for the lock\n" * 200_000)
    assert len(packed) * 200 < 4_200_000

    assert send(packed).incident.submissions.get().line_count == 200_000


def test_a_broken_archive() -> None:
    error = _refusal(b"\x1f\x8b\x08\x00" + b"no gzip after all" * 10)

    assert (error.code, error.status) == ("broken-archive", 422)


def test_a_text_beyond_the_limit(settings: Any) -> None:
    settings.PITSTOP_MAX_UPLOAD_BYTES = 5 * MIB

    for text in (b"plain line\n" * 600_000, gzip.compress(bytes(range(32, 127)) * 70_000)):
        error = _refusal(text)
        assert error.status == 413
    assert not Submission.objects.exists()


def test_a_log_of_only_progress_bars(work: Callable[[], Any]) -> None:
    bars = "".join(f"\repoch 1: {n}%|{'█' * (n // 5):20}| {n}/100" for n in range(101)) * 50

    with work():
        incident = send(bars).incident

    incident.refresh_from_db()
    assert (incident.state, incident.verdict) == ("diagnosed", "clean")


def test_html_and_script_tags_are_text(
    work: Callable[[], Any], api_as: Callable[..., ApiClient]
) -> None:
    text = "<script>alert('x')</script><b>&amp;\n" + BUS_ERROR

    with work():
        incident = send(text, names=("<img src=x onerror=y>.log",)).incident

    incident.refresh_from_db()
    submission = incident.submissions.get()
    assert read_lines(submission, 1, 1)[0].text == "<script>alert('x')</script><b>&amp;"
    assert incident.verdict == "named"
    answer = api_as("read").get(f"/api/v1/incidents/{incident.reference}/texts/1/lines")
    assert answer["Content-Type"].startswith("application/json")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer.json()["lines"][0]["text"].startswith("<script>")


def test_a_traceback_of_100_000_frames(work: Callable[[], Any]) -> None:
    frame = '  File "/workspace/model.py", line 7, in forward\n    return self.forward(x)\n'
    text = (
        "Traceback (most recent call last):\n"
        + frame * 100_000
        + "RecursionError: maximum recursion depth exceeded\n"
    )

    with bounded(memory_mib=64, seconds=60), work():
        incident = send(text).incident

    incident.refresh_from_db()
    assert incident.state == "diagnosed"
    assert incident.submissions.get().line_count == 200_002
