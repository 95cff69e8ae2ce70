"""Each kind of fault of an entry is refused with the file and the key that hold it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.catalog import (
    CatalogError,
    builtin_folder,
    load_catalog,
    load_pitfall,
    read_catalog,
)

_TOML = "pitfall.toml"
_INDEX = "examples/index.toml"


@pytest.mark.parametrize(
    "case",
    [
        (_TOML, 'role = "root"', 'role = "cause"', "role", "expected root or symptom, got 'cause'"),
        (_TOML, 'group = "data"', 'group = "dta"', "group", "got 'dta'"),
        (_TOML, 'status = "reviewed"', 'status = "done"', "status", "got 'done'"),
        (_TOML, 'status = "reviewed"', 'status = "draft"\nadvice = "run"', "advice", "got 'run'"),
        (_TOML, 'group = "data"', 'group = "data"\nseverity = "bad"', "severity", "got 'bad'"),
        (_TOML, 'title = "The loader stumbles"\n', "", "title", "is missing"),
        (_TOML, '"The loader stumbles"', '" "', "title", "is empty"),
        (_TOML, '"The loader stumbles"', "7", "title", "expected a text, got 7"),
        (_TOML, 'versions = "torch >= 1.0"', "versions = 1.0", "versions", "expected a text"),
        (_TOML, "explains = []", 'explains = "x"', "explains", "expected a list of texts"),
        (_TOML, "explains = []", 'explains = ["gone"]', "explains", "'gone': no such entry"),
        (_TOML, "explains = []", 'explains = ["loader-stumbles"]', "explains", "explain itself"),
        (_TOML, 'confirm = ["ls data"]', "confirm = [1]", "confirm", "expected a list of texts"),
        (_TOML, "explains = []", "fatal = 1", "fatal", "expected true or false, got 1"),
        (_TOML, "explains = []", 'colour = "red"', "colour", "unknown key; known are advice"),
        (_TOML, "title = ", "title == ", "", "is not TOML"),
        (_TOML, 'strength = "strong"', 'strength = "sure"', "signature[0].strength", "got 'sure'"),
        (_TOML, "any = ['", "some = ['", "signature[0].some", "unknown key"),
        (_TOML, "any = ['@SLUG@ stumbled over sample (?P<index>\\d+)']", "", "signature[0].all",
         "needs all, any or facts"),
        (_TOML, 'printed_by = "loader.py"', "within_lines = 0", "signature[0].within_lines",
         "expected a whole number from 1, got 0"),
        (_TOML, 'printed_by = "loader.py"', "within_lines = true", "signature[0].within_lines",
         "got True"),
        (_TOML, "[[signature]]", "[signature]", "signature", "expected [[signature]] tables"),
        (_TOML, '"fix.py#skip"', '"fix.py#jump"', "fix[0].snippet", "between '# part: jump'"),
        (_TOML, '"fix.py#skip"', '"gone.py"', "fix[0].snippet", "cannot read gone.py"),
        (_TOML, 'snippet = "fix.py#skip"', "", "fix[0].snippet", "is missing"),
        (_TOML, "https://example.org/two", "ftp://example.org", "reference[1].url", "web address"),
        (_TOML, 'where = "cpu"', 'where = "moon"', "reproduction.where", "got 'moon'"),
        (_TOML, 'where = "cpu"', 'where = "cpu"\nproves = "much"', "reproduction.proves",
         "expected cause or stand-in or injection, got 'much'"),
        (_TOML, 'where = "cpu"', 'where = "cpu"\nends = "never"', "reproduction.ends",
         "expected exit or hang, got 'never'"),
        (_TOML, 'where = "cpu"', 'where = "cpu"\nseconds = 0', "reproduction.seconds",
         "a whole number from 1, got 0"),
        (_TOML, 'where = "cpu"', 'where = "cpu"\nminutes = 1', "reproduction.minutes",
         "unknown key"),
        (_TOML, 'where = "cpu"', 'where = "cpu"\noptions = ["classes"]', "reproduction.options",
         "expected a table of name = [lowest, highest]"),
        (_TOML, 'where = "cpu"', 'where = "cpu"\noptions = { path = [1, 2] }',
         "reproduction.options.path", "known are world-size, num-workers, shm-mb, classes"),
        (_TOML, 'where = "cpu"', 'where = "cpu"\noptions = { classes = 3 }',
         "reproduction.options.classes", "expected a range of two whole numbers"),
        (_TOML, 'where = "cpu"', 'where = "cpu"\noptions = { classes = [3, 1] }',
         "reproduction.options.classes", "got [3, 1]"),
        (_TOML, 'where = "cpu"', 'where = "cpu"\noptions = { classes = [1.0, 2] }',
         "reproduction.options.classes", "got [1.0, 2]"),
        (_INDEX, 'file = "two.log"', 'file = "five.log"', "example[1].file", "five.log is missing"),
        (_INDEX, 'torch = "2.13"\n', 'from = "x"\n', "example[0].from", "unknown key"),
        (_INDEX, "rank = 3", "rank = -1", "example[0].rank", "a whole number from 0, got -1"),
        (_INDEX, "[[example]]", "[[examples]]", "examples", "unknown key"),
        ("fix.py", "# end: skip", "# end: jump", "fix[0].snippet", "and its end"),
    ],
    ids=lambda case: f"{case[3]}: {case[4]}",
)  # fmt: skip
def test_a_fault_names_file_and_key(
    make_entry: Callable[..., Path], pitfalls: Path, case: tuple[str, str, str, str, str]
) -> None:
    file, old, new, key, words = case
    entry = make_entry(changes={file: {old: new}})
    with pytest.raises(CatalogError) as caught:
        load_catalog([pitfalls])
    named = _TOML if file == "fix.py" else file
    assert caught.value.path == entry / named
    assert caught.value.key == key
    assert words in caught.value.problem
    assert str(caught.value).startswith(f"{entry / named}: {key}" if key else f"{entry / named}:")


def test_signatures_of_a_reviewed_entry_are_asked_for(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    entry = make_entry()
    text = (entry / _TOML).read_text()
    start, end = text.index("[[signature]]"), text.index("[[fix]]")
    (entry / _TOML).write_text(text[:start] + text[end:])
    with pytest.raises(CatalogError) as caught:
        load_catalog([pitfalls])
    assert (caught.value.path, caught.value.key) == (entry / _TOML, "signature")


@pytest.mark.parametrize("slug", ["Upper-case", "two--hyphens", "ends-", "under_score", "sp ace"])
def test_an_ill_formed_slug_is_refused(make_entry: Callable[..., Path], slug: str) -> None:
    entry = make_entry(slug)
    with pytest.raises(CatalogError) as caught:
        load_pitfall(entry)
    assert (caught.value.path, caught.value.key) == (entry, "slug")


def test_a_folder_without_its_file_is_refused(pitfalls: Path) -> None:
    (pitfalls / "hollow").mkdir()
    with pytest.raises(CatalogError, match=r"hollow/pitfall\.toml: is missing"):
        load_catalog([pitfalls])


def test_a_folder_of_entries_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="no such folder of catalog entries"):
        load_catalog([tmp_path / "gone"])


@pytest.mark.parametrize("name", ["pitfall.toml", "guide.md", "examples/index.toml"])
def test_broken_bytes_are_refused_with_their_file(
    make_entry: Callable[..., Path], pitfalls: Path, name: str
) -> None:
    entry = make_entry()
    (entry / name).write_bytes(b'title = "\xff"\n')
    with pytest.raises(CatalogError) as caught:
        load_catalog([pitfalls])
    assert caught.value.path == entry / name


def test_what_cannot_be_read_is_refused_with_its_file(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    entry = make_entry()
    (entry / "guide.md").unlink()
    (entry / "guide.md").mkdir()
    with pytest.raises(CatalogError) as caught:
        load_catalog([pitfalls])
    assert caught.value.path == entry / "guide.md"
    assert caught.value.problem.startswith("cannot be read")


def test_a_slug_that_two_folders_hold_is_refused(
    make_entry: Callable[..., Path], pitfalls: Path, tmp_path: Path
) -> None:
    make_entry()
    other = tmp_path / "site"
    shutil.copytree(pitfalls, other)
    with pytest.raises(CatalogError, match="is also an entry in") as caught:
        load_catalog([pitfalls, other])
    assert (caught.value.path, caught.value.key) == (other / "loader-stumbles", "slug")


def test_hidden_folders_and_loose_files_are_no_entries(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    make_entry()
    (pitfalls / ".git").mkdir()
    (pitfalls / "__pycache__").mkdir()
    (pitfalls / "README.md").write_text("about\n")
    assert [p.slug for p in load_catalog([pitfalls])] == ["loader-stumbles"]


def test_reading_goes_on_behind_a_fault(make_entry: Callable[..., Path], pitfalls: Path) -> None:
    make_entry("ant", {_TOML: {'role = "root"': 'role = "cause"'}})
    make_entry("mole", {_TOML: {"explains = []": 'explains = ["ant", "gone"]'}})
    make_entry("zebra", {_TOML: {'group = "data"': 'group = "zoo"'}})
    catalog, faults = read_catalog([pitfalls])
    assert [p.slug for p in catalog] == ["mole"]
    # An entry that exists and does not load is no missing one.
    assert [(f.path.parent.name, f.key) for f in faults] == [
        ("ant", "role"), ("zebra", "group"), ("mole", "explains")
    ]  # fmt: skip


def test_a_bad_pattern_loads_and_is_left_to_the_lint(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    make_entry(changes={_TOML: {"(?P<index>\\d+)": "("}})
    assert load_catalog([pitfalls]).pitfalls[0].signatures[0].any == (
        "loader-stumbles stumbled over sample (",
    )


def test_the_built_in_entries_load_quickly() -> None:
    started = time.process_time()
    catalog = load_catalog([builtin_folder()])
    # Compiling every pattern took twice as long; a site with a thousand entries starts each worker.
    assert time.process_time() - started < 0.01 * len(catalog)
