"""Stacks taken from outside, with what tools there are."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kb.catalog import Catalog
from triage.engine import scan
from triage.reproduction import processes, sandbox
from triage.reproduction.capture import capture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
_SLEEPS = "import threading\nlock = threading.Lock()\nlock.acquire()\nprint(1, flush=True)\n"


@pytest.fixture
def hanging() -> Iterator[int]:
    """A shell, below it a Python that waits for a lock: the shell's number."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"{sys.executable} -c '{_SLEEPS}lock.acquire()'; true"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    for below in reversed(processes.tree(process.pid)):
        subprocess.run(["kill", "-9", str(below.pid)], check=True)
    process.wait(5)
    process.stdout.close()


def test_without_tools_the_wait_channels_remain(
    hanging: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    text = capture(hanging, None, settle_s=0.1)
    assert "no stacks: py-spy is not installed; gdb is not installed" in text
    assert "no stacks: it runs no Python" in text
    python = processes.tree(hanging)[1]
    assert f"\n=== pid {python.pid} ppid {hanging} state S\n" in text
    assert "futex" in text


def test_a_capture_that_is_called_off_ends_before_the_stacks(hanging: int) -> None:
    assert "no stacks" not in capture(hanging, None, settle_s=0.1, is_over=lambda: True)


def test_a_tool_that_fails_says_why(hanging: int, tmp_path: Path) -> None:
    broken = tmp_path / "py-spy"
    broken.write_text("#!/bin/sh\necho 'Error: Permission denied (os error 13)'\nexit 1\n")
    broken.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: None)
        text = capture(hanging, str(broken), settle_s=0.1)
    assert "no stacks: Error: Permission denied (os error 13); gdb is not installed" in text


def test_the_engine_reads_what_was_captured(hanging: int, catalog: Catalog) -> None:
    py_spy = sandbox.find_py_spy(sandbox.interpreter())
    if py_spy is None:
        pytest.skip("py-spy comes with the extra `repro`")
    text = capture(hanging, py_spy, settle_s=0.1)
    evidence = scan(io.BytesIO(text.encode()), catalog=catalog, name="capture")
    (stack,) = evidence.stacks
    (thread,) = stack.threads
    assert stack.parent_pid == hanging
    assert (thread.frames[0].function, thread.frames[0].line) == ("<module>", 5)
    assert (thread.state, "futex" in thread.wait_channel) == ("idle", True)


def test_a_tree_that_is_gone_has_no_stacks() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    started = time.monotonic()
    assert capture(process.pid, None, settle_s=0.1).count("\n") == 1
    assert time.monotonic() - started < 5
