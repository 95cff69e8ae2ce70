"""The demo: its July is the one that was promised, and nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import default_storage
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from kb.catalog import Catalog
from tests.factories import make_incident, make_user
from triage.models import Incident, LogBookEntry, Submission, Team, TimeEntry
from triage.reports.figures import figures
from triage.reports.months import Month

pytestmark = pytest.mark.django_db


def test_three_months_are_seeded_told_alike_and_removed_whole(
    catalog: Catalog, work: Callable[[], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    own = make_incident()
    with work():
        call_command("demo")
    assert "43 incidents made." in capsys.readouterr().out
    with pytest.raises(CommandError, match="there already"):
        call_command("demo")
    july = figures(Month(2026, 7), catalog, timezone.now())
    assert (july.incidents, july.minutes) == (23, 2_070)
    # Two of the four fatal ones show only what they do, not where: the engine says so.
    assert (july.named, july.undetermined) == (21, 2)
    assert len(july.pitfalls) == 12
    assert {row.slug for row in july.costliest} == {
        "dataloader-fork-deadlock", "collective-rank-conditional", "cuda-oom-graph-retention",
        "cuda-async-error-misattributed",
    }  # fmt: skip
    assert [row.incidents for row in july.trend][-2:] == [9, 23]
    client = Client()
    client.force_login(make_user())
    page = client.get("/reports/2026-07/").text
    assert "34.5 h" in page
    assert "Demo data is among these incidents." in page
    assert client.get("/reports/2026-07/report.json").json()["minutes"] == 2_070
    stored = list(Submission.objects.values_list("stored_at", flat=True))
    assert all(default_storage.exists(name) for name in stored)
    with work():
        call_command("demo", remove=True)
    assert list(Incident.objects.all()) == [own]
    assert not any(default_storage.exists(name) for name in stored)
    for rows in (TimeEntry, Team, LogBookEntry):
        assert not rows.objects.exists()
    assert not User.objects.filter(username__startswith="demo.").exists()
