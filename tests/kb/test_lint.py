"""Each rule of the lint finds its fault, names file and key, and says whether it is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from kb.catalog import Catalog, load_catalog
from kb.catalog.lint import Fault, check_folders, lint
from kb.catalog.syntax import PatternError, group_names, parse
from kb.checks import check_catalog
from triage.engine.facts import FACT_VALUES

_TOML = "pitfall.toml"
_INDEX = "examples/index.toml"
_GUIDE = "guide.md"
_PATTERN = "@SLUG@ stumbled over sample (?P<index>\\d+)"
_FACTS = {"loss_is_nan": (), "memory_is_short": ("requested",)}


def faults_of(folder: Path) -> list[Fault]:
    """All faults of the entries in the folder."""
    return check_folders([folder], _FACTS)[1]


def test_a_complete_entry_has_no_fault(make_entry: Callable[..., Path], pitfalls: Path) -> None:
    make_entry()
    assert faults_of(pitfalls) == []


@pytest.mark.parametrize(
    "case",
    [
        (_TOML, 'printed_by = "loader.py"', "", "signature[0].printed_by", "is missing"),
        (_TOML, 'printed_by = "loader.py"', 'printed_by = "x"\nfacts = ["loss_is_none"]',
         "signature[0].facts", "'loss_is_none' is no fact; known are loss_is_nan, memory_is_short"),
        (_TOML, 'printed_by = "loader.py"', 'printed_by = "x"\nwithin_lines = 3',
         "signature[0].within_lines", "needs two patterns"),
        (_TOML, "{index}", "{sample}", "signature[0].because", "{sample} is no named group"),
        (_TOML, "{index}", "{}", "signature[0].because", "{} is no named group"),
        (_TOML, f"['{_PATTERN}']", f"['{_PATTERN}', '{_PATTERN}']", "signature[0].any", "twice"),
        (_TOML, _PATTERN, "over (?P<index>", "signature[0].any", "is not a pattern: "),
        (_TOML, _PATTERN, "over(?= it) (?P<index>.)", "signature[0].any", "a lookaround"),
        (_TOML, f"any = ['{_PATTERN}']", f"any = ['{_PATTERN}']\nnone = ['(a+)+b']",
         "signature[0].none", "an endless repeat in an endless repeat"),
        (_TOML, 'versions = "torch >= 1.0"', "", "versions", "is missing in a reviewed entry"),
        (_TOML, 'confirm = ["ls data"]', "", "confirm", "is missing in a reviewed entry"),
        (_TOML, '[[fix]]\ntitle = "Skip it"\nsnippet = "fix.py#skip"', "", "fix", "is missing"),
        (_TOML, '[reproduction]\nwhere = "cpu"', "", "reproduction", "is missing"),
        (_TOML, '[[reference]]\ntitle = "Two"\nurl = "https://example.org/two"', "", "reference",
         "at least 2, got 1"),
        (_INDEX, 'expect = "@SLUG@"\nrank = 3', 'expect = "none"', "example",
         "at least 2 of the kind positive, got 1"),
        (_INDEX, 'file = "four.log"\nsource = "own run"\nexpect = "none"',
         'file = "four.log"\nsource = "own run"\nexpect = "@SLUG@"', "example",
         "at least 2 of the kind near miss, got 1"),
        (_INDEX, 'expect = "@SLUG@"\nrank = 3', 'expect = "gone"', "example[0].expect",
         "no such entry: 'gone'"),
        (_INDEX, 'file = "two.log"', 'file = "one.log"', "example[1].file", "stands there twice"),
        (_GUIDE, "## Confirm", "## Check", "headings", "got What you see · Why · Check · Fix"),
        (_GUIDE, "## Why\nA reason.\n", "", "headings", "got What you see · Confirm"),
        (_GUIDE, "A reason.\n", "\n", "## Why", "is empty"),
        (_GUIDE, "A reason.", "[a](/pitfalls/gone/)", "link /pitfalls/gone/", "leads nowhere"),
        (_GUIDE, "A reason.", "[a](notes.md)", "link notes.md", "leads nowhere"),
    ],
    ids=lambda case: f"{case[3]}: {case[4]}",
)  # fmt: skip
def test_a_fault_is_an_error_with_file_and_key(
    make_entry: Callable[..., Path], pitfalls: Path, case: tuple[str, str, str, str, str]
) -> None:
    file, old, new, key, words = case
    entry = make_entry(changes={file: {old: new}})
    errors = [fault for fault in faults_of(pitfalls) if fault.is_error]
    assert [(fault.path, fault.key) for fault in errors if words in fault.problem] == [
        (entry / file, key)
    ]
    assert any(str(fault).startswith(f"{entry / file}: {key}: ") for fault in errors)


def test_links_to_entries_and_to_the_web_are_fine(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    links = "[a](/pitfalls/other-one/) [b](../other-one/#fix) [c](https://example.org) [d](#why)"
    make_entry(changes={_GUIDE: {"A reason.": f"{links}\n```\nx[0](gone)\n```"}})
    make_entry("other-one")
    assert faults_of(pitfalls) == []


def test_a_missing_guide_is_an_error(make_entry: Callable[..., Path], pitfalls: Path) -> None:
    entry = make_entry()
    (entry / _GUIDE).unlink()
    assert faults_of(pitfalls) == [
        Fault("error", entry / _GUIDE, "", "is missing in a reviewed entry")
    ]


def test_a_draft_may_be_incomplete(make_entry: Callable[..., Path], pitfalls: Path) -> None:
    draft = {'status = "reviewed"': 'status = "draft"', 'confirm = ["ls data"]': ""}
    entry = make_entry(changes={_TOML: draft})
    (entry / _GUIDE).unlink()
    assert faults_of(pitfalls) == []


def test_values_of_facts_may_stand_in_a_reason(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    printed = 'printed_by = "loader.py"'
    with_fact = f'{printed}\nfacts = ["memory_is_short"]'
    make_entry(changes={_TOML: {"{index}": "{requested}", printed: with_fact}})
    assert faults_of(pitfalls) == []


def test_a_reason_without_its_value_in_some_matches_is_a_warning(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    entry = make_entry(changes={_TOML: {f"['{_PATTERN}']": f"['{_PATTERN}', 'stumbled badly']"}})
    [fault] = faults_of(pitfalls)
    assert (fault.level, fault.path, fault.key) == (
        "warning", entry / _TOML, "signature[0].because"
    )  # fmt: skip


def test_an_unlisted_example_is_a_warning(make_entry: Callable[..., Path], pitfalls: Path) -> None:
    entry = make_entry()
    (entry / "examples" / "five.log").write_text("more\n")
    [fault] = faults_of(pitfalls)
    assert (fault.level, fault.path) == ("warning", entry / "examples" / "five.log")


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ("any = ['it stumbled here']", "any = ['it stumbled here', 'or there']", True),
        ("any = ['it stumbled here']", "all = ['it stumbled here']", True),
        ("any = ['it stumbled here']", "all = ['it stumbled here', 'or there']", False),
        ("any = ['it stumbled here']", "any = ['or there']\nnone = ['it stumbled here']", False),
        (
            "any = ['it stumbled here']",
            "any = ['it stumbled here']\nfacts = ['loss_is_nan']",
            False,
        ),
    ],
)
def test_one_pattern_decides_for_one_entry(
    make_entry: Callable[..., Path], pitfalls: Path, first: str, second: str, is_shared: bool
) -> None:
    for slug, signature in (("ant", first), ("bee", second)):
        make_entry(slug, {_TOML: {f"any = ['{_PATTERN}']": signature, "{index}": "one"}})
    faults = faults_of(pitfalls)
    if is_shared:
        [fault] = faults
        assert fault.is_error
        assert (fault.path, fault.key[:13]) == (pitfalls / "bee" / _TOML, "signature[0].")
        assert "also decides for ant" in fault.problem
    else:
        assert faults == []


def test_two_that_explain_each_other_are_a_warning(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    for slug, other in (("ant", "bee"), ("bee", "ant")):
        make_entry(slug, {_TOML: {"explains = []": f'explains = ["{other}"]'}})
    assert faults_of(pitfalls) == [
        Fault("warning", pitfalls / "ant" / _TOML, "explains", "bee explains ant too")
    ]


def test_a_symptom_and_a_root_may_explain_each_other(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    for slug, other, role in (("ant", "bee", "root"), ("bee", "ant", "symptom")):
        changes = {"explains = []": f'explains = ["{other}"]', 'role = "root"': f'role = "{role}"'}
        make_entry(slug, {_TOML: changes})
    assert faults_of(pitfalls) == []


def test_faults_of_loading_come_first_and_do_not_hide_the_others(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    broken = make_entry("zebra", {_TOML: {'role = "root"': 'role = "cause"'}})
    other = make_entry("ant", {_TOML: {'printed_by = "loader.py"': ""}})
    make_entry("bee", {_INDEX: {'expect = "none"': 'expect = "zebra"'}})
    faults = faults_of(pitfalls)
    assert [(f.path, f.key) for f in faults] == [
        (broken / _TOML, "role"), (other / _TOML, "signature[0].printed_by")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "is not a pattern"),
        ("a**", "is not a pattern"),
        ("(?P<a>x)(?P<a>y)", "is not a pattern"),
        ("x{99999999999999}", "is not a pattern"),
        ("(" * 5_000 + ")" * 5_000, "is not a pattern"),
        ("word(?!s)", "a lookaround"),
        ("(?<=a )word", "a lookaround"),
        (r"(\w)\1 again", "a backreference"),
        ("(?P<a>x)?(?(a)y|z) end", "a backreference"),
        ("(?>abc)+", "an atomic group"),
        ("abc++", "a possessive repeat"),
        (r"the end\Z", r"\Z"),
        ("(?x) spaced out", "sets a flag"),
        ("(?a)word", "sets a flag"),
        (r"caf\u00e9", "write it itself"),
        ("(a+)+b", "an endless repeat in an endless repeat"),
        (r"(?:\s*\w+,)*end", "an endless repeat in an endless repeat"),
        ("x{1,2000}", "more than 1000 times"),
        (r"\d*", "matches the empty text"),
        ("error|", "matches the empty text"),
        ("^$", "matches the empty text"),
    ],
)
def test_a_pattern_outside_the_common_subset_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse(pattern)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)killed by signal", "(?:a{1,9}b)+", r"(?P<pid>\d+) (?P<op>\w+)", "a.*b.*c", r"[\s\\u]x",
        r"C:\\users\\x", "x{3,}", r"\bword\b",
    ],
)  # fmt: skip
def test_a_pattern_of_the_common_subset_is_taken(pattern: str) -> None:
    assert parse(pattern).getwidth()[0] > 0


def test_group_names_are_those_of_the_pattern() -> None:
    assert group_names(parse(r"(?P<pid>\d+) (x) (?:(?P<op>\w+))?")) == {"pid", "op"}


def test_the_built_in_catalog_has_no_error(catalog: Catalog) -> None:
    assert [str(fault) for fault in lint(catalog, FACT_VALUES) if fault.is_error] == []


def test_the_system_check_names_file_and_key_of_each_fault(
    make_entry: Callable[..., Path], pitfalls: Path, settings: Any
) -> None:
    settings.PITSTOP_CATALOG = [pitfalls]
    assert check_catalog() == []
    broken = make_entry("ant", {_TOML: {'role = "root"': 'role = "cause"'}})
    bad = make_entry("bee", {_TOML: {"(?P<index>\\d+)": "("}})
    found = [error.msg for error in check_catalog()]
    assert len(found) == 2
    assert found[0] == f"{broken / _TOML}: role: expected root or symptom, got 'cause'"
    assert found[1].startswith(f"{bad / _TOML}: signature[0].any: 'bee stumbled over sample ('")


def test_manage_check_fails_on_a_fault(
    make_entry: Callable[..., Path], pitfalls: Path, settings: Any
) -> None:
    make_entry(changes={_TOML: {'role = "root"': 'role = "cause"'}})
    settings.PITSTOP_CATALOG = [pitfalls]
    with pytest.raises(SystemCheckError, match=r"pitfall\.toml: role: expected root or symptom"):
        call_command("check", "--tag", "catalog")


def test_a_warning_fails_no_check(
    make_entry: Callable[..., Path], pitfalls: Path, settings: Any
) -> None:
    for slug, other in (("ant", "bee"), ("bee", "ant")):
        make_entry(slug, {_TOML: {"explains = []": f'explains = ["{other}"]'}})
    settings.PITSTOP_CATALOG = [pitfalls]
    assert len(load_catalog([pitfalls])) == 2
    assert check_catalog() == []


def test_an_entry_with_a_script_that_says_all_has_no_fault(
    make_entry: Callable[..., Path], add_script: Callable[..., None], pitfalls: Path
) -> None:
    add_script(make_entry())
    assert faults_of(pitfalls) == []


@pytest.mark.parametrize(
    "case",
    [
        ({'where = "cpu"': 'where = "hardware"'}, "where", "expected cpu or gpu1 or gpuN where"),
        ({'differs = "Leaves the second path out."\n': ""}, "differs", "is missing where there"),
        ({'proves = "cause"\n': ""}, "proves", "is missing where there is a repro.py"),
        ({"seconds = 3\n": ""}, "seconds", "is missing where there is a repro.py"),
        ({"memory_mib = 120\n": ""}, "memory_mib", "is missing where there is a repro.py"),
        ({"repro.py#fixed": "fix.py#skip"}, "proves", "no snippet is repro.py#fixed"),
    ],
)
def test_a_script_asks_for_what_must_be_known_to_run_it(
    make_entry: Callable[..., Path],
    add_script: Callable[..., None],
    pitfalls: Path,
    case: tuple[dict[str, str], str, str],
) -> None:
    changes, key, words = case
    add_script(make_entry(), changes)
    (fault,) = faults_of(pitfalls)
    assert (fault.level, fault.key) == ("error", f"reproduction.{key}")
    assert words in fault.problem


@pytest.mark.parametrize(
    "case",
    [
        ("stumbled", "the loader-stumbles again", "contains its own slug"),
        ("paths", "loader_stumbles", "contains its own slug"),
        ("--fixed", "--mended", "knows no '--fixed'"),
        ("ran to its end", "done", "knows no 'ran to its end'"),
    ],
)
def test_a_script_that_would_prove_nothing_is_refused(
    make_entry: Callable[..., Path],
    add_script: Callable[..., None],
    pitfalls: Path,
    case: tuple[str, str, str],
) -> None:
    old, new, words = case
    entry = make_entry()
    add_script(entry)
    script = entry / "repro.py"
    script.write_text(script.read_text().replace(old, new))
    (fault,) = faults_of(pitfalls)
    assert (fault.level, fault.path) == ("error", script)
    assert words in fault.problem


def test_keys_of_a_script_that_is_not_there_are_refused(
    make_entry: Callable[..., Path], pitfalls: Path
) -> None:
    make_entry(changes={_TOML: {'where = "cpu"': 'where = "cpu"\nseconds = 3'}})
    (fault,) = faults_of(pitfalls)
    assert (fault.key, fault.is_error) == ("reproduction.seconds", True)
