"""How processes ended, as torchrun, srun, mp.spawn and shells say it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triage.engine import Evidence, Limits
from triage.engine.parsers.launcher import signal_of

Scan = Callable[..., Evidence]

REPORT = """\
E1130 04:13:00.000000 139 torch/distributed/elastic/multiprocessing/api.py:869] failed \
(exitcode: -9) local_rank: 2 (pid: 4242) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-30_04:13:00
  host      : node-1
  rank      : 7 (local_rank: 3)
  exitcode  : 1 (pid: 4243)
  error_file: <N/A>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_04:12:59
  host      : node-1
  rank      : 6 (local_rank: 2)
  exitcode  : -9 (pid: 4242)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4242
============================================================
"""


def test_the_report_of_torchrun_marks_the_first_failure(scan_text: Scan) -> None:
    evidence = scan_text(REPORT)
    (first,) = [e for e in evidence.exits if e.is_first]
    assert (first.rank, first.exit_code, first.signal) == (6, -9, "SIGKILL")
    assert (first.pid, first.host) == (4242, "node-1")
    assert "torchrun" in evidence.launchers


def test_other_failures_of_the_report_are_not_the_first(scan_text: Scan) -> None:
    others = [e for e in scan_text(REPORT).exits if e.rank == 7]
    assert [(e.exit_code, e.is_first) for e in others] == [(1, False)]


@pytest.mark.parametrize(
    ("text", "rank", "code", "signal"),
    [
        (
            ("mpirun detected that one or more processes exited with non-zero status, thus\n"
            "causing the job to be terminated. The first process to do so was:\n\n"
            "  Process name: [[11302,1],6]\n  Exit code:    3\n"),
            6, 3, "",
        ),
        (
            ("mpirun noticed that process rank 2 with PID 4711 on node gx3 exited on signal 11 "
            "(Segmentation fault).\n"),
            2, -11, "SIGSEGV",
        ),
        ("srun: error: gx3: task 4: Exited with exit code 1\n", 4, 1, ""),
    ],
)  # fmt: skip
def test_launchers_that_name_the_first_to_fail(
    text: str, rank: int, code: int, signal: str, scan_text: Scan
) -> None:
    (first,) = [e for e in scan_text(text).exits if e.is_first]
    assert (first.rank, first.exit_code, first.signal) == (rank, code, signal)


def test_of_several_tasks_none_was_the_first(scan_text: Scan) -> None:
    text = (
        "srun: error: gx3: tasks 0,2-3: Exited with exit code 1\n"
        "srun: error: gx4: task 5: Exited with exit code 1\n"
        "srun: error: gx4: task 6: Terminated\n"
    )
    assert [e.is_first for e in scan_text(text).exits] == [False, False, False]


@pytest.mark.parametrize(
    ("code", "name"),
    [(-9, "SIGKILL"), (137, "SIGKILL"), (139, "SIGSEGV"), (-7, "SIGBUS"), (134, "SIGABRT"),
     (1, ""), (0, ""), (None, ""), (255, "")],
)  # fmt: skip
def test_exit_codes_that_stand_for_signals(code: int | None, name: str) -> None:
    assert signal_of(code) == name


@pytest.mark.parametrize(
    ("text", "source", "code", "signal", "rank"),
    [
        ("srun: error: node7: task 3: Exited with exit code 1", "slurm", 1, "", 3),
        ("srun: error: node7: tasks 3,5-7: Killed", "slurm", None, "SIGKILL", 3),
        ("slurmstepd: error: node7: task 2: Out Of Memory", "slurm", None, "SIGKILL", 2),
        ("Exception: process 1 terminated with signal SIGSEGV", "mp.spawn", None, "SIGSEGV", 1),
        ("Exception: process 4 terminated with exit code 3", "mp.spawn", 3, "", 4),
        ("Killed", "shell", None, "SIGKILL", None),
        ("./run.sh: line 3:  4711 Segmentation fault (core dumped) python train.py", "shell",
         None, "SIGSEGV", None),
        ("Process finished with exit code 137", "process", 137, "SIGKILL", None),
    ],
)  # fmt: skip
def test_one_line_endings(
    text: str,
    source: str,
    code: int | None,
    signal: str,
    rank: int | None,
    *,
    scan_text: Scan,
) -> None:
    (ending,) = scan_text(text).exits
    assert (ending.source, ending.exit_code, ending.signal) == (source, code, signal)
    assert ending.rank == rank


@pytest.mark.parametrize(
    "text",
    [
        "Process finished with exit code 0",
        "the exit code of the job decides",
        "INFO Killed 3 stale workers",
        "Terminatedness is no word",
        "Process finished with exit code " + "1" * 5_000,
        "  exitcode  : " + "1" * 5_000 + " (pid: 1)",
    ],
)
def test_no_ending(text: str, scan_text: Scan) -> None:
    assert [e for e in scan_text(text).exits if (e.exit_code or 0) < 10**9 and e.signal] == []


def test_endings_are_bounded(scan_text: Scan) -> None:
    text = "".join(f"srun: error: n{n}: task {n}: Killed\n" for n in range(400))
    assert len(scan_text(text, limits=Limits(max_exits=50)).exits) == 50
