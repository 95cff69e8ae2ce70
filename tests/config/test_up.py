"""`manage.py up`, really started: what it starts, what survives, what it leaves behind."""

from __future__ import annotations

import http.cookiejar
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.up

ROOT = Path(__file__).resolve().parents[2]


def _up(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """An `up` that is expected to end by itself."""
    named = {"DATABASE_URL", "REDIS_URL", "SECRET_KEY", "PITSTOP_DATA"}
    inherited = {name: value for name, value in os.environ.items() if name not in named}
    return subprocess.run(
        [sys.executable, "manage.py", "up", *arguments],
        cwd=ROOT,
        env=inherited | (environment or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _open(url: str) -> tuple[str, set[str]]:
    """The address that the link leads to, and the names of the cookies it leaves."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with opener.open(url, timeout=10) as response:
        return response.url, {cookie.name for cookie in jar}


def _inet_connections(process: psutil.Process) -> list[Any]:
    return process.net_connections(kind="inet")


def test_one_command_brings_redis_worker_beat_and_web(house: Any) -> None:
    worker = house.child("triage.config worker")
    assert len(worker.children()) == 2, "prefork processes, as --workers says"
    assert house.child("triage.config beat").is_running()
    assert not _inet_connections(house.child("redis-server")), "the private Redis has no TCP port"
    listening = {
        connection.laddr.ip
        for connection in _inet_connections(house.child("uvicorn"))
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_sign_in_link_works_once(start_house: Callable[..., Any]) -> None:
    house = start_house()
    where, cookies = _open(house.sign_in_link)
    assert (where, "sessionid" in cookies) == (f"{house.address}/", True)
    where, cookies = _open(house.sign_in_link)
    assert where.startswith(f"{house.address}/login/")
    assert "sessionid" not in cookies
    house.stop(signal.SIGINT)
    assert house.process.returncode == 0


def test_data_folder_is_private_and_logs_hold_no_secret(house: Any) -> None:
    key_file = house.data / "secret_key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(house.data.stat().st_mode) == 0o700
    secrets = [key_file.read_text().strip(), house.password, house.sign_in_link.rsplit("/", 1)[1]]
    assert all(secrets)
    for log in (house.data / "logs").iterdir():
        text = log.read_text("utf-8", "replace")
        assert not [secret for secret in secrets if secret in text], log.name


def test_killed_worker_is_started_again_and_said_so(start_house: Callable[..., Any]) -> None:
    house = start_house()
    house.wait_until_ready()
    worker = house.child("triage.config worker")
    pool = worker.children()
    worker.kill()
    house.wait_for(f"worker ended (killed by SIGKILL, process {worker.pid}); starting it again.")
    house.wait_for("worker runs again")
    assert not [process for process in pool if process.is_running()], "the old pool died with it"
    assert house.child("triage.config worker").pid != worker.pid
    # Neither a stopped process nor one that ignores SIGTERM may hold up the end.
    house.child("uvicorn").suspend()
    house.child("triage.config worker").suspend()
    assert house.stop() < 10
    assert house.process.returncode == 0


def test_second_start_reuses_the_data_even_after_a_kill(start_house: Callable[..., Any]) -> None:
    first = start_house()
    assert first.password
    key = (first.data / "secret_key").read_text()
    first.process.kill()
    first.wait_until_gone(5)
    second = start_house(data=first.data)
    assert not second.password, "the admin of the first start is still there"
    assert (second.data / "secret_key").read_text() == key
    where, _ = _open(second.sign_in_link)
    assert where == f"{second.address}/"
    # As a terminal that is closed does.
    second.stop(signal.SIGHUP)
    assert second.process.returncode == 0


def test_two_houses_on_one_data_folder_are_refused(
    house: Any, free_port: Callable[[], int]
) -> None:
    result = _up("--data", str(house.data), "--port", str(free_port()))
    assert result.returncode == 1
    assert f"Pitstop runs on {house.data} already: process {house.process.pid}" in result.stderr


def test_taken_port_is_named_with_its_holder_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = _up("--data", str(tmp_path / "data"), "--port", str(port))
    assert result.returncode == 1
    assert f"Port {port} on 127.0.0.1 is taken by " in result.stderr
    assert f"(process {os.getpid()})" in result.stderr
    assert not (tmp_path / "data").exists()


def test_settings_that_do_not_hold_stop_the_start_with_the_reason(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    result = _up(
        "--data", str(tmp_path), "--port", str(free_port()),
        environment={"DATABASE_URL": "sqlite:////proc/nowhere/db.sqlite3"},
    )  # fmt: skip
    assert result.returncode == 1
    assert "unable to open database file" in result.stderr
    assert "The start stops here" in result.stderr


@pytest.mark.services
def test_outside_database_and_redis_are_used_and_nothing_private_is_started(
    start_house: Callable[..., Any], outside_services: dict[str, str]
) -> None:
    house = start_house(environment=outside_services)
    house.wait_until_ready()
    commands = [" ".join(process.cmdline()) for process in house.processes()]
    assert not [command for command in commands if "redis-server" in command]
    assert not (house.data / "db.sqlite3").exists()
    house.stop()
