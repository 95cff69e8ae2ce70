"""`manage.py reproduce SLUG [--fixed]`: one reproduction, and what the engine says of it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from kb.catalog import CatalogError
from kb.catalog.model import OPTIONS
from triage.engine.site import site_catalog
from triage.engine.terminal import Answer, render
from triage.reproduction import NoSandboxError, OptionError, reproduce


class Command(BaseCommand):
    """Runs one of the catalog's own scripts in the sandbox and diagnoses its output."""

    help = "Runs a pitfall's reproduction in the sandbox and shows what the engine says of it."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The entry, the mode, and the numbers that entries may take."""
        parser.add_argument("slug", help="the pitfall")
        parser.add_argument("--fixed", action="store_true", help="with the entry's own fix")
        parser.add_argument("--json", action="store_true", help="one JSON object, output included")
        for name in OPTIONS:
            parser.add_argument(f"--{name}", type=int, metavar="N")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints the output as it comes, then the verdict over it; `--json`: all at the end."""
        try:
            catalog = site_catalog()
        except CatalogError as error:
            raise CommandError(f"the catalog is broken: {error}") from error
        pitfall = catalog.get(options["slug"])
        if pitfall is None:
            raise CommandError(f"no pitfall {options['slug']}")
        given = {n: options[n.replace("-", "_")] for n in OPTIONS}
        try:
            outcome = reproduce(
                pitfall,
                catalog,
                fixed=options["fixed"],
                options={name: value for name, value in given.items() if value is not None},
                on_output=None if options["json"] else self._show,
            )
        except NoSandboxError as error:
            raise CommandError(f"{error}; nothing was run") from error
        except (OptionError, ValueError) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(outcome.to_json()))
            return
        self.stderr.write(
            f"\n{outcome.slug} {'fixed' if outcome.fixed else 'broken'}: {outcome.ending}, "
            f"{outcome.seconds:.1f} s, {outcome.memory_mib} MiB"
        )
        for note in outcome.notes:
            self.stderr.write(f"  {note}")
        render(Answer(("its output",), outcome.verdict), sys.stdout)

    def _show(self, piece: str) -> None:
        self.stdout.write(piece, ending="")
        self.stdout.flush()
