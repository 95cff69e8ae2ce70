"""A sandbox for small scripts of the tests' own, and an entry whose script they write."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kb.catalog import Catalog, Pitfall, load_catalog
from triage.reproduction import Capability, interpreter, probe, processes
from triage.reproduction.runner import Run
from triage.reproduction.sandbox import UID, Box


@pytest.fixture(scope="session")
def capability() -> Capability:
    """What this machine can run; skips where it cannot shut anything in."""
    found = probe(interpreter())
    if not found.sandbox:
        pytest.skip(found.why)
    return found


@pytest.fixture(scope="session")
def able(capability: Capability) -> Capability:
    """What this machine can run; skips where there is no torch for the scripts."""
    if not capability.is_able:
        pytest.skip(capability.why)
    return capability


@pytest.fixture
def run_script(capability: Capability) -> Callable[..., Run]:
    """`run_script(text, limit_s=…)`: the script in a small sandbox, run to whatever end."""

    def run(text: str, *arguments: str, memory_mib: int = 300, **options: object) -> Run:
        box = Box(memory_mib=memory_mib, shm_mib=2, scratch_mib=4)
        settings = {"limit_s": 20.0} | options
        found = Run(text.encode(), list(arguments), box, capability, **settings)  # type: ignore[arg-type]
        found.go()
        return found

    return run


def _traces() -> set[str]:
    """What runs of this process could leave: files of the sandbox's user or of ours, and groups."""
    found = {str(p) for p in Path("/sys/fs/cgroup").glob(f"**/pitstop-{os.getpid()}-*")}
    for folder in (Path("/tmp"), Path("/dev/shm")):
        for path in folder.iterdir() if folder.is_dir() else ():
            with contextlib.suppress(OSError):
                if path.lstat().st_uid == UID or path.name.startswith("pitstop"):
                    found.add(str(path))
    return found


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails the test that leaves a process, a file or a control group behind."""
    before = _traces()
    # A house that other tests of the session use may run beside, and start what it likes.
    known = {p.pid for p in processes.tree(os.getpid())[1:]}
    yield
    below = []
    for process in processes.tree(os.getpid())[1:]:
        if process.pid in known or process.parent in known:
            known.add(process.pid)
        elif not process.is_zombie:
            below.append(process.name)
    assert [name for name in below if name == "bwrap" or name.startswith("python")] == []
    assert _traces() - before == set()


_TOML = """\
title = "The step stumbles"
group = "data"
role = "root"
status = "draft"
summary = "The step stumbled over a number."

[[signature]]
strength = "conclusive"
any = ['StumbleError: number (?P<number>\\d+) is odd']
printed_by = "train.py"

[[fix]]
title = "Take even numbers"
snippet = "repro.py#fixed"

[reproduction]
where = "cpu"
differs = "Takes the number after it."
proves = "cause"
seconds = 1
memory_mib = 50
options = { classes = [1, 9], shm-mb = [1, 8] }
"""
_SCRIPT = """\
import sys

number = 7


class StumbleError(Exception):
    pass


# part: fixed
def even(number):
    return number + number % 2
# end: fixed


if "--fixed" in sys.argv:
    number = even(number)
print("arguments", sys.argv[1:])
if number % 2:
    raise StumbleError(f"number {number} is odd")
print("ran to its end")
"""


def _changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture
def make_pitfall(tmp_path: Path) -> Callable[..., tuple[Pitfall, Catalog]]:
    """`make_pitfall(toml={old: new}, script={old: new})`: an entry with a script, and its catalog.

    The script needs no torch; a text to be replaced that is not there fails the test.
    """

    def make(
        toml: dict[str, str] | None = None, script: dict[str, str] | None = None
    ) -> tuple[Pitfall, Catalog]:
        shutil.rmtree(tmp_path / "pitfalls", ignore_errors=True)
        folder = tmp_path / "pitfalls" / "step-stumbles"
        folder.mkdir(parents=True)
        (folder / "pitfall.toml").write_text(_changed(_TOML, toml or {}), encoding="utf-8")
        (folder / "repro.py").write_text(_changed(_SCRIPT, script or {}), encoding="utf-8")
        catalog = load_catalog([tmp_path / "pitfalls"])
        pitfall = catalog.get("step-stumbles")
        assert pitfall is not None
        return pitfall, catalog

    return make
