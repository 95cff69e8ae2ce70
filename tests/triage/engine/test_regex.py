"""Regexes of the engine are compiled late, and all of them can be."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import triage.engine
from triage.engine import store
from triage.engine.regex import Kept, regex

SOURCES = [
    (r"(?i)(?P<word>loss|erro?r)s?\b.{0,9}\s(?P<value>-?\d+)", 0),
    (r"[äö]+|^\s*$", re.MULTILINE),
    (rb"\xff(?P<tail>[a-z]*)", re.IGNORECASE),
    (r"(?<!x)(a+)(?=b)|(?P<again>c)(?P=again)", re.ASCII),
]
TEXTS = ["Losses: are\t-12", "ERROR 3", "  ", "aab cc xab", "\n\nöä", "٣ loss ٣"]


def test_it_answers_like_a_compiled_one() -> None:
    late = regex(r"rank (?P<rank>\d+)", re.IGNORECASE)
    found = late.search("on RANK 3")
    assert found is not None
    assert found["rank"] == "3"
    assert late.pattern == r"rank (?P<rank>\d+)"
    assert late.findall("rank 1, Rank 2") == ["1", "2"]
    assert regex(rb"\d+").sub(b"N", b"a1") == b"aN"


def test_a_bad_one_fails_when_it_is_used() -> None:
    with pytest.raises(re.error):
        regex("(unclosed").search("")


def test_every_regex_of_the_engine_compiles() -> None:
    late_type = type(regex(""))
    seen = 0
    for module in pkgutil.walk_packages(triage.engine.__path__, "triage.engine."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, late_type):
                assert isinstance(value.pattern, (str, bytes))
                seen += 1
    assert seen > 100


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own."""
    monkeypatch.setenv("PITSTOP_DATA", str(tmp_path))
    return tmp_path / "compiled"


def answers(kept: Kept) -> list[object]:
    """What each source finds in each text, with its groups and its flags."""
    found: list[object] = []
    for text, flags in SOURCES:
        compiled = kept.compile((text, flags))
        found.append((compiled.pattern, compiled.flags, compiled.groups, compiled.groupindex))
        for line in TEXTS:
            subject = line if isinstance(text, str) else line.encode("latin-1", "replace")
            found.append(
                [(m.span(), m.groupdict(), m.groups()) for m in compiled.finditer(subject)]
            )
    return found


def test_what_one_process_compiled_the_next_one_finds_as_re_would(folder: Path) -> None:
    first, second, third = Kept(), Kept(), Kept()
    assert not any(first.has(source) for source in SOURCES[:1])
    by_re = [(re.compile(*source).flags, re.compile(*source).groups) for source in SOURCES]
    fresh = answers(first)
    first.save()
    assert all(second.has(source) for source in SOURCES)
    assert answers(second) == fresh
    compiled = [third.compile(source) for source in SOURCES]
    assert [(c.flags, c.groups) for c in compiled] == by_re
    assert compiled == [re.compile(*source) for source in SOURCES]


def test_what_was_only_wanted_is_there_for_the_next_process(folder: Path) -> None:
    first = Kept()
    assert not first.has(SOURCES[0])
    first.save()
    assert Kept().has(SOURCES[0])


def test_code_that_the_matcher_refuses_is_made_anew(folder: Path) -> None:
    kept = Kept()
    kept.compile(SOURCES[0])
    kept.save()
    (name,) = (p.name for p in folder.iterdir())
    saved = store.load(name)
    assert saved is not None
    rows, (codes,) = saved
    store.save(name, rows, [bytes(len(codes))])
    again = Kept().compile(SOURCES[0])
    assert again.search("error: at 7")


def test_a_store_that_cannot_be_written_costs_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PITSTOP_DATA", str(tmp_path / "file"))
    kept = Kept()
    assert kept.compile(SOURCES[0]).search("error: at 7")
    kept.save()
    with pytest.raises(re.error):
        kept.compile(("(unclosed", 0))
