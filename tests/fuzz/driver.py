"""Runs a target under atheris; test_replay.py runs all of them without it.

A target is a module beside this one with two functions: `check(data)` raises for a fault that the
bytes show, `seeds(catalog)` yields inputs to begin with. The options behind a target's name are
libFuzzer's: `python tests/fuzz/scan.py -max_total_time=300`. Without a folder among them the seeds
go into a new one under `var/fuzz`, where what was found ends up, too.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("archives", "flight_recorder", "patterns", "redaction", "scan", "stacks", "vetting")
_MAX_LEN = 16_384


def regressions(target: str) -> Iterator[tuple[str, bytes]]:
    """Inputs that once showed a fault: names and bytes."""
    for path in sorted((ROOT / "tests/fuzz/regressions" / target).glob("*")):
        yield path.name, path.read_bytes()


def load(target: str) -> Any:
    """The target's module."""
    return importlib.import_module(f"tests.fuzz.{target}")


def start(script: str) -> None:
    """Begins anew as this module, so that what the target imports is instrumented."""
    target = Path(script).stem
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "tests.fuzz.driver", target, *sys.argv[1:]])


def _fuzz(target: str, options: list[str]) -> None:
    try:
        import atheris
    except ImportError:
        sys.exit("fuzzing needs atheris: pip install -e '.[fuzz]'")
    with atheris.instrument_imports(include=["kb", "triage"]):
        catalog = importlib.import_module("kb.catalog").load_catalog()
        module = load(target)
    folder = ROOT / "var/fuzz" / target
    folder.mkdir(parents=True, exist_ok=True)
    if all(option.startswith("-") for option in options):
        corpus = folder / "corpus"
        corpus.mkdir(exist_ok=True)
        for number, seed in enumerate(module.seeds(catalog)):
            (corpus / f"seed-{number}").write_bytes(seed[:_MAX_LEN])
        for name, data in regressions(target):
            (corpus / f"regression-{name}").write_bytes(data)
        options = [*options, str(corpus)]
    defaults = [f"-max_len={_MAX_LEN}", f"-artifact_prefix={folder}/", "-timeout=20"]
    atheris.Setup([target, *defaults, *options], module.check)
    atheris.Fuzz()


if __name__ == "__main__":
    _fuzz(sys.argv[1], sys.argv[2:])
