"""A Catalog as a JSON document and back: a process starts without reading 1,000 files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kb.catalog.model import (
    Catalog,
    Example,
    Fix,
    Option,
    Pitfall,
    Proof,
    Reference,
    Reproduction,
    Signature,
)


def to_document(catalog: Catalog) -> dict[str, Any]:
    """What JSON can hold of the catalog: all of it."""
    rows = []
    for pitfall in catalog:
        row = asdict(pitfall)
        row["folder"] = str(pitfall.folder)
        for example in row["examples"]:
            example["path"] = example["path"].name
        rows.append(row)
    return {"version": catalog.version, "pitfalls": rows}


def from_document(document: dict[str, Any]) -> Catalog:
    """The Catalog of a document that to_document made; KeyError or TypeError for any other."""
    return Catalog(tuple(map(_pitfall, document["pitfalls"])), document["version"])


def _pitfall(row: dict[str, Any]) -> Pitfall:
    folder = Path(row["folder"])
    examples = folder / "examples"
    return Pitfall(
        **row
        | {
            "folder": folder,
            "explains": tuple(row["explains"]),
            "confirm": tuple(row["confirm"]),
            "signatures": tuple(Signature(**_with_tuples(s)) for s in row["signatures"]),
            "fixes": tuple(Fix(**fix) for fix in row["fixes"]),
            "references": tuple(Reference(**reference) for reference in row["references"]),
            "examples": tuple(
                Example(**example | {"path": examples / example["path"]})
                for example in row["examples"]
            ),
            "reproduction": row["reproduction"] and _reproduction(row["reproduction"]),
            "proofs": tuple(Proof(**_with_tuples(proof)) for proof in row["proofs"]),
        }
    )


def _reproduction(row: dict[str, Any]) -> Reproduction:
    return Reproduction(**row | {"options": tuple(Option(**o) for o in row["options"])})


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}


def state_of(folders: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Path, size and time of change (ns) of every file but compiled code, sorted.

    OSError for a folder that is not there.
    """
    state: list[tuple[str, int, int]] = []
    pending = [str(folder) for folder in folders]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.name == "__pycache__":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    about = entry.stat()
                    state.append((entry.path, about.st_size, about.st_mtime_ns))
    return sorted(state)
