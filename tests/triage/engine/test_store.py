"""Compiled patterns come back from disk whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triage.engine import store
from triage.engine.multipattern import build_matcher
from triage.engine.patterns import Pattern

VALUE = {"problems": {}, "literals": [["a", None]]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own."""
    monkeypatch.setenv("PITSTOP_DATA", str(tmp_path))
    return tmp_path / "compiled"


def test_what_was_saved_is_loaded(folder: Path) -> None:
    store.save("k", VALUE, [b"one", b"", b"three"])
    assert store.load("k") == (VALUE, [b"one", b"", b"three"])
    assert [p.name for p in folder.iterdir()] == ["k"]
    assert (folder / "k").stat().st_mode & 0o077 == 0


def test_a_flipped_byte_anywhere_makes_it_absent(folder: Path) -> None:
    store.save("k", VALUE, [b"blob"])
    whole = (folder / "k").read_bytes()
    for at in range(len(whole)):
        (folder / "k").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert store.load("k") is None, at
    for size in (0, 1, 20, len(whole) - 1):
        (folder / "k").write_bytes(whole[:size])
        assert store.load("k") is None, size


def test_another_keys_file_under_this_name_is_absent(folder: Path) -> None:
    store.save("k", VALUE)
    (folder / "k").rename(folder / "other")
    assert store.load("other") is None


def test_a_file_that_others_may_write_is_not_read(folder: Path) -> None:
    store.save("k", VALUE)
    (folder / "k").chmod(0o666)
    assert store.load("k") is None


def test_a_folder_that_cannot_be_made_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PITSTOP_DATA", str(tmp_path / "file"))
    store.save("k", VALUE)
    assert store.load("k") is None


def test_the_oldest_files_go(folder: Path) -> None:
    for number in range(20):
        store.save(f"k{number}", VALUE)
        os.utime(folder / f"k{number}", (number, number))
    names = {p.name for p in folder.iterdir()}
    assert len(names) <= 13
    assert "k19" in names
    assert "k0" not in names


def test_the_key_follows_texts_engine_and_kind() -> None:
    keys = {
        store.key_of(kind, engine, texts)
        for kind in ("catalog", "vetted")
        for engine in ("", "re2")
        for texts in (["a", "b"], ["ab"], ["b", "a"])
    }
    assert len(keys) == 12


def test_a_restored_matcher_finds_the_same_and_a_broken_file_is_written_anew(folder: Path) -> None:
    pytest.importorskip("hyperscan")
    patterns = [Pattern("CUDA out of memory"), Pattern("(?i)bus error")]
    block = b"x\nCUDA out of memory\nBUS error\n"
    fresh = build_matcher(patterns, "hyperscan", "k")
    wanted = fresh.find(block)
    assert fresh.for_long_text().find(block)
    files = sorted(folder.iterdir())
    assert len(files) == 2
    again = build_matcher(patterns, "hyperscan", "k")
    assert again.find(block) == wanted
    assert again.for_long_text().find(block) == fresh.for_long_text().find(block)
    whole = [file.read_bytes() for file in files]
    for file in files:
        file.write_bytes(b"nonsense")
    repaired = build_matcher(patterns, "hyperscan", "k")
    assert repaired.find(block) == wanted
    assert repaired.for_long_text().find(block)
    assert [len(file.read_bytes()) for file in files] == [len(data) for data in whole]
