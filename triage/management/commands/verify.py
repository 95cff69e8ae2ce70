"""`manage.py verify [SLUG…]`: each entry broken and fixed; records what was seen beside it."""

from __future__ import annotations

import json
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from django.db import connection
from django.db.backends.sqlite3.base import DatabaseWrapper as SqliteDatabase
from django.utils import timezone

from kb.catalog import Catalog, CatalogError, Pitfall
from kb.catalog import proof as proof_file
from kb.catalog.model import RUNNABLE
from triage.engine.pipeline import compile_catalog
from triage.engine.site import site_catalog
from triage.models import Verification
from triage.reproduction import Checked, interpreter, probe, verify
from triage.services import verifications


class Command(BaseCommand):
    """Runs reproductions broken and fixed, and records the proofs."""

    help = "Runs reproductions broken and fixed, and records beside each entry what that proved."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The entries, the device, and how many at a time."""
        parser.add_argument("slugs", nargs="*", metavar="SLUG", help="pitfalls; none: all")
        parser.add_argument("--device", choices=RUNNABLE, default="cpu", help="default: cpu")
        parser.add_argument("--json", action="store_true", help="one JSON object an entry")
        parser.add_argument("--jobs", type=int, default=1, help="reproductions at a time")

    def handle(self, *args: Any, **options: Any) -> None:
        """One line an entry as it ends, the total on stderr; status 1 if one fell short."""
        try:
            catalog = site_catalog()
        except CatalogError as error:
            raise CommandError(f"the catalog is broken: {error}") from error
        chosen = _chosen(catalog, options["slugs"], options["device"])
        capability = probe(interpreter())
        if missing := capability.lacks(options["device"]):
            raise CommandError(f"{missing}; nothing was run")
        has_database = _has_database()
        started, reproduced, verified, short = time.monotonic(), 0, 0, []
        for checked in _check_all(chosen, catalog, max(options["jobs"], 1)):
            pitfall = catalog.by_slug[checked.broken.slug]
            try:
                proof_file.write(pitfall.folder, checked.proof)
            except OSError as error:
                self.stderr.write(f"{pitfall.slug}: the proof cannot be written: {error}")
            if has_database:
                verifications.record(checked)
            reproduced += checked.proof.reproduced
            verified += checked.proof.fix_verified
            if _falls_short(pitfall, checked):
                short.append(pitfall.slug)
            self.stdout.write(json.dumps(checked.to_json()) if options["json"] else _row(checked))
            self.stdout.flush()
        self.stderr.write(
            f"{len(chosen)} entries: {reproduced} failures reproduced, {verified} fixes verified, "
            f"{time.monotonic() - started:.0f} s, torch {capability.torch}"
        )
        if short:
            self.stderr.write(f"fell short of what they declare: {', '.join(sorted(short))}")
            sys.exit(1)


def _has_database() -> bool:
    """Whether there is a database that keeps verifications; none is made for it."""
    is_file = isinstance(connection, SqliteDatabase) and not connection.is_in_memory_db()
    if is_file and not Path(str(connection.settings_dict["NAME"])).is_file():
        return False
    try:
        return Verification._meta.db_table in connection.introspection.table_names()
    except DatabaseError:
        return False


def _chosen(catalog: Catalog, slugs: Sequence[str], device: str) -> list[Pitfall]:
    """The entries of that device with a script; CommandError for a named one that is none."""
    for slug in slugs:
        pitfall = catalog.get(slug)
        if pitfall is None:
            raise CommandError(f"no pitfall {slug}")
        reproduction = pitfall.reproduction
        if reproduction is None or not reproduction.is_runnable:
            raise CommandError(f"{slug} has no reproduction that can be run")
        if reproduction.where != device:
            raise CommandError(
                f"{slug} runs on {reproduction.where}: --device {reproduction.where}"
            )
    return [
        p
        for p in catalog.active
        if (not slugs or p.slug in slugs)
        and p.reproduction is not None
        and p.reproduction.is_runnable
        and p.reproduction.where == device
    ]


def _check_all(pitfalls: Iterable[Pitfall], catalog: Catalog, jobs: int) -> Iterator[Checked]:
    """Each entry once it is through, `jobs` at a time; Ctrl-C ends those that run."""
    compile_catalog(catalog)
    cancelled = threading.Event()
    with ThreadPoolExecutor(jobs) as pool:
        started = [
            pool.submit(verify, p, catalog, now=timezone.now(), cancelled=cancelled)
            for p in pitfalls
        ]
        try:
            for future in as_completed(started):
                yield future.result()
        finally:
            cancelled.set()
            pool.shutdown(cancel_futures=True)


def _falls_short(pitfall: Pitfall, checked: Checked) -> bool:
    """Whether it proved less than the entry declares."""
    declared = pitfall.reproduction.proves if pitfall.reproduction else ""
    proof = checked.proof
    return not (proof.fix_verified if declared == "cause" else proof.reproduced)


def _row(checked: Checked) -> str:
    proof = checked.proof
    marks = (
        "failure reproduced" if proof.reproduced else "NOT reproduced",
        "fix verified" if proof.fix_verified else "fix not verified",
    )
    reason = f": {proof.reason}" if proof.reason else ""
    return f"{checked.broken.slug:36} {', '.join(marks)}, {proof.seconds:.1f} s{reason}"
