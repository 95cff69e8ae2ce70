"""`manage.py catalog`: what a curator is told while an entry comes into being."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from kb.catalog import load_catalog
from kb.catalog.lint import check_folders
from triage.engine import diagnose, scan
from triage.engine.facts import FACT_VALUES, QUESTIONS
from triage.management.commands import catalog as catalog_command

_SIGNATURE = """
[[signature]]
strength = "conclusive"
all = ['turbine (?P<pid>\\d+) stalled', 'blade angle out of range']
none = ['turbine restarted']
within_lines = 3
because = "turbine {pid} stalled"
printed_by = "turbine.py"
"""


@pytest.fixture
def site(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of the site's own entries, known by setting, and no others beside it."""
    folder = tmp_path / "site"
    folder.mkdir()
    settings.PITSTOP_CATALOG = [folder]
    builtin = tmp_path / "builtin"
    builtin.mkdir()
    monkeypatch.setattr(catalog_command, "builtin_folder", lambda: builtin)
    return folder


def run(*arguments: str | Path) -> str:
    """What the command prints."""
    out = io.StringIO()
    call_command("catalog", *map(str, arguments), stdout=out)
    return out.getvalue()


def run_failing(*arguments: str | Path, status: int = 1) -> str:
    """What the command prints before it ends with the status."""
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("catalog", *map(str, arguments), stdout=out, stderr=out)
    assert ended.value.code == status
    return out.getvalue()


@pytest.fixture
def draft(site: Path) -> Path:
    """A draft of the site with one signature."""
    run("new", "turbine-stalls", "--folder", site)
    entry = site / "turbine-stalls"
    with (entry / "pitfall.toml").open("a") as file:
        file.write(_SIGNATURE)
    return entry


def add_example(entry: Path, text: str, expect: str, more: str = "") -> None:
    """Writes an example and lists it."""
    (entry / "examples" / "case.log").write_text(text)
    with (entry / "examples" / "index.toml").open("a") as file:
        file.write(f'[[example]]\nfile = "case.log"\nsource = "own"\nexpect = "{expect}"\n{more}')


# ------------------------------------------------------------------------------------------- new


def test_new_writes_a_draft_without_fault_and_says_what_to_do_next(site: Path) -> None:
    printed = run("new", "turbine-stalls", "--folder", site)
    entry = site / "turbine-stalls"
    written = {p.relative_to(entry).as_posix() for p in entry.rglob("*") if p.is_file()}
    assert written == {"pitfall.toml", "guide.md", "examples/index.toml"}
    catalog, faults = check_folders([site], FACT_VALUES)
    assert faults == []
    [pitfall] = catalog
    assert (pitfall.slug, pitfall.title, pitfall.status) == (
        "turbine-stalls", "Turbine stalls", "draft"
    )  # fmt: skip
    assert [line for line in pitfall.guide.splitlines() if line.startswith("#")] == [
        "## What you see", "## Why", "## Confirm", "## Fix", "## Prevent"
    ]  # fmt: skip
    assert "@" not in (entry / "pitfall.toml").read_text()
    for words in ("manage.py catalog try", "manage.py catalog check --slug turbine-stalls"):
        assert words in printed


def test_every_commented_line_of_a_draft_is_a_valid_one(site: Path) -> None:
    run("new", "turbine-stalls", "--folder", site)
    entry = site / "turbine-stalls"
    for name in ("pitfall.toml", "examples/index.toml"):
        bare = re.sub(r"(?m)^# (?=\[|\w+ = )", "", (entry / name).read_text())
        (entry / name).write_text(bare)
    (entry / "fix.py").write_text("print()\n")
    (entry / "repro.py").write_text("# --fixed: ran to its end\n")
    (entry / "examples" / "message.log").write_text("the message that x appears in\n")
    catalog, faults = check_folders([site], FACT_VALUES)
    [pitfall] = catalog
    assert (len(pitfall.signatures), len(pitfall.fixes), len(pitfall.examples)) == (1, 1, 1)
    assert pitfall.reproduction is not None
    # The commented keys show what exists, not one working signature, nor a fix that is run.
    assert {f.key for f in faults} == {"signature[0].within_lines", "reproduction.proves"}


