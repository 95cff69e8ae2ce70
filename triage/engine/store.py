"""Compiled patterns on disk, so that the next process starts without compiling them.

A file that is broken, foreign or of another version counts as absent and is written anew. It is
read only where the user alone could have written it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_MAGIC = b"pitstop compiled 1\n"
_MAX_FILES = 12
_MAX_BYTES = 64 << 20
# Whatever writes or reads something kept: another version of it must not find the old form.
_CODE = (
    "healthy.txt", "multipattern.py", "patterns.py", "pipeline.py", "regex.py", "sieve.py",
    "site.py", "store.py", "vetting.py",
)  # fmt: skip


def folder() -> Path:
    """PITSTOP_DATA's `compiled`, else the user's cache folder."""
    if data := os.environ.get("PITSTOP_DATA"):
        return Path(data) / "compiled"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/pitstop").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pitstop"


@cache
def _code_digest() -> bytes:
    here = Path(__file__).parent
    return hashlib.sha256(b"\0".join((here / name).read_bytes() for name in _CODE)).digest()


def key_of(kind: str, engine: str, texts: Sequence[str]) -> str:
    """A name that changes with what is compiled, and with everything that compiles it."""
    digest = hashlib.sha256(_code_digest())
    about = (kind, engine, sys.version, platform.system(), platform.release(), platform.machine())
    digest.update(json.dumps([about, list(texts)]).encode())
    return f"{kind}-{digest.hexdigest()[:32]}"


def load(key: str) -> tuple[Any, list[bytes]] | None:
    """What was saved under the key: a JSON value and blobs; None if it is not there whole."""
    try:
        with (folder() / key).open("rb") as file:
            about = os.fstat(file.fileno())
            if (
                not stat.S_ISREG(about.st_mode)
                or about.st_size > _MAX_BYTES
                or about.st_mode & 0o022
                or about.st_uid != os.geteuid()
            ):
                return None
            data = file.read()
        start = len(_MAGIC) + 32
        if data[: len(_MAGIC)] != _MAGIC:
            return None
        if hashlib.sha256(key.encode() + data[start:]).digest() != data[len(_MAGIC) : start]:
            return None
        size = int.from_bytes(data[start : start + 8])
        header = json.loads(data[start + 8 : start + 8 + size])
        at, blobs = start + 8 + size, []
        for length in header["blobs"]:
            blobs.append(data[at : at + length])
            at += length
        return header["value"], blobs
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None


def save(key: str, value: Any, blobs: Sequence[bytes] = ()) -> None:
    """Writes it whole or not at all; a folder that cannot be written costs the next start only."""
    header = json.dumps({"value": value, "blobs": [len(blob) for blob in blobs]}).encode()
    body = len(header).to_bytes(8) + header + b"".join(blobs)
    digest = hashlib.sha256(key.encode() + body).digest()
    import tempfile  # noqa: PLC0415 (most starts only load)

    with suppress(OSError, RuntimeError):
        place = folder()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".new-", dir=place)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + digest + body)
            Path(name).replace(place / key)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        _forget_oldest(place)


def _forget_oldest(place: Path) -> None:
    files = [(p.stat().st_mtime, p) for p in place.iterdir() if p.is_file()]
    for _, path in sorted(files, reverse=True)[_MAX_FILES:]:
        path.unlink(missing_ok=True)
