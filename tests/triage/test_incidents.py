"""A text that should not be here is destroyed with everything that quotes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.storage import default_storage

from tests.factories import BUS_ERROR, HEALTHY, make_user, send
from triage.models import Finding, Submission
from triage.services import incidents

pytestmark = pytest.mark.django_db


def test_all_texts_are_destroyed(work: Callable[[], Any]) -> None:
    ada = make_user()
    with work():
        incident = send(BUS_ERROR, HEALTHY, names=("a.log", "b.log"), who=ada).incident
    files = list(Submission.objects.values_list("stored_at", flat=True))

    with work():
        assert incidents.destroy_texts(incident, ada, reason="wrong paste") == 2

    incident.refresh_from_db()
    assert (incident.state, incident.verdict, incident.current_diagnosis) == ("destroyed", "", None)
    assert not any(default_storage.exists(name) for name in files)
    assert not Finding.objects.exists()
    for row in Submission.objects.all():
        assert (row.state, row.evidence, row.line_index) == ("destroyed", None, [])
        assert (row.name, row.sha256, row.stored_at) == ("", "", "")
    last = incident.log_book.last()
    assert (last.kind, last.who) == ("destroyed", ada)
    assert last.data == {"texts": [1, 2], "reason": "wrong paste"}
    assert incidents.destroy_texts(incident, ada) == 0
    assert incident.log_book.filter(kind="destroyed").count() == 1


def test_the_rest_is_diagnosed_again(work: Callable[[], Any]) -> None:
    with work():
        incident = send(BUS_ERROR, HEALTHY).incident

    with work():
        assert incidents.destroy_texts(incident, positions=[1]) == 1

    incident.refresh_from_db()
    assert (incident.state, incident.verdict) == ("diagnosed", "clean")
    assert incident.current_diagnosis.texts == [2]
    assert incident.diagnoses.count() == 1


def test_what_was_destroyed_can_be_sent_again(work: Callable[[], Any]) -> None:
    ada = make_user()
    with work():
        incident = send(BUS_ERROR, who=ada).incident
        incidents.destroy_texts(incident, ada)

    with work():
        again = send(BUS_ERROR, who=ada)

    assert again.created
    again.incident.refresh_from_db()
    assert again.incident.verdict == "named"


def test_nothing_is_destroyed_before_the_commit(work: Callable[[], Any]) -> None:
    incident = send(BUS_ERROR).incident
    stored_at = incident.submissions.get().stored_at

    with work():
        incidents.destroy_texts(incident)
        assert default_storage.exists(stored_at)

    assert not default_storage.exists(stored_at)
