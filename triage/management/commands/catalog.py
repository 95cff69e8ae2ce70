"""`manage.py catalog check | new SLUG | try FILE…`: the curator's tools, without database."""

from __future__ import annotations

import io
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from kb.catalog import Catalog, CatalogError, Example, Pitfall, builtin_folder, load_catalog
from kb.catalog.draft import write_draft
from kb.catalog.lint import Fault, check_folders
from triage.engine import Evidence, Verdict, diagnose, scan
from triage.engine.facts import FACT_VALUES
from triage.engine.pipeline import compile_catalog
from triage.engine.terminal import Answer, printable, render, scan_file
from triage.engine.trial import PatternTrial, SignatureTrial, trials

_LINES_SHOWN = 8
_NEXT = """\
Next:
  1. pitfall.toml: title, group, summary, and a signature
  2. manage.py catalog try LOG --slug {slug}      # while writing its patterns
  3. examples/: two texts that are this pitfall, two that only look like it, listed in index.toml
  4. guide.md, a fix that can be pasted, references, confirm; then status = "reviewed"
  5. manage.py catalog check --slug {slug}"""


class Command(BaseCommand):
    """What a curator needs while an entry is written."""

    help = "Check the catalog, begin an entry, or try signatures on a text."
    # `check` says more of a broken catalog than the system check, and the others must run on one.
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """One sub-command each."""
        commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        check = commands.add_parser(
            "check", help="the rules of the catalog, and every example through the engine"
        )
        _add_slugs(check, "only faults and examples of this entry; may be repeated")
        new = commands.add_parser("new", help="begin an entry: a folder with a commented draft")
        new.add_argument("slug", help="lower-case words joined by hyphens that say what goes wrong")
        new.add_argument(
            "--folder", type=Path, default=builtin_folder(), help="where; default: %(default)s"
        )
        attempt = commands.add_parser(
            "try", help="which signatures match a text, which nearly, and the verdict"
        )
        attempt.add_argument("files", nargs="+", metavar="FILE", help="a log, or -")
        _add_slugs(attempt, "only this entry, all its signatures; may be repeated")

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs the sub-command; `check` ends with 1 if something is wrong."""
        command = options["command"]
        if command == "check":
            self._check(options["slugs"])
        elif command == "new":
            self._new(options["slug"], options["folder"])
        else:
            self._try(options["files"], options["slugs"])

    # --------------------------------------------------------------------------------- check

    def _check(self, slugs: Sequence[str]) -> None:
        catalog, faults = check_folders(_folders(), FACT_VALUES)
        unread = [f for f in faults if catalog.get(_slug_of(f)) is None]
        _refuse_unknown(slugs, catalog, unread)
        faults = [f for f in faults if not slugs or _slug_of(f) in slugs or f in unread]
        for fault in faults:
            self.stdout.write(f"{fault.level}: {_shown(fault)}")
        examples = list(_examples(catalog, slugs))
        wrong = list(_wrong_examples(catalog, examples)) if not unread else []
        for words in wrong:
            self.stdout.write(words)
        errors = sum(fault.is_error for fault in faults)
        ran = f"{len(examples)} examples, {len(wrong)} answered otherwise"
        if unread:
            ran = "no example was run, since not every entry loads"
        count = len(slugs) or len(catalog)
        self.stdout.write(
            f"{count} {'entry' if count == 1 else 'entries'}: {errors} errors, "
            f"{len(faults) - errors} warnings; {ran}"
        )
        if errors or wrong:
            sys.exit(1)

    # ----------------------------------------------------------------------------------- new

    def _new(self, slug: str, folder: Path) -> None:
        try:
            entry = write_draft(folder, slug, _load())
        except CatalogError as error:
            raise CommandError(str(error)) from error
        for path in sorted(p for p in entry.rglob("*") if p.is_file()):
            self.stdout.write(f"{_from_here(path)}")
        if folder.resolve() not in {known.resolve() for known in _folders()}:
            self.stdout.write(f"{folder} is read once PITSTOP_CATALOG names it.")
        self.stdout.write(_NEXT.format(slug=slug))

    # ----------------------------------------------------------------------------------- try

    def _try(self, names: Sequence[str], slugs: Sequence[str]) -> None:
        catalog = _load()
        _refuse_unknown(slugs, catalog, ())
        status = 0
        for name in names:
            try:
                evidence = scan_file(name, catalog)
            except OSError as error:
                self.stderr.write(f"{name}: {error.strerror or error}")
                status = 2
                continue
            self._show(name, catalog, evidence, slugs)
        if status:
            sys.exit(status)

    def _show(self, name: str, catalog: Catalog, evidence: Evidence, slugs: Sequence[str]) -> None:
        answer = io.StringIO()
        render(Answer((name,), diagnose([evidence], catalog)), answer)
        self.stdout.write(answer.getvalue(), ending="")
        for note in (*evidence.notes, *compile_catalog(catalog).notes):
            self.stdout.write(f"  note: {printable(note)}")
        tried = [t for t in trials(catalog, evidence) if not slugs or t.pitfall.slug in slugs]
        others = [t for t in tried if slugs and not (t.is_match or t.is_near)]
        for heading, chosen in (
            ("matches", [t for t in tried if t.is_match]),
            ("near", [t for t in tried if t.is_near]),
            ("not in this text", others),
        ):
            if chosen:
                self.stdout.write(f"{heading}:")
                for trial in chosen:
                    self._show_trial(trial, is_whole=bool(slugs))

    def _show_trial(self, trial: SignatureTrial, *, is_whole: bool) -> None:
        place = f"signature[{trial.number}] ({trial.signature.strength})"
        self.stdout.write(f"  {trial.pitfall.slug} {place}")
        for pattern in trial.patterns:
            if not (is_whole or pattern.counting or pattern.passed):
                continue
            for words in _pattern_words(pattern):
                self.stdout.write(f"    {pattern.key} {words}: {printable(pattern.text)[:120]}")
        for name, holds in trial.facts:
            self.stdout.write(f"    fact {name} {'holds' if holds else 'does not hold'}")
        for lack in trial.lacks:
            self.stdout.write(f"    lacks {printable(lack)[:160]}")


def _add_slugs(parser: ArgumentParser, words: str) -> None:
    parser.add_argument(
        "--slug", action="append", default=[], dest="slugs", metavar="SLUG", help=words
    )


def _folders() -> list[Path]:
    return [builtin_folder(), *settings.PITSTOP_CATALOG]


def _load() -> Catalog:
    try:
        return load_catalog(_folders())
    except CatalogError as error:
        raise CommandError(f"the catalog is broken: {error}") from error


def _refuse_unknown(slugs: Sequence[str], catalog: Catalog, faults: Sequence[Fault]) -> None:
    known = {pitfall.slug for pitfall in catalog} | {_slug_of(fault) for fault in faults}
    for slug in slugs:
        if slug not in known:
            raise CommandError(f"there is no entry {slug!r}")


def _slug_of(fault: Fault) -> str:
    """The entry that holds the fault: the folder below one of the catalog's."""
    for folder in _folders():
        if fault.path.is_relative_to(folder) and fault.path != folder:
            return fault.path.relative_to(folder).parts[0]
    return ""


