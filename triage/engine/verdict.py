"""What diagnose() answers, and its one JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """A line that a diagnosis rests on; `text_index` counts the incident's texts from 0."""

    line: int
    end_line: int
    text: str
    text_index: int = 0

    def to_json(self) -> dict[str, Any]:
        """As `diagnose --json` prints it."""
        return {
            "line": self.line,
            "end_line": self.end_line,
            "text": self.text,
            "text_index": self.text_index,
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One pitfall that the evidence shows; `confidence` is conclusive, strong or hint."""

    slug: str
    role: str
    confidence: str
    sentence: str
    rank: int | None = None
    host: str | None = None
    because: tuple[str, ...] = ()
    evidence: tuple[EvidenceLine, ...] = ()
    values: dict[str, str | int | float] = field(default_factory=dict)
    explains: tuple[str, ...] = ()
    advice: str = "do-not-retry"

    def to_json(self) -> dict[str, Any]:
        """As `diagnose --json` prints it."""
        return {
            "slug": self.slug,
            "role": self.role,
            "confidence": self.confidence,
            "rank": self.rank,
            "host": self.host,
            "because": list(self.because),
            "evidence": [line.to_json() for line in self.evidence],
            "values": dict(self.values),
            "explains": list(self.explains),
            "advice": self.advice,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind` is named, undetermined or clean; the first diagnosis is the answer.

    `next` lists commands that confirm a named cause or would settle an undetermined one.
    """

    kind: str
    sentence: str
    diagnoses: tuple[Diagnosis, ...] = ()
    next: tuple[str, ...] = ()
    lines: int = 0
    bytes: int = 0
    catalog: str = ""
    fingerprint: str = ""

    def to_json(self) -> dict[str, Any]:
        """As `diagnose --json` prints it, without the file's name."""
        return {
            "lines": self.lines,
            "bytes": self.bytes,
            "catalog": self.catalog,
            "verdict": self.kind,
            "sentence": self.sentence,
            "diagnoses": [d.to_json() for d in self.diagnoses],
            "next": list(self.next),
            "fingerprint": self.fingerprint,
        }
