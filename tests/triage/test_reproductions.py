"""Reproductions: asked for, routed, run, cancelled, found again; and the proofs that follow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kb.catalog.proof import digest_of
from tests.factories import BUS_ERROR, HEALTHY, make_incident, make_user, make_worker, send
from triage.models import Incident, Reproduction, Verification, WorkerCapability
from triage.reproduction import NoSandboxError
from triage.services import reproductions, verifications, workers
from triage.services.catalog import current_catalog
from triage.services.intake import JobFacts
from triage.services.reproductions import RefusedError
from triage.services.sweep import sweep

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unproved")]

SLUG = "dataloader-shm-bus-error"
RANK_CONDITIONAL = "collective-rank-conditional"
Work = Callable[[], Any]


@pytest.fixture
def incident(work: Work) -> Incident:
    with work():
        received = send(BUS_ERROR)
    return Incident.objects.with_answer().get(pk=received.incident.pk)


def kinds(incident: Incident) -> list[str]:
    rows = incident.log_book.filter(kind__startswith="reproduction")
    return [kind.removeprefix("reproduction_") for kind in rows.values_list("kind", flat=True)]


# ------------------------------------------------------------------------------- asking


def test_the_incidents_own_pitfall_is_run_and_shows_the_same_failure(
    incident: Incident, work: Work, sandbox: Any
) -> None:
    make_worker()
    person = make_user()
    with work():
        row = reproductions.ask(incident, options={"shm-mb": 4}, who=person)
    row.refresh_from_db()
    assert (row.slug, row.state, row.same_failure) == (SLUG, "done", True)
    assert sandbox.calls == [{"slug": SLUG, "fixed": False, "options": {"shm-mb": 4}}]
    assert row.output == BUS_ERROR
    assert row.result["verdict"] == "named"
    assert row.result["torch"] == "2.13.0+cpu"
    assert "output" not in row.result
    assert kinds(incident) == ["asked", "started", "ended"]
    assert incident.log_book.get(kind="reproduction_asked").who == person


def test_another_failure_is_not_called_the_same(
    incident: Incident, work: Work, sandbox: Any
) -> None:
    make_worker()
    sandbox.broken = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n"
    with work():
        row = reproductions.ask(incident)
    row.refresh_from_db()
    assert row.same_failure is False
    assert row.named != SLUG


def test_the_fix_that_holds_asks_for_a_proof_which_verify_writes(
    incident: Incident, work: Work, sandbox: Any
) -> None:
    make_worker()
    with work():
        row = reproductions.ask(incident, fixed=True)
    row.refresh_from_db()
    assert (row.state, row.same_failure) == ("done", None)
    assert row.result["verdict"] == "clean"
    assert row.result["ran_to_its_end"] is True
    proof = Verification.objects.get()
    with work():
        sweep()
    proof.refresh_from_db()
    assert (proof.state, proof.slug) == ("done", SLUG)
    assert (proof.reproduced, proof.fix_verified) == (True, True)
    assert proof.broken_output == BUS_ERROR
    pitfall = current_catalog().by_slug[SLUG]
    assert proof.entry_digest == digest_of(pitfall)
    assert [p.fix_verified for p in verifications.proofs_of(pitfall)] == [True]


@pytest.mark.parametrize(
    ("slug", "options", "code"),
    [
        (SLUG, {"shm-mb": 8}, "invalid-option"),
        (SLUG, {"shm-mb": -1}, "invalid-option"),
        (SLUG, {"world-size": 2}, "invalid-option"),
        ("no-such-thing", {}, "unknown-pitfall"),
    ],
)
def test_only_checked_numbers_and_entries_with_a_script_are_run(
    incident: Incident, sandbox: Any, slug: str, options: dict[str, int], code: str
) -> None:
    make_worker()
    with pytest.raises(RefusedError) as refused:
        reproductions.ask(incident, slug, options=options)
    assert refused.value.code == code
    assert not Reproduction.objects.exists()
    assert sandbox.calls == []


def test_an_entry_without_a_script_is_refused_with_its_reason(incident: Incident) -> None:
    without = next(
        p for p in current_catalog().active if p.reproduction and not p.reproduction.is_runnable
    )
    with pytest.raises(RefusedError) as refused:
        reproductions.ask(incident, without.slug)
    assert refused.value.code == "no-reproduction"
    assert refused.value.hint == (without.reproduction and without.reproduction.reason)


def test_nothing_comes_near_a_clean_incident(work: Work) -> None:
    with work():
        clean = send(HEALTHY).incident
    clean.refresh_from_db()
    with pytest.raises(RefusedError, match="No entry"):
        reproductions.ask(clean)


def test_the_same_request_is_one_run(incident: Incident) -> None:
    first = reproductions.ask(incident)
    assert reproductions.ask(incident) == first
    assert reproductions.ask(incident, fixed=True) != first


def test_the_incidents_numbers_fill_the_form_within_the_range(work: Work) -> None:
    pitfall = current_catalog().by_slug[RANK_CONDITIONAL]
    eight_ranks = "".join(f"[rank{rank}]: step 1 loss 2.31\n" for rank in range(8))
    with work():
        received = send(eight_ranks + BUS_ERROR)
    found = reproductions.suggested(received.incident, pitfall)
    assert [(s.option.name, s.seen, s.value) for s in found] == [("world-size", 8, 4)]
    with work():
        given = send(BUS_ERROR, job=JobFacts(id="1", gpus=16, more={"world_size": 2}))
    found = reproductions.suggested(given.incident, pitfall)
    assert [(s.seen, s.value) for s in found] == [(2, 2)]
    assert reproductions.suggested(make_incident(), pitfall)[0].value is None


def test_torch_comes_from_the_job_else_from_a_text(work: Work) -> None:
    with work():
        shown = send(f"torch 2.1.0+cu121\n{BUS_ERROR}").incident
        told = send(HEALTHY, job=JobFacts(id="2", more={"torch": "2.4.1"})).incident
    assert reproductions.torch_of(shown) == "2.1.0"
    assert reproductions.torch_of(told) == "2.4.1"
    assert reproductions.torch_of(make_incident()) == ""


# ------------------------------------------------------------------------------- routing


def test_without_a_worker_it_waits_and_says_for_what(
    incident: Incident, work: Work, sandbox: Any
) -> None:
    with work():
        row = reproductions.ask(incident)
    row.refresh_from_db()
    assert (row.state, sandbox.calls) == ("waiting", [])
    assert row.waits_for == "a worker for reproductions: none is running"
    with work():
        assert sweep().reproductions == 0
    make_worker()
    with work():
        assert sweep().reproductions == 1
    row.refresh_from_db()
    assert (row.state, row.waits_for, len(sandbox.calls)) == ("done", "", 1)


def test_a_worker_that_lacks_something_is_named_with_it(incident: Incident) -> None:
    make_worker(sandbox=False, why="no sandbox here: bubblewrap is not installed")
    make_worker(memory_mib=512)
    row = reproductions.ask(incident)
    assert row.state == "waiting"
    assert "no sandbox here: bubblewrap is not installed" in row.waits_for
    assert "has 512 MiB of memory, 1024 are needed" in row.waits_for


def test_work_for_the_cpu_may_go_to_a_gpu_worker_and_never_the_other_way() -> None:
    cpu = current_catalog().by_slug[SLUG].reproduction
    assert cpu is not None
    make_worker("gpu", devices=("NVIDIA H100",))
    assert workers.route(cpu).queue == "gpu"
    make_worker("cpu")
    assert workers.route(cpu).queue == "cpu"
    WorkerCapability.objects.filter(queue="gpu").delete()
    assert not workers.is_any_able("gpu1")


def test_a_silent_worker_is_gone() -> None:
    reproduction = current_catalog().by_slug[SLUG].reproduction
    assert reproduction is not None
    make_worker()
    assert workers.route(reproduction).queue == "cpu"
    WorkerCapability.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=2))
    assert workers.route(reproduction).queue == ""


def test_a_worker_that_cannot_after_all_gives_it_back(
    incident: Incident, work: Work, sandbox: Any
) -> None:
    make_worker()
    sandbox.error = NoSandboxError("no sandbox here: namespaces are forbidden")
    with work():
        row = reproductions.ask(incident)
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("waiting", 0)
    assert "namespaces are forbidden" in row.waits_for
    # However often that happens, its log book says once that it began.
    assert not reproductions.run(row.pk)
    assert kinds(incident) == ["asked", "started"]


# ------------------------------------------------------------------------------- once, or said why


def test_a_run_that_somebody_holds_is_left_alone(incident: Incident, sandbox: Any) -> None:
    row = reproductions.ask(incident)
    Reproduction.objects.filter(pk=row.pk).update(
        state="running", lease_owner="other", lease_until=timezone.now() + timedelta(minutes=1)
    )
    make_worker()
    assert not reproductions.run(row.pk)
    assert sweep().reproductions == 0
    assert sandbox.calls == []


def test_what_a_killed_worker_left_is_run_once_more_then_failed(
    incident: Incident, work: Work, sandbox: Any
) -> None:
    row = reproductions.ask(incident)
    long_ago = timezone.now() - timedelta(minutes=5)
    lost = {"state": "running", "lease_owner": "dead", "lease_until": long_ago}
    Reproduction.objects.filter(pk=row.pk).update(**lost, attempts=1)
    make_worker()
    with work():
        assert sweep().reproductions == 1
    row.refresh_from_db()
    assert (row.state, row.attempts, len(sandbox.calls)) == ("done", 2, 1)
    with work():
        assert sweep().reproductions == 0
    Reproduction.objects.filter(pk=row.pk).update(**lost)
    with work():
        sweep()
    row.refresh_from_db()
    assert (row.state, len(sandbox.calls)) == ("failed", 1)
    assert "cut off 2 times" in row.error


def test_a_late_result_is_dropped(incident: Incident, sandbox: Any) -> None:
    row = reproductions.ask(incident)

    def another_takes_it(cancelled: threading.Event) -> None:
        Reproduction.objects.filter(pk=row.pk).update(lease_owner="another")

    sandbox.during = another_takes_it
    assert not reproductions.run(row.pk)
    row.refresh_from_db()
    assert (row.state, row.result) == ("running", None)


def test_a_fault_of_the_runner_is_said_and_not_repeated(
    incident: Incident, work: Work, sandbox: Any
) -> None:
    make_worker()
    sandbox.error = OSError("no memory for the sandbox")
    with work():
        row = reproductions.ask(incident)
    row.refresh_from_db()
    assert (row.state, row.error) == ("failed", "OSError: no memory for the sandbox")
    assert kinds(incident) == ["asked", "started", "ended"]


def test_a_long_output_keeps_its_head_and_its_end() -> None:
    output = f"first\n{'x' * 500_000}\nlast\n"
    kept = reproductions.bounded(output)
    assert len(kept) < reproductions.MAX_OUTPUT_CHARS + 100
    assert kept.startswith("first\n")
    assert kept.endswith("last\n")
    assert "characters left out" in kept


# ------------------------------------------------------------------------------- cancelling


def test_what_waits_is_cancelled_at_once(incident: Incident, work: Work, sandbox: Any) -> None:
    row = reproductions.cancel(reproductions.ask(incident), make_user())
    assert row.state == "cancelled"
    make_worker()
    with work():
        sweep()
    assert sandbox.calls == []
    assert kinds(incident) == ["asked", "cancelled"]
    with pytest.raises(RefusedError, match="ended already"):
        reproductions.cancel(row)


def test_a_lost_run_that_was_cancelled_ends_by_the_sweep(incident: Incident) -> None:
    row = reproductions.ask(incident)
    Reproduction.objects.filter(pk=row.pk).update(
        state="running", lease_owner="dead", lease_until=timezone.now() - timedelta(minutes=5)
    )
    row.refresh_from_db()
    assert reproductions.cancel(row).state == "running"
    make_worker()
    sweep()
    row.refresh_from_db()
    assert row.state == "cancelled"


@pytest.mark.django_db(transaction=True)
def test_a_run_at_work_shows_its_output_and_ends_when_it_is_cancelled(sandbox: Any) -> None:
    row = reproductions.ask(None, SLUG)
    seen = []

    def while_it_runs(cancelled: threading.Event) -> None:
        until = time.monotonic() + 20
        while not Reproduction.objects.get(pk=row.pk).output and time.monotonic() < until:
            time.sleep(0.05)
        seen.append(Reproduction.objects.get(pk=row.pk).output)
        reproductions.cancel(Reproduction.objects.get(pk=row.pk))
        assert cancelled.wait(20)

    sandbox.during = while_it_runs
    assert reproductions.run(row.pk)
    row.refresh_from_db()
    assert seen == [BUS_ERROR]
    assert (row.state, row.same_failure) == ("cancelled", None)


# ------------------------------------------------------------------------------- verification


def test_what_was_never_verified_is_due_once_a_worker_can_do_it() -> None:
    runnable = {
        p.slug
        for p in current_catalog().active
        if p.reproduction and p.reproduction.is_runnable and p.reproduction.where == "cpu"
    }
    assert verifications.ask_where_due() == 0
    make_worker()
    assert verifications.ask_where_due() == len(runnable)
    verifications.ask_where_due()
    asked = Verification.objects.values_list("slug", flat=True)
    assert sorted(asked) == sorted(runnable)


def test_a_changed_entry_is_due_and_a_fresh_proof_is_not(sandbox: Any, work: Work) -> None:
    make_worker()
    pitfall = current_catalog().by_slug[SLUG]
    row = verifications.ask(pitfall)
    assert row is not None
    assert verifications.run(row.pk)
    Verification.objects.exclude(pk=row.pk).delete()
    verifications.ask_where_due()
    pending = Verification.objects.pending()
    assert not pending.filter(slug=SLUG).exists()
    Verification.objects.filter(pk=row.pk).update(entry_digest="as it was before")
    verifications.ask_where_due()
    assert pending.filter(slug=SLUG).exists()


def test_verifications_go_one_at_a_time_and_after_what_people_wait_for(
    incident: Incident, sandbox: Any, work: Work
) -> None:
    catalog = current_catalog()
    for slug in (SLUG, RANK_CONDITIONAL):
        verifications.ask(catalog.by_slug[slug])
    make_worker()
    asked = reproductions.ask(incident)
    assert verifications.queue_next() == 0
    reproductions.cancel(asked)
    assert verifications.queue_next() == 1
    first = Verification.objects.order_by("pk").first()
    assert first is not None
    assert first.state == "queued"
    Verification.objects.filter(pk=first.pk).update(
        state="running", lease_owner="w", lease_until=timezone.now() + timedelta(minutes=1)
    )
    assert verifications.queue_next() == 0


def test_a_verification_that_falls_short_says_why(sandbox: Any) -> None:
    sandbox.broken = HEALTHY
    row = verifications.ask(current_catalog().by_slug[SLUG])
    assert row is not None
    assert verifications.run(row.pk)
    row.refresh_from_db()
    assert (row.state, row.reproduced, row.fix_verified) == ("done", False, False)
    assert row.reason == "the engine named nothing in the broken run's output"
