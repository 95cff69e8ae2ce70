"""`manage.py diagnose [--json] [--together] FILE… | -`: one answer a file, without database."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from kb.catalog import CatalogError, builtin_folder, load_catalog
from triage.engine.terminal import run


class Command(BaseCommand):
    """Reads texts of failed runs and says what went wrong in each."""

    help = "Says what went wrong in each text; needs neither database nor Redis."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The files and how to answer."""
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help="a log, or - for standard input"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object a line")
        parser.add_argument(
            "--together", action="store_true", help="all files tell of one incident"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints the answers; ends with 2 if a file could not be read."""
        extra = [Path(p) for p in os.environ.get("PITSTOP_CATALOG", "").split(os.pathsep) if p]
        try:
            catalog = load_catalog([builtin_folder(), *extra])
        except CatalogError as error:
            raise CommandError(f"the catalog is broken: {error}") from error
        status = run(
            options["files"], catalog, as_json=options["json"], together=options["together"]
        )
        if status:
            sys.exit(status)
