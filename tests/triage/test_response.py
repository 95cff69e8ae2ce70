"""What people do about an incident: status, owner, notes; two of them at once; and undo."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.factories import BUS_ERROR, HEALTHY, make_incident, make_user, send
from triage.models import Incident, LogBookEntry, Team
from triage.services import log_book, response
from triage.services.intake import JobFacts
from triage.services.response import ChangeError, ConflictError

pytestmark = [pytest.mark.django_db, pytest.mark.services]


def rows(incident: Incident, kind: str = "changed") -> list[LogBookEntry]:
    return list(incident.log_book.filter(kind=kind).order_by("pk"))


def test_a_change_is_one_row_that_says_from_what_to_what() -> None:
    ada, incident = make_user(username="ada"), make_incident(gpus=8)
    team = Team.objects.create(name="Vision", slug="vision")
    response.change(
        incident, {"severity": "high", "team": team, "idle_minutes": 90, "gpus": 8}, who=ada
    )
    incident.refresh_from_db()
    assert (incident.severity, incident.team, incident.idle_minutes) == ("high", team, 90)
    (row,) = rows(incident)
    assert row.who == ada
    assert row.data["changes"] == {
        "severity": ["normal", "high"], "team": ["", "Vision"], "idle_minutes": [None, 90]
    }  # fmt: skip
    assert response.change(incident, {"severity": "high"}, who=ada) is None
    assert len(rows(incident)) == 1


@pytest.mark.parametrize("before", list(response.NEXT))
@pytest.mark.parametrize("after", Incident.Status.values)
def test_a_status_goes_only_where_it_may(before: str, after: str) -> None:
    incident = make_incident(status=before)
    if after == before:
        assert response.change(incident, {"status": after}, who=None) is None
    elif after in response.NEXT[before]:
        response.change(incident, {"status": after}, who=None)
        assert incident.status == after
        assert (incident.resolved_at is not None) == (after == "resolved")
    else:
        with pytest.raises(ChangeError, match=f"is {before}; it cannot become {after}"):
            response.change(incident, {"status": after}, who=None)
        incident.refresh_from_db()
        assert incident.status == before


def test_of_two_who_take_it_the_second_hears_of_the_first() -> None:
    ada, bob, incident = make_user(username="ada"), make_user(username="bob"), make_incident()
    of_bob = Incident.objects.get(pk=incident.pk)
    response.take(incident, ada, expected={"owner": ""})
    with pytest.raises(ConflictError, match="ada set the owner to ada") as error:
        response.take(of_bob, bob, expected={"owner": ""})
    assert [(m.field, m.value, m.who) for m in error.value.changed] == [("owner", "ada", "ada")]
    incident.refresh_from_db()
    assert (incident.owner, incident.status) == (ada, "investigating")
    assert len(rows(incident)) == 1


def test_two_who_change_different_things_lose_nothing() -> None:
    incident = make_incident()
    of_another = Incident.objects.get(pk=incident.pk)
    response.change(incident, {"severity": "high"}, who=None, expected={"severity": "normal"})
    response.change(of_another, {"gpus": 64}, who=None, expected={"gpus": None})
    incident.refresh_from_db()
    assert (incident.severity, incident.gpus) == ("high", 64)


def test_two_who_want_the_same_do_not_quarrel() -> None:
    incident = make_incident()
    for _ in range(2):
        response.change(incident, {"status": "resolved"}, who=None, expected={"status": "open"})
    assert len(rows(incident)) == 1


def test_undo_goes_back_to_what_was_and_only_once() -> None:
    ada, incident = make_user(username="ada"), make_incident()
    response.take(incident, ada)
    response.change(incident, {"status": "resolved"}, who=ada)
    resolved_at = incident.resolved_at
    response.change(incident, {"status": "reopened"}, who=ada)
    assert incident.reopened_count == 1
    reopening = rows(incident)[-1]
    response.undo(reopening, ada)
    incident.refresh_from_db()
    assert (incident.status, incident.resolved_at, incident.reopened_count) == (
        "resolved", resolved_at, 0,
    )  # fmt: skip
    with pytest.raises(ChangeError, match="undone already"):
        response.undo(reopening, ada)
    with pytest.raises(ConflictError, match="set the status to resolved"):
        response.undo(rows(incident)[0], ada)
    response.undo(rows(incident)[1], ada)
    response.undo(rows(incident)[0], ada)
    incident.refresh_from_db()
    assert (incident.status, incident.owner, incident.resolved_at) == ("open", None, None)


def test_an_undo_can_be_undone() -> None:
    incident, ada = make_incident(), make_user()
    first = response.change(incident, {"status": "resolved"}, who=ada)
    assert first is not None
    response.undo(response.undo(first, ada), ada)
    incident.refresh_from_db()
    assert incident.status == "resolved"
    assert incident.resolved_at is not None


def test_a_job_attempt_is_of_one_incident() -> None:
    taken = make_incident(job_id="4711", attempt=2)
    incident = make_incident()
    with pytest.raises(ChangeError, match=f"{taken.reference} is attempt 2 of job 4711") as error:
        response.change(incident, {"job_id": "4711", "attempt": 2}, who=None)
    assert "merge" in error.value.hint
    incident.refresh_from_db()
    assert incident.job_id == ""
    assert not rows(incident)


def test_a_resolved_job_reopens_when_a_new_text_fails(work: Callable[[], Any]) -> None:
    job = JobFacts(id="4711")
    with work():
        incident = send(BUS_ERROR, job=job).incident
    response.change(incident, {"status": "resolved"}, who=None)
    with work():
        send(HEALTHY, job=job, names=("after.log",))
    incident.refresh_from_db()
    assert incident.status == "resolved", "a healthy text is no new failure"
    with work():
        send(BUS_ERROR.replace("rank3", "rank5"), job=job)
    incident.refresh_from_db()
    assert (incident.status, incident.resolved_at, incident.reopened_count) == ("reopened", None, 1)
    row = rows(incident)[-1]
    assert (row.who, row.data["texts"]) == (None, [2, 3])
    assert [r.kind for r in incident.log_book.all()][-2:] == ["diagnosed", "changed"]


def test_an_incident_without_a_job_stays_resolved(work: Callable[[], Any]) -> None:
    with work():
        incident = send(BUS_ERROR).incident
    response.change(incident, {"status": "resolved"}, who=None)
    with work():
        send(BUS_ERROR.replace("rank3", "rank5"), incident=incident)
    incident.refresh_from_db()
    assert incident.status == "resolved"


def test_a_text_that_came_before_the_resolution_does_not_reopen(work: Callable[[], Any]) -> None:
    with work():
        incident = send(BUS_ERROR, job=JobFacts(id="4711")).incident
        response.change(incident, {"status": "resolved"}, who=None)
        later = timezone.now() + timedelta(hours=1)
        Incident.objects.filter(pk=incident.pk).update(resolved_at=later)
    incident.refresh_from_db()
    assert (incident.state, incident.status) == ("diagnosed", "resolved")


def test_notes_are_edited_removed_and_restored_and_nothing_is_lost() -> None:
    ada, bob, incident = make_user(username="ada"), make_user(username="bob"), make_incident()
    note = response.add_note(incident, "  shm was 64M\r\non node-02 ", who=ada)
    assert note.data == {"text": "shm was 64M\non node-02"}
    response.edit_note(note, "shm was 1G", who=ada, expected="shm was 64M\non node-02")
    with pytest.raises(ConflictError):
        response.edit_note(note, "shm was 2G", who=ada, expected="shm was 64M\non node-02")
    with pytest.raises(ChangeError, match="Only who wrote"):
        response.edit_note(note, "mine", who=bob)
    response.remove_note(note, who=ada)
    assert response.note_text(note) == ""
    response.restore_note(note, who=ada)
    assert response.note_text(note) == "shm was 1G"
    assert [row.kind for row in incident.log_book.order_by("pk")] == [
        "note", "note_edited", "note_removed", "note_edited",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", " \n\0", "x" * (response.MAX_NOTE_CHARACTERS + 1)])
def test_a_note_says_something_and_is_no_log(text: str) -> None:
    incident = make_incident()
    with pytest.raises(ChangeError):
        response.add_note(incident, text, who=None)
    assert not incident.log_book.exists()


def test_a_secret_in_a_note_is_replaced() -> None:
    key = "AKIA" + "IOSFODNN7REALKEY"
    note = response.add_note(make_incident(), f"use {key} for now", who=None)
    assert key not in note.data["text"]
    assert note.data["text"].startswith("use ")


def test_what_a_name_loses_is_no_conflict() -> None:
    incident = make_incident(title="a")
    response.change(incident, {"title": " b\n c "}, who=None, expected={"title": "a"})
    assert incident.title == "b c"
    assert rows(incident)[0].kind == log_book.CHANGED
