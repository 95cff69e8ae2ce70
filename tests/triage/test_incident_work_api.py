"""The API's side of working on an incident: change, note, merge, split, judge, undo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.factories import BUS_ERROR, HEALTHY, make_incident, make_user, send
from triage.models import Incident, Membership, Profile, Team
from triage.services.catalog import current_catalog
from triage.services.intake import JobFacts

pytestmark = [pytest.mark.django_db, pytest.mark.services]

AnyClient = Callable[..., Any]
SLUG = "dataloader-shm-bus-error"


def call(client: Any, method: str, path: str, document: Any = None) -> Any:
    """A request with a JSON document."""
    return getattr(client, method)(
        f"/api/v1/incidents/{path}", document, content_type="application/json"
    )


@pytest.fixture
def ada(api_as: AnyClient) -> Any:
    """A client whose token is ada's."""
    return api_as("write", owner=make_user(username="ada"))


def test_a_patch_changes_what_it_names_and_answers_the_incident(ada: Any) -> None:
    incident = make_incident(gpus=8)
    Team.objects.create(name="Vision models", slug="vision")
    response = call(
        ada, "patch", incident.reference,
        {"status": "investigating", "owner": "me", "team": "vision", "severity": "critical",
         "idle_minutes": 90, "remark": "nodes drained"},
    )  # fmt: skip
    assert response.status_code == 200
    said = response.json()
    assert (said["status"], said["owner"], said["team"]) == ("investigating", "ada", "vision")
    assert (said["severity"], said["idle_minutes"], said["gpu_hours_lost"]) == ("critical", 90, 12)
    assert (said["merged_into"], said["reopened_count"], said["resolved_at"]) == (None, 0, None)
    row = incident.log_book.get()
    assert row.who.username == "ada"
    assert row.data["remark"] == "nodes drained"
    assert row.data["token"] == ada.token.name


def test_empty_names_clear_and_null_times_forget(ada: Any) -> None:
    incident = make_incident(owner=ada.token.owner, gpus=8, idle_minutes=5)
    said = call(
        ada, "patch", incident.reference, {"owner": "", "team": None, "idle_minutes": None}
    ).json()
    assert (said["owner"], said["team"], said["idle_minutes"], said["gpu_hours_lost"]) == (
        "", "", None, None,
    )  # fmt: skip
    assert said["job"]["gpus"] == 8


@pytest.mark.parametrize(
    "document",
    [
        {"status": "lost"},
        {"status": None},
        {"owner": "nobody-here"},
        {"team": "no-team"},
        {"gpus": -1},
        {"idle_minutes": 10**9},
        {"colour": "red"},
        {"status": "open", "expected": {"colour": "red"}},
    ],
)
def test_what_makes_no_sense_is_refused_whole(ada: Any, document: dict[str, Any]) -> None:
    incident = make_incident()
    response = call(ada, "patch", incident.reference, {"severity": "high", **document})
    assert response.status_code == 422
    assert response["Content-Type"] == "application/problem+json"
    incident.refresh_from_db()
    assert incident.severity == "normal"


def test_the_second_of_two_hears_what_changed(ada: Any, api_as: AnyClient) -> None:
    incident = make_incident()
    bob = api_as("write", owner=make_user(username="bob"))
    change = {"owner": "me", "expected": {"owner": ""}}
    assert call(ada, "patch", incident.reference, change).status_code == 200
    response = call(bob, "patch", incident.reference, change)
    assert response.status_code == 409
    said = response.json()
    assert said["code"] == "changed-meanwhile"
    assert said["changed"] == [{"field": "owner", "value": "ada", "who": "ada"}]
    assert "ada set the owner to ada" in said["detail"]


def test_a_step_that_is_not_allowed_says_which_are(ada: Any) -> None:
    response = call(ada, "patch", make_incident().reference, {"status": "reopened"})
    assert response.status_code == 422
    assert response.json()["hint"] == ("From open it goes to: investigating, mitigated, resolved.")


def test_notes(ada: Any, api_as: AnyClient) -> None:
    incident = make_incident()
    path = f"{incident.reference}/notes"
    note = call(ada, "post", path, {"text": "shm is 64M"})
    assert note.status_code == 201
    number = note.json()["id"]
    edited = call(ada, "patch", f"{path}/{number}", {"text": "shm is 1G", "expected": "shm is 64M"})
    assert edited.json() == {"id": number, "text": "shm is 1G"}
    assert call(ada, "patch", f"{path}/{number}", {"text": "x", "expected": "y"}).status_code == 409
    bob = api_as("write", owner=make_user())
    assert call(bob, "delete", f"{path}/{number}").status_code == 403
    assert call(ada, "delete", f"{path}/{number}").status_code == 204
    book = ada.get(f"/api/v1/incidents/{incident.reference}/log-book").json()
    assert [row["kind"] for row in book] == ["note", "note_edited", "note_removed"]
    assert book[0]["id"] == number


def test_a_change_is_undone_by_its_row(ada: Any) -> None:
    incident = make_incident()
    call(ada, "patch", incident.reference, {"status": "resolved"})
    row = incident.log_book.get()
    response = call(ada, "post", f"{incident.reference}/log-book/{row.pk}/undo")
    assert response.json()["status"] == "open"
    again = call(ada, "post", f"{incident.reference}/log-book/{row.pk}/undo")
    assert (again.status_code, again.json()["code"]) == (409, "undone-already")


