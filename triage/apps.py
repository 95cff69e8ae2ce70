"""The Django application `triage`: incidents, their texts and diagnoses."""

from __future__ import annotations

from django.apps import AppConfig


class TriageConfig(AppConfig):
    """What happened: incidents, texts, diagnoses, log book."""

    name = "triage"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Triage"

    def ready(self) -> None:
        """Registers tasks, which all processes enqueue by name, and what listens to sign-ins."""
        from triage import tasks  # noqa: F401, PLC0415 (models must be loaded first)
        from triage.services import audit  # noqa: F401, PLC0415
