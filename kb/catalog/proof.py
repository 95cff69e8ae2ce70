"""`proof.toml`: what `verify` saw of an entry, one table a device; no person writes it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from kb.catalog.model import CatalogError, Pitfall, Proof

FILE = "proof.toml"
_HEAD = "# Written by `manage.py verify`. A changed entry, or another torch, asks for a new run.\n"
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "bool": bool,
    "float": (int, float),
    "str": str,
    "tuple[str, ...]": list,
}


def digest_of(pitfall: Pitfall) -> str:
    """A name for what a proof is about: the script, how it is run, and the entry's signatures.

    OSError where the script cannot be read.
    """
    about = [
        pitfall.slug,
        pitfall.role,
        [asdict(signature) for signature in pitfall.signatures],
        asdict(pitfall.reproduction) if pitfall.reproduction else None,
    ]
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(pitfall.script.read_bytes())
    return digest.hexdigest()[:16]


def read(folder: Path) -> tuple[Proof, ...]:
    """The proofs beside an entry, none where there is no file; CatalogError with file and key."""
    path = folder / FILE
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        return ()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(path, "", f"is not TOML: {error}") from None
    tables = document.pop("proof", [])
    if document or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise CatalogError(path, "", "expected [[proof]] tables and nothing else")
    return tuple(_proof(path, f"proof[{n}].", table) for n, table in enumerate(tables))


def _proof(path: Path, prefix: str, table: dict[str, Any]) -> Proof:
    known = {field.name: field for field in fields(Proof)}
    for key in table.keys() - known.keys():
        raise CatalogError(path, prefix + key, f"unknown key; known are {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        value = table.get(name, field.default)
        if name not in table and isinstance(value, str | tuple):
            continue
        if name not in table:
            raise CatalogError(path, prefix + name, "is missing")
        wanted = _TYPES[str(field.type)]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise CatalogError(path, prefix + name, f"expected {field.type}, got {value!r}")
        values[name] = tuple(value) if isinstance(value, list) else value
    return Proof(**values)


def write(folder: Path, proof: Proof) -> None:
    """Puts it in the place of the proof on the same device, beside those on others.

    Written whole or not at all; OSError where the folder cannot be written.
    """
    others = [other for other in read(folder) if other.device != proof.device]
    proofs = sorted([*others, proof], key=lambda p: p.device)
    text = _HEAD + "".join("\n[[proof]]\n" + _table(asdict(proof)) for proof in proofs)
    partial = folder / f".{FILE}.new"
    partial.write_text(text, encoding="utf-8")
    partial.replace(folder / FILE)


def _table(values: Mapping[str, Any]) -> str:
    return "".join(f"{name} = {_value(value)}\n" for name, value in values.items() if value != "")


def _value(value: str | float | Sequence[str]) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return "[" + "".join(f"\n    {_text(line)}," for line in value) + ("\n]" if value else "]")


def _text(value: str) -> str:
    """A basic TOML string: JSON's, with the one control character that TOML escapes besides."""
    return json.dumps(value.encode("utf-8", "replace").decode(), ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )
