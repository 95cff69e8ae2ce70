"""References, lists that stay cheap, and constraints that hold in the database itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from tests.factories import BUS_ERROR, HEALTHY, make_incident, make_submission, make_token, send
from triage.models import ApiToken, Diagnosis, Incident, Submission

pytestmark = pytest.mark.django_db


def test_references_are_read_as_people_write_them() -> None:
    assert (
        Incident.number_of("INC-12")
        == Incident.number_of(" inc-12 ")
        == Incident.number_of("12")
        == 12
    )
    for wrong in ("INC-", "INC-1x", "-1", "INC-1\n2", "9" * 30, ""):
        assert Incident.number_of(wrong) is None
    incident = make_incident()
    assert str(incident) == incident.reference == f"INC-{incident.pk}"
    assert incident.get_absolute_url().rstrip("/").endswith(incident.reference)


def test_one_incident_a_job_attempt() -> None:
    make_incident(job_id="7", attempt=1)
    make_incident(job_id="7", attempt=2)
    make_incident()
    make_incident()

    with pytest.raises(IntegrityError), transaction.atomic():
        make_incident(job_id="7", attempt=1)


def test_one_diagnosis_a_revision_and_catalog() -> None:
    incident = make_incident()
    fields = {"incident": incident, "revision": 2, "verdict": "clean"}
    Diagnosis.objects.create(**fields, catalog_version="a")
    Diagnosis.objects.create(**fields, catalog_version="b")

    with pytest.raises(IntegrityError), transaction.atomic():
        Diagnosis.objects.create(**fields, catalog_version="a")


def test_a_list_costs_the_same_for_one_as_for_many(
    work: Callable[[], Any], django_assert_num_queries: Callable[[int], Any]
) -> None:
    with work():
        for number in range(5):
            send(f"{BUS_ERROR}{number}\n")

    with django_assert_num_queries(2):
        rows = list(Incident.objects.newest_first().with_answer())
        slugs = [row.current_diagnosis.findings.all()[0].slug for row in rows]

    assert slugs == ["dataloader-shm-bus-error"] * 5
    assert [row.pk for row in rows] == sorted((row.pk for row in rows), reverse=True)


def test_caused_by_asks_for_the_answer_of_the_current_diagnosis(work: Callable[[], Any]) -> None:
    with work():
        named = send(BUS_ERROR).incident
        send(HEALTHY)

    assert list(Incident.objects.caused_by("dataloader-shm-bus-error")) == [named]
    assert not Incident.objects.caused_by("nccl-watchdog-timeout").exists()
    assert list(Incident.objects.seen_since(timezone.now() + timedelta(minutes=1))) == []
    assert Incident.objects.seen_since(timezone.now() - timedelta(minutes=1)).count() == 2


def test_a_diagnosis_is_owed_only_when_all_texts_are_read() -> None:
    now = timezone.now()
    first = make_submission(state=Submission.State.SCANNED)
    second = make_submission(HEALTHY, incident=first.incident)

    assert not Incident.objects.owed_diagnosis(now).exists()
    assert list(Submission.objects.owed_scan(now)) == [second]
    Submission.objects.update(state=Submission.State.FAILED)
    assert list(Incident.objects.owed_diagnosis(now)) == [first.incident]
    Incident.objects.update(lease_until=now + timedelta(seconds=9))
    assert not Incident.objects.owed_diagnosis(now).exists()
    assert Incident.objects.owed_diagnosis(now + timedelta(seconds=10)).exists()


def test_texts_are_listed_without_their_megabytes() -> None:
    make_submission()

    light = Submission.objects.light().get()

    assert {"evidence", "line_index"} <= light.get_deferred_fields()


def test_usable_tokens() -> None:
    now = timezone.now()
    token, _ = make_token()
    make_token(expires_at=now - timedelta(seconds=1))
    revoked, _ = make_token()
    ApiToken.objects.filter(pk=revoked.pk).update(revoked_at=now)

    assert list(ApiToken.objects.usable(now)) == [token]
