"""Reproductions through the API: asked for, read, cancelled, refused as problem documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.factories import BUS_ERROR, make_incident, make_worker, send
from tests.triage.conftest import ApiClient
from triage.models import Incident, Reproduction

pytestmark = pytest.mark.django_db

AnyClient = Callable[..., ApiClient]
Work = Callable[[], Any]


@pytest.fixture
def path(work: Work) -> str:
    """The reproductions of an incident that was named."""
    with work():
        incident = send(BUS_ERROR).incident
    return f"/api/v1/incidents/{incident.reference}/reproductions"


def test_a_run_is_asked_for_and_read(
    api_as: AnyClient, path: str, work: Work, sandbox: Any
) -> None:
    make_worker()
    client = api_as("write")
    with work():
        sent = client.send_json({"options": {"shm-mb": 2}}, path)
    assert sent.status_code == 202
    asked = sent.json()
    assert (asked["state"], asked["slug"]) == ("queued", "dataloader-shm-bus-error")
    answer = client.get(f"{path}/{asked['id']}").json()
    assert (answer["state"], answer["same_failure"]) == ("done", True)
    assert answer["options"] == {"shm-mb": 2}
    assert answer["output"] == BUS_ERROR
    assert answer["result"]["diagnoses"][0]["slug"] == answer["named"] == answer["slug"]
    (row,) = client.get(path).json()
    assert (row["id"], row["output"]) == (asked["id"], "")
    book = client.get(path.replace("reproductions", "log-book")).json()
    assert [entry["kind"] for entry in book][-3:] == [
        "reproduction_asked",
        "reproduction_started",
        "reproduction_ended",
    ]


def test_without_a_worker_it_says_what_it_waits_for_and_is_cancelled(
    api_as: AnyClient, path: str
) -> None:
    client = api_as("write")
    asked = client.send_json({}, path).json()
    assert asked["state"] == "waiting"
    assert asked["waits_for"] == "a worker for reproductions: none is running"
    gone = client.delete(f"{path}/{asked['id']}")
    assert (gone.status_code, gone.json()["state"]) == (202, "cancelled")
    again = client.delete(f"{path}/{asked['id']}")
    assert (again.status_code, again.json()["code"]) == (409, "already-ended")


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        ({"options": {"shm-mb": 4096}}, 422, "invalid-option"),
        ({"options": {"shm-mb": "2; rm -rf /"}}, 422, "invalid-request"),
        ({"options": {"epochs": 1}}, 422, "invalid-option"),
        ({"slug": "../../etc"}, 422, "unknown-pitfall"),
        ({"script": "print(1)"}, 422, "invalid-request"),
    ],
)
def test_what_cannot_be_run_is_a_problem(
    api_as: AnyClient, path: str, document: dict[str, Any], status: int, code: str
) -> None:
    response = api_as("write").send_json(document, path)
    assert response["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert (response.status_code, problem["code"]) == (status, code)
    assert problem["detail"]
    assert not Reproduction.objects.exists()


def test_too_many_at_once_are_told_to_come_back(
    api_as: AnyClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triage.services.reproductions.MAX_PENDING", 1)
    client = api_as("write")
    assert client.send_json({}, path).status_code == 202
    refused = client.send_json({"fixed": True}, path)
    assert (refused.status_code, refused["Retry-After"]) == (429, "60")


def test_scopes_and_foreign_runs(api_as: AnyClient, path: str) -> None:
    for scope in ("submit", "read"):
        assert api_as(scope).send_json({}, path).status_code == 403
    asked = api_as("write").send_json({}, path).json()
    other = make_incident()
    foreign = f"/api/v1/incidents/{other.reference}/reproductions/{asked['id']}"
    assert api_as("read").get(foreign).status_code == 404
    assert api_as("write").delete(foreign).status_code == 404
    assert Reproduction.objects.get().state == "waiting"


def test_an_incident_that_no_script_comes_near(api_as: AnyClient) -> None:
    incident: Incident = make_incident()
    path = f"/api/v1/incidents/{incident.reference}/reproductions"
    response = api_as("write").send_json({}, path)
    assert (response.status_code, response.json()["code"]) == (409, "nothing-to-reproduce")


def test_openapi_describes_them(api_as: AnyClient) -> None:
    document = api_as("read").get("/api/v1/openapi.json").json()
    paths = document["paths"]
    assert set(paths["/api/v1/incidents/{reference}/reproductions"]) == {"get", "post"}
    assert set(paths["/api/v1/incidents/{reference}/reproductions/{number}"]) == {"get", "delete"}
