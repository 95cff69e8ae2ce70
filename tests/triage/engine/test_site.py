"""A catalog through JSON and back, and a kept copy that knows when it is stale."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kb.catalog import Catalog, CatalogError, load_catalog
from kb.catalog.document import from_document, to_document
from triage.engine import site


def test_every_entry_comes_back_equal(catalog: Catalog) -> None:
    assert from_document(json.loads(json.dumps(to_document(catalog)))) == catalog


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site's own folder with one entry, named by PITSTOP_CATALOG, and an empty store."""
    folder = tmp_path / "entries"
    entry = folder / "own-entry"
    entry.mkdir(parents=True)
    (entry / "pitfall.toml").write_text(
        'title = "Own"\ngroup = "data"\nrole = "root"\nstatus = "draft"\nsummary = "One."\n'
    )
    monkeypatch.setenv("PITSTOP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PITSTOP_CATALOG", str(folder))
    return folder


def test_the_kept_catalog_is_the_one_of_the_files(entries: Path) -> None:
    first, second = site.site_catalog(), site.site_catalog()
    assert first == second
    assert "own-entry" in second
    assert len(list((entries.parent / "data" / "compiled").iterdir())) == 1


def test_a_changed_file_is_read_anew(entries: Path) -> None:
    before = site.site_catalog()
    path = entries / "own-entry" / "pitfall.toml"
    stamp = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace("Own", "New"))
    os.utime(path, ns=(stamp, stamp + 1))
    after = site.site_catalog()
    found = after.get("own-entry")
    assert found is not None
    assert found.title == "New"
    assert after.version != before.version


def test_a_fault_is_told_every_time(entries: Path) -> None:
    site.site_catalog()
    (entries / "own-entry" / "pitfall.toml").write_text("title = 3\n")
    for _ in range(2):
        with pytest.raises(CatalogError, match=r"own-entry/pitfall\.toml: title"):
            site.site_catalog()


def test_a_folder_that_is_missing_is_named(entries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITSTOP_CATALOG", str(entries / "nowhere"))
    with pytest.raises(CatalogError, match="no such folder"):
        site.site_catalog()


def test_a_broken_copy_is_written_anew(entries: Path) -> None:
    wanted = site.site_catalog()
    (kept,) = (entries.parent / "data" / "compiled").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert site.site_catalog() == wanted
    assert load_catalog([entries]).get("own-entry") == wanted.get("own-entry")
