#!/usr/bin/env python
"""Django's command line, set to Pitstop's settings."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command that the arguments name."""
    if sys.argv[1:2] == ["diagnose"] and not _has_django_option(sys.argv[2:]):
        # The answer needs the engine alone; Django would take longer to start than it to read.
        from triage.engine.terminal import main as diagnose

        sys.exit(diagnose(sys.argv[2:], "manage.py diagnose"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.config.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


def _has_django_option(arguments: list[str]) -> bool:
    """Whether something is asked for that only Django's own command line knows."""
    known = {"-", "--", "--json", "--together"}
    return any(a.startswith("-") and a not in known for a in arguments)


if __name__ == "__main__":
    main()
