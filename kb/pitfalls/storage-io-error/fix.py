"""Reading samples from storage that fails now and then."""

from __future__ import annotations

# part: read
import errno
import socket
import time
from pathlib import Path

PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO}


def read_bytes(path: Path, tries: int = 4) -> bytes:
    """The file's content; opens it anew after a fault of the file system."""
    for attempt in range(tries):
        try:
            return path.read_bytes()
        except OSError as error:
            if error.errno not in PASSING or attempt == tries - 1:
                error.add_note(f"on {socket.gethostname()}, try {attempt + 1} of {tries}")
                raise
            time.sleep(2.0**attempt)
    raise AssertionError("unreachable")


# end: read
