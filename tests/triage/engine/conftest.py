"""What engine tests share: a text in, its evidence or its verdict out. No database, no Django."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from kb.catalog import Catalog
from triage.engine import Evidence, Limits, Verdict, diagnose, scan

# The same cases in every run; how long one takes depends on the machine and is no fault.
settings.register_profile("engine", deadline=None, database=None, derandomize=True)
settings.load_profile("engine")


@dataclass(frozen=True)
class LabelledText:
    """A text of the corpus beside its row in labels.jsonl."""

    name: str
    label: dict[str, Any]
    raw: bytes


@pytest.fixture(scope="session")
def corpus() -> list[LabelledText]:
    """The texts of the folder that PITSTOP_CORPUS names; none where it names no folder.

    Every `*/labels.jsonl` in it has a line a text: `file`, `root` (a slug or "none"),
    `acceptable` (slugs that pass as well), `rank` (or null), `hard`.
    """
    folder = os.environ.get("PITSTOP_CORPUS", "")
    texts = [
        LabelledText(f"{labels.parent.name}/{row['file']}", row, raw)
        for labels in sorted(Path(folder).glob("*/labels.jsonl") if folder else ())
        for row in map(json.loads, labels.read_text("utf-8").splitlines())
        for raw in [(labels.parent / row["file"]).read_bytes()]
    ]
    assert texts or not folder, f"no */labels.jsonl with texts under {folder}"
    return texts


@pytest.fixture(scope="session")
def scan_text(catalog: Catalog) -> Callable[..., Evidence]:
    """`scan_text("...")`: the Evidence of a text or of bytes; `engine` names a matcher."""

    def read(
        text: str | bytes, *, name: str = "", limits: Limits | None = None, engine: str = ""
    ) -> Evidence:
        raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        return scan(io.BytesIO(raw), catalog=catalog, name=name, limits=limits, engine=engine)

    return read


@pytest.fixture(scope="session")
def ask(catalog: Catalog, scan_text: Callable[..., Evidence]) -> Callable[..., Verdict]:
    """`ask("...", "...")`: the Verdict over the texts of one incident."""
    return lambda *texts: diagnose([scan_text(text) for text in texts], catalog)