def _shown(fault: Fault) -> Fault:
    return replace(fault, path=_from_here(fault.path))


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _examples(catalog: Catalog, slugs: Sequence[str]) -> Iterator[tuple[Pitfall, Example]]:
    for pitfall in catalog.active:
        if not slugs or pitfall.slug in slugs:
            yield from ((pitfall, example) for example in pitfall.examples)


def _wrong_examples(catalog: Catalog, examples: Sequence[tuple[Pitfall, Example]]) -> Iterator[str]:
    """File, expectation and answer of each example that the engine answers otherwise."""
    for _, example in examples:
        with example.path.open("rb") as stream:
            verdict = diagnose([scan(stream, catalog=catalog, name=example.path.name)], catalog)
        if not _is_expected(example, verdict):
            expected = _with_rank(example.expect, example.rank)
            yield f"example: {_from_here(example.path)}: expected {expected}, got {_said(verdict)}"


def _is_expected(example: Example, verdict: Verdict) -> bool:
    first = verdict.diagnoses[0] if verdict.diagnoses else None
    if (first.slug if first else "none") != example.expect:
        return False
    return example.rank is None or (first is not None and first.rank == example.rank)


def _said(verdict: Verdict) -> str:
    if not verdict.diagnoses:
        return f"none ({verdict.kind})"
    first = verdict.diagnoses[0]
    answer = _with_rank(first.slug, first.rank)
    return f"{answer} ({verdict.kind}, {first.confidence}): {printable('; '.join(first.because))}"


def _with_rank(slug: str, rank: int | None) -> str:
    return slug if rank is None else f"{slug} on rank {rank}"


def _pattern_words(pattern: PatternTrial) -> Iterator[str]:
    """Where the pattern occurs: lines that count, then those that do not, by their reasons."""
    if pattern.counting:
        yield _lines(pattern.counting)
    by_reason: dict[str, list[int]] = {}
    for line, reason in pattern.passed:
        by_reason.setdefault(reason, []).append(line)
    for reason, lines in by_reason.items():
        yield f"{_lines(lines)} ({reason}, does not count)"
    if not pattern.counting and not pattern.passed:
        yield "in no line"


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_LINES_SHOWN]))
    more = f" and {len(numbers) - _LINES_SHOWN} more" if len(numbers) > _LINES_SHOWN else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"
