"""What timers and minutes count: one at a time, nothing twice, nothing lost, forgotten ones cut."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from tests.factories import make_incident, make_token, make_user
from triage.models import Incident, Membership, Profile, Team, TimeEntry
from triage.services import sweep, time_book
from triage.services.time_book import TimeError

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Sets what time it is."""

    def put(moment: datetime) -> None:
        monkeypatch.setattr(timezone, "now", lambda: moment)

    return put


def kinds(incident: Incident) -> list[str]:
    """The log book of an incident."""
    return list(incident.log_book.values_list("kind", flat=True))


def test_one_person_runs_one_timer(clock: Callable[[datetime], None]) -> None:
    mo, first, second = make_user(), make_incident(), make_incident()
    clock(NOON)
    started = time_book.start(first, mo)
    clock(NOON + timedelta(minutes=10))
    assert time_book.start(first, mo).entry == started.entry
    clock(NOON + timedelta(minutes=30))
    other = time_book.start(second, mo)
    assert other.stopped is not None
    assert (other.stopped.incident, other.stopped.minutes) == (first, 30)
    assert time_book.stop(mo, first) is None
    clock(NOON + timedelta(minutes=45, seconds=29))
    ended = time_book.stop(mo)
    assert ended is not None
    assert ended.minutes == 15
    assert time_book.stop(mo) is None
    assert kinds(first) == ["timer_started", "timer_stopped"]
    assert kinds(second) == ["timer_started", "timer_stopped"]


def test_two_people_on_one_incident_count_each(clock: Callable[[datetime], None]) -> None:
    incident = make_incident()
    for person in (make_user(), make_user()):
        clock(NOON)
        time_book.start(incident, person)
        clock(NOON + timedelta(minutes=20))
        time_book.stop(person)
    assert incident.time_entries.total_minutes() == 40


def test_a_forgotten_timer_is_cut_and_says_so(clock: Callable[[datetime], None]) -> None:
    mo, incident = make_user(), make_incident()
    clock(NOON)
    time_book.start(incident, mo)
    clock(NOON + timedelta(hours=7, minutes=59))
    assert sweep.sweep().timers == 0
    clock(NOON + timedelta(days=3))
    assert sweep.sweep().timers == 1
    assert sweep.sweep().timers == 0
    entry = TimeEntry.objects.get()
    assert (entry.minutes, entry.is_capped) == (480, True)
    assert incident.log_book.last().data["is_capped"] is True
    changed = time_book.change(entry, 25, by=mo)
    assert (changed.minutes, changed.is_capped) == (25, False)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_what_overlaps_counts_once_in_whatever_order_it_was_put_down(
    order: tuple[int, ...],
) -> None:
    mo, incidents = make_user(), [make_incident() for _ in range(4)]
    # 12:00-13:00, 12:30-13:30, 12:45-12:50 within both, 13:30-13:40 beside them
    spans = [(60, 60), (90, 60), (50, 5), (100, 10)]
    for number in order:
        end, minutes = spans[number]
        time_book.add(incidents[number], mo, minutes, ended_at=NOON + timedelta(minutes=end))
    counted = [incident.time_entries.total_minutes() for incident in incidents]
    assert counted == [60, 30, 0, 10]
    assert TimeEntry.objects.filter(person=mo).total_minutes() == 100


def test_what_is_taken_back_gives_its_minutes_to_what_it_covered() -> None:
    mo, incident = make_user(), make_incident()
    whole = time_book.add(incident, mo, 60, ended_at=NOON)
    part = time_book.add(incident, mo, 30, ended_at=NOON)
    assert part.minutes == 0
    assert time_book.void(whole, by=mo)
    assert not time_book.void(whole, by=mo)
    part.refresh_from_db()
    assert part.minutes == 30
    assert incident.time_entries.total_minutes() == 30
    with pytest.raises(TimeError):
        time_book.change(whole, 5, by=mo)


@pytest.mark.parametrize("minutes", [0, -5, 1_441])
def test_odd_numbers_are_refused(minutes: int) -> None:
    with pytest.raises(TimeError, match="1 to 1,440 minutes"):
        time_book.add(make_incident(), make_user(), minutes)
    assert not TimeEntry.objects.exists()


def test_a_timer_that_another_request_starts_at_that_moment_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mo, first, second = make_user(), make_incident(), make_incident()
    time_book.start(first, mo)
    look, looks = time_book._locked_running, []

    def too_early(person: User) -> TimeEntry | None:
        looks.append(person)
        return None if len(looks) == 1 else look(person)

    monkeypatch.setattr(time_book, "_locked_running", too_early)
    started = time_book.start(second, mo)
    assert len(looks) == 2
    assert started.stopped is not None
    assert started.stopped.incident == first
    assert [entry.incident for entry in TimeEntry.objects.running()] == [second]
    assert kinds(second) == ["timer_started"]


def client_of(person: Any) -> Client:
    """A browser in which this person is signed in."""
    client = Client()
    client.force_login(person)
    return client


