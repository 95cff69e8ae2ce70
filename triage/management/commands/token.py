"""`manage.py token NAME`: makes an API token and prints its key, once."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from triage.services import tokens


class Command(BaseCommand):
    """Makes a token; the key goes to standard output alone, so that scripts can take it."""

    help = "Make an API token and print it once; only its hash is kept."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Name, scope, owner and lifetime."""
        parser.add_argument("name", help="what the token is for, such as slurm-epilog")
        parser.add_argument(
            "--scope",
            choices=tokens.SCOPES,
            default="submit",
            help="submit: send texts and read the answers to them; read: read everything; "
            "write: change and destroy; admin: the site itself. Each includes the former. "
            "Default: submit",
        )
        parser.add_argument("--owner", help="the user for whom the token acts")
        parser.add_argument("--days", type=int, help="how long it lives; for ever if not given")

    def handle(self, *args: Any, **options: Any) -> None:
        """Makes it."""
        owner = None
        if options["owner"]:
            users = get_user_model()
            owner = users._default_manager.filter(
                **{users.USERNAME_FIELD: options["owner"]}
            ).first()
            if owner is None:
                raise CommandError(f"there is no user {options['owner']!r}")
        days = options["days"]
        if days is not None and days < 1:
            raise CommandError("--days must be at least 1")
        token, key = tokens.make_token(
            options["name"],
            options["scope"],
            owner=owner,
            expires_at=timezone.now() + timedelta(days=days) if days else None,
        )
        self.stderr.write(f"{token}: keep this key, it is not shown again.")
        self.stdout.write(key)
