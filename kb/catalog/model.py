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
#: Where a reproduction can run at all.
RUNNABLE = ("cpu", "gpu1", "gpuN")
PROVES = ("cause", "stand-in", "injection")
ENDS = ("exit", "hang")
SCRIPT = "repro.py"
#: The last line that a script prints, once all of it has run.
END_LINE = "ran to its end"
#: The whole numbers that a reproduction may take, each within a range that its entry declares.
OPTIONS = ("world-size", "num-workers", "shm-mb", "classes")


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
    """A remedy that can be pasted; `snippet` is its code, already read from the file `source`."""

    title: str
    snippet: str
    language: str = "python"
    versions: str = ""
    note: str = ""
    source: str = ""

    @property
    def is_run(self) -> bool:
        """Whether the snippet is what the reproduction runs with `--fixed`."""
        return self.source.partition("#")[0] == SCRIPT


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
class Option:
    """A whole number that a reproduction takes, from `lowest` to `highest`."""

    name: str
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Where this pitfall can be made to happen, or why it cannot; with a script, how it is run.

    `differs` says what the fixed mode changes. `proves` is what that is worth: "cause", the
    entry's own fix with the cause still in place; "stand-in", the real cause is staged;
    "injection", the fault is only left out. `ends` is how the broken run ends: "exit", or "hang".
    `seconds` is the wall time of the slower mode and `memory_mib` the most memory of all processes
    together, both as measured; `shm_mib` and `scratch_mib` are the sizes of /dev/shm and /scratch.
    """

    where: str
    reason: str = ""
    has_script: bool = False
    differs: str = ""
    proves: str = ""
    ends: str = "exit"
    seconds: int = 0
    memory_mib: int = 0
    shm_mib: int = 64
    scratch_mib: int = 256
    options: tuple[Option, ...] = ()

    @property
    def is_runnable(self) -> bool:
        """Whether there is a script, and all that must be known to run it."""
        return bool(self.has_script and self.where in RUNNABLE and self.seconds and self.memory_mib)


@dataclass(frozen=True, slots=True)
class Proof:
    """What `verify` saw of an entry on one device: "cpu", or the name of the GPU.

    `entry` is the digest of what was verified: the script and what the entry says of itself.
    `reason` says why a badge was not earned. `seconds` is the time of both runs.
    `broken_lines` and `fixed_lines` are the lines that decided, of either run's output.
    """

    device: str
    reproduced: bool
    fix_verified: bool
    seconds: float
    date: str
    torch: str
    python: str
    catalog: str
    entry: str
    reason: str = ""
    cuda: str = ""
    driver: str = ""
    broken_lines: tuple[str, ...] = ()
    fixed_lines: tuple[str, ...] = ()


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
    proofs: tuple[Proof, ...] = ()
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
    def script(self) -> Path:
        """The file of the reproduction, whether there is one or not."""
        return self.folder / SCRIPT

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
