"""Several processes on one database: a killed worker, one that comes back late, ranks at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.services

ROOT = Path(__file__).resolve().parents[2]
_PREAMBLE = """
import io, json, os, sys, time
import django
django.setup()
from django.conf import settings
from triage.config import celery_app
from triage.engine.pipeline import compile_catalog
from triage.models import *
from triage.services import diagnosis, queue, sweep
from triage.services.catalog import current_catalog
from tests.factories import BUS_ERROR, HEALTHY, send
from triage.services.intake import JobFacts
settings.PITSTOP_LEASE_S = 3
celery_app.conf.task_always_eager = True
"""
# A worker as celery starts it, its catalog read; then in the middle of a scan, which it says: its
# text comes a block at a time.
_SLOW_WORKER = """
compile_catalog(current_catalog())
real = diagnosis.open_text
class Slow(io.RawIOBase):
    reads = 0
    def __init__(self, file):
        self.file = file
    def readable(self):
        return True
    def readinto(self, buffer):
        self.reads += 1
        if self.reads == 12:
            print("in the middle", flush=True)
        time.sleep(float(os.environ["PAUSE_S"]))
        block = self.file.read(min(len(buffer), 65536))
        buffer[:len(block)] = block
        return len(block)
diagnosis.open_text = lambda submission: Slow(real(submission))
print(json.dumps(diagnosis.scan_submission(int(sys.argv[1]))))
"""
_SWEEP_UNTIL_DIAGNOSED = """
pk = int(sys.argv[1])
until = time.monotonic() + 60
while Submission.objects.get(pk=pk).incident.state != "diagnosed":
    assert time.monotonic() < until, "nothing came of the sweep"
    sweep.sweep()
    time.sleep(0.1)
