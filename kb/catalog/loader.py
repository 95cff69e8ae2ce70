"""Folders of `<slug>/pitfall.toml` → Catalog; every error names the file and the key."""

from __future__ import annotations

import hashlib
import os
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kb.catalog import proof
from kb.catalog.model import (
    ADVICE,
    ENDS,
    GROUPS,
    OPTIONS,
    PROVES,
    ROLES,
    SCRIPT,
    SEVERITIES,
    STATUSES,
    STRENGTHS,
    WHERE,
    Catalog,
    CatalogError,
    Example,
    Fix,
    Option,
    Pitfall,
    Reference,
    Reproduction,
    Signature,
)

_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_FILE = re.compile(r"[\w.-]+\.(?:py|sh|ya?ml|toml|diff)(?:#\w+)?\Z")
_PITFALL_KEYS = {
    "title", "group", "role", "status", "summary", "fatal", "severity", "advice", "versions",
    "explains", "confirm", "signature", "fix", "reference", "reproduction",
}  # fmt: skip
_SIGNATURE_KEYS = {
    "strength", "all", "any", "none", "facts", "within_lines", "in_warnings", "because",
    "printed_by",
}  # fmt: skip
_FIX_KEYS = {"title", "snippet", "language", "versions", "note"}
_REFERENCE_KEYS = {"title", "url"}
_REPRODUCTION_KEYS = {
    "where", "reason", "differs", "proves", "ends", "seconds", "memory_mib", "shm_mib",
    "scratch_mib", "options",
}  # fmt: skip
_EXAMPLE_KEYS = {"file", "source", "torch", "expect", "rank"}
_LANGUAGES = {
    ".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml",
    ".diff": "diff",
}  # fmt: skip


def builtin_folder() -> Path:
    """The folder of the entries that come with Pitstop."""
    return Path(__file__).resolve().parent.parent / "pitfalls"


def is_slug(text: str) -> bool:
    """Whether the text can be the slug of an entry."""
    return _SLUG.match(text) is not None


def load_catalog(folders: Sequence[Path] | None = None) -> Catalog:
    """All entries of these folders (default: the built-in ones) in the order of their slugs.

    The version is a hash over every file but the proofs, which say how an entry fared and not
    what it is: equal catalogs have equal versions wherever they lie. Raises CatalogError for the
    first fault; a slug that two folders hold is a fault. Patterns are not compiled here: `lint`
    refuses bad ones, and the engine leaves them out.
    """
    catalog, faults = read_catalog(folders)
    for fault in faults:
        raise fault
    return catalog


def read_catalog(folders: Sequence[Path] | None = None) -> tuple[Catalog, list[CatalogError]]:
    """As load_catalog, but with the entries that are whole, and the first fault of each other."""
    pitfalls: dict[str, Pitfall] = {}
    seen: dict[str, Path] = {}
    faults: list[CatalogError] = []
    digest = hashlib.sha256()
    for folder in folders if folders is not None else [builtin_folder()]:
        if not folder.is_dir():
            faults.append(CatalogError(folder, "", "no such folder of catalog entries"))
            continue
        for entry in sorted(p for p in folder.iterdir() if p.is_dir() and p.name[0] not in "._"):
            other = seen.setdefault(entry.name, entry)
            try:
                if other is not entry:
                    raise CatalogError(entry, "slug", f"{entry.name} is also an entry in {other}")
                pitfall = load_pitfall(entry)
                _digest_folder(entry, digest)
            except CatalogError as fault:
                faults.append(fault)
            except OSError as error:
                path = Path(error.filename or entry)
                faults.append(CatalogError(path, "", f"cannot be read: {error.strerror}"))
            else:
                pitfalls[entry.name] = pitfall
    faults.extend(_explains_faults(pitfalls, seen))
    entries = tuple(pitfalls[slug] for slug in sorted(pitfalls))
    return Catalog(entries, digest.hexdigest()[:16]), faults


