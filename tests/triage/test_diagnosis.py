"""From text to verdict: done once, by the holder of the lease, and said when it cannot be done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.db.models import F
from django.utils import timezone

from tests.factories import BUS_ERROR, HEALTHY, make_submission, send
from triage.engine import Evidence
from triage.models import Diagnosis, Incident, LogBookEntry, Submission
from triage.services import diagnosis, incidents
from triage.services.diagnosis import diagnose_incident, scan_submission
from triage.services.sweep import sweep

pytestmark = pytest.mark.django_db


def _expire_leases() -> None:
    past = timezone.now() - timedelta(seconds=1)
    Submission.objects.exclude(lease_until=None).update(lease_until=past)
    Incident.objects.exclude(lease_until=None).update(lease_until=past)


def _kinds(incident: Incident) -> list[str]:
    return list(incident.log_book.values_list("kind", flat=True))


def _raise(error: BaseException) -> Callable[..., Any]:
    def fail(*args: Any, **more: Any) -> Any:
        raise error

    return fail


def test_a_paste_is_diagnosed(work: Callable[[], Any]) -> None:
    with work():
        incident = send(HEALTHY, BUS_ERROR).incident

    incident.refresh_from_db()
    assert (incident.state, incident.verdict) == ("diagnosed", "named")
    assert incident.diagnosed_revision == incident.evidence_revision
    assert incident.diagnosed_at is not None
    found = incident.current_diagnosis.findings.first()
    assert (found.slug, found.role, found.rank) == ("dataloader-shm-bus-error", "root", 3)
    line = found.evidence[0]
    assert (line["text_index"], line["line"]) == (1, 5)
    assert incident.current_diagnosis.texts == [1, 2]
    assert incident.current_diagnosis.sentence
    assert _kinds(incident) == ["received", "scanned", "scanned", "diagnosed"]
    last = incident.log_book.last()
    assert last.data["slug"] == "dataloader-shm-bus-error"
    submission = incident.submissions.first()
    assert (submission.state, submission.lease_owner) == ("scanned", "")
    assert submission.bytes_scanned == submission.size_bytes


def test_a_healthy_log_is_clean(work: Callable[[], Any]) -> None:
    with work():
        incident = send(HEALTHY).incident

    incident.refresh_from_db()
    assert (incident.state, incident.verdict) == ("diagnosed", "clean")
    assert not incident.current_diagnosis.findings.exists()


def test_a_text_that_comes_later_is_diagnosed_with_the_others(work: Callable[[], Any]) -> None:
    with work():
        incident = send(HEALTHY).incident
    with work():
        send(BUS_ERROR, incident=incident)

    incident.refresh_from_db()
    assert incident.verdict == "named"
    assert incident.diagnoses.count() == 2
    assert incident.current_diagnosis.texts == [1, 2]


def test_each_step_happens_once_however_often_it_is_queued() -> None:
    incident = send(BUS_ERROR).incident
    pk = incident.submissions.get().pk

    assert [scan_submission(pk) for _ in range(3)] == [True, False, False]
    assert [diagnose_incident(incident.pk) for _ in range(3)] == [True, False, False]
    assert Diagnosis.objects.count() == 1
    assert _kinds(incident) == ["received", "scanned", "diagnosed"]
    assert not scan_submission(pk + 1_000)
    assert not diagnose_incident(incident.pk + 1_000)


def test_a_text_in_other_hands_is_left_alone() -> None:
    soon = timezone.now() + timedelta(seconds=5)
    submission = make_submission(state="scanning", lease_owner="another", lease_until=soon)

    assert not scan_submission(submission.pk)
    assert sweep().scans == 0


def test_the_work_of_a_killed_worker_is_done_once(work: Callable[[], Any]) -> None:
    soon = timezone.now() + timedelta(seconds=5)
    submission = make_submission(
        state="scanning", lease_owner="killed", lease_until=soon, scan_attempts=1
    )
    _expire_leases()

    with work():
        assert sweep().scans == 1

    submission.refresh_from_db()
    assert (submission.state, submission.scan_attempts) == ("scanned", 2)
    assert submission.incident.diagnoses.count() == 1


def test_a_worker_that_comes_back_late_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = send(BUS_ERROR).incident
    pk = incident.submissions.get().pk
    real = diagnosis.scan

    def slow(*args: Any, **more: Any) -> Evidence:
        found = real(*args, **more)
        monkeypatch.setattr(diagnosis, "scan", real)
        _expire_leases()
        assert scan_submission(pk)
        return found

    monkeypatch.setattr(diagnosis, "scan", slow)

    assert not scan_submission(pk)
    assert _kinds(incident).count("scanned") == 1
    assert Submission.objects.get(pk=pk).state == "scanned"


def test_progress_renews_the_lease_and_stops_where_it_is_lost(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.PITSTOP_LEASE_S = 0
    submission = make_submission()
    seen: list[int] = []

    def scan(*args: Any, progress: Callable[[int, int], None], **more: Any) -> Evidence:
        Submission.objects.update(lease_until=None)
        progress(10, 1)
        row = Submission.objects.get()
        seen.append(row.bytes_scanned)
        assert row.lease_until is not None
        Submission.objects.update(lease_owner="another")
        progress(20, 2)
        raise AssertionError("the scan went on without its lease")

    monkeypatch.setattr(diagnosis, "scan", scan)

    assert not scan_submission(submission.pk)
    assert seen == [10]
    assert Submission.objects.get().bytes_scanned == 10


def test_a_diagnosis_in_other_hands_is_not_stored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = send(BUS_ERROR).incident
    scan_submission(incident.submissions.get().pk)
    real = diagnosis.diagnose

    def slow(*args: Any) -> Any:
        verdict = real(*args)
        monkeypatch.setattr(diagnosis, "diagnose", real)
        _expire_leases()
        assert diagnose_incident(incident.pk)
        return verdict

    monkeypatch.setattr(diagnosis, "diagnose", slow)

    assert not diagnose_incident(incident.pk)
    assert Diagnosis.objects.count() == 1
    assert _kinds(incident).count("diagnosed") == 1


def test_evidence_that_comes_during_a_diagnosis_is_owed_another(
    work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = send(HEALTHY).incident
    scan_submission(incident.submissions.get().pk)
    real = diagnosis.diagnose

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(diagnosis, "diagnose", real)
        send(BUS_ERROR, incident=incident)
        return real(*args)

    monkeypatch.setattr(diagnosis, "diagnose", meanwhile)
    with work():
        diagnose_incident(incident.pk)

    incident.refresh_from_db()
    assert (incident.state, incident.verdict) == ("diagnosed", "named")
    assert incident.diagnoses.count() == 2


def test_a_scan_that_fails_three_times_says_so(
    work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = send(BUS_ERROR).incident
    pk = incident.submissions.get().pk
    monkeypatch.setattr(diagnosis, "scan", _raise(OSError("the disk is gone")))

    for attempt in range(1, 4):
        assert not scan_submission(pk)
        row = Submission.objects.get(pk=pk)
        assert row.scan_attempts == attempt
        assert not scan_submission(pk), "the next attempt waits for the lease to end"
        _expire_leases()

    assert row.state == "failed"
    assert row.error == "Reading failed 3 times: OSError: the disk is gone"
    with work():
        sweep()
    incident.refresh_from_db()
    assert incident.state == "failed"
    assert "T1: Reading failed 3 times" in incident.error
    assert sweep().scans == sweep().diagnoses == 0


def test_a_text_that_kills_its_worker_is_given_up() -> None:
    past = timezone.now() - timedelta(seconds=1)
    submission = make_submission(state="scanning", lease_until=past, scan_attempts=3)

    assert not scan_submission(submission.pk)

    submission.refresh_from_db()
    assert submission.state == "failed"
    assert "cut off 3 times" in submission.error


def test_a_text_that_is_gone_from_storage_says_so() -> None:
    submission = make_submission(stored_at="2026/01/01/gone.log.gz")

    assert not scan_submission(submission.pk)

    submission.refresh_from_db()
    assert (submission.state, submission.scan_attempts) == ("failed", 1)
    assert submission.error == "The stored text is no longer there. Send it again."


def test_a_scan_beyond_its_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    submission = make_submission()
    monkeypatch.setattr(diagnosis, "scan", _raise(SoftTimeLimitExceeded()))

    scan_submission(submission.pk)

    submission.refresh_from_db()
    assert submission.state == "failed"
    assert "longer than 600 s" in submission.error


def test_one_failed_text_does_not_keep_the_others_from_an_answer(
    work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = send(HEALTHY, BUS_ERROR).incident
    Submission.objects.filter(position=1).update(state="failed", error="unreadable")

    with work():
        scan_submission(incident.submissions.get(position=2).pk)

    incident.refresh_from_db()
    assert incident.verdict == "named"
    assert incident.current_diagnosis.texts == [2]


def test_a_diagnosis_that_fails_three_times_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = send(BUS_ERROR).incident
    scan_submission(incident.submissions.get().pk)
    monkeypatch.setattr(diagnosis, "diagnose", _raise(RuntimeError("no idea")))

    for _ in range(3):
        assert not diagnose_incident(incident.pk)
        _expire_leases()

    incident.refresh_from_db()
    assert (incident.state, incident.error) == ("failed", "RuntimeError: no idea")
    assert sweep().diagnoses == 0


@pytest.mark.parametrize("attempts", [0, 3])
def test_a_diagnosis_beyond_its_time_or_cut_off_says_so(
    attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = send(BUS_ERROR).incident
    scan_submission(incident.submissions.get().pk)
    Incident.objects.update(diagnosis_attempts=attempts)
    monkeypatch.setattr(diagnosis, "diagnose", _raise(SoftTimeLimitExceeded()))

    assert not diagnose_incident(incident.pk)

    incident.refresh_from_db()
    assert incident.state == "failed"
    assert ("longer than 60 s" in incident.error) == (attempts == 0)
    assert ("cut off 3 times" in incident.error) == (attempts == 3)


def test_a_new_text_gives_a_failed_incident_another_chance(work: Callable[[], Any]) -> None:
    incident = send(HEALTHY).incident
    Submission.objects.update(state="failed", error="unreadable")
    Incident.objects.update(state="failed", diagnosed_revision=F("evidence_revision"))

    with work():
        send(BUS_ERROR, incident=incident)

    incident.refresh_from_db()
    assert (incident.state, incident.verdict, incident.error) == ("diagnosed", "named", "")


def test_a_scan_of_a_destroyed_text_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    incident = send(BUS_ERROR).incident
    pk = incident.submissions.get().pk
    real = diagnosis.scan

    def meanwhile(*args: Any, **more: Any) -> Evidence:
        incidents.destroy_texts(incident)
        return real(*args, **more)

    monkeypatch.setattr(diagnosis, "scan", meanwhile)

    assert not scan_submission(pk)
    row = Submission.objects.get(pk=pk)
    assert (row.state, row.evidence) == ("destroyed", None)


def test_the_sweep_queues_what_a_flushed_queue_forgot(work: Callable[[], Any]) -> None:
    incident = send(BUS_ERROR).incident
    other = send(HEALTHY).incident
    scan_submission(other.submissions.get().pk)

    with work():
        swept = sweep()

    assert (swept.scans, swept.diagnoses) == (1, 1)
    assert set(Incident.objects.values_list("state", flat=True)) == {"diagnosed"}
    assert incident.diagnoses.count() == other.diagnoses.count() == 1
    assert LogBookEntry.objects.filter(kind="diagnosed").count() == 2
    assert sweep().scans == sweep().diagnoses == 0


def test_numbers_that_json_lacks_are_stored(work: Callable[[], Any]) -> None:
    steps = "".join(
        f"step {n} loss {value} grad_norm {value} lr 1e-4\n"
        for n, value in enumerate(["2.31", "2.2", *["nan"] * 30, *["inf"] * 30, *["-inf"] * 30])
    )

    with work():
        incident = send(steps).incident

    incident.refresh_from_db()
    assert incident.submissions.get().state == "scanned"
    assert incident.state == "diagnosed"