"""
_STATE = """
row = Submission.objects.select_related("incident").get(pk=int(sys.argv[1]))
print(json.dumps({
    "state": row.state, "is_read": row.bytes_scanned == row.size_bytes,
    "attempts": row.scan_attempts, "incident": row.incident.state,
    "verdict": row.incident.verdict, "diagnoses": row.incident.diagnoses.count(),
    "kinds": list(row.incident.log_book.values_list("kind", flat=True)),
}))
"""
_DONE_ONCE = {
    "state": "scanned",
    "is_read": True,
    "attempts": 2,
    "incident": "diagnosed",
    "verdict": "named",
    "diagnoses": 1,
    "kinds": ["received", "scanned", "diagnosed"],
}


class Processes:
    """Python processes that share a database and a folder of texts, and nothing else."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self.running: list[subprocess.Popen[str]] = []

    def start(self, code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        """Starts one that runs the code on a set-up Django."""
        process = subprocess.Popen(
            [sys.executable, "-c", _PREAMBLE + textwrap.dedent(code), *map(str, arguments)],
            cwd=ROOT,
            env=self._environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, code: str, *arguments: object) -> Any:
        """Runs one to its end; what it printed last, as JSON."""
        return self.result(self.start(code, *arguments))

    @staticmethod
    def result(process: subprocess.Popen[str]) -> Any:
        """What a process printed last, as JSON."""
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return json.loads(out.splitlines()[-1]) if out.strip() else None

    def start_slow_worker(self, submission: int, pause_s: float) -> subprocess.Popen[str]:
        """A worker that is in the middle of this text's scan by now."""
        worker = self.start(_SLOW_WORKER, submission, PAUSE_S=str(pause_s))
        assert worker.stdout is not None
        assert worker.stdout.readline() == "in the middle\n"
        return worker


@pytest.fixture
def processes(outside_services: dict[str, str], tmp_path: Path) -> Iterator[Processes]:
    """Processes on an empty database of their own."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "triage.config.settings",
        "DATABASE_URL": outside_services["DATABASE_URL"],
        "PITSTOP_DATA": str(tmp_path / "data"),
        "PYTHONPATH": str(ROOT),
    }
    environment.pop("REDIS_URL", None)
    (tmp_path / "data").mkdir()
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, check=True
    )
    started = Processes(environment)
    yield started
    for process in started.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _send_long_log(processes: Processes) -> int:
    """The pk of a text of some megabytes that waits for its scan."""
    return int(
        processes.run(
            """
            celery_app.conf.task_always_eager = False
            queue._send = lambda *message: None
            lines = "".join(f"step {n} loss 2.{n}\\n" for n in range(200_000))
            print(send(lines + BUS_ERROR).incident.submissions.get().pk)
            """
        )
    )


def test_the_scan_of_a_killed_worker_is_done_once(processes: Processes) -> None:
    pk = _send_long_log(processes)
    worker = processes.start_slow_worker(pk, pause_s=1)

    worker.send_signal(signal.SIGKILL)
    worker.wait()

    assert processes.run(_SWEEP_UNTIL_DIAGNOSED + _STATE, pk) == _DONE_ONCE


def test_a_worker_that_was_frozen_comes_back_too_late(processes: Processes) -> None:
    pk = _send_long_log(processes)
    worker = processes.start_slow_worker(pk, pause_s=0.1)

    worker.send_signal(signal.SIGSTOP)
    processes.run(_SWEEP_UNTIL_DIAGNOSED, pk)
    worker.send_signal(signal.SIGCONT)

    assert processes.result(worker) is False
    assert processes.run(_STATE, pk) == _DONE_ONCE


def test_a_living_worker_keeps_its_work(processes: Processes) -> None:
    pk = _send_long_log(processes)
    worker = processes.start_slow_worker(pk, pause_s=0.1)

    # Longer than a lease: progress renews it, the sweep and a second worker stay away.
    processes.run(
        """
        until = time.monotonic() + 5
        while time.monotonic() < until:
            is_over = Submission.objects.get().state == "scanned"
            assert sweep.sweep().scans == 0
            assert not diagnosis.scan_submission(int(sys.argv[1]))
            if is_over:
                break
            time.sleep(0.1)
        """,
        pk,
    )

    assert processes.result(worker) is True
    assert processes.run(_STATE, pk)["attempts"] == 1


def test_ranks_that_post_at_once_make_one_incident(processes: Processes) -> None:
    ranks = [
        processes.start(
            """
            celery_app.conf.task_always_eager = False
            queue._send = lambda *message: None
            first = int(sys.argv[1])
            for rank in range(first, first + 15):
                send(f"[rank{rank}]: step 1\\n", "the same of every rank\\n",
                     job=JobFacts(id="4711", attempt=1))
            """,
            number * 15,
        )
        for number in range(4)
    ]
    for rank in ranks:
        processes.result(rank)

    assert processes.run(
        """
        incident = Incident.objects.get()
        positions = list(incident.submissions.values_list("position", flat=True))
        received = incident.log_book.count()
        sweep.sweep()
        incident.refresh_from_db()
        print(json.dumps([positions, received, incident.state, incident.diagnoses.count()]))
        """
    ) == [list(range(1, 62)), 60, "diagnosed", 1]


def test_of_many_who_work_on_one_incident_at_once_nothing_is_lost(processes: Processes) -> None:
    said = processes.run(
        """
        from concurrent.futures import ThreadPoolExecutor
        from threading import Barrier
        from django.db import connections
        from tests.factories import make_incident, make_user
        from triage.services import response
        incident = make_incident(gpus=8)
        fields = ["severity", "idle_minutes", "title", "scheduler", "gpus", "job_id"]
        values = ["high", 90, "llama", "slurm", 16, "4711"]
        people = [make_user(username=f"p{n}") for n in range(6)]
        together = Barrier(6)

        def work(number):
            mine = Incident.objects.get(pk=incident.pk)
            together.wait()
            try:
                response.take(mine, people[number], expected={"owner": ""})
                outcome = "took"
            except response.ConflictError as error:
                outcome = error.changed[0].who
            response.change(mine, {fields[number]: values[number]}, who=people[number])
            response.add_note(mine, f"note {number}", who=people[number])
            connections.close_all()
            return outcome

        with ThreadPoolExecutor(6) as pool:
            outcomes = list(pool.map(work, range(6)))
        incident.refresh_from_db()
        winner = people[outcomes.index("took")].username
        print(json.dumps({
            "owner": incident.owner.username == winner,
            "outcomes": sorted(outcomes) == sorted(["took", *[winner] * 5]),
            "values": [getattr(incident, field) for field in fields] == values,
            "rows": incident.log_book.filter(kind="changed").count(),
            "notes": incident.log_book.filter(kind="note").count(),
        }))
        """
    )
    assert said == {"owner": True, "outcomes": True, "values": True, "rows": 7, "notes": 6}


def test_an_incident_is_merged_once_and_scans_end_where_their_texts_are(
    processes: Processes,
) -> None:
    said = processes.run(
        """
        from concurrent.futures import ThreadPoolExecutor
        from threading import Barrier
        from django.db import connections
        from tests.factories import make_incident, make_submission
        from triage.services import merging
        from triage.services.response import ChangeError
        source = make_incident()
        texts = [make_submission(BUS_ERROR + str(n), incident=source) for n in range(6)]
        target = make_submission(HEALTHY).incident
        together = Barrier(3)
        compile_catalog(current_catalog())

        def scan():
            together.wait()
            for text in texts:
                diagnosis.scan_submission(text.pk)
            connections.close_all()

        def merge(_):
            together.wait()
            try:
                merging.merge(source, target, who=None)
                return "merged"
            except ChangeError as error:
                return {"merged": "refused"}[error.code]
            finally:
                connections.close_all()

        # The matcher serves one thread; workers are processes.
        with ThreadPoolExecutor(3) as pool:
            scanned = pool.submit(scan)
            merges = list(pool.map(merge, range(2)))
            scanned.result()
        sweep.sweep()
        target.refresh_from_db()
        source.refresh_from_db()
        print(json.dumps({
            "merges": sorted(merges), "texts": target.submissions.count(),
            "left": source.submissions.count(), "state": target.state, "slug": target.slug,
            "positions": len(target.current_diagnosis.texts), "owed": source.evidence_revision
            - source.diagnosed_revision, "source": source.state in ("diagnosed", "failed"),
        }))
        """
    )
    assert said == {
        "merges": ["merged", "refused"],
        "texts": 7,
        "left": 0,
        "state": "diagnosed",
        "slug": "dataloader-shm-bus-error",
        "positions": 7,
        "owed": 0,
        "source": True,
    }
