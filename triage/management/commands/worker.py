"""`manage.py worker --queue cpu`: a worker for reproductions, on this machine or another one."""

from __future__ import annotations

import socket
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from triage.reproduction import interpreter, probe
from triage.services.workers import QUEUES


class Command(BaseCommand):
    """Runs reproductions, one at a time, until a signal."""

    help = (
        "Runs the catalog's reproductions, one at a time. A second machine needs bubblewrap, "
        "pip install 'pitstop[repro]', and the SECRET_KEY, DATABASE_URL and REDIS_URL of the first."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The queue, and the name under which pages show the worker."""
        parser.add_argument("--queue", choices=QUEUES, default="cpu", help="default cpu")
        parser.add_argument("--name", default="", help="default: queue and host name")

    def handle(self, *args: Any, **options: Any) -> None:
        """Stays until it is stopped; SIGQUIT gives a run that is not nearly done back."""
        from celery import current_app

        if not settings.REDIS_URL:
            raise CommandError("REDIS_URL is not set: there is no queue to listen to.")
        queue = options["queue"]
        # Before the pool forks: its process need not ask again before its first run.
        if missing := probe(interpreter()).lacks("gpu1" if queue == "gpu" else "cpu"):
            self.stderr.write(f"Runs nothing, and says so to the others: {missing}")
        name = options["name"] or f"{queue}@{socket.gethostname()}"
        current_app.start(
            [
                "--quiet", "worker", "--queues", queue, "--concurrency", "1",
                "--hostname", name, "--without-gossip", "--without-mingle", "--loglevel", "INFO",
            ]
        )  # fmt: skip
