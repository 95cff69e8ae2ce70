"""Entries and the catalog as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.catalog import Catalog, CatalogError, Pitfall, Signature, load_catalog, load_pitfall


@pytest.fixture
def entry(make_entry: Callable[..., Path]) -> Pitfall:
    """The complete entry, loaded."""
    return load_pitfall(make_entry())


def test_every_key_of_the_file_has_its_field(entry: Pitfall) -> None:
    assert (entry.slug, entry.title) == ("loader-stumbles", "The loader stumbles")
    assert (entry.group, entry.role, entry.status) == ("data", "root", "reviewed")
    assert (entry.severity, entry.advice, entry.fatal) == ("failure", "do-not-retry", False)
    assert entry.signatures[0].because == "sample {index} is named"
    assert entry.signatures[0].printed_by == "loader.py"
    assert [reference.url[-3:] for reference in entry.references] == ["one", "two"]
    assert entry.reproduction is not None
    assert entry.reproduction.where == "cpu"
    assert entry.confirm == ("ls data",)
    assert entry.guide.startswith("## What you see")


def test_a_snippet_is_the_marked_part_of_its_file_without_its_indent(entry: Pitfall) -> None:
    fix = entry.fixes[0]
    assert fix.snippet == "if not path.exists():\n    continue"
    assert fix.language == "python"


def test_examples_are_positives_or_near_misses(entry: Pitfall) -> None:
    assert [e.path.name for e in entry.positives] == ["one.log", "two.log"]
    assert [e.path.name for e in entry.near_misses] == ["three.log", "four.log"]
    assert [e.rank for e in entry.examples] == [3, None, None, None]
    assert entry.examples[0].read_text() == "[rank3]: loader-stumbles stumbled over sample 41\n"


def test_broken_bytes_of_an_example_are_replaced(entry: Pitfall) -> None:
    entry.examples[0].path.write_bytes(b"caf\xe9\n")
    assert entry.examples[0].read_text() == "caf\ufffd\n"


def test_patterns_of_a_signature_are_those_that_make_it_match() -> None:
    signature = Signature("strong", all=("a",), any=("b", "c"), none=("d",))
    assert signature.patterns == ("a", "b", "c")
    assert list(signature.kinds_and_patterns()) == [
        ("all", "a"), ("any", "b"), ("any", "c"), ("none", "d")
    ]  # fmt: skip


def test_severity_and_status_are_questions_too(entry: Pitfall) -> None:
    assert dataclasses.replace(entry, severity="fallback").is_fallback
    assert dataclasses.replace(entry, severity="advisory").is_advisory
    assert not entry.is_fallback
    assert not entry.is_advisory


def test_a_catalog_finds_entries_by_slug_and_leaves_retired_ones_out(entry: Pitfall) -> None:
    old = dataclasses.replace(entry, slug="old-one", status="retired")
    catalog = Catalog((entry, old), "1")
    assert len(catalog) == 2
    assert "old-one" in catalog
    assert "no-such" not in catalog
    assert catalog.get("old-one") is old
    assert catalog.get("no-such") is None
    assert list(catalog) == [entry, old]
    assert catalog.active == (entry,)


def test_entries_are_in_the_order_of_their_slugs(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    for slug in ("zebra", "ant", "mole"):
        make_entry(slug)
    assert [p.slug for p in load_catalog([pitfalls])] == ["ant", "mole", "zebra"]


def test_the_version_is_of_the_content_not_of_the_place(
    make_entry: Callable[..., Path], pitfalls: Path, tmp_path: Path
) -> None:
    entry = make_entry()
    version = load_catalog([pitfalls]).version
    moved = pitfalls.rename(tmp_path / "elsewhere")
    assert load_catalog([moved]).version == version
    (moved / entry.name / "guide.md").write_text("## What you see\nAnother.\n")
    assert load_catalog([moved]).version != version


def test_an_error_reads_as_file_key_and_words() -> None:
    error = CatalogError(Path("x/pitfall.toml"), "role", "expected root or symptom, got 'cause'")
    assert str(error) == "x/pitfall.toml: role: expected root or symptom, got 'cause'"
    assert str(CatalogError(Path("x"), "", "is missing")) == "x: is missing"
