"""A flight recorder's pickle comes in as JSON text; any other pickle is refused, and none run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.factories import send
from triage.models import Incident
from triage.services.intake import IntakeError
from triage.services.texts import open_text

pytestmark = pytest.mark.django_db

DUMPS = Path(__file__).resolve().parent.parent / "data" / "flight_recorder"


def test_dumps_are_stored_as_json_text_and_diagnosed_together(work: Callable[[], Any]) -> None:
    names = ("nccl_trace_rank_2", "nccl_trace_rank_3")
    two, three = ((DUMPS / name).read_bytes() for name in names)
    with work():
        incident = send(two, gzip.compress(three), names=names).incident

    incident.refresh_from_db()
    for submission in incident.submissions.all():
        with open_text(submission) as stream:
            document = json.loads(stream.read())
        assert document["entries"][0]["profiling_name"] == "gloo:all_reduce"
    assert incident.verdict == "named"
    finding = incident.diagnoses.get().findings.first()
    assert (finding.slug, finding.rank) == ("collective-rank-conditional", 3)
    assert any("rank 3 never called all_gather 2" in reason for reason in finding.because)


def test_a_pickle_that_would_run_code_is_refused() -> None:
    with pytest.raises(IntakeError) as refused:
        send(b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.", names=("trace",))

    assert refused.value.code == "not-text"
    assert "GLOBAL (posix.system)" in refused.value.problem
    assert not Incident.objects.exists()
