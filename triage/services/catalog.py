"""The catalog as web and workers see it: the built-in entries and the site's own folders."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from django.conf import settings

from kb.catalog import Catalog, builtin_folder, load_catalog


def current_catalog() -> Catalog:
    """All entries, read once a process for each setting of PITSTOP_CATALOG.

    Raises CatalogError if an entry has a fault.
    """
    return _load((builtin_folder(), *settings.PITSTOP_CATALOG))


@cache
def _load(folders: tuple[Path, ...]) -> Catalog:
    return load_catalog(folders)
