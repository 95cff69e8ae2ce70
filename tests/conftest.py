"""What every test has: the catalog, no network, no leftovers; and, on demand, Redis or the house.

DATABASE_URL and REDIS_URL are honoured. The database is Django's own test database; the Redis
database that REDIS_URL names is emptied between tests.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from django.core.cache import cache
from psycopg import sql

from kb.catalog import Catalog, load_catalog
from triage.config import celery_app
from triage.engine import pipeline
from triage.management.supervision.private_redis import find_redis_server, redis_command

ROOT = Path(__file__).resolve().parent.parent
_START_TIMEOUT_S = 90


_SERVICE_FIXTURES = frozenset({"db", "transactional_db", "redis_url", "outside_services"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what touches database or queue, so that it can run again on other ones."""
    for item in items:
        uses = set(getattr(item, "fixturenames", ()))
        if item.get_closest_marker("django_db") or uses & _SERVICE_FIXTURES:
            item.add_marker("services")


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The built-in entries."""
    return load_catalog()


@pytest.fixture
def engine_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    """What the engine logs; the settings keep the house's loggers from the root of caplog."""
    logger = logging.getLogger("tests.engine")
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(pipeline, "logger", logger)
    return caplog


@pytest.fixture(scope="session", autouse=True)
def _tasks_run_in_place() -> None:
    """No worker listens to a test: tasks run where they are called, on an outside Redis too."""
    celery_app.conf.task_always_eager = True


@pytest.fixture(autouse=True)
def _no_leftovers(settings: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stored texts go to a folder of the test's own; the cache is empty after it."""
    folder = tmp_path_factory.getbasetemp() / "texts" / uuid.uuid4().hex
    settings.STORAGES = {
        **settings.STORAGES,
        "default": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(folder)},
        },
    }
    # Hundreds of accounts are made and signed in; strength is Django's affair, not theirs.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    yield
    cache.clear()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Redis for this run: REDIS_URL, or an embedded one on a Unix socket."""
    if os.environ.get("REDIS_URL"):
        yield os.environ["REDIS_URL"]
        return
    folder = tmp_path_factory.mktemp("redis")
    socket_path = folder / "redis.sock"
    command = redis_command(find_redis_server(), socket_path, folder)
    with (folder / "redis.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until(socket_path.exists, 10, "the embedded Redis listens")
        yield f"unix://{socket_path}"
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def outside_services(redis_url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """DATABASE_URL and REDIS_URL of services that the house did not start, the database empty.

    A PostgreSQL that DATABASE_URL names gets a database of the test's own; without one, SQLite
    stands in for it in a place that is not the house's.
    """
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        yield {"DATABASE_URL": f"sqlite:///{tmp_path}/elsewhere.sqlite3", "REDIS_URL": redis_url}
        return
    name = f"pitstop_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield {
            "DATABASE_URL": urlsplit(url)._replace(path=f"/{name}").geturl(),
            "REDIS_URL": redis_url,
        }
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


@dataclass
class House:
    """`manage.py up` as a process of its own, with all that it started."""

    process: subprocess.Popen[bytes]
    data: Path
    address: str
    _output: Path

    def output(self) -> str:
        """What stands on its terminal by now."""
        return self._output.read_text("utf-8")

    def wait_for(self, words: str, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Returns once the words stand on the terminal; fails when the house ends before that."""

        def is_there() -> bool:
            if words in self.output():
                return True
            assert self.process.poll() is None, self.output()
            return False

        _wait_until(is_there, timeout_s, f"the terminal says {words!r}:\n{self.output()}")

    def wait_until_ready(self, timeout_s: float = 30) -> None:
        """Returns once /readyz answers 200: database, queue and worker are there."""
        _wait_until(self._is_ready, timeout_s, "/readyz answers 200")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    @property
    def sign_in_link(self) -> str:
        """The one-time link that was printed."""
        found = re.search(r"https?://\S+/login/once/\S+", self.output())
        assert found, self.output()
        return found.group()

    @property
    def password(self) -> str:
        """The first admin's password as printed on a first start, else empty."""
        found = re.search(r"Password: (\S+)", self.output())
        return found.group(1) if found else ""

    def processes(self) -> list[psutil.Process]:
        """Everything alive that works on this data folder, whoever its parent is now."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if (
                    process.environ().get("PITSTOP_DATA") == str(self.data)
                    and process.status() != psutil.STATUS_ZOMBIE
                ) or process.pid == self.process.pid:
                    found.append(process)
        return [process for process in found if process.pid != self.process.pid] + (
            [psutil.Process(self.process.pid)] if self.process.poll() is None else []
        )

    def child(self, words: str) -> psutil.Process:
        """The supervisor's own child whose command line holds the words."""
        for child in psutil.Process(self.process.pid).children():
            if words in " ".join(child.cmdline()):
                return child
        raise AssertionError(f"no child runs {words!r}:\n{self.output()}")

    def wait_until_gone(self, timeout_s: float) -> None:
        """Returns once the house and every process of it have ended."""
        _wait_until(
            lambda: self.process.poll() is not None and not self.processes(),
            timeout_s,
            "no process is left",
        )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        """Seconds from the signal until nothing was left; fails where that takes over ten."""
        started = time.monotonic()
        self.process.send_signal(how)
        self.wait_until_gone(10)
        return time.monotonic() - started


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Finds a port on which nothing listens at the moment."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return find


@pytest.fixture(scope="session")
def start_house(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[Callable[..., House]]:
    """Starts `manage.py up` on private parts; `environment` adds to what it sees.

    Returns when the page answers. What the test leaves running is ended at the end of the run.
    """
    started: list[House] = []

    def start(
        *arguments: str, data: Path | None = None, environment: dict[str, str] | None = None
    ) -> House:
        folder = tmp_path_factory.mktemp("house")
        data = data or folder / "data"
        port = free_port()
        output = folder / "terminal"
        command = [
            sys.executable, "manage.py", "up", "--data", str(data), "--port", str(port),
            "--workers", "2", *arguments,
        ]  # fmt: skip
        with output.open("wb") as terminal:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=_private_environment() | (environment or {}),
                stdout=terminal,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        house = House(process, data, f"http://127.0.0.1:{port}", output)
        started.append(house)
        house.wait_for("Ctrl-C stops everything")
        return house

    yield start
    for house in started:
        for process in house.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        house.process.wait(10)


@pytest.fixture(scope="session")
def house(start_house: Callable[..., House]) -> House:
    """One running house for the tests that need just that; they neither stop nor break it."""
    house = start_house()
    house.wait_until_ready()
    return house


def _private_environment() -> dict[str, str]:
    named = {"DATABASE_URL", "REDIS_URL", "SECRET_KEY", "PITSTOP_DATA", "DJANGO_SETTINGS_MODULE"}
    return {name: value for name, value in os.environ.items() if name not in named}


def _wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)
