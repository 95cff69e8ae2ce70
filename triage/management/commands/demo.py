"""`manage.py demo [--remove]`: three months of a believable team, marked as such."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from triage.services import demo


class Command(BaseCommand):
    """Seeds or removes the demo."""

    help = (
        "Fill the site with three months of a demo team through the real engine: a July of 23 "
        "incidents and 34.5 hours, and the months beside it. --remove takes all of it away."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whether to take it away."""
        parser.add_argument("--remove", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        """Says how far it is, and where to look."""
        if options["remove"]:
            self.stdout.write(
                f"{demo.remove()} demo incidents removed, with texts, people and team."
            )
            return
        try:
            made = demo.seed(self._progress)
        except demo.DemoExistsError:
            raise CommandError(
                "the demo is there already; `manage.py demo --remove` takes it away"
            ) from None
        self.stdout.write(f"{len(made)} incidents made. Look at /reports/2026-07/ and /incidents/.")

    def _progress(self, done: int, of: int) -> None:
        if done % 10 == 0:
            self.stderr.write(f"{done} of {of}")
