"""`manage.py up`: everything on one machine, with nothing else installed."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from argparse import ArgumentTypeError
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from triage.management.supervision.house import House, Program, write_configuration
from triage.management.supervision.ports import PortError, require_free_port
from triage.management.supervision.private_redis import (
    NoRedisError,
    find_redis_server,
    redis_command,
)
from triage.reproduction import interpreter, why_unlikely

_LIFELINE = Path(__file__).resolve().parent.parent / "supervision" / "lifeline.py"
# sun_path of a Unix socket holds 108 bytes on Linux and 104 on macOS, the closing zero included.
_MAX_SOCKET_PATH_BYTES = 103


class Command(BaseCommand):
    """Starts Redis, worker, beat and web under one supervisor and stays until a signal."""

    help = (
        "Starts everything on this machine: SQLite in the data folder, a private Redis, worker, "
        "beat and web. REDIS_URL and DATABASE_URL set: those are used instead. Ctrl-C stops it."
    )
    # `prepare` runs the checks, with the settings that the children will have.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=_port, default=8000, help="default 8000")
        parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1")
        parser.add_argument("--data", type=Path, help="data folder; default var/ or PITSTOP_DATA")
        parser.add_argument(
            "--workers",
            type=_count,
            default=min(os.cpu_count() or 1, 8),
            help="processes of the worker; default one for each core, at most 8",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        data = (options["data"] or settings.DATA_DIR).resolve()
        try:
            require_free_port(host, port)
            redis_binary = None if os.environ.get("REDIS_URL") else find_redis_server()
        except (PortError, NoRedisError) as error:
            raise CommandError(str(error)) from error
        run, logs = _make_folders(data)
        address = f"http://{_in_url(host)}:{port}"
        with _lock(data, address):
            _make_secret_key(data)
            _empty(data / "tmp")
            with tempfile.TemporaryDirectory(prefix="pitstop-") as short_folder:
                socket_path = _socket_path(run, Path(short_folder))
                socket_path.unlink(missing_ok=True)
                os.environ.update(_environment(data, host, socket_path if redis_binary else None))
                self._say(f"Pitstop is starting. Data: {data}")
                welcome = _prepare()
                no_reproductions = why_unlikely(interpreter())
                programs = _programs(
                    host=host,
                    port=port,
                    data=data,
                    worker_processes=options["workers"],
                    redis=(redis_binary, socket_path) if redis_binary else None,
                    with_reproductions=not no_reproductions,
                )
                house = House(
                    write_configuration(programs, run, logs),
                    web=(_reachable(host), port),
                    logs=logs,
                    say=self._say,
                    on_ready=lambda: self._welcome(address, host, logs, welcome, no_reproductions),
                )
                status = house.stay()
        self._say("Stopped." if status == 0 else "Stopped, since a part could not be started.")
        sys.exit(status)

    def _welcome(
        self, address: str, host: str, logs: Path, welcome: dict[str, str], no_reproductions: str
    ) -> None:
        self._say(f"Pitstop answers at {address}/")
        self._say(f"Sign in once with: {address}{welcome['path']}")
        if welcome["password"]:
            self._say(f"First start. User: {welcome['user']}  Password: {welcome['password']}")
        if not _is_loopback(host) and not os.environ.get("PITSTOP_PLAIN_HTTP"):
            self._say(
                "Other machines can sign in through HTTPS only (a proxy in front); in a trusted "
                "network PITSTOP_PLAIN_HTTP=1 lifts that."
            )
        if no_reproductions:
            self._say(
                f"Reproductions are not run here: {no_reproductions}. Elsewhere "
                "`manage.py worker --queue cpu` runs them (README, Workers)."
            )
        self._say(f"Logs: {logs}  Ctrl-C stops everything.")

    def _say(self, line: str) -> None:
        # A terminal that was closed is no reason to stop in disorder.
        with contextlib.suppress(OSError):
            self.stdout.write(line)
            self.stdout.flush()


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65_535:
        raise ArgumentTypeError(f"a port is a number from 1 to 65535, not {text}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"at least one process is needed, not {text}")
    return int(text)


def _make_folders(data: Path) -> tuple[Path, Path]:
    run, logs = data / "run", data / "logs"
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (run, logs, data / "texts", data / "tmp"):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"The data folder {data} cannot be made ({error.strerror}). Give another with --data."
        ) from error
    return run, logs


def _lock(data: Path, address: str) -> IO[str]:
    """The open lock file; closing it, or the end of this process, frees the folder."""
    # Kept open for as long as the house stands: the caller's `with` closes it.
    lock = (data / "up.lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        lock.close()
        raise CommandError(
            f"Pitstop runs on {data} already: {holder}. Stop it first, or give another folder "
            "with --data."
        ) from error
    lock.truncate(0)
    lock.write(f"process {os.getpid()} at {address}/\n")
    lock.flush()
    return lock


def _make_secret_key(data: Path) -> None:
    if os.environ.get("SECRET_KEY"):
        return
    path = data / "secret_key"
    if path.is_file() and path.stat().st_size:
        return
    # Written aside and renamed: a full disk never leaves half a key.
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(64) + "\n")
    draft.replace(path)


def _empty(folder: Path) -> None:
    # Halves of uploads that an earlier end cut off.
    for leftover in folder.iterdir():
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _socket_path(run: Path, short_folder: Path) -> Path:
    path = run / "redis.sock"
    is_short = len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES
    return path if is_short else short_folder / "redis.sock"


def _environment(data: Path, host: str, redis_socket: Path | None) -> dict[str, str]:
    environment = {
        "DJANGO_SETTINGS_MODULE": "triage.config.settings",
        "PITSTOP_DATA": str(data),
        # Uploads wait on the data folder's disk, not in a /tmp that may be memory.
        "TMPDIR": str(data / "tmp"),
        "PYTHONUNBUFFERED": "1",
        # A checkout whose packages were not installed runs too.
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(settings.BASE_DIR), os.environ.get("PYTHONPATH", "")])
        ),
    }
    if redis_socket:
        environment["REDIS_URL"] = f"unix://{redis_socket}"
    if not os.environ.get("ALLOWED_HOSTS") and not _is_loopback(host):
        environment["ALLOWED_HOSTS"] = " ".join(_own_names(host))
    return environment


def _own_names(host: str) -> list[str]:
    names = {"localhost", "127.0.0.1", "[::1]", socket.gethostname(), socket.getfqdn()}
    if host in {"0.0.0.0", "::"}:  # noqa: S104 (compared, not bound)
        try:
            found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        except socket.gaierror:
            found = []
        names |= {_in_url(str(entry[4][0])) for entry in found}
    else:
        names.add(_in_url(host))
    return sorted(names)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reachable(host: str) -> str:
    """The address under which this machine reaches what listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared, not bound)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _prepare() -> dict[str, str]:
    """What `manage.py prepare` answers. Raises CommandError with its words where it fails."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "prepare", "--json"]
    lifeline = [sys.executable, "-S", "-E", str(_LIFELINE), str(os.getpid())]
    result = subprocess.run([*lifeline, *command], stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode:
        raise CommandError("The start stops here: see the lines above.")
    answer: dict[str, str] = json.loads(result.stdout.splitlines()[-1])
    return answer


def _programs(
    *,
    host: str,
    port: int,
    data: Path,
    worker_processes: int,
    redis: tuple[Path, Path] | None,
    with_reproductions: bool,
) -> list[Program]:
    celery = [sys.executable, "-m", "celery", "--quiet", "--app", "triage.config"]
    socket_path = redis[1] if redis else None
    programs = [
        Program(
            "worker",
            [
                *celery, "worker", "--queues", "triage", "--concurrency", str(worker_processes),
                "--hostname", f"triage-{os.getpid()}@%h", "--without-gossip", "--without-mingle",
                "--loglevel", "INFO",
            ],
            # Celery's soft shutdown: ends what is nearly done, gives the rest back to the queue.
            stop_signal="QUIT",
            stops_as_group=False,
            after=socket_path,
        ),
        Program(
            "beat",
            [
                *celery, "beat", "--schedule", str(data / "run" / "beat-schedule"), "--pidfile", "",
                "--loglevel", "INFO",
            ],
            after=socket_path,
        ),
        Program(
            "web",
            [
                sys.executable, "-m", "uvicorn", "triage.config.asgi:application",
                "--host", host, "--port", str(port), "--no-access-log", "--lifespan", "off",
                # No logging of its own: its lines join Django's structured log.
                "--log-config", str(settings.BASE_DIR / "triage" / "config" / "uvicorn.json"),
                "--no-server-header", "--timeout-graceful-shutdown", "3",
            ],
        ),
    ]  # fmt: skip
    if with_reproductions:
        programs.append(
            Program(
                "cpu-worker",
                [
                    sys.executable, str(settings.BASE_DIR / "manage.py"), "worker",
                    "--queue", "cpu", "--name", f"cpu-{os.getpid()}@{socket.gethostname()}",
                ],
                stop_signal="QUIT",
                stops_as_group=False,
                after=socket_path,
            )
        )  # fmt: skip
    if redis:
        binary, path = redis
        programs.append(
            Program(
                "redis", redis_command(binary, path, data / "run"), stop_group=1, stop_timeout_s=2
            )
        )
    return programs
