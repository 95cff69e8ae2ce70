"""The month: figures that mean what they say, and agree in every form."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from kb.catalog import Catalog
from tests.factories import make_incident, make_token, make_user
from triage.models import Feedback, Incident, Membership, MonthlyReport, Profile, Team
from triage.reports.figures import Figures, figures
from triage.reports.months import Month
from triage.services import monthly, time_book

pytestmark = pytest.mark.django_db

JULY = Month(2026, 7)


def incident_of(moment: datetime, **facts: Any) -> Incident:
    """An incident that came in at this moment."""
    incident = make_incident(**facts)
    Incident.objects.filter(pk=incident.pk).update(created_at=moment)
    incident.refresh_from_db()
    return incident


def day(month: int, number: int, hour: int = 12) -> datetime:
    """A moment of 2026."""
    return datetime(2026, month, number, hour, tzinfo=UTC)


def told(catalog: Catalog, **more: Any) -> Figures:
    """July's figures."""
    return figures(JULY, catalog, **({"now": day(9, 1)} | more))


@pytest.fixture
def july() -> list[Incident]:
    """Three incidents of July and one of June, on which somebody worked in July, too."""
    ada, bob = make_user(), make_user()
    disk = incident_of(day(7, 1, 0), slug="disk-full", verdict="named", gpus=8, idle_minutes=90)
    nan = incident_of(day(7, 31, 23), slug="loss-nan", verdict="named")
    open_one = incident_of(day(7, 9), verdict="undetermined")
    june = incident_of(day(6, 30, 23), slug="disk-full", verdict="named", gpus=4, idle_minutes=60)
    time_book.add(disk, ada, 60, ended_at=day(7, 2))
    time_book.add(nan, bob, 45, ended_at=day(7, 31, 23))
    time_book.add(nan, ada, 30, ended_at=day(7, 2))  # the other entry covers it
    time_book.add(june, bob, 20, ended_at=day(7, 3))
    time_book.add(june, bob, 10, ended_at=day(6, 30))
    Incident.objects.filter(pk=disk.pk).update(
        diagnosed_at=day(7, 1, 0) + timedelta(seconds=4),
        status="resolved",
        resolved_at=day(7, 1, 3),
    )
    return [disk, nan, open_one, june]


def test_what_came_in_and_what_it_cost(catalog: Catalog, july: list[Incident]) -> None:
    month = told(catalog)
    assert (month.incidents, month.minutes, month.gpu_minutes) == (3, 125, 720)
    assert (month.named, month.undetermined, month.clean) == (2, 1, 0)
    assert (month.diagnosis_s, month.resolution_s, month.resolved) == (4.0, 3 * 3600.0, 1)
    assert month.share_undetermined == pytest.approx(1 / 3)
    rows = {row.slug: row for row in month.pitfalls}
    assert [row.slug for row in month.pitfalls] == ["disk-full", "loss-nan", ""]
    disk = rows["disk-full"]
    assert (disk.incidents, disk.minutes, disk.incidents_before, disk.minutes_before) == (
        1,
        80,
        1,
        10,
    )
    assert [row.slug for row in month.costliest] == ["disk-full", "loss-nan"]
    assert month.new == ["loss-nan"]
    assert "disk-full" not in month.silent
    assert "backward-twice" in month.silent
    assert [(row.month, row.incidents, row.minutes) for row in month.trend][-2:] == [
        ("2026-06", 1, 10), ("2026-07", 3, 125),
    ]  # fmt: skip
    assert not month.is_partial
    assert figures(JULY, catalog, day(7, 20)).is_partial


def test_a_merged_incident_counts_once(catalog: Catalog, july: list[Incident]) -> None:
    Incident.objects.filter(pk=july[1].pk).update(merged_into=july[0])
    assert told(catalog).incidents == 2


def test_opinions_count_while_they_stand(catalog: Catalog, july: list[Incident]) -> None:
    said = {"person": make_user(), "slug": "disk-full", "at": day(7, 2)}
    Feedback.objects.create(incident=july[0], about="diagnosis", is_good=False, **said)
    for good in (True, False):
        said["person"] = make_user()
        Feedback.objects.create(
            incident=july[0], about="fix", fix_title="Clean up", is_good=good, **said
        )
    Feedback.objects.create(
        incident=july[1], about="diagnosis", is_good=False, withdrawn_at=day(7, 3), **said
    )
    month = told(catalog)
    assert month.corrected == 1
    assert [(fix.title, fix.worked, fix.tried) for fix in month.fixes] == [("Clean up", 1, 2)]


