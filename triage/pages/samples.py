"""The five cases that the front page offers to try."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent / "samples"


@dataclass(frozen=True, slots=True)
class Sample:
    """A text of `triage/samples`, under the words that the front page shows."""

    name: str
    title: str
    path: Path

    def read_text(self) -> str:
        """The whole text."""
        return self.path.read_text(encoding="utf-8")


@cache
def all_samples() -> tuple[Sample, ...]:
    """In the order of `triage/samples/index.toml`."""
    with (_FOLDER / "index.toml").open("rb") as file:
        entries = tomllib.load(file)["sample"]
    return tuple(Sample(e["name"], e["title"], _FOLDER / f"{e['name']}.log") for e in entries)


def find_sample(name: str) -> Sample | None:
    """The sample of that name, or None."""
    return next((sample for sample in all_samples() if sample.name == name), None)
