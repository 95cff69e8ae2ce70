"""The API: texts in three forms, the answer while it comes, scopes, and problems with a hint."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.factories import BUS_ERROR, HEALTHY, make_incident, make_user, send
from tests.triage.conftest import ApiClient
from triage.models import Incident
from triage.services.intake import JobFacts

pytestmark = pytest.mark.django_db

INCIDENTS = "/api/v1/incidents"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4

AnyClient = Callable[..., ApiClient]


def _problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["code"] == code
    assert document["type"] == f"urn:pitstop:problem:{code}"
    assert document["title"]
    assert document["detail"]
    return document


def test_json_in_answer_out(api_as: AnyClient, work: Callable[[], Any]) -> None:
    client = api_as("submit")
    with work():
        sent = client.send_json(
            {
                "text": BUS_ERROR,
                "name": "rank3.log",
                "job": {"id": 4711, "attempt": 2, "scheduler": "slurm", "gpus": 8, "user": "ada"},
            }
        )

    assert sent.status_code == 202
    body = sent.json()
    incident = Incident.objects.get()
    assert body["id"] == incident.reference
    assert body["url"].endswith(incident.get_absolute_url())
    assert (body["created"], body["duplicates"], body["skipped"]) == (True, 0, [])

    answer = client.get(f"{INCIDENTS}/{body['id']}?wait=20").json()
    assert (answer["id"], answer["state"], answer["verdict"]) == (body["id"], "diagnosed", "named")
    first = answer["diagnoses"][0]
    assert (first["slug"], first["role"], first["rank"]) == ("dataloader-shm-bus-error", "root", 3)
    assert first["evidence"][0]["line"] == 5
    assert first["evidence"][0]["url"] == f"{body['url']}#T1-L5"
    assert answer["advice"] == first["advice"] == "do-not-retry"
    assert answer["job"] == {
        "id": "4711", "attempt": 2, "scheduler": "slurm", "gpus": 8, "user": "ada",
    }  # fmt: skip
    assert answer["texts"][0]["lines"] == 5
    assert answer["next"]


def test_several_texts_in_one_document(api_as: AnyClient) -> None:
    sent = api_as().send_json(
        {"texts": [{"text": BUS_ERROR, "name": "a"}, {"text": HEALTHY, "name": "b"}]}
    )

    assert sent.status_code == 202
    assert [s.name for s in Incident.objects.get().submissions.all()] == ["a", "b"]


def test_gzipped_json(api_as: AnyClient) -> None:
    body = gzip.compress(json.dumps({"text": BUS_ERROR}).encode())
    sent = api_as().post(
        INCIDENTS, body, content_type="application/json", headers={"Content-Encoding": "gzip"}
    )

    assert sent.status_code == 202


def test_files(api_as: AnyClient) -> None:
    sent = api_as().post(
        INCIDENTS,
        {
            "file": [
                SimpleUploadedFile("rank0.log", HEALTHY.encode()),
                SimpleUploadedFile("rank3.log.gz", gzip.compress(BUS_ERROR.encode())),
                SimpleUploadedFile("loss.png", PNG),
            ],
            "text": "pasted as well\n",
            "job": json.dumps({"id": "9", "gpus": 4, "queue": "long"}),
            "job_attempt": "3",
        },
    )

    assert sent.status_code == 202
    assert [s["name"] for s in sent.json()["skipped"]] == ["loss.png"]
    incident = Incident.objects.get(job_id="9", attempt=3)
    assert (incident.gpus, incident.job) == (4, {"queue": "long"})
    assert [s.name for s in incident.submissions.all()] == ["rank0.log", "rank3.log.gz", ""]


@pytest.mark.parametrize("body", [BUS_ERROR.encode(), gzip.compress(BUS_ERROR.encode())])
@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream"])
def test_a_raw_body(body: bytes, content_type: str, api_as: AnyClient) -> None:
    sent = api_as().post(
        f"{INCIDENTS}?name=rank3.log&job_id=7&job_attempt=1", body, content_type=content_type
    )

    assert sent.status_code == 202
    submission = Incident.objects.get(job_id="7", attempt=1).submissions.get()
    assert (submission.name, submission.line_count) == ("rank3.log", 5)


def test_the_same_text_twice(api_as: AnyClient) -> None:
    client = api_as()
    first = client.send_json({"text": BUS_ERROR}).json()
    second = client.send_json({"text": BUS_ERROR}).json()

    assert second["id"] == first["id"]
    assert (second["created"], second["duplicates"]) == (False, 1)


def test_texts_are_added(api_as: AnyClient, work: Callable[[], Any]) -> None:
    client = api_as()
    with work():
        reference = client.send_json({"text": HEALTHY}).json()["id"]
    with work():
        added = client.send_json({"text": BUS_ERROR}, path=f"{INCIDENTS}/{reference}/texts")

    assert added.json()["id"] == reference
    answer = client.get(f"{INCIDENTS}/{reference}").json()
    assert (answer["verdict"], len(answer["texts"])) == ("named", 2)
    assert answer["diagnoses"][0]["evidence"][0]["url"].endswith("#T2-L5")


def test_waiting_ends_in_time(api_as: AnyClient) -> None:
    client = api_as()
    reference = client.send_json({"text": BUS_ERROR}).json()["id"]

    started = time.monotonic()
    answer = client.get(f"{INCIDENTS}/{reference}?wait=0.3").json()

    assert 0.3 <= time.monotonic() - started < 5
    assert (answer["state"], answer["verdict"], answer["diagnoses"]) == ("received", "", [])


def test_waiting_ends_with_the_diagnosis(
    api_as: AnyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = api_as()
    reference = client.send_json({"text": BUS_ERROR}).json()["id"]

    async def diagnose_meanwhile(pause_s: float) -> None:
        from asgiref.sync import sync_to_async

        from triage.services import diagnosis

        def both() -> None:
            incident = Incident.objects.get()
            diagnosis.scan_submission(incident.submissions.get().pk)
            diagnosis.diagnose_incident(incident.pk)

        await sync_to_async(both)()

    monkeypatch.setattr("triage.api.endpoints.asyncio.sleep", diagnose_meanwhile)
    answer = client.get(f"{INCIDENTS}/{reference}?wait=20").json()

    assert answer["verdict"] == "named"


def test_lists_and_their_cursor(api_as: AnyClient, work: Callable[[], Any]) -> None:
    with work():
        named = send(BUS_ERROR, job=JobFacts(id="7")).incident
        clean = send(HEALTHY).incident
    plain = make_incident()
    client = api_as("read")

    first = client.get(f"{INCIDENTS}?limit=2").json()
    second = client.get(f"{INCIDENTS}?limit=2&cursor={first['next']}").json()
    assert [row["id"] for row in first["incidents"]] == [plain.reference, clean.reference]
    assert [row["id"] for row in second["incidents"]] == [named.reference]
    assert second["next"] is None
    for query in ("verdict=named", "slug=dataloader-shm-bus-error", "job_id=7"):
        rows = client.get(f"{INCIDENTS}?{query}").json()["incidents"]
        assert [row["id"] for row in rows] == [named.reference]
    assert rows[0]["slug"] == "dataloader-shm-bus-error"
    _problem(client.get(f"{INCIDENTS}?cursor=x"), 422, "invalid-request")
    _problem(client.get(f"{INCIDENTS}?limit=0"), 422, "invalid-request")


def test_a_list_costs_the_same_for_one_as_for_many(
    api_as: AnyClient, work: Callable[[], Any], django_assert_num_queries: Callable[[int], Any]
) -> None:
    client = api_as("read")
    client.get(INCIDENTS)
    with work():
        for number in range(4):
            send(f"{BUS_ERROR}{number}\n")

    with django_assert_num_queries(3):
        assert len(client.get(INCIDENTS).json()["incidents"]) == 4


def test_lines_and_log_book(api_as: AnyClient) -> None:
    incident = send(BUS_ERROR, who=make_user(username="ada")).incident
    client = api_as("read")

    lines = client.get(f"{INCIDENTS}/{incident.reference}/texts/1/lines?first=4&count=1").json()
    assert lines == {
        "lines": [{"line": 4, "text": "[rank3]:     main()", "is_cut": False}],
        "line_count": 5,
    }
    entry = client.get(f"{INCIDENTS}/{incident.reference}/log-book").json()[0]
    assert (entry["kind"], entry["who"], entry["data"]["texts"]) == ("received", "ada", 1)
    _problem(client.get(f"{INCIDENTS}/{incident.reference}/texts/2/lines"), 404, "not-found")


def test_texts_are_destroyed_with_the_scope_for_it(
    api_as: AnyClient, work: Callable[[], Any]
) -> None:
    incident = send(BUS_ERROR, HEALTHY).incident
    path = f"{INCIDENTS}/{incident.reference}/texts"

    _problem(api_as("read").delete(path), 403, "scope-too-small")
    client = api_as("write", owner=make_user(username="ada"))
    with work():
        assert client.delete(f"{path}/1").json() == {"destroyed": 1}
        assert client.delete(path).json() == {"destroyed": 1}
    gone = client.get(f"{path}/1/lines")
    _problem(gone, 410, "text-gone")
    incident.refresh_from_db()
    assert incident.state == "destroyed"
    assert incident.log_book.last().who.get_username() == "ada"


def test_a_submit_token_reads_its_own_incidents_only(api_as: AnyClient) -> None:
    mine, stranger = api_as("submit"), api_as("submit")
    reference = mine.send_json({"text": BUS_ERROR}).json()["id"]

    assert mine.get(f"{INCIDENTS}/{reference}").status_code == 200
    assert mine.get(f"{INCIDENTS}/{reference}/texts/1/lines").status_code == 200
    for path in ("", "/texts/1/lines"):
        _problem(stranger.get(f"{INCIDENTS}/{reference}{path}"), 404, "not-found")
    answer = stranger.send_json({"text": "x y\n"}, path=f"{INCIDENTS}/{reference}/texts")
    _problem(answer, 404, "not-found")
    assert api_as("read").get(f"{INCIDENTS}/{reference}").status_code == 200
    for path in (INCIDENTS, f"{INCIDENTS}/{reference}/log-book"):
        assert "needs read" in _problem(mine.get(path), 403, "scope-too-small")["hint"]


def test_tokens_are_listed_and_revoked_by_an_admin(api_as: AnyClient) -> None:
    admin, other = api_as("admin"), api_as("write")

    _problem(other.get("/api/v1/tokens"), 403, "scope-too-small")
    rows = admin.get("/api/v1/tokens").json()
    assert [row["scope"] for row in rows] == ["admin", "write"]
    assert not any("key" in name for name in rows[0])
    assert admin.delete(f"/api/v1/tokens/{other.token.pk}").status_code == 204
    _problem(other.get(INCIDENTS), 401, "no-token")
    _problem(admin.delete("/api/v1/tokens/0"), 404, "not-found")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic dTpw", "Token x"])
def test_without_a_valid_token(header: str, db: None) -> None:
    client = Client(headers={"Authorization": header} if header else {})
    for response in (
        client.post(INCIDENTS, {"text": BUS_ERROR}, content_type="application/json"),
        client.get(INCIDENTS),
        client.get(f"{INCIDENTS}/INC-1?wait=1"),
    ):
        assert response["WWW-Authenticate"].startswith("Bearer")
        _problem(response, 401, "no-token")
    assert not Incident.objects.exists()


def test_a_session_is_no_token(client: Client) -> None:
    client.force_login(make_user(is_superuser=True))

    _problem(client.get(INCIDENTS), 401, "no-token")


def test_requests_that_say_nothing_useful(api_as: AnyClient, settings: Any) -> None:
    client = api_as()
    as_json = {"content_type": "application/json"}

    _problem(client.send_json({}), 422, "empty-text")
    _problem(client.send_json({"text": " \n"}), 422, "empty-text")
    _problem(client.post(INCIDENTS, {"name": "x"}), 422, "empty-text")
    _problem(client.post(INCIDENTS, b"", content_type="text/plain"), 422, "empty-text")
    _problem(client.post(INCIDENTS, "{", **as_json), 400, "not-json")
    _problem(client.post(INCIDENTS, "[" * 100_000, **as_json), 400, "not-json")
    _problem(client.post(INCIDENTS, "[1]", **as_json), 422, "invalid-request")
    _problem(client.post(INCIDENTS, PNG, content_type="image/png"), 415, "not-text")
    form = "application/x-www-form-urlencoded"
    assert (
        "--data-binary"
        in _problem(client.post(INCIDENTS, "text=x", content_type=form), 415, "unknown-form")[
            "hint"
        ]
    )
    brotli = {"Content-Encoding": "br"}
    _problem(
        client.post(INCIDENTS, b"x", content_type="text/plain", headers=brotli),
        415,
        "unknown-encoding",
    )
    bad_gzip = client.post(INCIDENTS, b"{}", headers={"Content-Encoding": "gzip"}, **as_json)
    _problem(bad_gzip, 400, "unreadable-body")
    broken_form = client.post(INCIDENTS, b"--", content_type="multipart/form-data; boundary=\n")
    assert broken_form.status_code == 400
    settings.PITSTOP_MAX_PASTE_BYTES = 100
    assert "file" in _problem(client.send_json({"text": "x" * 101}), 413, "too-large")["hint"]
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 200
    _problem(client.send_json({"text": "x" * 300}), 413, "too-large")
    _problem(client.post(INCIDENTS, {"text": "x" * 300}), 413, "too-large")
    assert not Incident.objects.exists()


@pytest.mark.parametrize(
    ("job", "where"),
    [
        ({"attempt": -1}, "attempt"),
        ({"attempt": "second"}, "attempt"),
        ({"gpus": 2**40}, "gpus"),
        ({"id": "x" * 300}, "id"),
        ({"note": "x" * 20_000}, "job"),
        ("7", "job"),
    ],
)
def test_job_facts_out_of_range(job: Any, where: str, api_as: AnyClient) -> None:
    document = _problem(api_as().send_json({"text": BUS_ERROR, "job": job}), 422, "invalid-request")

    assert any(where in fault["where"] for fault in document["errors"])
    raw = api_as().post(f"{INCIDENTS}?job={json.dumps(job)}", b"x y", content_type="text/plain")
    _problem(raw, 422, "invalid-request")


def test_addresses_that_are_none(api_as: AnyClient) -> None:
    client = api_as("admin")

    _problem(client.get(f"{INCIDENTS}/INC-99999"), 404, "not-found")
    _problem(client.get(f"{INCIDENTS}/nonsense"), 404, "not-found")
    _problem(client.get(f"{INCIDENTS}/INC-1/texts/x/lines"), 422, "invalid-request")
    assert client.put(INCIDENTS).status_code == 405


def test_a_fault_of_ours_tells_nothing_of_itself(
    api_as: AnyClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **more: Any) -> None:
        raise RuntimeError("password of the database")

    monkeypatch.setattr("triage.services.intake.receive", fail)
    document = _problem(api_as().send_json({"text": "x y"}), 500, "internal-error")

    assert "password" not in json.dumps(document)
    assert "password of the database" in caplog.text


def test_what_json_can_carry_and_postgresql_cannot(
    api_as: AnyClient, work: Callable[[], Any]
) -> None:
    body = '{"text": "a\\u0000b \\ud800 c\\n", "name": "n\\u0000", "job": {"k": "\\u0000\\udfff"}}'
    with work():
        sent = api_as().post(INCIDENTS, body, content_type="application/json")

    assert sent.status_code == 202
    incident = Incident.objects.get()
    assert incident.job == {"k": "\ufffd\ufffd"}
    assert incident.state == "diagnosed"


def test_openapi_says_how(client: Client) -> None:
    document = client.get("/api/v1/openapi.json").json()

    assert document["openapi"].startswith("3.1")
    paths = document["paths"]
    post = paths["/api/v1/incidents"]["post"]
    assert set(post["requestBody"]["content"]) >= {
        "application/json", "multipart/form-data", "text/plain",
    }  # fmt: skip
    assert "202" in post["responses"]
    wait = [
        p
        for p in paths["/api/v1/incidents/{reference}"]["get"]["parameters"]
        if p["name"] == "wait"
    ]
    assert wait
    assert all("security" in operation for path in paths.values() for operation in path.values())
    references = set(_references(document))
    assert references
    for reference in references:
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def _references(node: Any) -> Any:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_the_page_that_describes_it_needs_no_other_site(client: Client) -> None:
    page = client.get("/api/docs")

    assert page.status_code == 200
    text = page.content.decode()
    assert "/static/ninja/swagger-ui-bundle.js" in text
    assert "/api/v1/openapi.json" in text
    assert "https://" not in text
