"""Rules across entries that loading does not check: patterns, completeness, examples, links."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kb.catalog import syntax
from kb.catalog.loader import read_catalog
from kb.catalog.model import END_LINE, RUNNABLE, Catalog, Pitfall, Reproduction, Signature

HEADINGS = ("What you see", "Why", "Confirm", "Fix", "Prevent")
#: How many examples of each kind, and how many references, a complete entry has at least.
LEAST_EXAMPLES = 2
LEAST_REFERENCES = 2

_PLACEHOLDER = re.compile(r"\{(\w*)\}")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## +(.*?)\s*$", re.MULTILINE)
_LINK = re.compile(r"\]\(\s*<?([^\s)>]+)")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#")
_COMPLETE = ("reviewed", "verified")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong in an entry: the file and the key that hold it, and the words for it.

    An error keeps the catalog from being used; a warning is for a curator to judge.
    """

    level: str
    path: Path
    key: str
    problem: str

    @property
    def is_error(self) -> bool:
        """Whether the catalog must not be used like this."""
        return self.level == "error"

    def __str__(self) -> str:
        place = f"{self.path}: {self.key}" if self.key else f"{self.path}"
        return f"{place}: {self.problem}"


def check_folders(
    folders: Sequence[Path] | None, facts: Mapping[str, Collection[str]]
) -> tuple[Catalog, list[Fault]]:
    """The entries of these folders that load, and all faults: of loading, then of the rules."""
    catalog, errors = read_catalog(folders)
    faults = [Fault("error", e.path, e.key, e.problem) for e in errors]
    broken = {e.path.parent.name for e in errors} | {e.path.name for e in errors}
    return catalog, faults + lint(catalog, facts, broken=broken)


def lint(
    catalog: Catalog, facts: Mapping[str, Collection[str]], *, broken: Collection[str] = ()
) -> list[Fault]:
    """The faults of these entries in the order of their slugs, those between entries last.

    `facts` has the names of the engine's facts and the values that each may give to `because`;
    `broken` has the slugs of entries that exist but did not load.
    """
    slugs = {p.slug for p in catalog} | set(broken)
    faults: list[Fault] = []
    for pitfall in catalog:
        entry = _Entry(pitfall, facts, slugs)
        entry.check()
        faults.extend(entry.faults)
    faults.extend(_shared_patterns(catalog))
    faults.extend(_circles(catalog))
    return faults


