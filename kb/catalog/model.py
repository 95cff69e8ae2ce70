"""Frozen dataclasses, one field per key of `pitfall.toml` and `examples/index.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

GROUPS = (
    "data",
    "cuda",
    "hardware",
    "distributed",
    "numerics",
    "autograd",
    "checkpoint",
    "host",
    "compile",
    "environment",
    "application",
)
ROLES = ("root", "symptom")
STRENGTHS = ("conclusive", "strong", "hint")
STATUSES = ("draft", "reviewed", "verified", "retired")
ADVICE = ("retry", "retry-elsewhere", "do-not-retry")
SEVERITIES = ("failure", "advisory", "fallback")
WHERE = ("cpu", "gpu1", "gpuN", "hardware", "environment", "none")


class CatalogError(ValueError):
    """A fault in a catalog entry, with the file and the key that hold it.

    `str()` reads `kb/pitfalls/x/pitfall.toml: role: expected root or symptom, got 'cause'`.
    """

    def __init__(self, path: Path, key: str, problem: str) -> None:
        self.path = path
        self.key = key
        self.problem = problem
        super().__init__(f"{path}: {key}: {problem}" if key else f"{path}: {problem}")


@dataclass(frozen=True, slots=True)
class Signature:
    """One way to recognise a pitfall; a pitfall is recognised when any of its signatures is.

    `all` patterns must each match a line of the incident, `any` needs at least one of its
    patterns, no pattern of `none` may match, and each named fact must hold. Patterns are matched
    against single lines, without their rank and time prefixes.
    """

    strength: str
    all: tuple[str, ...] = ()
    any: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    within_lines: int | None = None
    in_warnings: bool = False
    because: str = ""
    printed_by: str = ""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns that can make this signature match, in the order all, any."""
        return self.all + self.any

    def kinds_and_patterns(self) -> Iterator[tuple[str, str]]:
        """Each pattern behind the key that holds it: all, any, none."""
        for kind, patterns in (("all", self.all), ("any", self.any), ("none", self.none)):
            for pattern in patterns:
                yield kind, pattern


@dataclass(frozen=True, slots=True)
class Fix:
    """A remedy that can be pasted; `snippet` is its code, already read from its file."""

    title: str
    snippet: str
    language: str = "python"
    versions: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """A text beside an entry: `expect` is a slug, or "none" for a text without a failure."""

    path: Path
    source: str
    torch: str
    expect: str
    rank: int | None = None

    def read_text(self) -> str:
        """The example's text; broken bytes are replaced."""
        return self.path.read_text(encoding="utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a claim of the guide can be checked."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Where this pitfall can be made to happen, or why it cannot."""

    where: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One entry of the catalog, as its folder tells it."""

    slug: str
    title: str
    group: str
    role: str
    status: str
    summary: str
    fatal: bool = False
    severity: str = "failure"
    advice: str = "do-not-retry"
    versions: str = ""
    explains: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    signatures: tuple[Signature, ...] = ()
    fixes: tuple[Fix, ...] = ()
    references: tuple[Reference, ...] = ()
    examples: tuple[Example, ...] = ()
    reproduction: Reproduction | None = None
    guide: str = ""
    folder: Path = field(default_factory=Path)

    @property
    def positives(self) -> tuple[Example, ...]:
        """Examples that this entry must win."""
        return tuple(e for e in self.examples if e.expect == self.slug)

    @property
    def near_misses(self) -> tuple[Example, ...]:
        """Examples that look like this entry and must not be answered with it."""
        return tuple(e for e in self.examples if e.expect != self.slug)

    @property
    def is_fallback(self) -> bool:
        """Whether the entry is named only when no other entry explains the text."""
        return self.severity == "fallback"

    @property
    def is_advisory(self) -> bool:
        """Whether the entry is a warning that a run survives."""
        return self.severity == "advisory"


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entries in the order of their slugs, and a version that changes with any of them."""

    pitfalls: tuple[Pitfall, ...]
    version: str

    def __iter__(self) -> Iterator[Pitfall]:
        return iter(self.pitfalls)

    def __len__(self) -> int:
        return len(self.pitfalls)

    def __contains__(self, slug: object) -> bool:
        return any(p.slug == slug for p in self.pitfalls)

    def get(self, slug: str) -> Pitfall | None:
        """The entry of that slug, or None."""
        return self.by_slug.get(slug)

    @property
    def by_slug(self) -> Mapping[str, Pitfall]:
        """Entries by slug."""
        return {p.slug: p for p in self.pitfalls}

    @property
    def active(self) -> tuple[Pitfall, ...]:
        """Entries that take part in diagnosis: all but the retired ones."""
        return tuple(p for p in self.pitfalls if p.status != "retired")
