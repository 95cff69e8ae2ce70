"""What engine tests share: a text in, its evidence or its verdict out. No database, no Django."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hypothesis import settings

from kb.catalog import Catalog
from triage.engine import Evidence, Limits, Verdict, diagnose, scan

# The same cases in every run; how long one takes depends on the machine and is no fault.
settings.register_profile("engine", deadline=None, database=None, derandomize=True)
settings.load_profile("engine")


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