class _Entry:
    """The rules for one entry; what they find stands in `faults`."""

    def __init__(
        self, pitfall: Pitfall, facts: Mapping[str, Collection[str]], slugs: Collection[str]
    ) -> None:
        self.pitfall = pitfall
        self.facts = facts
        self.slugs = slugs
        self.faults: list[Fault] = []
        self._toml = pitfall.folder / "pitfall.toml"
        self._guide = pitfall.folder / "guide.md"
        self._index = pitfall.folder / "examples" / "index.toml"

    def check(self) -> None:
        rules: list[Callable[[], None]] = [
            self._check_examples,
            self._check_links,
            self._check_reproduction,
        ]
        if self.pitfall.status in _COMPLETE:
            rules.append(self._check_complete)
        for number, signature in enumerate(self.pitfall.signatures):
            self._check_signature(signature, f"signature[{number}]")
        for rule in rules:
            rule()

    def _error(self, path: Path, key: str, problem: str) -> None:
        self.faults.append(Fault("error", path, key, problem))

    def _warning(self, path: Path, key: str, problem: str) -> None:
        self.faults.append(Fault("warning", path, key, problem))

    # ---------------------------------------------------------------------------- signatures

    def _check_signature(self, signature: Signature, key: str) -> None:
        if not signature.printed_by:
            self._error(self._toml, f"{key}.printed_by", "is missing: where is this printed?")
        for name in signature.facts:
            if name not in self.facts:
                known = ", ".join(sorted(self.facts))
                self._error(self._toml, f"{key}.facts", f"{name!r} is no fact; known are {known}")
        seen: set[str] = set()
        sound = True
        groups: dict[str, list[frozenset[str]]] = {"all": [], "any": [], "none": []}
        for kind, pattern in signature.kinds_and_patterns():
            if pattern in seen:
                self._error(self._toml, f"{key}.{kind}", f"{pattern!r} stands there twice")
            seen.add(pattern)
            try:
                groups[kind].append(syntax.group_names(syntax.parse(pattern)))
            except syntax.PatternError as error:
                self._error(self._toml, f"{key}.{kind}", f"{pattern!r} {error}")
                sound = False
        if signature.within_lines is not None and len(signature.all) + bool(signature.any) < 2:
            self._error(
                self._toml, f"{key}.within_lines", "needs two patterns that must both match"
            )
        if sound:
            self._check_because(signature, f"{key}.because", groups["all"], groups["any"])

    def _check_because(
        self,
        signature: Signature,
        key: str,
        in_all: Sequence[frozenset[str]],
        in_any: Sequence[frozenset[str]],
    ) -> None:
        """A reason whose placeholder has no value is not shown at all."""
        given = {value for name in signature.facts for value in self.facts.get(name, ())}
        always = given.union(*in_all)
        for name in dict.fromkeys(_PLACEHOLDER.findall(signature.because)):
            if name not in always.union(*in_any):
                self._error(self._toml, key, f"{{{name}}} is no named group of all or any")
            elif name not in always and not all(name in names for names in in_any):
                self._warning(
                    self._toml, key, f"{{{name}}} is a named group of some of the any patterns only"
                )

    # ------------------------------------------------------------------- examples and the guide

    def _check_examples(self) -> None:
        folder = self._index.parent
        listed = {self._index}
        for number, example in enumerate(self.pitfall.examples):
            if example.expect != "none" and example.expect not in self.slugs:
                self._error(
                    self._index, f"example[{number}].expect", f"no such entry: {example.expect!r}"
                )
            if example.path in listed:
                self._error(self._index, f"example[{number}].file", "stands there twice")
            listed.add(example.path)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path not in listed and not path.name.startswith("."):
                self._warning(path, "", "is no example: index.toml does not list it")

    def _check_links(self) -> None:
        for target in _LINK.findall(_FENCE.sub("", self.pitfall.guide)):
            if _OUTSIDE.match(target):
                continue
            slug = target.partition("#")[0].rstrip("/").rpartition("/")[2]
            if not target.startswith(("/pitfalls/", "../")) or slug not in self.slugs:
                self._error(
                    self._guide,
                    f"link {target}",
                    "leads nowhere; another entry is /pitfalls/its-slug/",
                )

    # --------------------------------------------------------------------------- the reproduction

    def _check_reproduction(self) -> None:
        pitfall = self.pitfall
        reproduction = pitfall.reproduction or Reproduction("none")
        if not pitfall.script.is_file():
            for key in ("differs", "proves", "seconds", "memory_mib", "options"):
                if getattr(reproduction, key):
                    problem = f"says how {pitfall.script.name} is run, and there is none"
                    self._error(self._toml, f"reproduction.{key}", problem)
            return
        if reproduction.where not in RUNNABLE:
            problem = f"expected {' or '.join(RUNNABLE)} where there is a script"
            self._error(self._toml, "reproduction.where", problem)
        for key in ("differs", "proves", "seconds", "memory_mib"):
            if not getattr(reproduction, key):
                problem = f"is missing where there is a {pitfall.script.name}"
                self._error(self._toml, f"reproduction.{key}", problem)
        if reproduction.proves == "cause" and not any(fix.is_run for fix in pitfall.fixes):
            self._error(
                self._toml,
                "reproduction.proves",
                f"the fix that is run must be shown: no snippet is {pitfall.script.name}#fixed",
            )
        text = pitfall.script.read_text(encoding="utf-8", errors="replace")
        for words in ("--fixed", END_LINE):
            if words not in text:
                self._error(pitfall.script, "", f"knows no {words!r}")
        if pitfall.slug in text or pitfall.slug.replace("-", "_") in text:
            self._error(pitfall.script, "", "contains its own slug: its output would prove nothing")

    def _check_complete(self) -> None:
        pitfall = self.pitfall
        self._check_headings()
        for key, is_there in (
            ("versions", pitfall.versions),
            ("confirm", pitfall.confirm),
            ("fix", pitfall.fixes),
            ("reproduction", pitfall.reproduction),
        ):
            if not is_there:
                self._error(self._toml, key, f"is missing in a {pitfall.status} entry")
        if len(pitfall.references) < LEAST_REFERENCES:
            self._few(self._toml, "reference", LEAST_REFERENCES, len(pitfall.references))
        if len(pitfall.positives) < LEAST_EXAMPLES:
            self._few(self._index, "example", LEAST_EXAMPLES, len(pitfall.positives), "positive")
        if len(pitfall.near_misses) < LEAST_EXAMPLES:
            self._few(self._index, "example", LEAST_EXAMPLES, len(pitfall.near_misses), "near miss")

    def _few(self, path: Path, key: str, least: int, count: int, kind: str = "") -> None:
        of_kind = f" of the kind {kind}" if kind else ""
        status = self.pitfall.status
        self._error(path, key, f"a {status} entry has at least {least}{of_kind}, got {count}")

    def _check_headings(self) -> None:
        if not self._guide.is_file():
            self._error(self._guide, "", f"is missing in a {self.pitfall.status} entry")
            return
        text = _FENCE.sub("", self.pitfall.guide)
        found = tuple(_HEADING.findall(text))
        if found != HEADINGS:
            self._error(
                self._guide,
                "headings",
                f"expected {' · '.join(HEADINGS)}, got {' · '.join(found) or 'none'}",
            )
            return
        for heading, part in zip(HEADINGS, _HEADING.split(text)[2::2], strict=True):
            if not part.strip() and heading not in _headings_over_code(self.pitfall.guide):
                self._error(self._guide, f"## {heading}", "is empty")


