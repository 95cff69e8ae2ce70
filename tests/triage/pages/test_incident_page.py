"""The incident page in all its states, the log viewer, and what people do there."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.test import Client

from tests.factories import BUS_ERROR, HEALTHY, make_incident, make_submission, make_user
from triage.models import Incident, Submission
from triage.services.intake import JobFacts

Work = Callable[[], AbstractContextManager[list[Any]]]
Diagnosed = Callable[..., Incident]

TIMEOUT = (
    "[rank5]:[E1117 05:12:51.8 ProcessGroupNCCL.cpp:685] [Rank 5] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=220417, OpType=ALLREDUCE, NumelIn=262144, "
    "NumelOut=262144, Timeout(ms)=1800000) ran for 1800061 milliseconds before timing out.\n"
)
HOSTILE = '<script>alert("x")</script> <img src=x onerror=alert(1)> {{ 7|add:7 }} &lt;b&gt;\n'


def page_of(response: Any) -> str:
    assert response.status_code == 200
    return response.content.decode()


def lines_of(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="T\d+-L(\d+)"', page)]


def test_a_named_cause_is_told_in_full(reader: Client, diagnosed: Diagnosed) -> None:
    incident = diagnosed(BUS_ERROR, job=JobFacts(id="llama-ft", attempt=2, gpus=8))
    page = page_of(reader.get(f"/i/INC-{incident.pk}"))
    assert "cause" in page
    assert "/dev/shm" in page
    assert "<b>Conclusive</b>" in page
    assert "rank <b>3</b>" in page
    assert "Do not just retry" in page
    assert "job llama-ft · attempt 2 · 8 GPUs" in page
    assert 'data-copy="fix-1"' in page
    assert "df -h /dev/shm" in page
    assert "Guide:" in page
    assert f'href="/i/INC-{incident.pk}?text=1&amp;line=5#T1-L5" data-evidence' in page
    assert re.search(r'id="T1-L5" class="evidence-line root', page)
    assert "hx-trigger" not in page.split('id="log"')[0].split('id="answer"')[1]


def test_consequences_stand_below_the_cause(reader: Client, diagnosed: Diagnosed) -> None:
    incident = diagnosed(BUS_ERROR, TIMEOUT)
    page = page_of(reader.get(f"/i/INC-{incident.pk}"))
    _, _, consequences = page.partition("Consequences of it")
    assert "/pitfalls/nccl-watchdog-timeout/" in consequences.split("</section>")[0]
    assert "T2 line 1" in consequences
    assert f'href="/i/INC-{incident.pk}?text=2#log"' in page


def test_an_undetermined_incident_says_what_would_settle_it(
    reader: Client, diagnosed: Diagnosed, work: Work
) -> None:
    incident = diagnosed(TIMEOUT)
    page = page_of(reader.get(f"/i/INC-{incident.pk}"))
    assert "not determined" in page
    assert "What would settle it" in page
    assert page.count('data-copy="step-') >= 2
    with work():
        response = reader.post(f"/i/INC-{incident.pk}/texts", {"text": BUS_ERROR})
    assert response["Location"] == f"/i/INC-{incident.pk}"
    incident.refresh_from_db()
    assert incident.verdict == "named"
    assert incident.submissions.count() == 2
    assert "Consequences of it" in page_of(reader.get(f"/i/INC-{incident.pk}"))


def test_an_empty_addition_is_refused_in_place(reader: Client, diagnosed: Diagnosed) -> None:
    incident = diagnosed(TIMEOUT)
    address = f"/i/INC-{incident.pk}/texts"
    notice = reader.post(address, {"text": " "}, headers={"HX-Request": "true"})
    assert notice.status_code == 422
    assert "There is no text" in notice.content.decode()
    page = reader.post(address, {"text": " "}, follow=True)
    assert "There is no text" in page_of(page)


def test_a_clean_text_is_called_clean(reader: Client, diagnosed: Diagnosed) -> None:
    page = page_of(reader.get(diagnosed(HEALTHY).get_absolute_url()))
    assert 'class="verdict clean"' in page
    assert "Read to the end: 4 lines" in page
    assert "What to do" not in page


def test_while_the_worker_works_the_text_is_there_and_the_page_asks_again(reader: Client) -> None:
    submission = make_submission(BUS_ERROR, state="scanning", bytes_scanned=100, findings_so_far=2)
    incident = submission.incident
    Incident.objects.filter(pk=incident.pk).update(state="scanning")
    for path in (f"/i/INC-{incident.pk}", f"/i/INC-{incident.pk}/status"):
        page = page_of(reader.get(path))
        assert f'hx-get="/i/INC-{incident.pk}/status"' in page
        assert f'<progress max="{submission.size_bytes}" value="100"' in page
        assert f"100 bytes of {submission.size_bytes} bytes read" in page
        assert "2 lines of interest so far" in page
    assert "Bus error" in page_of(reader.get(f"/i/INC-{incident.pk}"))
    assert 'http-equiv="refresh"' in page_of(reader.get(f"/i/INC-{incident.pk}"))


def test_the_status_fills_answer_reproduction_log_and_story_at_once(
    reader: Client, diagnosed: Diagnosed
) -> None:
    incident = diagnosed(BUS_ERROR)
    fragment = page_of(reader.get(f"/i/INC-{incident.pk}/status", headers={"HX-Request": "true"}))
    assert "<html" not in fragment
    assert 'class="verdict named"' in fragment
    assert "/status" not in fragment
    assert fragment.count('hx-swap-oob="true"') == 3
    assert "<title>INC-" in fragment


def test_a_failed_text_says_why_and_takes_another(reader: Client) -> None:
    submission = make_submission(
        HEALTHY, state=Submission.State.FAILED, error="Reading took longer than 600 s."
    )
    Incident.objects.filter(pk=submission.incident_id).update(
        state="failed", error="T1: Reading took longer than 600 s."
    )
    page = page_of(reader.get(f"/i/INC-{submission.incident_id}"))
    assert 'class="verdict failed"' in page
    assert "Reading took longer than 600 s." in page
    assert 'name="text"' in page


def test_log_text_is_never_markup(reader: Client, diagnosed: Diagnosed) -> None:
    incident = diagnosed(HOSTILE + BUS_ERROR.replace("epoch", HOSTILE.strip()), names=(HOSTILE,))
    page = page_of(reader.get(f"/i/INC-{incident.pk}?q=<script>x"))
    assert "<script>" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    assert "7|add:7" in page


# ---------------------------------------------------------------------------- the log


@pytest.fixture
def long_incident(diagnosed: Diagnosed) -> Incident:
    """Five thousand lines with the failure in line 3001."""
    before = "".join(f"step {n} loss 2.0\n" for n in range(1, 3001))
    after = "".join(f"[rank0]: waiting {n}\n" for n in range(1, 2001))
    return diagnosed(before + BUS_ERROR.split("\n")[4] + "\n" + after)


def test_the_log_is_paged_around_its_evidence(reader: Client, long_incident: Incident) -> None:
    page = page_of(reader.get(f"/i/INC-{long_incident.pk}"))
    lines = lines_of(page)
    assert len(lines) == 200
    assert lines[0] == 2941
    assert 3001 in lines
    assert "of 5,001" in page
    assert "first=2741" in page
    assert "first=3141" in page


def test_any_part_of_the_log_has_an_address(reader: Client, long_incident: Incident) -> None:
    shown = {}
    for wish in (
        "first=1", "line=1", "line=4093", "line=5001", "line=99999999", "first=4990", "first=0",
        "first=-4", "line=x", "first=99999",
    ):  # fmt: skip
        address = f"/i/INC-{long_incident.pk}/log?text=1&{wish}"
        lines = lines_of(page_of(reader.get(address, headers={"HX-Request": "true"})))
        shown[wish] = (lines[0], lines[-1])
        assert reader.get(address)["Location"].endswith(f"{wish}#log")
    assert shown == {
        "first=1": (1, 200),
        "line=1": (1, 200),
        "line=4093": (4033, 4232),
        "line=5001": (4941, 5001),
        "line=99999999": (4941, 5001),
        "first=4990": (4990, 5001),
        "first=0": (1, 200),
        "first=-4": (2941, 3140),
        "line=x": (2941, 3140),
        "first=99999": (5001, 5001),
    }


def test_a_linked_line_is_marked(reader: Client, long_incident: Incident) -> None:
    page = page_of(reader.get(f"/i/INC-{long_incident.pk}?text=1&line=4093"))
    assert 'id="T1-L4093" class="target"' in page


def test_find_goes_on_and_starts_over(reader: Client, long_incident: Incident) -> None:
    def target(query: str) -> str:
        page = page_of(reader.get(f"/i/INC-{long_incident.pk}?text=1&{query}"))
        found = re.search(r'id="T1-L(\d+)" class="[^"]*target', page)
        return found[1] if found else page

    assert target("q=WAITING+7") == "3008"
    assert target("q=waiting+7&after=3008") == "3071"
    assert target("q=waiting+1999&after=5001") == "5000"
    assert "is not in this text" in target("q=no-such-words")


def test_texts_are_tabs_and_a_list_when_they_are_many(reader: Client, diagnosed: Diagnosed) -> None:
    texts = [f"[rank{n}]: step 1 loss {n}\n" for n in range(30)]
    texts[20] = BUS_ERROR
    incident = diagnosed(*texts)
    page = page_of(reader.get(f"/i/INC-{incident.pk}"))
    tabs = page.split('class="tabs"')[1].split("</nav>")[0]
    assert tabs.count("<a ") == 12
    assert 'aria-current="true" title="rank20.log"' in tabs
    assert "18 more" in tabs
    other = page_of(reader.get(f"/i/INC-{incident.pk}?text=3"))
    assert 'id="T3-L1"' in other
    missing = page_of(reader.get(f"/i/INC-{incident.pk}?text=99"))
    assert "There is no text here" in missing


def test_raw_is_a_plain_attachment(reader: Client, diagnosed: Diagnosed) -> None:
    incident = diagnosed(HOSTILE + BUS_ERROR, names=('../"evil\r\nname.html',))
    response = reader.get(f"/i/INC-{incident.pk}/texts/1/raw")
    assert b"".join(response).decode() == HOSTILE + BUS_ERROR
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"].startswith("attachment; filename=")
    assert "/" not in response["Content-Disposition"]
    assert reader.get(f"/i/INC-{incident.pk}/texts/2/raw").status_code == 404


def test_destroying_takes_everything_that_was_quoted(reader: Client, diagnosed: Diagnosed) -> None:
    incident = diagnosed(BUS_ERROR)
    page = page_of(reader.get(f"/i/INC-{incident.pk}"))
    assert f'action="/i/INC-{incident.pk}/destroy"' in page
    assert reader.get(f"/i/INC-{incident.pk}/destroy").status_code == 405
    after = page_of(reader.post(f"/i/INC-{incident.pk}/destroy", follow=True))
    assert "Bus error" not in after
    assert "The texts were destroyed" in after
    assert "Texts destroyed by" in after
    assert reader.get(f"/i/INC-{incident.pk}/texts/1/raw").status_code == 404


def test_forms_want_their_token(db: None, diagnosed: Diagnosed) -> None:
    incident = diagnosed(BUS_ERROR)
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user())
    response = client.post(f"/i/INC-{incident.pk}/destroy")
    assert response.status_code == 403
    assert "This form is stale" in response.content.decode()
    assert incident.submissions.get().stored_at


def test_incidents_answer_to_any_case_and_to_nothing_else(
    reader: Client, diagnosed: Diagnosed
) -> None:
    incident = diagnosed(HEALTHY)
    assert reader.get(f"/i/inc-{incident.pk}").status_code == 200
    response = reader.get("/i/INC-999999")
    assert response.status_code == 404
    assert "There is nothing here" in response.content.decode()
    assert reader.get(f"/i/INC-{'9' * 30}").status_code == 404


# ---------------------------------------------------------------------------- the list


def test_the_list_is_filtered_by_its_address(reader: Client, diagnosed: Diagnosed) -> None:
    named, clean = diagnosed(BUS_ERROR), diagnosed(HEALTHY)
    waiting = make_incident()

    def shown(query: str) -> set[int]:
        page = page_of(reader.get(f"/incidents/{query}"))
        return {int(n) for n in re.findall(r'<td class="number"><a href="/i/INC-(\d+)"', page)}

    assert shown("") == {named.pk, clean.pk, waiting.pk}
    assert shown("?show=named") == {named.pk}
    assert shown("?show=clean") == {clean.pk}
    assert shown("?show=working") == {waiting.pk}
    assert shown("?show=failed") == set()
    assert shown("?pitfall=dataloader-shm-bus-error") == {named.pk}
    assert shown("?show=nonsense&before=abc") == {named.pk, clean.pk, waiting.pk}


def test_the_list_pages_with_a_constant_number_of_queries(
    reader: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(60):
        make_incident()
    with django_assert_max_num_queries(6):
        page = page_of(reader.get("/incidents/"))
    assert page.count("<tr>") == 51
    older = re.search(r'href="(/incidents/\?before=\d+)"', page)
    assert older
    rest = page_of(reader.get(older[1]))
    assert rest.count("<tr>") == 11
    assert "Newest" in rest


def test_the_empty_list_teaches(reader: Client) -> None:
    page = page_of(reader.get("/incidents/"))
    assert "No incident yet" in page
    assert "/api/v1/incidents" in page


def test_the_incident_page_asks_the_database_a_bounded_number_of_times(
    reader: Client, diagnosed: Diagnosed, django_assert_max_num_queries: Any
) -> None:
    incident = diagnosed(*(f"[rank{n}]: step 1 loss {n}\n" for n in range(20)), BUS_ERROR)
    with django_assert_max_num_queries(26):
        page_of(reader.get(f"/i/INC-{incident.pk}"))
