"""What comes in is one incident, stored once, cleaned, and owed a scan from its first moment."""

from __future__ import annotations

import errno
import gzip
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.storage import default_storage
from kombu.exceptions import OperationalError

from tests.factories import BUS_ERROR, HEALTHY, make_token, make_user, send
from triage.models import Incident, LogBookEntry, Submission
from triage.services.intake import IntakeError, JobFacts
from triage.services.texts import TextWriter, open_text

pytestmark = pytest.mark.django_db

SECRET = "hf_" + "abcdefghijklmnopqrstuvwxyz01234567"


def _stored(submission: Submission) -> str:
    with open_text(submission) as stream:
        return stream.read().decode()


def _files_in_storage() -> int:
    found, folders = 0, [""]
    while folders:
        folder = folders.pop()
        if not default_storage.exists(folder):
            continue
        inside, files = default_storage.listdir(folder)
        folders += [f"{folder}/{name}" if folder else name for name in inside]
        found += len(files)
    return found


def test_a_text_becomes_an_incident_that_is_owed_a_scan() -> None:
    ada = make_user()

    received = send(BUS_ERROR, names=("rank3.log",), who=ada)

    incident = received.incident
    submission = incident.submissions.get()
    assert received.created
    assert (incident.state, incident.created_by, incident.title) == ("received", ada, "rank3.log")
    assert (submission.label, submission.name, submission.state) == ("T1", "rank3.log", "stored")
    assert _stored(submission) == BUS_ERROR
    assert submission.sha256 == hashlib.sha256(BUS_ERROR.encode()).hexdigest()
    assert (submission.size_bytes, submission.line_count) == (len(BUS_ERROR), 5)
    assert incident.evidence_revision > incident.diagnosed_revision


def test_the_log_book_tells_what_came() -> None:
    ada = make_user()
    incident = send(BUS_ERROR, f"token {SECRET}", who=ada).incident

    entry = LogBookEntry.objects.get(incident=incident)
    assert (entry.kind, entry.who) == ("received", ada)
    assert entry.data["texts"] == 2
    assert entry.data["secrets"] == {"hugging-face-token": 1}


def test_secrets_never_reach_storage() -> None:
    received = send(f"HF_TOKEN={SECRET}\n{BUS_ERROR}")

    submission = received.incident.submissions.get()
    assert received.secrets_replaced == submission.secrets_replaced == 1
    assert SECRET not in _stored(submission)
    assert BUS_ERROR in _stored(submission)


def test_the_same_paste_twice_is_one_incident() -> None:
    ada = make_user()
    first = send(BUS_ERROR, HEALTHY, who=ada)

    again = send(HEALTHY, BUS_ERROR, who=ada)

    assert not again.created
    assert (again.incident, again.duplicates) == (first.incident, 2)
    assert first.incident.submissions.count() == 2
    assert _files_in_storage() == 2
    assert LogBookEntry.objects.count() == 1


def test_another_persons_same_paste_is_another_incident() -> None:
    first = send(BUS_ERROR, who=make_user())

    assert send(BUS_ERROR, who=make_user()).incident != first.incident
    assert send(BUS_ERROR, token=make_token()[0]).created
    assert send(BUS_ERROR, token=make_token()[0]).created


def test_texts_of_one_job_attempt_join() -> None:
    job = JobFacts(id="4711", attempt=1, scheduler="slurm", gpus=8, more={"name": "llama-ft"})
    first = send(BUS_ERROR, job=job, token=make_token()[0])

    second = send(HEALTHY, job=JobFacts(id="4711", attempt=1), token=make_token()[0])
    repeated = send(BUS_ERROR, job=job)
    other = send(BUS_ERROR, job=JobFacts(id="4711", attempt=2))

    assert second.incident == first.incident
    assert (repeated.incident, repeated.duplicates) == (first.incident, 1)
    assert other.incident != first.incident
    assert [s.label for s in first.incident.submissions.all()] == ["T1", "T2"]
    first.incident.refresh_from_db()
    assert (first.incident.title, first.incident.gpus) == ("llama-ft", 8)


def test_facts_that_come_later_are_added() -> None:
    job_id = JobFacts(id="4711")
    incident = send(BUS_ERROR, job=job_id).incident

    send(HEALTHY, job=JobFacts(id="4711", gpus=64))

    incident.refresh_from_db()
    assert incident.gpus == 64


def test_a_text_can_be_added_to_an_incident() -> None:
    incident = send(BUS_ERROR).incident
    revision = incident.evidence_revision

    received = send(HEALTHY, incident=incident)

    incident.refresh_from_db()
    assert (received.incident, received.created) == (incident, False)
    assert incident.submissions.count() == 2
    assert incident.evidence_revision > revision


def test_gzip_is_unpacked_and_members_may_follow_each_other() -> None:
    packed = gzip.compress(BUS_ERROR.encode()) + gzip.compress(HEALTHY.encode())

    submission = send(packed).incident.submissions.get()

    assert _stored(submission) == BUS_ERROR + HEALTHY


def test_a_gzip_file_cut_short_gives_what_it_holds() -> None:
    packed = gzip.compress(b"".join(b"line %d\n" % n for n in range(100_000)))

    submission = send(packed[: len(packed) // 2]).incident.submissions.get()

    assert _stored(submission).startswith("line 0\nline 1\n")
    assert submission.line_count > 10_000


def test_names_are_made_fit_for_a_line() -> None:
    received = send(BUS_ERROR, names=("a\nb\x00\x1b[31m" + "c" * 500,))

    name = received.incident.submissions.get().name
    assert len(name) == 200
    assert name.isprintable()
    assert name.startswith("a b [31mccc")


def test_a_queue_that_is_away_loses_nothing(
    work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from triage.tasks import scan_submission

    def refuse(*args: Any, **more: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(scan_submission, "apply_async", refuse)
    with work():
        incident = send(BUS_ERROR).incident

    assert incident.submissions.get().state == "stored"
    assert "waits for the sweep" in caplog.text


def test_nothing_is_left_in_storage_when_the_rows_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **more: Any) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("triage.services.log_book.write", fail)
    with pytest.raises(RuntimeError, match="disk is full"):
        send(BUS_ERROR)

    assert Incident.objects.count() == Submission.objects.count() == 0
    assert _files_in_storage() == 0


def test_a_full_disk_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: TextWriter) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TextWriter, "save", fail)
    with pytest.raises(IntakeError, match="no room left") as refused:
        send(BUS_ERROR)

    assert refused.value.status == 507
    assert not Incident.objects.exists()


def test_an_incident_holds_so_many_texts(settings: Any) -> None:
    settings.PITSTOP_MAX_TEXTS = 2
    incident = send(BUS_ERROR, HEALTHY).incident

    with pytest.raises(IntakeError, match="at most 2 texts") as more:
        send("a third\n", incident=incident)
    with pytest.raises(IntakeError, match="at most 2 texts"):
        send("one\n", "two\n", "three\n")

    assert (more.value.status, more.value.code) == (413, "too-many-texts")
    assert incident.submissions.count() == _files_in_storage() == 2
