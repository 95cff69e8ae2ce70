"""The Django application `kb`: the catalog's pages and template filters."""

from __future__ import annotations

from django.apps import AppConfig


class KbConfig(AppConfig):
    """What is known: entries are files, so there is no model."""

    name = "kb"
    verbose_name = "Knowledge base"
