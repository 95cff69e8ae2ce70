"""The Django application `triage`: incidents, their texts and diagnoses."""

from __future__ import annotations

from django.apps import AppConfig


class TriageConfig(AppConfig):
    """What happened: incidents, texts, diagnoses, log book."""

    name = "triage"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Triage"
