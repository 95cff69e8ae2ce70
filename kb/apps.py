"""The Django application `kb`: the catalog's pages and template filters, and its check."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register

from kb.checks import check_catalog


class KbConfig(AppConfig):
    """What is known: entries are files, so there is no model."""

    name = "kb"
    verbose_name = "Knowledge base"

    def ready(self) -> None:
        """Makes each fault of the catalog an error of `manage.py check`."""
        register(check_catalog, "catalog")
