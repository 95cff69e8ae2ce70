"""`manage.py prepare`: a database that web and worker can start on, and a way in."""

from __future__ import annotations

import json
import secrets
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from triage.services.sign_in import make_token


class Command(BaseCommand):
    """Runs all checks, the catalog's too, migrates, makes the first admin, prints a link."""

    help = (
        "Checks settings and catalog, migrates the database, makes the first admin and prints a "
        "one-time sign-in link. `up` does this by itself; elsewhere run it once before web, "
        "worker and beat."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        people = get_user_model().objects
        admin = people.filter(is_superuser=True, is_active=True).order_by("pk").first()
        password = ""
        if admin is None:
            password = secrets.token_urlsafe(12)
            admin = people.create_superuser(_free_name(), password=password)
        answer = {
            "user": admin.get_username(),
            "password": password,
            "path": f"/login/once/{make_token(admin)}",
        }
        if options["json"]:
            self.stdout.write(json.dumps(answer))
            return
        if password:
            self.stdout.write(f"First admin: {answer['user']}, password {password}")
        self.stdout.write(f"Sign in once at: {answer['path']}")


def _free_name() -> str:
    people = get_user_model().objects
    names = ["admin", *(f"admin{number}" for number in range(2, 100))]
    return next(name for name in names if not people.filter(username=name).exists())
