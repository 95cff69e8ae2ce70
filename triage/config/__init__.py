"""Where everything is mounted: settings, addresses, worker and web entry points."""

from triage.config.celery import app as celery_app

__all__ = ["celery_app"]
