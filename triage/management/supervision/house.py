"""The programs of one machine's house, run and watched by the supervisor library."""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor import events
from supervisor.medusa import asyncore_25 as asyncore
from supervisor.options import ServerOptions
from supervisor.states import SupervisorStates
from supervisor.supervisord import Supervisor

_LIFELINE = Path(__file__).with_name("lifeline.py")
_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Program:
    """One child. `stop_group`: stopped in rising order, so that a queue outlives its workers."""

    name: str
    command: Sequence[str]
    stop_signal: str = "TERM"
    # How long it may take to stop before its whole process group is killed. All stop groups
    # together, and a second of the supervisor's own for each, must stay below ten seconds.
    stop_timeout_s: int = 4
    stop_group: int = 0
    # Whether the whole process group gets the stop signal. A worker's pool would die of it with
    # its tasks; the worker tells its pool itself.
    stops_as_group: bool = True
    # A file that must exist before the program starts, such as the socket of a Redis.
    after: Path | None = None


def write_configuration(programs: Sequence[Program], folder: Path, logs: Path) -> Path:
    """The path of the supervisor's configuration, written new; it holds no secrets.

    Children inherit this process's environment and working folder.
    """
    lines = [
        "[supervisord]",
        "nodaemon=true",
        "silent=true",
        "umask=077",
        f"logfile={_escaped(str(logs / 'supervisor.log'))}",
        "logfile_maxbytes=5MB",
        "logfile_backups=1",
        f"pidfile={_escaped(str(folder / 'supervisor.pid'))}",
        f"childlogdir={_escaped(str(logs))}",
    ]
    for program in programs:
        lines += [
            "",
            f"[program:{program.name}]",
            f"command={_escaped(shlex.join(_tied_to_us(program)))}",
            f"stdout_logfile={_escaped(str(logs / f'{program.name}.log'))}",
            "stdout_logfile_maxbytes=20MB",
            "stdout_logfile_backups=3",
            "redirect_stderr=true",
            "autorestart=true",
            "startsecs=2",
            "startretries=10",
            f"stopsignal={program.stop_signal}",
            f"stopwaitsecs={program.stop_timeout_s}",
            f"stopasgroup={'true' if program.stops_as_group else 'false'}",
            "killasgroup=true",
        ]
    for number in sorted({program.stop_group for program in programs}):
        members = [program.name for program in programs if program.stop_group == number]
        lines += [
            "",
            f"[group:stop{number}]",
            f"programs={','.join(members)}",
            # The supervisor starts low priorities first and stops high ones first.
            f"priority={900 - number}",
        ]
    path = folder / "supervisor.conf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _tied_to_us(program: Program) -> list[str]:
    after = ["--after", str(program.after)] if program.after else []
    return [sys.executable, "-S", "-E", str(_LIFELINE), *after, str(os.getpid()), *program.command]


def _escaped(value: str) -> str:
    return value.replace("%", "%%")


class _Options(ServerOptions):
    """The library's options, which remember how each child ended."""

    def __init__(self) -> None:
        super().__init__()
        self.last_status: dict[int, int] = {}
        # Set by the library's own command: the first round of this process, and not a dry run.
        self.first = True
        self.test = False

    def waitpid(self) -> tuple[int | None, int | None]:
        """(pid, status) of a child that ended, or (None, None)."""
        pid, status = super().waitpid()
        if pid:
            self.last_status[pid] = status
        return pid, status


class House(Supervisor):
    """Runs the programs of a configuration until a signal or until one of them cannot start.

    Says through `say` what happens to them, one line each, and calls `on_ready` once when the web
    answers at /healthz.
    """

    def __init__(
        self,
        configuration: Path,
        *,
        web: tuple[str, int],
        logs: Path,
        say: Callable[[str], None],
        on_ready: Callable[[], None],
    ) -> None:
        options = _Options()
        options.realize(args=["--configuration", str(configuration)], doc=__doc__, progname="up")
        super().__init__(options)
        self._web = web
        self._logs = logs
        self._say = say
        self._on_ready = on_ready
        self._is_ready = False
        self._failed = False
        self._fell: dict[str, str] = {}

    def stay(self) -> int:
        """0 after a stop by signal, 1 when a program could not be started; all have ended then."""
        with contextlib.suppress(asyncore.ExitNow):
            self.main()
        return 1 if self._failed else 0

    def runforever(self) -> None:
        """The library's loop, with its events told to the terminal."""
        events.subscribe(events.ProcessStateExitedEvent, self._on_end)
        events.subscribe(events.ProcessStateBackoffEvent, self._on_end)
        events.subscribe(events.ProcessStateRunningEvent, self._on_running)
        events.subscribe(events.ProcessStateFatalEvent, self._on_fatal)
        events.subscribe(events.SupervisorStoppingEvent, self._on_stopping)
        # The library starts its programs after a first second of waiting; people wait with it.
        for group in sorted(self.process_groups.values()):
            group.transition()
        super().runforever()

    def tick(self, now: float | None = None) -> None:
        """Called by the library about once a second."""
        super().tick(now)
        if not self._is_ready and not self.stopping and self._answers():
            self._is_ready = True
            self._on_ready()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(*self._web, timeout=0.5)
        try:
            connection.request("GET", "/healthz", headers={"Host": "localhost"})
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _on_end(self, event: events.ProcessStateEvent) -> None:
        name = event.process.config.name
        how = _how_it_ended(self.options.last_status.get(event.process.pid))
        if name not in self._fell:
            self._say(f"{name} ended ({how}, process {event.process.pid}); starting it again.")
        self._fell[name] = how

    def _on_running(self, event: events.ProcessStateEvent) -> None:
        name = event.process.config.name
        if self._fell.pop(name, None):
            self._say(f"{name} runs again (process {event.process.pid}).")

    def _on_fatal(self, event: events.ProcessStateEvent) -> None:
        name = event.process.config.name
        log = self._logs / f"{name}.log"
        self._say(f"{name} cannot be started ({self._fell.get(name, 'no reason known')}).")
        self._say(f"The end of {log}:")
        for line in _last_lines(log):
            self._say(f"    {line}")
        self._failed = True
        self.options.mood = SupervisorStates.SHUTDOWN

    def _on_stopping(self, event: events.Event) -> None:
        self._say("Stopping …")


def _how_it_ended(status: int | None) -> str:
    if status is None:
        return "reason unknown"
    if status & 0x7F:
        return f"killed by {signal.Signals(status & 0x7F).name}"
    return f"exit status {status >> 8}"


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 16_384))
            return log.read().decode("utf-8", "replace").splitlines()[-_LAST_LINES:]
    except OSError:
        return []
