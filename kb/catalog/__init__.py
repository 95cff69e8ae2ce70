"""The catalog of pitfalls: what is known, read from files, standard library only."""

from kb.catalog.loader import builtin_folder, load_catalog, load_pitfall, read_catalog
from kb.catalog.model import (
    Catalog,
    CatalogError,
    Example,
    Fix,
    Option,
    Pitfall,
    Proof,
    Reference,
    Reproduction,
    Signature,
)

__all__ = [
    "Catalog",
    "CatalogError",
    "Example",
    "Fix",
    "Option",
    "Pitfall",
    "Proof",
    "Reference",
    "Reproduction",
    "Signature",
    "builtin_folder",
    "load_catalog",
    "load_pitfall",
    "read_catalog",
]
