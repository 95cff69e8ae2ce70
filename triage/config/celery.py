"""The worker's and the scheduler's entry point: `celery -A triage.config worker`."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.config.settings")

app = Celery("pitstop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
