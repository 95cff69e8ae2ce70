"""The section "Reproduce": its form, its runs in every state, the badges, the minimal script."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kb.catalog.proof import digest_of
from tests.factories import BUS_ERROR, HEALTHY, make_worker
from triage.models import Incident, Reproduction, Verification
from triage.services.catalog import current_catalog

Work = Callable[[], AbstractContextManager[list[Any]]]
Diagnosed = Callable[..., Incident]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unproved")]

SLUG = "dataloader-shm-bus-error"


@pytest.fixture
def incident(diagnosed: Diagnosed) -> Incident:
    """A named incident on torch 2.1."""
    return diagnosed(f"torch 2.1.0+cu121\n{BUS_ERROR}")


def page_of(response: Any) -> str:
    assert response.status_code == 200
    return str(response.content.decode())


def section_of(client: Client, incident: Incident) -> str:
    page = page_of(client.get(incident.get_absolute_url()))
    return page.split('id="reproduce"')[1].split("</section>")[0]


def verified(**changes: Any) -> Verification:
    fields = {
        "slug": SLUG,
        "state": "done",
        "device": "cpu",
        "torch": "2.13.0+cpu",
        "entry_digest": digest_of(current_catalog().by_slug[SLUG]),
        "reproduced": True,
        "fix_verified": True,
        "ended_at": timezone.now(),
    }
    return Verification.objects.create(**(fields | changes))


def test_a_run_is_asked_for_and_its_verdict_stands_beside_the_incidents(
    reader: Client, incident: Incident, work: Work, sandbox: Any
) -> None:
    make_worker()
    address = f"{incident.get_absolute_url()}/reproductions"
    with work():
        sent = reader.post(address, {"slug": SLUG, "option-shm-mb": "3"})
    assert sent["Location"] == f"{incident.get_absolute_url()}#reproduce"
    section = section_of(reader, incident)
    assert "same failure" in section
    assert re.search(r"<dt>This incident</dt><dd>Shared memory exhausted", section)
    assert re.search(r"<dt>This run</dt><dd>Shared memory exhausted", section)
    assert "torch 2.13.0" in section
    assert "killed by signal: Bus error" in section
    assert "hx-get" not in section
    assert sandbox.calls[0]["options"] == {"shm-mb": 3}
    page = page_of(reader.get(incident.get_absolute_url()))
    assert "shows the same failure" in page.split('id="story"')[1]


def test_with_the_fix_it_is_clean_and_then_verified(
    reader: Client, incident: Incident, work: Work, sandbox: Any
) -> None:
    make_worker()
    address = f"{incident.get_absolute_url()}/reproductions"
    with work():
        reader.post(address, {"slug": SLUG, "fixed": "1"})
    section = section_of(reader, incident)
    assert "clean: it ran to its end" in section
    assert "badge verified stale" in section
    # Until `verify` has run, the page says so and asks again.
    Verification.objects.update(state="queued")
    assert "to be verified when a worker is free" in section_of(reader, incident)
    Verification.objects.update(state="running")
    section = section_of(reader, incident)
    assert "being verified now" in section
    assert "badge reproduced never" in section
    assert f'hx-get="{address}"' in section


def test_a_run_in_whose_output_nothing_is_named_is_no_clean_one(
    reader: Client, incident: Incident, work: Work, sandbox: Any
) -> None:
    make_worker()
    sandbox.broken = "step 1 loss 2.3\n"
    with work():
        reader.post(f"{incident.get_absolute_url()}/reproductions", {"slug": SLUG})
    Reproduction.objects.update(same_failure=None)
    section = section_of(reader, incident)
    assert "nothing was named" in section
    assert "no failure" not in section


def test_a_page_asks_often_while_something_runs_and_seldom_while_it_waits(
    reader: Client, incident: Incident
) -> None:
    reader.post(f"{incident.get_absolute_url()}/reproductions", {"slug": SLUG})
    assert "load delay:2500ms" in section_of(reader, incident)
    Reproduction.objects.update(state="running")
    assert "load delay:700ms" in section_of(reader, incident)


def test_while_a_run_waits_the_page_says_for_what_and_asks_again(
    reader: Client, incident: Incident
) -> None:
    address = f"{incident.get_absolute_url()}/reproductions"
    fragment = page_of(reader.post(address, {"slug": SLUG}, headers={"HX-Request": "true"}))
    assert "<html" not in fragment
    assert "Waits for a worker for reproductions: none is running" in fragment
    assert f'hx-get="{address}"' in fragment
    assert 'id="story-rows"' in fragment
    page = page_of(reader.get(incident.get_absolute_url()))
    # With another query each time: to reload an address with an anchor is to stay on the page.
    refresh = rf'<noscript><meta http-equiv="refresh" content="2; url={incident.get_absolute_url()}'
    assert re.search(refresh + r'\?at=\d+#reproduce"></noscript>', page)
    run = Reproduction.objects.get()
    reader.post(f"{address}/{run.pk}/cancel")
    section = section_of(reader, incident)
    assert ">cancelled</span>" in section
    assert "hx-get" not in section


@pytest.mark.parametrize("value", ["8", "0", "-2", "1e3", "7; ls", "９"])
def test_a_number_out_of_range_is_refused_in_place(
    reader: Client, incident: Incident, value: str
) -> None:
    address = f"{incident.get_absolute_url()}/reproductions"
    form = {"slug": SLUG, "option-shm-mb": value}
    fragment = reader.post(address, form, headers={"HX-Request": "true"})
    assert fragment.status_code == 422
    assert "shm-mb is a whole number from 1 to 7" in fragment.content.decode()
    page = page_of(reader.post(address, form, follow=True))
    assert "shm-mb is a whole number from 1 to 7" in page
    assert not Reproduction.objects.exists()


def test_output_is_escaped(reader: Client, incident: Incident, work: Work, sandbox: Any) -> None:
    make_worker()
    sandbox.broken = '<script>alert("x")</script>\n' + BUS_ERROR
    with work():
        reader.post(f"{incident.get_absolute_url()}/reproductions", {"slug": SLUG})
    section = section_of(reader, incident)
    assert "<script>" not in section
    assert "&lt;script&gt;alert" in section


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, ["badge reproduced stale", "seen on another torch than the incident&#x27;s 2.1.0"]),
        ({"torch": "2.1.2"}, ["badge reproduced good", "badge verified good", "today"]),
        (
            {"torch": "2.1.2", "fix_verified": False, "reason": "staged by a stand-in"},
            ["badge reproduced good", "badge verified failed", "staged by a stand-in"],
        ),
        (
            {"torch": "2.1.2", "reproduced": False, "reason": "it ended with 0"},
            ["badge reproduced failed", "it ended with 0"],
        ),
        ({"torch": "2.1.2", "entry_digest": "old"}, ["stale", "the entry changed since"]),
    ],
)
def test_badges_say_what_was_seen(
    reader: Client, incident: Incident, changes: dict[str, Any], shown: list[str]
) -> None:
    assert "badge reproduced never" in section_of(reader, incident)
    verified(**changes)
    section = section_of(reader, incident)
    assert [words for words in shown if words not in section] == []


def test_the_badge_stands_beside_the_fix_and_on_the_entry(
    reader: Client, incident: Incident
) -> None:
    verified(broken_lines=["RuntimeError: DataLoader worker (pid 4) is killed by signal"])
    page = page_of(reader.get(incident.get_absolute_url()))
    assert "fix verified" in page.split('id="fix-badge"')[1].split("</span></span>")[0]
    assert "The incident had torch 2.1.0; the failure was reproduced on torch 2.13.0" in page
    entry = page_of(reader.get(f"/pitfalls/{SLUG}/"))
    assert "badge reproduced good" in entry
    assert "badge verified good" in entry
    assert "DataLoader worker (pid 4) is killed by signal" in entry
    assert 'id="repro-script"' in entry


def test_an_entry_that_cannot_be_reproduced_says_why(reader: Client) -> None:
    impossible = next(
        p
        for p in current_catalog().active
        if p.reproduction is not None and p.reproduction.where == "hardware"
    )
    page = page_of(reader.get(f"/pitfalls/{impossible.slug}/"))
    assert "badge reproduced impossible" in page
    assert "needs the faulty hardware" in page
    assert 'id="repro-script"' not in page


def test_a_clean_incident_has_nothing_to_reproduce(reader: Client, diagnosed: Diagnosed) -> None:
    assert "Reproduce" not in section_of(reader, diagnosed(HEALTHY))


def test_the_minimal_page_shows_the_script_and_what_to_keep(
    reader: Client, incident: Incident, diagnosed: Diagnosed
) -> None:
    page = page_of(reader.get(f"{incident.get_absolute_url()}/minimal"))
    text = re.sub(r"<[^>]+>", "", page)
    assert "through_shared_memory" in text
    assert "Every argument of the DataLoader" in text
    assert "it is never run" in text
    nothing = page_of(reader.get(f"{diagnosed(HEALTHY).get_absolute_url()}/minimal"))
    assert "no script that comes near" in nothing


def test_a_stranger_runs_nothing(incident: Incident) -> None:
    address = f"{incident.get_absolute_url()}/reproductions"
    for response in (
        Client().post(address, {"slug": SLUG}),
        Client().get(address),
        Client().post(f"{address}/1/cancel"),
        Client().get(f"{incident.get_absolute_url()}/minimal"),
    ):
        assert response["Location"].startswith("/login/")
    assert not Reproduction.objects.exists()