def load_pitfall(folder: Path) -> Pitfall:
    """One entry from its folder; raises CatalogError with file and key."""
    path = folder / "pitfall.toml"
    slug = folder.name
    if not is_slug(slug):
        raise CatalogError(folder, "slug", "a slug is lower-case words joined by single hyphens")
    table = _Table(path, "", _read_toml(path), _PITFALL_KEYS)
    pitfall = Pitfall(
        slug=slug,
        title=table.text("title"),
        group=table.choice("group", GROUPS),
        role=table.choice("role", ROLES),
        status=table.choice("status", STATUSES),
        summary=table.text("summary"),
        fatal=table.flag("fatal"),
        severity=table.choice("severity", SEVERITIES, default="failure"),
        advice=table.choice("advice", ADVICE, default="do-not-retry"),
        versions=table.text("versions", default=""),
        explains=table.texts("explains"),
        confirm=table.texts("confirm"),
        signatures=tuple(_signature(t) for t in table.tables("signature", _SIGNATURE_KEYS)),
        fixes=tuple(_fix(t, folder) for t in table.tables("fix", _FIX_KEYS)),
        references=tuple(_reference(t) for t in table.tables("reference", _REFERENCE_KEYS)),
        examples=_examples(folder),
        reproduction=_reproduction(table, folder),
        proofs=proof.read(folder),
        guide=_read_guide(folder),
        folder=folder,
    )
    if (
        pitfall.severity != "fallback"
        and not pitfall.signatures
        and pitfall.status in ("reviewed", "verified")
    ):
        raise CatalogError(path, "signature", f"a {pitfall.status} entry needs at least one")
    return pitfall


