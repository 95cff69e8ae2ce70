"""The front page: what it takes, what it refuses, where it leads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.factories import BUS_ERROR, HEALTHY
from triage.models import Incident, Submission
from triage.pages.samples import all_samples

Work = Callable[[], AbstractContextManager[list[Any]]]


def page_of(response: Any) -> str:
    return response.content.decode()


@pytest.mark.parametrize(
    "path",
    ["/", "/samples/shm-bus-error/", "/incidents/", "/i/INC-1", "/i/INC-1/status", "/i/INC-1/log",
     "/i/INC-1/texts/1/raw", "/pitfalls/", "/pitfalls/dataloader-shm-bus-error/"],
)  # fmt: skip
def test_a_stranger_is_led_to_the_sign_in_page(client: Client, db: None, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 302
    assert response["Location"] == f"/login/?next={path}"


def test_the_empty_front_page_teaches(reader: Client) -> None:
    page = page_of(reader.get("/"))
    assert "No incident yet" in page
    assert page.count('href="/samples/') == 5


def test_a_paste_opens_an_incident_and_leads_to_it(reader: Client, work: Work) -> None:
    with work():
        response = reader.post("/", {"text": BUS_ERROR.replace("\n", "\r\n")})
    incident = Incident.objects.get()
    assert response.status_code == 302
    assert response["Location"] == f"/i/INC-{incident.pk}"
    # The browser's line ends are not the log's.
    assert incident.submissions.get().size_bytes == len(BUS_ERROR)
    incident.refresh_from_db()
    assert incident.verdict == "named"
    assert incident.created_by is not None


def test_a_request_by_htmx_is_redirected_by_header(reader: Client) -> None:
    response = reader.post("/", {"text": BUS_ERROR}, headers={"HX-Request": "true"})
    assert response["HX-Redirect"] == f"/i/INC-{Incident.objects.get().pk}"


def test_many_files_and_job_facts_make_one_incident(reader: Client) -> None:
    files = [SimpleUploadedFile(f"rank{n}.log", f"[rank{n}]: step 1\n".encode()) for n in range(3)]
    facts = {"job_id": "88123", "attempt": "2", "gpus": "8", "scheduler": "slurm"}
    reader.post("/", {"text": "launcher says goodbye", "uploads": files, **facts})
    incident = Incident.objects.get()
    assert (incident.job_id, incident.attempt, incident.gpus) == ("88123", 2, 8)
    assert incident.scheduler == "slurm"
    names = list(incident.submissions.values_list("name", flat=True))
    assert names == ["", "rank0.log", "rank1.log", "rank2.log"]


@pytest.mark.parametrize(
    ("form", "status", "words"),
    [
        ({"text": "  \n "}, 422, "There is no text in it"),
        ({}, 422, "There is no text in it"),
        ({"text": "x", "attempt": "-1"}, 422, "Attempt"),
        ({"text": "x", "scheduler": "pbs2000"}, 422, "Started by"),
    ],
)
def test_what_cannot_be_taken_is_said_beside_the_form(
    reader: Client, form: dict[str, str], status: int, words: str
) -> None:
    response = reader.post("/", form)
    assert response.status_code == status
    assert words in page_of(response)
    assert 'id="triage-form"' in page_of(response)
    notice = reader.post("/", form, headers={"HX-Request": "true"})
    assert notice.status_code == status
    assert words in page_of(notice)
    assert "<html" not in page_of(notice)
    assert not Incident.objects.exists()


def test_the_form_keeps_what_was_typed(reader: Client) -> None:
    response = reader.post("/", {"text": "epoch <1>", "gpus": "none"})
    assert "epoch &lt;1&gt;" in page_of(response)


def test_a_picture_is_refused_with_a_hint(reader: Client) -> None:
    picture = SimpleUploadedFile("screen.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    response = reader.post("/", {"text": "", "uploads": [picture]})
    assert response.status_code == 415
    assert "This is a picture" in page_of(response)


def test_what_is_left_out_is_said_on_the_page(reader: Client) -> None:
    picture = SimpleUploadedFile("screen.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    response = reader.post("/", {"text": HEALTHY, "uploads": [picture]}, follow=True)
    assert "Left out: screen.png" in page_of(response)


def test_a_paste_over_the_limit_is_sent_to_the_file_picker(reader: Client, settings: Any) -> None:
    settings.PITSTOP_MAX_PASTE_BYTES = 10_000
    response = reader.post("/", {"text": "x" * 10_001})
    assert response.status_code == 422
    assert "Drop the log as a file" in page_of(response)


def test_a_body_over_the_limit_gets_a_page_in_words(reader: Client, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000
    response = reader.post("/", {"text": "x" * 20_000})
    assert response.status_code == 413
    assert "That paste is too large" in page_of(response)


def test_nul_characters_in_a_paste_are_tolerated(reader: Client) -> None:
    reader.post("/", {"text": "epoch 1\0\0 loss 2.0\n"})
    assert Submission.objects.get().size_bytes == len("epoch 1 loss 2.0\n")


def test_the_same_paste_again_leads_to_the_same_incident(reader: Client) -> None:
    reader.post("/", {"text": HEALTHY})
    response = reader.post("/", {"text": HEALTHY}, follow=True)
    assert Incident.objects.count() == 1
    assert "This text was sent before" in page_of(response)


def test_replaced_secrets_are_mentioned(reader: Client) -> None:
    secret = "ghp_" + "a1B2" * 9
    response = reader.post("/", {"text": f"{HEALTHY}token {secret}\n"}, follow=True)
    assert secret not in page_of(response)
    assert "1 secret in the text replaced" in page_of(response)


@pytest.mark.parametrize("sample", all_samples(), ids=lambda sample: sample.name)
def test_a_sample_fills_the_box_and_gets_an_answer(reader: Client, work: Work, sample: Any) -> None:
    page = page_of(reader.get(f"/samples/{sample.name}/"))
    assert sample.read_text().split("\n")[0].replace("'", "&#x27;") in page
    with work():
        reader.post("/", {"text": sample.read_text()})
    answers = {
        "shm-bus-error": ("named", "dataloader-shm-bus-error", 3),
        "label-out-of-range": ("named", "cuda-device-side-assert", None),
        "workers-hang": ("named", "dataloader-fork-deadlock", None),
        "memory-grows": ("named", "cuda-oom-graph-retention", None),
        "timeout-one-rank": ("undetermined", "nccl-watchdog-timeout", 5),
    }
    incident = Incident.objects.get()
    assert incident.current_diagnosis is not None
    answer = incident.current_diagnosis.findings.get(position=0)
    assert (incident.verdict, answer.slug, answer.rank) == answers[sample.name]


def test_an_unknown_sample_is_not_found(reader: Client) -> None:
    assert reader.get("/samples/no-such/").status_code == 404


def test_the_theme_switch_works_without_scripts(client: Client, db: None) -> None:
    response = client.post("/theme/", {"theme": "dark", "next": "/login/"})
    assert response["Location"] == "/login/"
    assert 'data-theme="dark"' in page_of(client.get("/login/"))
    client.post("/theme/", {"theme": "", "next": "/login/"})
    assert "data-theme=" not in page_of(client.get("/login/"))


def test_the_theme_switch_leads_nowhere_else(client: Client, db: None) -> None:
    response = client.post("/theme/", {"theme": "dark", "next": "https://elsewhere.example/"})
    assert response["Location"] == "/"
    client.cookies["theme"] = '"><script>'
    assert "<script>" not in page_of(client.get("/login/"))


def test_pages_have_no_inline_script_or_style(reader: Client, work: Work) -> None:
    with work():
        reader.post("/", {"text": BUS_ERROR})
    incident = Incident.objects.get()
    for path in ("/", "/incidents/", incident.get_absolute_url(), "/pitfalls/", "/nowhere"):
        response = reader.get(path)
        page = page_of(response)
        assert " style=" not in page
        assert "<style" not in page
        assert "onclick" not in page
        assert page.count("<script") == page.count("<script src=")
        policy = response["Content-Security-Policy"]
        assert "unsafe" not in policy