@pytest.mark.parametrize("slug", ["Turbine", "turbine--stalls", "../turbine", "turbine_stalls", ""])
def test_new_refuses_an_ill_formed_slug(site: Path, slug: str) -> None:
    with pytest.raises(CommandError, match="lower-case words joined by single hyphens"):
        run("new", slug, "--folder", site)
    assert list(site.iterdir()) == []


def test_new_refuses_a_slug_that_is_taken(site: Path, draft: Path) -> None:
    with pytest.raises(CommandError, match="turbine-stalls is an entry already"):
        run("new", "turbine-stalls", "--folder", site)
    assert [path.name for path in site.iterdir()] == [draft.name]


def test_new_refuses_a_slug_of_the_entries_that_come_with_pitstop(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cuda-out-of-memory is an entry already"):
        run("new", "cuda-out-of-memory", "--folder", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_new_refuses_a_folder_that_is_not_there(site: Path) -> None:
    with pytest.raises(CommandError, match="no such folder"):
        run("new", "turbine-stalls", "--folder", site / "gone")


def test_new_says_when_a_folder_is_not_read_yet(tmp_path: Path) -> None:
    assert "once PITSTOP_CATALOG names it" in run("new", "turbine-stalls", "--folder", tmp_path)


# ----------------------------------------------------------------------------------------- check


def test_check_runs_the_examples_of_one_entry(draft: Path) -> None:
    add_example(draft, "turbine 7 stalled\nblade angle out of range\n", "turbine-stalls")
    printed = run("check", "--slug", "turbine-stalls")
    assert printed == "1 entry: 0 errors, 0 warnings; 1 examples, 0 answered otherwise\n"


def test_check_tells_file_expectation_and_answer(draft: Path) -> None:
    add_example(
        draft, "[rank2]: turbine 7 stalled\n[rank2]: blade angle out of range\n", "turbine-stalls",
        "rank = 5\n",
    )  # fmt: skip
    printed = run_failing("check", "--slug", "turbine-stalls")
    assert (
        f"example: {draft / 'examples' / 'case.log'}: expected turbine-stalls on rank 5, "
        "got turbine-stalls on rank 2 (named, conclusive): turbine 7 stalled"
    ) in printed


def test_check_tells_of_an_example_that_nothing_answers(draft: Path) -> None:
    add_example(draft, "all is well\n", "turbine-stalls")
    printed = run_failing("check", "--slug", "turbine-stalls")
    assert "case.log: expected turbine-stalls, got none (clean)" in printed


def test_check_tells_faults_with_file_and_key(draft: Path) -> None:
    text = (draft / "pitfall.toml").read_text()
    (draft / "pitfall.toml").write_text(text.replace("{pid}", "{worker}"))
    printed = run_failing("check", "--slug", "turbine-stalls")
    assert f"error: {draft / 'pitfall.toml'}: signature[0].because: {{worker}} is no" in printed


def test_check_of_an_entry_that_does_not_load(draft: Path) -> None:
    text = (draft / "pitfall.toml").read_text()
    (draft / "pitfall.toml").write_text(text.replace('role = "root"', 'role = "cause"'))
    for arguments in (["check"], ["check", "--slug", "turbine-stalls"]):
        printed = run_failing(*arguments)
        assert f"error: {draft / 'pitfall.toml'}: role: expected root or symptom" in printed
        assert "no example was run" in printed


def test_check_and_try_refuse_an_unknown_entry(site: Path, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    for arguments in (["check"], ["try", tmp_path / "a.log"]):
        with pytest.raises(CommandError, match="there is no entry 'gone'"):
            run(*arguments, "--slug", "gone")


# ------------------------------------------------------------------------------------------- try


def try_text(tmp_path: Path, text: str, *arguments: str) -> str:
    """What `try` prints of a text."""
    (tmp_path / "train.log").write_text(text)
    return run("try", tmp_path / "train.log", *arguments)


def test_try_shows_matches_with_lines_and_the_verdict(draft: Path, tmp_path: Path) -> None:
    printed = try_text(tmp_path, "start\nturbine 7 stalled\nblade angle out of range\n")
    assert "turbine-stalls (root, conclusive)" in printed
    matches = printed[printed.index("matches:\n") :]
    assert "  turbine-stalls signature[0] (conclusive)\n" in matches
    assert "    all[0] line 2: turbine (?P<pid>\\d+) stalled\n" in matches
    assert "    all[1] line 3: blade angle out of range\n" in matches
    assert "near:" not in printed


@pytest.mark.parametrize(
    ("text", "lack"),
    [
        ("turbine 7 stalled\n", "lacks all[1] in a line that counts: blade angle out of range"),
        ("turbine 7 stalled\nblade angle out of range\nturbine restarted\n",
         "lacks the absence of none[0], which is in line 3"),
        ("turbine 7 stalled\n" + "x\n" * 9 + "blade angle out of range\n",
         "lacks its patterns within 3 lines"),
        ("WARNING: turbine 7 stalled\nblade angle out of range\n",
         "all[0] line 1 (a warning, does not count)"),
    ],
)  # fmt: skip
def test_try_shows_what_a_near_signature_lacks(
    draft: Path, tmp_path: Path, text: str, lack: str
) -> None:
    printed = try_text(tmp_path, text)
    assert "matches:" not in printed
    near = printed[printed.index("near:\n") :]
    assert "  turbine-stalls signature[0] (conclusive)\n" in near
    assert lack in near


def test_try_of_one_entry_shows_all_its_signatures_and_no_other(tmp_path: Path) -> None:
    text = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    printed = try_text(tmp_path, text, "--slug", "dataloader-fork-deadlock")
    assert "  cuda-out-of-memory (root, " in printed
    assert "not in this text:\n  dataloader-fork-deadlock signature[0]" in printed
    assert "all[0] in no line" in printed
    assert "cuda-out-of-memory signature" not in printed


def test_try_reads_gzip_and_goes_on_behind_a_file_that_is_not_there(
    draft: Path, tmp_path: Path
) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(b"turbine 7 stalled\nblade angle out of range\n"))
    printed = run_failing("try", tmp_path / "gone.log", path, status=2)
    assert "gone.log: No such file or directory" in printed
    assert "matches:\n  turbine-stalls signature[0]" in printed


def test_a_terminal_does_not_obey_a_pattern(draft: Path, tmp_path: Path) -> None:
    text = (draft / "pitfall.toml").read_text()
    (draft / "pitfall.toml").write_text(
        text.replace("all = ['turbine (?P<pid>", 'all = ["turbine\\u001b? (?P<pid>')
        .replace("\\d+) stalled', 'blade angle out of range']", '\\\\d+) stalled"]')
        .replace("within_lines = 3\n", "")
    )
    assert "\x1b" not in try_text(tmp_path, "turbine 7 stalled\n")


# ------------------------------------------------------------------------- patterns that are bad


@pytest.mark.parametrize("bad", ["turbine (", "(?=turbine) stalled", "(t+)+urbine", "x*"])
@pytest.mark.parametrize("kind", ["any", "none"])
@pytest.mark.parametrize("engine", ["", "re"])
def test_the_engine_leaves_out_what_the_lint_refuses(
    draft: Path,
    site: Path,
    *,
    bad: str,
    kind: str,
    engine: str,
    engine_log: pytest.LogCaptureFixture,
) -> None:
    text = (draft / "pitfall.toml").read_text()
    start = text.index("\n[[signature]]")
    good = "turbine stalled badly"
    patterns = f"any = ['{bad}']" if kind == "any" else f"any = ['{good}']\nnone = ['{bad}']"
    (draft / "pitfall.toml").write_text(
        f'{text[:start]}\n[[signature]]\nstrength = "strong"\n{patterns}\nprinted_by = "x"\n'
    )
    catalog = load_catalog([site])
    evidence = scan(io.BytesIO(b"turbine stalled badly\n"), catalog=catalog, engine=engine)
    # Whoever reads the incident cannot mend the catalog: the log of the process says it instead.
    assert evidence.notes == []
    [note] = engine_log.messages
    assert note.startswith(f"turbine-stalls: signature[0].{kind} was left out: {bad!r} ")
    assert f"  note: {note}" in try_text(site.parent, "turbine stalled badly\n")
    # A guard that cannot be looked for must not count as absent: the signature does not match.
    assert diagnose([evidence], catalog).diagnoses == ()


def test_values_are_told_for_facts_that_exist() -> None:
    assert set(FACT_VALUES) == set(QUESTIONS)
