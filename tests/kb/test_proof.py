"""Proofs beside their entry: written by one function, read by another, and no part of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.catalog import (
    Catalog,
    CatalogError,
    Option,
    Pitfall,
    Proof,
    Reproduction,
    load_catalog,
    load_pitfall,
    proof,
)
from kb.catalog.document import from_document, to_document

_PROOF = Proof(
    device="cpu",
    reproduced=True,
    fix_verified=False,
    seconds=8.0,
    date="2026-11-03",
    torch="2.13.0+cpu",
    python="3.11.7",
    catalog="3f1c",
    entry="9a0b",
    reason="the fixed run only leaves the fault out",
    broken_lines=('RuntimeError: "a" \\\\ b\x7f\x1b[0m', "é\u2028"),
)


@pytest.fixture
def entry(make_entry: Callable[..., Path], add_script: Callable[..., None]) -> Path:
    """The folder of a complete entry with a script."""
    folder = make_entry()
    add_script(folder)
    return folder


def test_all_that_is_said_of_a_script_is_read(entry: Path) -> None:
    pitfall = load_pitfall(entry)
    assert pitfall.reproduction == Reproduction(
        where="cpu",
        has_script=True,
        differs="Leaves the second path out.",
        proves="cause",
        ends="hang",
        seconds=3,
        memory_mib=120,
        shm_mib=2,
        scratch_mib=256,
        options=(Option("world-size", 2, 4),),
    )
    assert pitfall.reproduction.is_runnable
    assert pitfall.fixes[0].is_run
    assert pitfall.fixes[0].snippet.startswith("paths = [")
    assert pitfall.script.is_file()


def test_a_proof_is_read_as_it_was_written(entry: Path) -> None:
    assert load_pitfall(entry).proofs == ()
    proof.write(entry, _PROOF)
    assert load_pitfall(entry).proofs == (_PROOF,)


def test_a_proof_replaces_the_one_on_its_device(entry: Path) -> None:
    gpu = dataclasses.replace(_PROOF, device="NVIDIA H200", cuda="13.0", driver="580.1")
    for one in (_PROOF, gpu, dataclasses.replace(_PROOF, fix_verified=True, reason="")):
        proof.write(entry, one)
    on_gpu, on_cpu = load_pitfall(entry).proofs
    assert on_gpu == gpu
    assert (on_cpu.device, on_cpu.fix_verified, on_cpu.reason) == ("cpu", True, "")


def test_a_proof_is_no_part_of_what_the_catalog_is(entry: Path, pitfalls: Path) -> None:
    before = load_catalog([pitfalls])
    proof.write(entry, _PROOF)
    after = load_catalog([pitfalls])
    assert after.version == before.version
    assert after != before
    (entry / "repro.py").write_text((entry / "repro.py").read_text() + "# more\n")
    assert load_catalog([pitfalls]).version != before.version


def test_a_changed_entry_is_another_one_to_prove(entry: Path) -> None:
    pitfall = load_pitfall(entry)
    before = proof.digest_of(pitfall)
    proof.write(entry, _PROOF)
    assert proof.digest_of(load_pitfall(entry)) == before
    reworded = dataclasses.replace(pitfall, summary="In other words.")
    assert proof.digest_of(reworded) == before
    assert proof.digest_of(dataclasses.replace(pitfall, signatures=())) != before
    pitfall.script.write_text(pitfall.script.read_text() + "# more\n")
    assert proof.digest_of(pitfall) != before


def test_the_catalog_as_a_document_keeps_scripts_and_proofs(entry: Path, pitfalls: Path) -> None:
    proof.write(entry, _PROOF)
    loaded: Catalog = load_catalog([pitfalls])
    again = from_document(json.loads(json.dumps(to_document(loaded))))
    assert again == loaded
    kept: Pitfall = again.pitfalls[0]
    assert kept.proofs[0].broken_lines == _PROOF.broken_lines
    assert hash(kept.reproduction) == hash(loaded.pitfalls[0].reproduction)


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        ("reproduced = true\n", "", "proof[0].reproduced", "is missing"),
        ("reproduced = true", "reproduced = 1", "proof[0].reproduced", "expected bool, got 1"),
        ("seconds = 8.0", "seconds = true", "proof[0].seconds", "expected float, got True"),
        ("seconds = 8.0", "seconds = 8", "", ""),
        ("device =", "colour =", "proof[0].colour", "unknown key"),
        ("[[proof]]", "[proof]", "", "expected [[proof]] tables"),
        ("[[proof]]", "[[proof", "", "is not TOML"),
    ],
)
def test_a_fault_of_a_proof_names_file_and_key(
    entry: Path, old: str, new: str, key: str, words: str
) -> None:
    proof.write(entry, _PROOF)
    path = entry / proof.FILE
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    if not words:
        assert load_pitfall(entry).proofs == (_PROOF,)
        return
    with pytest.raises(CatalogError) as caught:
        load_pitfall(entry)
    assert (caught.value.path, caught.value.key) == (path, key)
    assert words in caught.value.problem
