"""`manage.py diagnose [--json] [--together] FILE… | -`: one answer a file, without database."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from kb.catalog import CatalogError
from triage.engine.site import site_catalog
from triage.engine.terminal import add_arguments, run


class Command(BaseCommand):
    """Reads texts of failed runs and says what went wrong in each."""

    help = "Says what went wrong in each text; needs neither database nor Redis."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The files and how to answer."""
        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints the answers; ends with 2 if a file could not be read."""
        try:
            catalog = site_catalog()
        except CatalogError as error:
            raise CommandError(f"the catalog is broken: {error}") from error
        status = run(
            options["files"], catalog, as_json=options["json"], together=options["together"]
        )
        if status:
            sys.exit(status)