def test_merge_undo_and_split(ada: Any, work: Callable[[], Any]) -> None:
    with work():
        target = send(BUS_ERROR).incident
        source = send(HEALTHY, job=JobFacts(id="7")).incident
    with work():
        merged = call(ada, "post", f"{source.reference}/merge", {"into": target.reference})
    assert (merged.json()["id"], len(merged.json()["texts"])) == (target.reference, 2)
    pointer = ada.get(f"/api/v1/incidents/{source.reference}").json()
    assert (pointer["merged_into"], pointer["texts"]) == (target.reference, [])
    listed = ada.get("/api/v1/incidents").json()["incidents"]
    assert [row["id"] for row in listed] == [target.reference]
    refused = call(ada, "patch", source.reference, {"severity": "high"})
    assert (refused.status_code, refused.json()["code"]) == (409, "merged")
    with work():
        back = call(ada, "delete", f"{source.reference}/merge")
    assert len(back.json()["texts"]) == 1
    with work():
        call(ada, "post", f"{source.reference}/merge", {"into": target.reference})
        new = call(ada, "post", f"{target.reference}/split", {"texts": [3]})
    assert new.status_code == 201
    assert new.json()["texts"][0]["position"] == 1
    refused = call(ada, "post", f"{target.reference}/split", {"texts": [1]})
    assert (refused.status_code, refused.json()["code"]) == (422, "all-texts")


def test_a_sender_still_reads_what_was_merged(
    api_as: AnyClient, ada: Any, work: Callable[[], Any]
) -> None:
    scheduler = api_as("submit")
    with work():
        target = send(HEALTHY).incident
        number = scheduler.send_json({"text": BUS_ERROR}).json()["id"]
    with work():
        call(ada, "post", f"{number}/merge", {"into": target.reference})
    said = scheduler.get(f"/api/v1/incidents/{number}").json()
    assert (said["merged_into"], said["slug"]) == (target.reference, SLUG)


def test_opinions(ada: Any, api_as: AnyClient, work: Callable[[], Any]) -> None:
    with work():
        incident = send(BUS_ERROR).incident
    path = f"{incident.reference}/feedback"
    pitfall = current_catalog().get(SLUG)
    assert pitfall is not None
    fix = pitfall.fixes[0].title
    wrong = call(ada, "put", path, {"good": False, "instead": "cuda-oom-graph-retention"})
    assert (wrong.json()["person"], wrong.json()["instead"]) == ("ada", "cuda-oom-graph-retention")
    assert call(ada, "put", path, {"good": True}).json()["instead"] == ""
    call(ada, "put", path, {"good": True, "fix": fix})
    said = ada.get(f"/api/v1/incidents/{path}").json()
    assert [(o["fix"], o["good"]) for o in said] == [("", True), (fix, True)]
    assert ada.delete(f"/api/v1/incidents/{path}").status_code == 204
    assert ada.delete(f"/api/v1/incidents/{path}").status_code == 404
    nobody = api_as("write")
    assert call(nobody, "put", path, {"good": True}).json()["code"] == "token-without-owner"


def test_a_token_sees_what_its_owner_sees(api_as: AnyClient, ada: Any) -> None:
    team = Team.objects.create(name="Vision", slug="vision")
    Membership.objects.create(team=team, person=make_user(username="mate"))
    theirs = make_incident(team=team)
    everybodys = make_incident()
    assert ada.get(f"/api/v1/incidents/{theirs.reference}").status_code == 404
    assert call(ada, "patch", theirs.reference, {"severity": "low"}).status_code == 404
    assert (
        call(ada, "post", f"{everybodys.reference}/merge", {"into": theirs.reference}).status_code
        == 404
    )
    shown = ada.get("/api/v1/incidents").json()["incidents"]
    assert [row["id"] for row in shown] == [everybodys.reference]
    mate = api_as("read", owner=team.members.get())
    assert mate.get(f"/api/v1/incidents/{theirs.reference}").status_code == 200
    nobodys = api_as("read")
    assert len(nobodys.get("/api/v1/incidents").json()["incidents"]) == 2


def test_a_token_may_no_more_than_its_owner(api_as: AnyClient) -> None:
    viewer = make_user()
    Profile.objects.create(person=viewer, role="viewer")
    client = api_as("write", owner=viewer)
    incident = make_incident()
    assert client.get(f"/api/v1/incidents/{incident.reference}").status_code == 200
    response = call(client, "patch", incident.reference, {"severity": "high"})
    assert (response.status_code, response.json()["code"]) == (403, "owner-may-not")
    reader = api_as("read", owner=make_user())
    assert call(reader, "patch", incident.reference, {}).json()["code"] == "scope-too-small"


def test_the_list_is_filtered_by_what_people_do(ada: Any) -> None:
    mine = make_incident(owner=ada.token.owner, status="investigating", severity="high")
    make_incident()
    for query in ("owner=ada", "status=investigating", "severity=high"):
        rows = ada.get(f"/api/v1/incidents?{query}").json()["incidents"]
        assert [row["id"] for row in rows] == [mine.reference]
    assert Incident.objects.count() == 2
