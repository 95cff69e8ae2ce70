"""Ties a process to the life of its parent, so that a killed supervisor leaves no orphan.

As a script: `lifeline.py [--after PATH] PARENT_PID PROGRAM ARGUMENT…` waits for PATH to exist,
then becomes the program. It stands before every child and is meant to start fast: standard library
only, nothing imported before it is needed.
"""

from __future__ import annotations

import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_AFTER_TIMEOUT_S = 10.0


def die_with_parent(parent_pid: int | None = None) -> None:
    """Nothing; from now on the kernel kills this process when its parent ends (Linux).

    With `parent_pid`, a parent that has ended already ends the process here. Elsewhere than on
    Linux the call does nothing: there only an orderly stop ends the children.
    """
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 (slow to load, wanted on Linux only)

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    # The parent may have died between the fork and the call: nobody would tell us again.
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


def _main(arguments: list[str]) -> None:
    after = ""
    if arguments[0] == "--after":
        after, arguments = arguments[1], arguments[2:]
    die_with_parent(int(arguments[0]))
    deadline = time.monotonic() + _AFTER_TIMEOUT_S
    while after and not os.path.exists(after) and time.monotonic() < deadline:  # noqa: PTH110
        time.sleep(0.05)
    os.execv(arguments[1], arguments[1:])  # noqa: S606 (the command is ours, from house.py)


if __name__ == "__main__":
    _main(sys.argv[1:])
