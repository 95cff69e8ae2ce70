"""Times in the reader's zone: the profile's, the browser's, or UTC."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client
from django.utils import timezone

from tests.factories import make_incident, make_user
from triage.models import Incident, Profile

pytestmark = [pytest.mark.django_db, pytest.mark.services]


@pytest.fixture
def incident() -> Incident:
    made = make_incident()
    moment = datetime(2026, 7, 1, 22, 30, tzinfo=UTC)
    Incident.objects.filter(pk=made.pk).update(created_at=moment)
    return made


def stamps(client: Client) -> str:
    return client.get("/incidents/").content.decode()


def test_the_profile_comes_before_the_browser_and_utc_last(incident: Incident) -> None:
    person, client = make_user(), Client()
    client.force_login(person)
    assert "2026-07-01 22:30 UTC" in stamps(client)
    client.cookies["time_zone"] = "America/New_York"
    assert "2026-07-01 18:30 EDT" in stamps(client)
    Profile.objects.create(person=person, time_zone="Europe/Berlin")
    page = stamps(client)
    assert "2026-07-02 00:30 CEST" in page
    assert 'data-time-zone="Europe/Berlin"' in page
    assert timezone.get_current_timezone_name() == "UTC"


@pytest.mark.parametrize("name", ["", "Mars/Base", "../../etc/passwd", "/etc/localtime", "x" * 999])
def test_a_name_that_is_no_zone_counts_as_none(incident: Incident, name: str) -> None:
    client = Client()
    client.force_login(make_user())
    client.cookies["time_zone"] = name
    assert "2026-07-01 22:30 UTC" in stamps(client)


def test_days_of_a_filter_are_the_readers(incident: Incident) -> None:
    client = Client()
    client.force_login(make_user())
    address = "/incidents/?since=2026-07-02&until=2026-07-02"
    assert "No incident fits" in client.get(address).content.decode()
    client.cookies["time_zone"] = "Europe/Berlin"
    assert incident.reference in client.get(address).content.decode()
