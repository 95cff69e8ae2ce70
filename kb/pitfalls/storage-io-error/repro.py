"""One shard lies where every read ends in the kernel's input/output error."""

import sys
from pathlib import Path

shared, local = Path("shared"), Path("local")
for folder in (shared, local):
    folder.mkdir()
for number in range(3):
    for folder in (shared, local):
        (folder / f"shard-{number}.bin").write_bytes(bytes([number]) * 1024)
(shared / "shard-1.bin").unlink()
(shared / "shard-1.bin").symlink_to("/proc/self/mem")  # its first page cannot be read

# part: fixed
import errno
import socket
import time
from collections.abc import Sequence

PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO}


def read_bytes(copies: Sequence[Path], tries: int = 3, pause_s: float = 1.0) -> bytes:
    """The content of the first copy that can be read; each is opened anew `tries` times."""
    for attempt in range(tries * len(copies)):
        path = copies[attempt // tries]
        try:
            return path.read_bytes()
        except OSError as error:
            if error.errno not in PASSING or attempt == tries * len(copies) - 1:
                raise
            print(f"{socket.gethostname()}: {path} unreadable, errno {error.errno}")
            time.sleep(pause_s)
    raise ValueError("no copies given")


# end: fixed

for number in range(3):
    name = f"shard-{number}.bin"
    if "--fixed" in sys.argv:
        content = read_bytes([shared / name, local / name], pause_s=0.1)
    else:
        content = (shared / name).read_bytes()
    print(f"{name}: {len(content)} bytes")
print("ran to its end")