def _headings_over_code(guide: str) -> set[str]:
    """Headings that a block of code follows: taken out with its fences, it would seem empty."""
    return set(re.findall(r"^## +(.*?)\s*\n\s*(?:```|~~~)", guide, re.MULTILINE))


# ---------------------------------------------------------------------------- between entries


def _shared_patterns(catalog: Catalog) -> Iterator[Fault]:
    """A pattern by which two entries match says nothing about which of them it is."""
    owners: dict[str, dict[str, tuple[Path, str]]] = defaultdict(dict)
    for pitfall in catalog.active:
        for number, signature in enumerate(pitfall.signatures):
            for kind, pattern in _deciding(signature):
                place = (pitfall.folder / "pitfall.toml", f"signature[{number}].{kind}")
                owners[pattern].setdefault(pitfall.slug, place)
    for pattern, places in owners.items():
        first, *others = places
        for slug in others:
            path, key = places[slug]
            yield Fault("error", path, key, f"{pattern!r} also decides for {first}")


def _deciding(signature: Signature) -> Iterator[tuple[str, str]]:
    """The patterns of which one alone makes the signature match."""
    if signature.facts:
        return
    if not signature.all:
        yield from (("any", pattern) for pattern in signature.any)
    elif len(signature.all) == 1 and not signature.any:
        yield "all", signature.all[0]


def _circles(catalog: Catalog) -> Iterator[Fault]:
    """Two entries of one role that explain each other: only their order in the text decides.

    A symptom explains a root only where it stands before it: what an abort ends, a crash begins.
    """
    explains = {(p.role, p.slug): set(p.explains) for p in catalog}
    for pitfall in catalog:
        for slug in pitfall.explains:
            if pitfall.slug < slug and pitfall.slug in explains.get((pitfall.role, slug), ()):
                path = pitfall.folder / "pitfall.toml"
                yield Fault("warning", path, "explains", f"{slug} explains {pitfall.slug} too")