class _Table:
    """A TOML table that knows where it stands, so that every complaint names file and key."""

    def __init__(self, path: Path, prefix: str, data: Mapping[str, Any], keys: set[str]) -> None:
        self.path = path
        self.prefix = prefix
        self.data = data
        for key in data:
            if key not in keys:
                known = ", ".join(sorted(keys))
                raise CatalogError(path, prefix + key, f"unknown key; known are {known}")

    def fail(self, key: str, problem: str) -> CatalogError:
        return CatalogError(self.path, self.prefix + key, problem)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.data.get(key, default)
        if value is None:
            raise self.fail(key, "is missing")
        if not isinstance(value, str):
            raise self.fail(key, f"expected a text, got {value!r}")
        if not value.strip() and default is None:
            raise self.fail(key, "is empty")
        return value.strip()

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise self.fail(key, f"expected {' or '.join(choices)}, got {value!r}")
        return value

    def flag(self, key: str) -> bool:
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise self.fail(key, f"expected true or false, got {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise self.fail(key, f"expected a list of texts, got {value!r}")
        return tuple(value)

    def number(self, key: str, minimum: int) -> int | None:
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.fail(key, f"expected a whole number from {minimum}, got {value!r}")
        return value

    def tables(self, key: str, keys: set[str]) -> list[_Table]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self.fail(key, f"expected [[{key}]] tables")
        return [_Table(self.path, f"{key}[{n}].", v, keys) for n, v in enumerate(value)]


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise CatalogError(path, "", "is missing") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(path, "", f"is not TOML: {error}") from None


def _signature(table: _Table) -> Signature:
    signature = Signature(
        strength=table.choice("strength", STRENGTHS),
        all=table.texts("all"),
        any=table.texts("any"),
        none=table.texts("none"),
        facts=table.texts("facts"),
        within_lines=table.number("within_lines", 1),
        in_warnings=table.flag("in_warnings"),
        because=table.text("because", default=""),
        printed_by=table.text("printed_by", default=""),
    )
    if not signature.patterns and not signature.facts:
        raise table.fail("all", "a signature needs all, any or facts")
    return signature


def _fix(table: _Table, folder: Path) -> Fix:
    source = table.text("snippet")
    language = table.text("language", default="")
    snippet = source
    if "\n" not in source and _FILE.match(source):
        name, _, part = source.partition("#")
        snippet = _read_part(table, folder / name, part)
        language = language or _LANGUAGES[Path(name).suffix]
    return Fix(
        title=table.text("title"),
        snippet=snippet,
        language=language or "python",
        versions=table.text("versions", default=""),
        note=table.text("note", default=""),
        source=source if snippet is not source else "",
    )


def _read_part(table: _Table, path: Path, part: str) -> str:
    """The file's text, or the lines between `# part: NAME` and `# end: NAME`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise table.fail("snippet", f"cannot read {path.name}: {error.strerror}") from None
    if not part:
        return text.strip("\n")
    lines = text.split("\n")
    marks = [line.strip() for line in lines]
    try:
        first = marks.index(f"# part: {part}") + 1
        last = marks.index(f"# end: {part}", first)
    except ValueError:
        raise table.fail(
            "snippet", f"{path.name} has no lines between '# part: {part}' and its end"
        ) from None
    return textwrap.dedent("\n".join(lines[first:last])).rstrip("\n")


def _reference(table: _Table) -> Reference:
    reference = Reference(title=table.text("title"), url=table.text("url"))
    if not reference.url.startswith(("https://", "http://")):
        raise table.fail("url", f"expected a web address, got {reference.url!r}")
    return reference


def _reproduction(table: _Table, folder: Path) -> Reproduction | None:
    value = table.data.get("reproduction")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise table.fail("reproduction", "expected a [reproduction] table")
    part = _Table(table.path, "reproduction.", value, _REPRODUCTION_KEYS)
    return Reproduction(
        where=part.choice("where", WHERE),
        reason=part.text("reason", default=""),
        has_script=(folder / SCRIPT).is_file(),
        differs=part.text("differs", default=""),
        proves=part.choice("proves", PROVES) if "proves" in value else "",
        ends=part.choice("ends", ENDS, default="exit"),
        seconds=part.number("seconds", 1) or 0,
        memory_mib=part.number("memory_mib", 1) or 0,
        shm_mib=part.number("shm_mib", 1) or 64,
        scratch_mib=part.number("scratch_mib", 1) or 256,
        options=_options(part),
    )


def _options(table: _Table) -> tuple[Option, ...]:
    value = table.data.get("options", {})
    if not isinstance(value, dict):
        raise table.fail("options", "expected a table of name = [lowest, highest]")
    options = []
    for name, limits in value.items():
        if name not in OPTIONS:
            raise table.fail(f"options.{name}", f"unknown option; known are {', '.join(OPTIONS)}")
        if (
            not isinstance(limits, list)
            or [type(limit) for limit in limits] != [int, int]
            or not 0 <= limits[0] <= limits[1]
        ):
            problem = f"expected a range of two whole numbers, [lowest, highest], got {limits!r}"
            raise table.fail(f"options.{name}", problem)
        options.append(Option(name, *limits))
    return tuple(options)


def _examples(folder: Path) -> tuple[Example, ...]:
    path = folder / "examples" / "index.toml"
    if not path.exists():
        return ()
    table = _Table(path, "", _read_toml(path), {"example"})
    examples = []
    for part in table.tables("example", _EXAMPLE_KEYS):
        file = folder / "examples" / part.text("file")
        if not file.is_file():
            raise part.fail("file", f"{file.name} is missing")
        examples.append(
            Example(
                path=file,
                source=part.text("source"),
                torch=part.text("torch", default=""),
                expect=part.text("expect"),
                rank=part.number("rank", 0),
            )
        )
    return tuple(examples)


def _read_guide(folder: Path) -> str:
    path = folder / "guide.md"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise CatalogError(path, "", f"is not UTF-8: {error}") from None


def _digest_folder(folder: Path, digest: hashlib._Hash) -> None:
    for name, path in sorted(_files(str(folder), folder.name)):
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (hundreds of files: no Paths)
            content = file.readall()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)


def _files(folder: str, name: str) -> Iterator[tuple[str, str]]:
    """(name from the catalog's folder on, path) of each file below but compiled code and proof."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, f"{name}/{entry.name}")
            elif (
                entry.is_file()
                and not entry.name.endswith(".pyc")
                and not (entry.name == proof.FILE and "/" not in name)
            ):
                yield f"{name}/{entry.name}", entry.path


def _explains_faults(
    pitfalls: Mapping[str, Pitfall], known: Mapping[str, Path]
) -> Iterator[CatalogError]:
    for pitfall in pitfalls.values():
        for slug in pitfall.explains:
            if slug == pitfall.slug or slug not in known:
                problem = "an entry cannot explain itself" if slug in known else "no such entry"
                yield CatalogError(
                    pitfall.folder / "pitfall.toml", "explains", f"{slug!r}: {problem}"
                )
