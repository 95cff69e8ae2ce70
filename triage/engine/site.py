"""The catalog of this site: built-in entries and those of PITSTOP_CATALOG, read once and kept."""

from __future__ import annotations

import os
from pathlib import Path

from kb.catalog import Catalog, builtin_folder, load_catalog
from kb.catalog.document import from_document, state_of, to_document
from triage.engine import store


def site_catalog() -> Catalog:
    """The entries that come with Pitstop and those of the folders that PITSTOP_CATALOG names.

    Kept in the store until a file changes. Raises CatalogError for the first fault.
    """
    extra = [Path(p) for p in os.environ.get("PITSTOP_CATALOG", "").split(os.pathsep) if p]
    folders = [builtin_folder(), *(folder.absolute() for folder in extra)]
    try:
        state = state_of([*folders, builtin_folder().parent / "catalog"])
    except OSError:
        return load_catalog(folders)
    key = store.key_of("entries", "", [*map(str, folders), *map(repr, state)])
    saved = store.load(key)
    if saved is not None:
        return from_document(saved[0])
    catalog = load_catalog(folders)
    store.save(key, to_document(catalog))
    return catalog
