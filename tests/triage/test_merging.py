"""Two incidents that are one, one that is two, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from tests.factories import BUS_ERROR, HEALTHY, make_incident, make_submission, make_user, send
from triage.models import Diagnosis, Finding, Incident, Submission, TimeEntry
from triage.services import diagnosis, incidents, merging, response
from triage.services.intake import JobFacts
from triage.services.response import ChangeError
from triage.services.sweep import sweep

pytestmark = [pytest.mark.django_db, pytest.mark.services]

Work = Callable[[], Any]
OTHER = BUS_ERROR.replace("rank3", "rank5")
OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total "
    "capacity; 9.58 GiB already allocated; 12.31 MiB free; 9.62 GiB reserved in total by PyTorch)\n"
)


def texts(incident: Incident) -> list[tuple[int, str]]:
    return list(incident.submissions.values_list("position", "name"))


@pytest.fixture
def pair(work: Work) -> tuple[Incident, Incident]:
    with work():
        first = send(BUS_ERROR, names=("a.log",)).incident
        second = send(HEALTHY, OTHER, names=("b.log", "c.log"), job=JobFacts(id="7")).incident
    return first, second


def fresh(*incidents: Incident) -> None:
    for incident in incidents:
        incident.refresh_from_db()


def test_texts_move_and_the_target_is_read_again(pair: Any, work: Work) -> None:
    target, source = pair
    ada = make_user()
    entry = TimeEntry.objects.create(
        incident=source, person=ada, source="hand", started_at=timezone.now(),
        ended_at=timezone.now(), minutes=30,
    )  # fmt: skip
    with work():
        row = merging.merge(source, target, who=ada)
    fresh(target, source, entry)
    assert texts(target) == [(1, "a.log"), (2, "b.log"), (3, "c.log")]
    assert texts(source) == []
    assert (source.merged_into, source.state) == (target, "diagnosed")
    assert target.current_diagnosis.texts == [1, 2, 3]
    assert entry.incident == target
    assert (row.incident, row.kind, row.data["from"]) == (target, "merged_in", source.reference)
    assert source.log_book.last().kind == "merged"
    moved = merging.moved_to(source, 2)
    assert moved == (target, 3)
    assert merging.moved_to(target, 1) is None
    assert sweep().diagnoses == 0


def test_a_merge_can_be_undone(pair: Any, work: Work) -> None:
    target, source = pair
    entry = TimeEntry.objects.create(
        incident=source, person=make_user(), source="hand", started_at=timezone.now(),
        ended_at=timezone.now(), minutes=30,
    )  # fmt: skip
    before = texts(target), texts(source)
    with work():
        merging.merge(source, target, who=None)
    fresh(source)
    with work():
        merging.unmerge(source, who=None)
    fresh(target, source, entry)
    assert (texts(target), texts(source)) == before
    assert (source.merged_into, source.verdict, source.state) == (None, "named", "diagnosed")
    assert target.current_diagnosis.texts == [1]
    assert entry.incident == source
    with pytest.raises(ChangeError, match="not merged"):
        merging.unmerge(source, who=None)


def test_a_later_merge_is_undone_first(pair: Any) -> None:
    middle, first = pair
    last = send(OOM).incident
    merging.merge(first, middle, who=None)
    merging.merge(middle, last, who=None)
    fresh(first, middle)
    with pytest.raises(ChangeError, match=f"merged into {last.reference} since"):
        merging.unmerge(first, who=None)
    assert response.follow(first) == last
    assert merging.moved_to(first, 1)[0] == last
    merging.unmerge(middle, who=None)
    fresh(first)
    merging.unmerge(first, who=None)
    assert texts(first) == [(1, "b.log"), (2, "c.log")]


def test_what_cannot_be_merged(pair: Any) -> None:
    target, source = pair
    with pytest.raises(ChangeError, match="into itself"):
        merging.merge(target, target, who=None)
    merging.merge(source, target, who=None)
    with pytest.raises(ChangeError, match="was merged into"):
        merging.merge(source, make_incident(), who=None)
    with pytest.raises(ChangeError, match="was merged into"):
        merging.merge(make_incident(), source, who=None)
    with pytest.raises(ChangeError, match="was merged into"):
        response.change(source, {"severity": "high"}, who=None)


def test_the_same_text_in_both_is_kept_once(work: Work) -> None:
    with work():
        target = send(BUS_ERROR, job=JobFacts(id="1")).incident
        source = send(BUS_ERROR, HEALTHY, job=JobFacts(id="2")).incident
        row = merging.merge(source, target, who=None)
    assert [position for position, _ in texts(target)] == [1, 2]
    assert [position for position, _ in texts(source)] == [1]
    assert row.data["duplicates"] == 1


def test_further_texts_of_a_merged_job_join_the_target(pair: Any, work: Work) -> None:
    target, source = pair
    with work():
        merging.merge(source, target, who=None)
        received = send(OOM, job=JobFacts(id="7"), names=("late.log",))
    assert received.incident == target
    assert texts(target)[-1] == (4, "late.log")


def test_a_text_that_is_being_read_counts_for_its_new_incident(
    monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    text = make_submission(BUS_ERROR)
    source, target = text.incident, make_incident()
    scan = diagnosis.scan

    def merge_meanwhile(*args: Any, **more: Any) -> Any:
        merging.merge(source, target, who=None)
        return scan(*args, **more)

    monkeypatch.setattr(diagnosis, "scan", merge_meanwhile)
    with work():
        assert diagnosis.scan_submission(text.pk)
    fresh(source, target)
    assert (target.state, target.slug) == ("diagnosed", "dataloader-shm-bus-error")
    assert source.state == "failed"
    assert target.log_book.filter(kind="scanned").count() == 1
    assert sweep().diagnoses == 0


def test_a_diagnosis_at_work_is_dropped_by_a_merge(
    monkeypatch: pytest.MonkeyPatch, pair: Any, work: Work
) -> None:
    target, source = pair
    Incident.objects.filter(pk=target.pk).update(evidence_revision=9, state="diagnosing")
    diagnose = diagnosis.diagnose

    def merge_meanwhile(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(diagnosis, "diagnose", diagnose)
        merging.merge(source, target, who=None)
        return diagnose(*args, **more)

    monkeypatch.setattr(diagnosis, "diagnose", merge_meanwhile)
    with work():
        assert not diagnosis.diagnose_incident(target.pk)
    fresh(target)
    assert target.current_diagnosis.texts == [1, 2, 3]


def test_a_destroyed_text_is_quoted_by_no_former_incident(work: Work) -> None:
    with work():
        first = send(OOM, names=("a.log",)).incident
        second = send(BUS_ERROR, names=("b.log",)).incident
    with work():
        merging.merge(second, first, who=None)
    with work():
        third = merging.split(first, [2], who=None)
    assert Diagnosis.objects.filter(incident=second).exists()
    assert "Bus error" in str(list(Finding.objects.values_list("evidence", flat=True)))
    with work():
        incidents.destroy_texts(third)
    assert "Bus error" not in str(list(Finding.objects.values_list("evidence", flat=True)))
    fresh(first, second)
    assert (second.state, second.current_diagnosis, second.slug) == ("destroyed", None, "")
    assert (first.state, first.verdict) == ("diagnosed", "named")
    assert first.current_diagnosis.texts == [1]


def test_a_resolved_target_reopens_for_the_job_that_was_merged_into_it(work: Work) -> None:
    with work():
        target = send(HEALTHY).incident
        source = send(OOM, job=JobFacts(id="7")).incident
    with work():
        merging.merge(source, target, who=None)
    response.change(target, {"status": "resolved"}, who=None)
    with work():
        send(BUS_ERROR, job=JobFacts(id="7"))
    fresh(target)
    assert target.status == "reopened"


def test_a_merge_reopens_nothing_by_itself(work: Work) -> None:
    with work():
        target = send(HEALTHY, job=JobFacts(id="1")).incident
    response.change(target, {"status": "resolved"}, who=None)
    with work():
        source = send(BUS_ERROR).incident
        merging.merge(source, target, who=None)
    fresh(target)
    assert (target.verdict, target.status) == ("named", "resolved")


def test_split_takes_texts_to_an_incident_of_their_own(work: Work) -> None:
    ada = make_user()
    with work():
        incident = send(
            BUS_ERROR, OOM, HEALTHY, names=("a.log", "b.log", "c.log"), who=ada,
            job=JobFacts(id="7", gpus=8),
        ).incident  # fmt: skip
    with work():
        new = merging.split(incident, [2, 3], who=ada)
    fresh(incident, new)
    assert texts(incident) == [(1, "a.log")]
    assert texts(new) == [(1, "b.log"), (2, "c.log")]
    assert (incident.slug, new.verdict) == ("dataloader-shm-bus-error", "named")
    assert new.slug != incident.slug
    assert (new.job_id, new.gpus, new.created_by, new.title) == ("", 8, ada, "b.log")
    first_text = Submission.objects.order_by("pk").first()
    assert first_text is not None
    assert new.created_at >= first_text.created_at
    assert merging.moved_to(incident, 3) == (new, 2)
    assert incident.log_book.last().kind in ("split", "diagnosed")
    # And back.
    with work():
        merging.merge(new, incident, who=ada)
    fresh(incident)
    assert incident.current_diagnosis.texts == [1, 4, 5]


def test_a_split_takes_some_and_leaves_some(work: Work) -> None:
    with work():
        incident = send(BUS_ERROR, HEALTHY).incident
    with pytest.raises(ChangeError, match="No text was chosen"):
        merging.split(incident, [9], who=None)
    with pytest.raises(ChangeError, match="at least one stays"):
        merging.split(incident, [1, 2], who=None)
    assert Incident.objects.count() == 1