def test_a_timer_started_in_a_tab_is_stopped_by_the_api(clock: Callable[[datetime], None]) -> None:
    mo, incident = make_user(), make_incident()
    page = client_of(mo)
    clock(NOON)
    assert page.post(f"/i/{incident.reference}/timer", {"deed": "start"}).status_code == 302
    assert 'data-timer-since="2026-11-03T12:00:00' in page.get(f"/i/{incident.reference}").text
    _, key = make_token("write", owner=mo)
    api = Client(headers={"Authorization": f"Bearer {key}"})
    clock(NOON + timedelta(minutes=31))
    assert api.get("/api/v1/timer").json()["running"]["incident"] == incident.reference
    address = f"/api/v1/incidents/{incident.reference}/timer"
    again = api.post(f"{address}/start").json()
    assert again["stopped"] is None
    ended = api.post(f"{address}/stop").json()
    assert (ended["running"], ended["stopped"]["minutes"]) == (None, 31)
    assert api.post(f"{address}/stop").json() == {"running": None, "stopped": None}
    assert "<b>31 min</b> of people so far." in page.get(f"/i/{incident.reference}").text
    assert api.get(f"/api/v1/incidents/{incident.reference}/time").json()["minutes"] == 31
    assert "stopped the timer: 31 min" in page.get(f"/i/{incident.reference}").text


def test_minutes_by_hand_in_the_page_and_by_the_api() -> None:
    mo, incident = make_user(), make_incident()
    page = client_of(mo)
    address = f"/i/{incident.reference}/time"
    page.post(address, {"minutes": "1 h 30 min", "note": "read the dumps"})
    assert TimeEntry.objects.get().minutes == 90
    said = page.post(address, {"minutes": "soon"}, follow=True).text
    assert "Write it as 45, 1:30 or 1 h 30 min." in said
    entry = TimeEntry.objects.get()
    page.post(f"/time/{entry.pk}/change", {"minutes": "0:20"})
    entry.refresh_from_db()
    assert entry.minutes == 20
    _, key = make_token("write", owner=mo)
    api = Client(headers={"Authorization": f"Bearer {key}"})
    added = api.post(
        f"/api/v1/incidents/{incident.reference}/time",
        {"minutes": 10, "note": "by script", "ended_at": "2026-11-03T12:00:00Z"},
        "application/json",
    )
    assert (added.status_code, added.json()["minutes"]) == (201, 10)
    future = {"minutes": 10, "ended_at": "2999-01-01T00:00:00Z"}
    refused = api.post(f"/api/v1/incidents/{incident.reference}/time", future, "application/json")
    assert (refused.status_code, refused.json()["detail"]) == (422, "That is in the future.")
    assert api.delete(f"/api/v1/time/{added.json()['id']}").status_code == 204
    assert incident.time_entries.total_minutes() == 20
    _, nobodys = make_token("write")
    anybody = Client(headers={"Authorization": f"Bearer {nobodys}"})
    assert anybody.get("/api/v1/timer").status_code == 422


def test_owner_team_mate_and_stranger() -> None:
    team = Team.objects.create(name="vision", slug="vision")
    owner, mate, stranger, viewer, chief = (make_user() for _ in range(5))
    for person in (owner, mate, viewer):
        Membership.objects.create(team=team, person=person)
    Profile.objects.create(person=viewer, role="viewer")
    Profile.objects.create(person=chief, role="admin")
    incident = make_incident(team=team)
    entry = time_book.add(incident, owner, 30)
    add = f"/i/{incident.reference}/time"
    assert client_of(stranger).post(add, {"minutes": "5"}).status_code == 404
    assert client_of(viewer).post(add, {"minutes": "5"}).status_code == 403
    assert client_of(viewer).get(f"/i/{incident.reference}").status_code == 200
    change = f"/time/{entry.pk}/change"
    for person, status in ((mate, 404), (stranger, 404), (viewer, 403)):
        assert client_of(person).post(change, {"deed": "void"}).status_code == status
    assert client_of(chief).post(change, {"minutes": "20"}).status_code == 302
    assert TimeEntry.objects.get().minutes == 20
    assert client_of(mate).post(add, {"minutes": "5"}).status_code == 302
    rows = {person: csv_rows(client_of(person)) for person in (owner, mate, stranger)}
    assert [len(found) for found in rows.values()] == [2, 2, 0]


def csv_rows(client: Client, query: str = "") -> list[dict[str, str]]:
    """The lines of the export."""
    answer = client.get(f"/time/entries.csv{query}")
    return list(csv.DictReader(io.StringIO(answer.getvalue().decode())))


def test_the_export_adds_up_and_holds_no_formula() -> None:
    mo = make_user(username="=mo")
    incident = make_incident(slug="disk-full")
    time_book.add(incident, mo, 60, ended_at=NOON, note='=HYPERLINK("http://x")')
    time_book.add(incident, mo, 45, ended_at=NOON + timedelta(minutes=15), note="plain")
    rows = csv_rows(client_of(mo))
    assert [row["note"] for row in rows] == ['\'=HYPERLINK("http://x")', "plain"]
    assert rows[0]["person"] == "'=mo"
    assert sum(int(row["minutes"]) for row in rows) == incident.time_entries.total_minutes() == 75
    assert [r["minutes"] for r in csv_rows(client_of(mo), "?from=2026-11-04")] == []
    assert len(csv_rows(client_of(mo), "?from=2026-11-03&to=2026-11-03")) == 2
    assert len(csv_rows(client_of(mo), "?from=2026-13-99&to=x")) == 2


def test_ones_own_time_costs_the_same_for_many_entries(django_assert_num_queries: Any) -> None:
    mo = make_user()
    page = client_of(mo)
    assert "No time yet." in page.get("/time/").text
    for number in range(30):
        end = timezone.now() - timedelta(hours=2 * number)
        time_book.add(make_incident(), mo, 45, ended_at=end)
    with django_assert_num_queries(5):
        said = page.get("/time/").text
    assert "<b>22 h 30 min</b> in the last 31 days." in said
