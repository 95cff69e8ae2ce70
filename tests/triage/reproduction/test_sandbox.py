"""Runaway scripts: each is contained, reported as what it is, and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from triage.reproduction import Capability, processes, sandbox
from triage.reproduction.runner import MAX_OUTPUT_BYTES, Run
from triage.reproduction.sandbox import Box, Command, Group

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("nothing_left")]

_FORKS = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""
_IGNORES = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("here", flush=True)
time.sleep(600)
"""
_ORPHANS = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(600)
    os._exit(0)
time.sleep(1)
print("ran to its end")
"""
_RUNNER = """
import sys
from pathlib import Path
from triage.reproduction.runner import Run
from triage.reproduction.sandbox import Box, probe
Run(
    Path(sys.argv[1]).read_bytes(), [], Box(300), probe(sys.argv[2]), limit_s=60,
    on_output=lambda piece: print(piece, flush=True),
).go()
"""
_WRITES = """
import sys
for place in sys.argv[1:]:
    try:
        open(place, "w")
    except OSError as error:
        print(place, error.strerror)
    else:
        print(place, "WRITTEN")
"""


@pytest.mark.parametrize("mode", sandbox.modes())
def test_a_script_that_forks_endlessly_is_stopped(
    capability: Capability, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "cgroup_folders", dict)
    run = Run(
        _FORKS.encode(), [], Box(4096), dataclasses.replace(capability, mode=mode), limit_s=60
    )
    run.go()
    assert (run.stopped, run.exit_status) == ("processes", None)


def test_processes_that_only_sleep_are_counted_too(run_script: Callable[..., Run]) -> None:
    run = run_script(
        "import os, time\n"
        "try:\n"
        "    while os.fork():\n"
        "        pass\n"
        "except BlockingIOError:\n"
        "    pass\n"
        "time.sleep(600)\n",
        memory_mib=4096,
        limit_s=60,
    )
    assert run.stopped == "processes"
    assert all("refused more processes" in note for note in run.notes)


def test_a_script_that_fills_the_disk_sees_a_full_disk(run_script: Callable[..., Run]) -> None:
    run = run_script(
        "with open('big', 'wb') as file:\n    while True:\n        file.write(b'x' * (1 << 20))\n"
    )
    assert run.exit_status == 1
    assert "OSError: [Errno 28] No space left on device" in run.output()


def test_a_script_that_fills_shared_memory_is_ended_by_the_kernel(
    run_script: Callable[..., Run],
) -> None:
    run = run_script(
        "import mmap\n"
        "file = open('/dev/shm/big', 'w+b')\n"
        "file.truncate(64 << 20)\n"
        "view = mmap.mmap(file.fileno(), 0)\n"
        "for at in range(0, 64 << 20, 4096):\n"
        "    view[at] = 1\n"
    )
    assert run.exit_status == 128 + signal.SIGBUS
    assert run.output() == "exit code 135 (SIGBUS)\n"


@pytest.mark.parametrize("has_group", [True, False])
def test_a_script_that_takes_all_memory_is_stopped(
    run_script: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, has_group: bool
) -> None:
    if not has_group:
        monkeypatch.setattr(sandbox, "cgroup_folders", dict)
    run = run_script(
        "import time\n"
        "kept = []\n"
        "while True:\n"
        "    kept.append(b'x' * (8 << 20))\n"
        "    time.sleep(0.01)\n",
        memory_mib=200,
    )
    if run.stopped:
        assert run.stopped == "memory"
        assert run.peak_mib > 200
    else:
        assert run.exit_status == 128 + signal.SIGKILL
        assert run.notes == ["the kernel killed 1 processes of the sandbox for want of memory"]
        assert "oom_kill 1\n" in run.output()


def test_a_script_cannot_map_what_no_machine_has(run_script: Callable[..., Run]) -> None:
    run = run_script("bytearray(64 << 30)\n")
    assert run.exit_status == 1
    assert run.output().endswith("MemoryError\n")


def test_a_script_that_ignores_signals_ends_at_its_limit(run_script: Callable[..., Run]) -> None:
    run = run_script(_IGNORES, limit_s=2)
    assert run.stopped == "time"
    assert run.output().startswith("here\n=== process tree")
    assert "nanosleep" in run.output()


def test_a_process_that_left_its_session_ends_with_the_script(
    run_script: Callable[..., Run],
) -> None:
    run = run_script(_ORPHANS)
    assert (run.exit_status, run.stopped) == (0, "")
    assert run.notes == ["left 1 processes behind, which were killed"]


def test_no_address_outside_is_reached(run_script: Callable[..., Run]) -> None:
    run = run_script(
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname(), 2)\n"
        "print(socket.gethostbyname(socket.gethostname()))\n"
        "for kind in (socket.AF_INET, socket.AF_INET6):\n"
        "    try:\n"
        "        address = '192.0.2.1' if kind == socket.AF_INET else '2001:db8::1'\n"
        "        socket.socket(kind).connect((address, 80))\n"
        "    except OSError as error:\n"
        "        print(error.strerror)\n"
        "    else:\n"
        "        print('REACHED')\n"
    )
    first, *others = run.output().splitlines()
    assert first == "127.0.0.1"
    assert len(others) == 2
    assert all("unreachable" in line or "not available" in line.lower() for line in others), others


def test_a_script_that_floods_its_output_is_stopped(run_script: Callable[..., Run]) -> None:
    run = run_script("while True:\n    print('x' * 1000)\n")
    assert run.stopped == "output"
    assert len(run.output()) == MAX_OUTPUT_BYTES
    assert run.notes == ["only the first 1024 KiB of its output are kept"]


def test_nothing_but_its_own_folders_can_be_written(
    run_script: Callable[..., Run], capability: Capability
) -> None:
    closed = [
        "/x", "/usr/x", "/etc/x", "/dev/x", "/job/x", "/job/train.py", "/proc/sys/kernel/hostname",
        str(Path(capability.interpreter).parent / "x"),
    ]  # fmt: skip
    run = run_script(_WRITES, *closed, "/scratch/x", "/tmp/x", "/dev/shm/x")
    told = dict(line.split(" ", 1) for line in run.output().splitlines())
    assert [place for place, what in told.items() if what == "WRITTEN"] == [
        "/scratch/x", "/tmp/x", "/dev/shm/x"
    ]  # fmt: skip
    assert set(closed) <= set(told)


def test_a_script_sees_nothing_of_the_host(run_script: Callable[..., Run]) -> None:
    run = run_script(
        "import json, os\n"
        "status = dict(l.split(':', 1) for l in open('/proc/self/status').read().splitlines())\n"
        "print(json.dumps({'uid': os.getuid(), 'groups': os.getgroups(),\n"
        "    'capabilities': status['CapEff'].strip(), 'no_new': status['NoNewPrivs'].strip(),\n"
        "    'processes': len([p for p in os.listdir('/proc') if p.isdigit()]),\n"
        "    'environment': sorted(os.environ), 'home': os.path.exists('/home'),\n"
        "    'catalog': sorted(os.listdir('/job')), 'tmp': os.listdir('/tmp')}))\n"
    )
    seen = json.loads(run.output())
    assert seen["uid"] == sandbox.UID
    assert seen["groups"] in ([], [sandbox.UID])
    assert (seen["capabilities"].strip("0"), seen["no_new"]) == ("", "1")
    assert seen["processes"] == 2
    assert seen["catalog"] == ["train.py"]
    assert not seen["home"]
    assert not {"SECRET_KEY", "DATABASE_URL", "PITSTOP_DATA"} & set(seen["environment"])


def test_a_run_can_be_cancelled(run_script: Callable[..., Run]) -> None:
    cancelled = threading.Event()
    threading.Timer(1, cancelled.set).start()
    run = run_script(_IGNORES, cancelled=cancelled)
    assert run.stopped == "cancelled"
    assert run.seconds < 5


def test_output_comes_while_the_script_runs(run_script: Callable[..., Run]) -> None:
    pieces: list[tuple[float, str]] = []
    run_script(
        "import time\nprint('é one')\ntime.sleep(1)\nprint('two')\n",
        on_output=lambda piece: pieces.append((time.monotonic(), piece)),
    )
    assert "".join(piece for _, piece in pieces) == "é one\ntwo\n"
    assert pieces[-1][0] - pieces[0][0] > 0.5


def test_a_killed_runner_takes_its_sandbox_along(capability: Capability, tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text(_IGNORES)
    runner = subprocess.Popen(
        [sys.executable, "-c", _RUNNER, str(script), capability.interpreter],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert runner.stdout is not None
    assert runner.stdout.readline() == b"here\n"
    below = [p.pid for p in processes.tree(runner.pid)[1:]]
    assert len(below) == 3
    runner.kill()
    runner.wait(5)
    runner.stdout.close()
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # The group of a runner that was killed is taken away by the next one.
    Group(100).remove()


def test_without_bubblewrap_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    found = sandbox.probe.__wrapped__(sys.executable)
    assert not found.sandbox
    assert found.lacks("cpu").startswith("no sandbox here: bubblewrap is not installed")


def test_a_refused_sandbox_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = tmp_path / "bwrap"
    refused.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a namespace' >&2\nexit 1\n"
    )
    refused.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = sandbox.probe.__wrapped__(sys.executable)
    assert not found.sandbox
    assert found.why == "no sandbox here: bwrap: No permissions to create a namespace"


def test_a_capability_says_what_a_reproduction_lacks(capability: Capability) -> None:
    one = dataclasses.replace(capability, torch="2.13.0", devices=("NVIDIA H200",))
    assert (one.lacks("cpu"), one.lacks("gpu1")) == ("", "")
    assert one.lacks("gpuN") == "needs two GPUs or more, which is not here"
    assert dataclasses.replace(one, devices=()).lacks("gpu1") == "needs one GPU, which is not here"
    assert json.loads(json.dumps(one.to_json()))["devices"] == ["NVIDIA H200"]


def test_devices_are_let_in_for_a_gpu_only(capability: Capability) -> None:
    def limits(gpu: bool) -> str:
        with Command(
            capability.interpreter, b"", (), Box(300, gpu=gpu), mode=capability.mode
        ) as command:
            return " ".join(command.argv)

    assert "RLIMIT_AS" in limits(gpu=False)
    assert "RLIMIT_AS" not in limits(gpu=True)