def sums(text: str) -> tuple[int, int]:
    """Incidents and minutes of a CSV."""
    rows = list(csv.DictReader(io.StringIO(text)))
    of_month = [row for row in rows if row["of_month"] == "yes"]
    return len(of_month), sum(int(row["minutes"]) for row in rows)


def test_page_files_command_and_api_agree(july: list[Incident]) -> None:
    client = Client()
    client.force_login(make_user())
    page = client.get("/reports/2026-07/")
    assert page.context["told"].minutes == 125
    assert "2 h 5 min" in page.text
    as_json = client.get("/reports/2026-07/report.json").json()
    assert (as_json["incidents"], as_json["minutes"]) == (3, 125)
    assert sums(client.get("/reports/2026-07/report.csv").text) == (3, 125)
    assert "3 incidents took 2.1 hours" in client.get("/reports/2026-07/report.md").text
    _, key = make_token("read")
    by_api = Client(headers={"Authorization": f"Bearer {key}"}).get("/api/v1/reports/2026-07")
    assert by_api.json() == as_json | {"silent": by_api.json()["silent"]}
    for form in ("json", "csv", "md", "html"):
        out = io.StringIO()
        call_command("report", "2026-07", format=form, stdout=out)
        if form == "json":
            assert json.loads(out.getvalue())["minutes"] == 125
        elif form == "csv":
            assert sums(out.getvalue()) == (3, 125)
        else:
            assert "3 incidents took 2.1 hours" in out.getvalue()
    with pytest.raises(CommandError, match="write it as 2026-11"):
        call_command("report", "July")


def test_a_timer_arrives_in_the_month(catalog: Catalog) -> None:
    ada, incident = make_user(), make_incident()
    entry = time_book.start(incident, ada).entry
    entry.started_at -= timedelta(minutes=12)
    entry.save()
    month = Month.of(entry.started_at)
    assert figures(month, catalog, timezone.now()).minutes == 0
    time_book.stop(ada)
    assert figures(month, catalog, timezone.now()).minutes == 12


def test_a_team_reads_its_own_month(july: list[Incident]) -> None:
    team = Team.objects.create(name="vision", slug="vision")
    Incident.objects.filter(pk=july[0].pk).update(team=team)
    mate, stranger, chief = make_user(), make_user(), make_user()
    Membership.objects.create(team=team, person=mate)
    Profile.objects.create(person=chief, role="admin")
    counts = []
    for person in (mate, stranger, chief):
        client = Client()
        client.force_login(person)
        counts.append(client.get("/reports/2026-07/report.json").json()["incidents"])
    assert counts == [3, 2, 3]


@pytest.mark.parametrize("name", ["2026-13", "2026-7", "x", "2999-01", "..%2f"])
def test_no_such_month_is_said_so(name: str) -> None:
    client = Client()
    client.force_login(make_user())
    assert client.get(f"/reports/{name}/").status_code == 404


def test_an_empty_month_teaches() -> None:
    client = Client()
    client.force_login(make_user())
    assert "Nothing happened in March 2025." in client.get("/reports/2025-03/").text
    assert client.get("/reports/").url == f"/reports/{Month.of(timezone.now())}/"


def test_the_page_costs_the_same_for_many(
    july: list[Incident], django_assert_max_num_queries: Any
) -> None:
    client = Client()
    client.force_login(make_user())
    ada = make_user()
    for number in range(60):
        incident = incident_of(day(7, 1 + number % 30), slug="disk-full", verdict="named")
        time_book.add(incident, ada, 5, ended_at=day(7, 1 + number % 30, number % 24))
    with django_assert_max_num_queries(40):
        client.get("/reports/2026-07/")


def test_each_month_is_written_once(july: list[Incident], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: day(8, 1, 0))
    assert monthly.write_due() == ["2026-06", "2026-07"]
    assert monthly.write_due() == []
    assert MonthlyReport.objects.get(month="2026-07").figures["minutes"] == 125
    monkeypatch.setattr(timezone, "now", lambda: day(10, 2, 0))
    assert monthly.write_due() == ["2026-08", "2026-09"]


def test_months_follow_each_other() -> None:
    assert str(Month(2026, 12).later(1)) == "2027-01"
    assert str(Month(2026, 1).later(-1)) == "2025-12"
    assert Month(2026, 2).end == Month(2026, 3).start
    assert Month.parse("2026-11").words == "November 2026"
