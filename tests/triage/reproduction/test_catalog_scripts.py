"""A handful of the catalog's own reproductions, each broken and fixed; `verify` runs all."""

from __future__ import annotations

import datetime

import pytest

from kb.catalog import Catalog
from triage.reproduction import Capability, reproduce, verify

NOW = datetime.datetime(2026, 11, 3, tzinfo=datetime.UTC)
pytestmark = [pytest.mark.repro, pytest.mark.sandbox, pytest.mark.usefixtures("nothing_left")]

#: Quick ones of every kind: a device, a signal, a hang of workers and of ranks, a file system.
SLUGS = (
    "checkpoint-corrupt",
    "collective-rank-conditional",
    "cuda-not-available",
    "dataloader-fork-deadlock",
    "dataloader-shm-bus-error",
    "dataloader-worker-crashed",
    "disk-full",
    "loss-nan",
    "port-in-use",
    "shape-mismatch",
)


@pytest.mark.parametrize("slug", SLUGS)
def test_the_failure_is_named_and_the_fix_mends_it(
    able: Capability, catalog: Catalog, slug: str
) -> None:
    checked = verify(catalog.by_slug[slug], catalog, now=NOW)
    shown = checked.broken.output[-2000:] + (checked.fixed.output[-2000:] if checked.fixed else "")
    assert checked.proof.reason == "", shown
    assert checked.proof.fix_verified
    assert slug not in checked.broken.output


@pytest.mark.parametrize(
    ("slug", "options"),
    [
        ("collective-rank-conditional", {"world-size": 3}),
        ("dataloader-shm-bus-error", {"shm-mb": 5}),
    ],
)
def test_the_same_failure_shows_with_other_numbers(
    able: Capability, catalog: Catalog, slug: str, options: dict[str, int]
) -> None:
    assert reproduce(catalog.by_slug[slug], catalog, options=options).named == slug
