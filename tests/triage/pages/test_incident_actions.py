"""Working on incidents in the page: forms that tell what was seen, undo, notes, merge, bulk."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.factories import BUS_ERROR, HEALTHY, make_incident, make_user
from triage.models import Feedback, Incident, Membership, Profile, Team
from triage.pages.incident_actions import minutes_of
from triage.services import response
from triage.services.catalog import current_catalog
from triage.services.intake import JobFacts

pytestmark = [pytest.mark.django_db, pytest.mark.services]

Diagnosed = Callable[..., Incident]
Work = Callable[[], Any]


@pytest.fixture
def ada() -> Client:
    client = Client()
    client.force_login(make_user(username="ada"))
    return client


@pytest.fixture
def bob() -> Client:
    client = Client()
    client.force_login(make_user(username="bob"))
    return client


def page_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def form_of(page: str, action: str) -> dict[str, str]:
    """The fields of the first form with this action, as a browser would send them untouched."""
    form = re.search(rf'<form[^>]*action="{re.escape(action)}"[^>]*>(.*?)</form>', page, re.DOTALL)
    assert form, action
    fields = dict(re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', form[1]))
    selects = re.findall(r'<select[^>]*name="([^"]+)"[^>]*>(.*?)</select>', form[1], re.DOTALL)
    for name, body in selects:
        options = re.findall(r"<option([^>]*)>([^<]*)", body)
        chosen = next((o for o in options if "selected" in o[0]), options[0])
        value = re.search(r'value="([^"]*)"', chosen[0])
        fields[name] = value[1] if value else chosen[1]
    return fields


def facts_form(page: str, incident: Incident) -> dict[str, str]:
    """The form of job facts, which has the same address as the one of the status."""
    _, _, rest = page.partition('class="sheet facts-form"')
    action = f"/i/{incident.reference}/change"
    return form_of(f'<form action="{action}">{rest.partition(">")[2]}', action)


def test_a_status_is_set_and_undone_from_the_notice(ada: Client) -> None:
    incident = make_incident()
    page = page_of(ada, f"/i/{incident.reference}")
    form = form_of(page, f"/i/{incident.reference}/change")
    answer = ada.post(
        f"/i/{incident.reference}/change",
        {**form, "status": "resolved", "remark": "bigger shm"},
        follow=True,
    )
    page = html.unescape(answer.content.decode())
    assert "You resolved it." in page
    assert "ada</b> resolved it: bigger shm" in page
    undo = form_of(page, "/incidents/undo")
    page = html.unescape(ada.post("/incidents/undo", undo, follow=True).content.decode())
    assert f"Undone: {incident.reference} as before." in page
    incident.refresh_from_db()
    assert incident.status == "open"


def test_two_on_one_page_hear_of_each_other(ada: Client, bob: Client) -> None:
    incident = make_incident()
    action = f"/i/{incident.reference}/take"
    of_ada, of_bob = (form_of(page_of(c, f"/i/{incident.reference}"), action) for c in (ada, bob))
    ada.post(action, {**of_ada, "owner": "me"})
    page = html.unescape(bob.post(action, {**of_bob, "owner": "me"}, follow=True).content.decode())
    assert "ada set the owner to ada. Your change was not made." in page
    assert "ada has it" in page
    incident.refresh_from_db()
    assert incident.owner.username == "ada"


def test_a_form_changes_only_what_its_reader_touched(ada: Client, bob: Client) -> None:
    incident = make_incident(gpus=8, idle_minutes=3005)
    address = f"/i/{incident.reference}"
    form = facts_form(page_of(ada, address), incident)
    assert form["idle_minutes"] == "50 h 5 min"
    response.change(incident, {"severity": "critical"}, who=None)
    ada.post(f"{address}/change", {**form, "gpus": "16"})
    incident.refresh_from_db()
    assert (incident.severity, incident.gpus, incident.idle_minutes) == ("critical", 16, 3005)
    row = incident.log_book.order_by("pk").last()
    assert row is not None
    assert row.data["changes"] == {"gpus": [8, 16]}


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("idle_minutes", "soon", "“soon” is not a time"),
        ("gpus", "many", "“many” is not a whole number"),
        ("severity", "huge", "“huge” is not one of low"),
        ("owner", "nobody-here", "There is no nobody-here"),
    ],
)
def test_what_cannot_be_is_said_in_words(ada: Client, field: str, value: str, problem: str) -> None:
    incident = make_incident()
    answer = ada.post(f"/i/{incident.reference}/change", {field: value}, follow=True)
    assert problem in html.unescape(answer.content.decode())
    assert not incident.log_book.exists()


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("", None), ("90", 90), ("1 h 30 min", 90), ("1h30m", 90), ("1.5 h", 90), ("1,5h", 90),
        ("1:30", 90), ("2 d", 2880), ("11 h 52 min", 712), ("0", 0),
    ],
)  # fmt: skip
def test_times_as_people_write_them(text: str, minutes: int | None) -> None:
    assert minutes_of(text) == minutes


@pytest.mark.parametrize("text", ["-5", "1:75", "h", "9" * 40, "1 h h", "²"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        minutes_of(text)


def test_a_note_is_shown_edited_and_brought_back(ada: Client, bob: Client) -> None:
    incident = make_incident()
    address = f"/i/{incident.reference}"
    ada.post(f"{address}/notes", {"text": "<script>x</script> see INC-7\nand https://e.org/a"})
    row = incident.log_book.get()
    raw = ada.get(address).content.decode()
    assert "&lt;script&gt;x&lt;/script&gt; see" in raw
    assert '<a href="/i/INC-7">INC-7</a>' in raw
    assert '<a href="https://e.org/a" rel="nofollow">' in raw
    note = f"{address}/notes/{row.pk}"
    ada.post(note, {"do": "edit", "text": "better", "was": row.data["text"]})
    assert "better" in page_of(ada, address)
    late = ada.post(note, {"do": "edit", "text": "mine", "was": row.data["text"]})
    assert late.status_code == 409
    assert ">mine</textarea>" in late.content.decode(), "what was typed is not lost"
    assert bob.post(note, {"do": "edit", "text": "no"}).status_code == 403
    ada.post(note, {"do": "remove"})
    page = page_of(ada, address)
    assert "removed a note" in page
    assert "better" not in page
    ada.post(note, {"do": "restore"})
    assert "better" in page_of(bob, address)


def test_a_merged_incident_leads_to_where_its_texts_are(
    ada: Client, diagnosed: Diagnosed, work: Work
) -> None:
    target = diagnosed(BUS_ERROR)
    source = diagnosed(HEALTHY, BUS_ERROR.replace("rank3", "rank5"))
    with work():
        answer = ada.post(f"/i/{source.reference}/merge", {"into": f" {target.pk} "}, follow=True)
    page = html.unescape(answer.content.decode())
    assert f"{source.reference} was merged into this one." in page
    old = ada.get(f"/i/{source.reference}?text=2&line=5")
    assert old["Location"] == (f"/i/{target.reference}?from={source.reference}&text=3&line=5#T3-L5")
    plain = ada.get(f"/i/{source.reference}")
    assert plain["Location"] == f"/i/{target.reference}?from={source.reference}#answer"
    assert "Undo the merge" in page_of(ada, f"/i/{source.reference}?stay=1")
    listed = page_of(ada, "/incidents/")
    assert f'"/i/{source.reference}"' not in listed
    with work():
        ada.post(f"/i/{source.reference}/unmerge")
    assert "stands by itself again" in page_of(ada, f"/i/{source.reference}")


def test_a_split_leads_to_the_new_incident_and_old_links_follow(
    ada: Client, diagnosed: Diagnosed, work: Work
) -> None:
    incident = diagnosed(BUS_ERROR, HEALTHY, job=JobFacts(id="7"))
    address = f"/i/{incident.reference}"
    assert "Split the chosen texts off" in page_of(ada, address)
    with work():
        answer = ada.post(f"{address}/split", {"text": ["2"]})
    new = Incident.objects.order_by("-pk")[0]
    assert answer["Location"] == f"/i/{new.reference}"
    old = ada.get(f"{address}?text=2&line=3")
    assert old["Location"].startswith(f"/i/{new.reference}?from={incident.reference}&text=1&line=3")
    assert "Split the chosen texts off" not in page_of(ada, address)
    refused = ada.post(f"{address}/split", {"text": ["1"]}, follow=True)
    assert "at least one stays" in refused.content.decode()


def test_opinions_count_and_put_the_fixes_in_order(
    ada: Client, bob: Client, diagnosed: Diagnosed
) -> None:
    incident = diagnosed(BUS_ERROR)
    address = f"/i/{incident.reference}"
    pitfall = current_catalog().get(incident.slug)
    assert pitfall is not None
    second = pitfall.fixes[1].title
    page = page_of(ada, address)
    assert page.index(pitfall.fixes[0].title) < page.index(second)
    for client in (ada, bob):
        client.post(f"{address}/feedback", {"fix": second, "good": "1"})
    ada.post(f"{address}/feedback", {"good": "0", "instead": "cuda-oom-graph-retention"})
    for shown in (page_of(ada, address), page_of(ada, f"/pitfalls/{pitfall.slug}/")):
        assert "Worked 2 of 2 times" in shown
        assert shown.index(f"</span>{second}") < shown.index(f"</span>{pitfall.fixes[0].title}")
    assert "1 calls this wrong; it was" in page_of(bob, address)
    assert "You: wrong" in page_of(ada, address)
    ada.post(f"{address}/feedback", {"good": ""})
    assert not Feedback.objects.filter(about="diagnosis", withdrawn_at=None).exists()
    assert "calls this wrong" not in page_of(bob, address)


def test_the_curator_sees_what_was_called_wrong(ada: Client, diagnosed: Diagnosed) -> None:
    incident = diagnosed(BUS_ERROR)
    assert ada.get("/curate/feedback").status_code == 403
    curator = make_user()
    Profile.objects.create(person=curator, role="curator")
    client = Client()
    client.force_login(curator)
    assert "Nobody has judged an answer yet" in page_of(client, "/curate/feedback")
    ada.post(
        f"/i/{incident.reference}/feedback",
        {"good": "0", "instead": "cuda-oom-graph-retention", "note": "memory grew"},
    )
    page = page_of(client, "/curate/feedback")
    assert "Entries to look at" in page
    assert "memory grew" in page
    assert incident.reference in page_of(client, f"/curate/feedback?pitfall={incident.slug}")


def test_seen_before(ada: Client, diagnosed: Diagnosed) -> None:
    first = diagnosed(BUS_ERROR)
    assert "Not before this one." in page_of(ada, f"/i/{first.reference}")
    second = diagnosed(BUS_ERROR.replace("rank3", "rank1"))
    page = page_of(ada, f"/i/{second.reference}")
    assert "1 time</b>" in page
    assert f'Last <a href="/i/{first.reference}">' in page


def test_the_story_reads_as_sentences(ada: Client) -> None:
    incident = make_incident(gpus=8)
    ada.post(f"/i/{incident.reference}/take", {"owner": "me"})
    ada.post(f"/i/{incident.reference}/change", {"idle_minutes": "1 h 30 min"})
    ada.post(f"/i/{incident.reference}/take", {"owner": ""})
    page = page_of(ada, f"/i/{incident.reference}")
    assert "ada</b> took it and started to investigate" in page
    assert "ada</b> noted that its GPUs stood idle for 1 h 30 min" in page
    assert "ada</b> gave it back" in page
    assert "8 GPUs × 1 h 30 min idle" in page
    assert "12 GPU hours lost" in page


def test_a_viewer_reads_and_changes_nothing() -> None:
    viewer = make_user()
    Profile.objects.create(person=viewer, role="viewer")
    client = Client()
    client.force_login(viewer)
    incident = make_incident()
    page = page_of(client, f"/i/{incident.reference}")
    assert "Take" not in page
    assert "Add note" not in page
    assert "Run with the fix" not in page
    assert ">Diagnose</button>" not in page_of(client, "/")
    assert 'name="pick"' not in page_of(client, "/incidents/")
    for action in (
        "change", "take", "notes", "merge", "unmerge", "split", "feedback", "destroy", "texts",
    ):  # fmt: skip
        refused = client.post(f"/i/{incident.reference}/{action}", {"status": "resolved"})
        assert refused.status_code == 403, action
    assert "needs more rights" in refused.content.decode()
    for address in ("/incidents/bulk", "/incidents/undo", "/"):
        assert client.post(address, {"text": "x"}).status_code == 403
    assert not incident.log_book.exists()


def test_what_another_team_keeps_is_not_there(ada: Client) -> None:
    team = Team.objects.create(name="Vision", slug="vision")
    hidden, shown = make_incident(team=team, title="secret-run"), make_incident()
    mate = make_user()
    Membership.objects.create(team=team, person=mate)
    for part in ("", "/status", "/log", "/minimal", "/reproductions", "/texts/1/raw"):
        assert ada.get(f"/i/{hidden.reference}{part}", headers={"HX-Request": "true"}).status_code \
            == 404  # fmt: skip
    for action in ("change", "take", "notes", "merge", "unmerge", "split", "feedback", "destroy"):
        assert ada.post(f"/i/{hidden.reference}/{action}").status_code == 404
    assert "secret-run" not in page_of(ada, "/")
    assert "secret-run" not in page_of(ada, "/incidents/")
    answer = ada.post(f"/i/{shown.reference}/merge", {"into": hidden.reference}, follow=True)
    assert f"There is no incident {hidden.reference}" in answer.content.decode()
    ada.post("/incidents/bulk", {"do": "resolve", "pick": [hidden.pk]})
    hidden.refresh_from_db()
    assert hidden.status == "open"
    client = Client()
    client.force_login(mate)
    assert "secret-run" in page_of(client, "/incidents/")


def test_bulk_actions_tell_what_became_of_each(ada: Client, bob: Client) -> None:
    first, second, third = (make_incident() for _ in range(3))
    team = Team.objects.create(name="Vision", slug="vision")
    form = form_of(page_of(ada, "/incidents/?status=open"), "/incidents/bulk")
    bob.post(f"/i/{second.reference}/take", {"owner": "me"})
    picked = {**form, "do": "take", "pick": [first.pk, second.pk]}
    answer = ada.post("/incidents/bulk", picked, follow=True)
    page = html.unescape(answer.content.decode())
    assert answer.redirect_chain == [("/incidents/?status=open", 302)]
    assert "1 incident changed: you took it and started to investigate." in page
    assert f"{second.reference} changed since you opened it: bob set the owner to bob" in page
    undo = form_of(page, "/incidents/undo")
    ada.post("/incidents/undo", undo)
    first.refresh_from_db()
    assert (first.owner, first.status) == (None, "open")
    ada.post("/incidents/bulk", {"do": "resolve", "pick": [first.pk, third.pk]})
    ada.post("/incidents/bulk", {"do": "team", "team": "Vision", "pick": [third.pk]})
    third.refresh_from_db()
    assert (third.status, third.team) == ("resolved", team)
    nothing = ada.post("/incidents/bulk", {"do": "take"}, follow=True)
    assert "Pick incidents and an action first." in nothing.content.decode()


def test_the_list_keeps_its_filters_in_the_address(ada: Client) -> None:
    me = Profile.objects.create(person=make_user(username="zoe")).person
    mine = make_incident(owner=me, status="mitigated", severity="high", gpus=8, idle_minutes=60)
    other = make_incident(job_id="4711", title="llama", gpus=64, idle_minutes=60)
    client = Client()
    client.force_login(me)

    def shown(query: str) -> list[int]:
        page = page_of(client, f"/incidents/?{query}")
        return [int(n) for n in re.findall(r'<td class="number"><a href="/i/INC-(\d+)"', page)]

    assert shown("") == [other.pk, mine.pk]
    for query in ("owner=me", "owner=zoe", "status=mitigated", "severity=high"):
        assert shown(query) == [mine.pk], query
    for query in ("owner=none", "job=4711", "job=LLAMA", "status=open"):
        assert shown(query) == [other.pk], query
    assert shown("status=unresolved&since=2020-01-01&until=2200-01-01") == [other.pk, mine.pk]
    assert shown("until=2020-01-01") == []
    assert shown("sort=oldest") == [mine.pk, other.pk]
    assert shown("sort=severity") == [mine.pk, other.pk]
    assert shown("sort=cost") == [other.pk, mine.pk]
    assert shown("since=nonsense&until=2026-02-31&sort=x&status=y&host=%00&page=9e9") == [
        other.pk, mine.pk,
    ]  # fmt: skip
    page = page_of(client, "/incidents/?owner=me&severity=high")
    assert "<option selected>high</option>" in page
    assert 'href="/incidents/">Clear' in page


def test_the_list_finds_a_host_and_the_same_failure(ada: Client, diagnosed: Diagnosed) -> None:
    incident = diagnosed(BUS_ERROR)
    finding = incident.current_diagnosis.findings.get(position=0)
    finding.host = "node-02"
    finding.save()
    diagnosed(HEALTHY)
    for query in ("host=NODE-02", f"alike={incident.reference}"):
        page = page_of(ada, f"/incidents/?{query}")
        assert page.count('name="pick"') == 1
    assert "No incident fits" in page_of(ada, "/incidents/?alike=INC-99999")


def test_a_sorted_list_turns_pages_with_a_constant_number_of_queries(
    ada: Client, django_assert_max_num_queries: Any
) -> None:
    owner = make_user()
    team = Team.objects.create(name="a", slug="a", id=7)
    Membership.objects.create(team=team, person=owner)
    Incident.objects.bulk_create(
        Incident(title=f"r{n}", owner=owner, team=team, is_shared=True) for n in range(60)
    )
    with django_assert_max_num_queries(8):
        page = page_of(ada, "/incidents/?sort=severity")
    assert page.count('name="pick"') == 50
    further = re.search(r'href="(/incidents/\?sort=severity&page=1)"', page)
    assert further
    rest = page_of(ada, further[1])
    assert rest.count('name="pick"') == 10
    assert 'href="/incidents/?sort=severity">First page' in rest
