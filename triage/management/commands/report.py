"""`manage.py report [YYYY-MM]`: the month, as a page without a site, Markdown, JSON or CSV."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone
from markdown_it import MarkdownIt

from triage.reports.figures import figures
from triage.reports.months import Month
from triage.reports.render import FORMS, as_markdown
from triage.services.catalog import current_catalog

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 1rem system-ui; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
td, th {{ padding: .2rem .8rem .2rem 0; text-align: left }}</style></head>
<body>{body}</body></html>
"""


class Command(BaseCommand):
    """Prints the figures of a month over all incidents."""

    help = "Print the report of a month (default: the current one)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The month and the form."""
        parser.add_argument("month", nargs="?", help="such as 2026-11")
        parser.add_argument("--format", choices=("html", *FORMS), default="md")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints it."""
        now = timezone.now()
        try:
            month = Month.parse(options["month"]) if options["month"] else Month.of(now)
        except ValueError as error:
            raise CommandError(str(error)) from None
        told = figures(month, current_catalog(), now)
        if options["format"] != "html":
            self.stdout.write(FORMS[options["format"]](told), ending="")
            return
        body = MarkdownIt("commonmark", {"html": False}).enable("table").render(as_markdown(told))
        self.stdout.write(_PAGE.format(title=month.words, body=body), ending="")
