"""Every fuzz target over its seeds and over what fuzzing once found; needs no fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb.catalog import Catalog
from tests.fuzz import driver

FOUND = [(t, name, data) for t in driver.TARGETS for name, data in driver.regressions(t)]


@pytest.fixture(autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vetting saves what it learns."""
    monkeypatch.setenv("PITSTOP_DATA", str(tmp_path_factory.getbasetemp() / "fuzz"))


@pytest.mark.parametrize("target", driver.TARGETS)
def test_seeds_show_no_fault(target: str, catalog: Catalog) -> None:
    module = driver.load(target)
    count = 0
    for seed in module.seeds(catalog):
        module.check(seed)
        count += 1
    assert count > 2


@pytest.mark.parametrize(("target", "name", "data"), FOUND, ids=[f"{t}/{n}" for t, n, _ in FOUND])
def test_what_was_found_is_mended(target: str, name: str, data: bytes) -> None:
    driver.load(target).check(data)


def test_every_target_is_replayed() -> None:
    scripts = {path.stem for path in Path(__file__).parent.glob("*.py")}
    assert scripts - {"driver", "test_replay"} == set(driver.TARGETS)
