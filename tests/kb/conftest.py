"""An entry that is complete, written to a folder, to be broken one key at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

_PITFALL = """\
title = "The loader stumbles"
group = "data"
role = "root"
status = "reviewed"
summary = "The loader stumbled over a sample."
versions = "torch >= 1.0"
explains = []
confirm = ["ls data"]

[[signature]]
strength = "strong"
any = ['@SLUG@ stumbled over sample (?P<index>\\d+)']
because = "sample {index} is named"
printed_by = "loader.py"

[[fix]]
title = "Skip it"
snippet = "fix.py#skip"

[[reference]]
title = "One"
url = "https://example.org/one"

[[reference]]
title = "Two"
url = "https://example.org/two"

[reproduction]
where = "cpu"
"""
_RUN = """\
differs = "Leaves the second path out."
proves = "cause"
ends = "hang"
seconds = 3
memory_mib = 120
shm_mib = 2
options = { world-size = [2, 4] }
"""
_INDEX = """\
[[example]]
file = "one.log"
source = "own run"
torch = "2.13"
expect = "@SLUG@"
rank = 3

[[example]]
file = "two.log"
source = "own run"
expect = "@SLUG@"

[[example]]
file = "three.log"
source = "own run"
expect = "none"

[[example]]
file = "four.log"
source = "own run"
expect = "none"
"""
_GUIDE = """\
## What you see
A line.
## Why
A reason.
## Confirm
```bash
## not a heading
ls data
```
## Fix
Skip it.
## Prevent
Check before.
"""
_REPRO = """\
import sys

# part: fixed
paths = [path for path in ("a", "b") if path != "b"]
# end: fixed
if "--fixed" not in sys.argv:
    raise SystemExit("stumbled")
print("ran to its end")
"""
_FIX = """\
def load(paths):
    for path in paths:
        # part: skip
        if not path.exists():
            continue
        # end: skip
        yield path
"""


@pytest.fixture
def pitfalls(tmp_path: Path) -> Path:
    """An empty folder of entries."""
    folder = tmp_path / "pitfalls"
    folder.mkdir()
    return folder


@pytest.fixture
def make_entry(pitfalls: Path) -> Callable[..., Path]:
    """`make_entry(slug, {file: {old: new}})`: a complete entry with such texts replaced.

    A text that is not there fails the test: a fault that is not written proves nothing.
    """

    def make(
        slug: str = "loader-stumbles", changes: dict[str, dict[str, str]] | None = None
    ) -> Path:
        entry = pitfalls / slug
        (entry / "examples").mkdir(parents=True)
        files = {
            "pitfall.toml": _PITFALL,
            "guide.md": _GUIDE,
            "fix.py": _FIX,
            "examples/index.toml": _INDEX,
            "examples/one.log": f"[rank3]: {slug} stumbled over sample 41\n",
            "examples/two.log": f"{slug} stumbled over sample 7\n",
            "examples/three.log": "epoch 1 done\n",
            "examples/four.log": "epoch 2 done\n",
        }
        for name, replacements in (changes or {}).items():
            for old, new in replacements.items():
                assert old in files[name]
                files[name] = files[name].replace(old, new)
        for name, text in files.items():
            (entry / name).write_text(text.replace("@SLUG@", slug), encoding="utf-8")
        return entry

    return make


@pytest.fixture
def add_script() -> Callable[..., None]:
    """`add_script(entry, {old: new}, script=text)`: a reproduction for a complete entry.

    Its table holds all that must be said; texts of the whole `pitfall.toml` are replaced.
    """

    def add(entry: Path, changes: dict[str, str] | None = None, script: str = _REPRO) -> None:
        (entry / "repro.py").write_text(script, encoding="utf-8")
        text = (entry / "pitfall.toml").read_text("utf-8")
        text = text.replace('snippet = "fix.py#skip"', 'snippet = "repro.py#fixed"') + _RUN
        for old, new in (changes or {}).items():
            assert old in text
            text = text.replace(old, new)
        (entry / "pitfall.toml").write_text(text, encoding="utf-8")

    return add
