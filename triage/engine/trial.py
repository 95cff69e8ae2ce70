"""How a catalog's signatures do on one text, pattern by pattern: what their author wants to see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kb.catalog import Catalog, Pitfall, Signature
from triage.engine.evidence import Evidence, Hit
from triage.engine.facts import Facts
from triage.engine.signatures import Hits, match_signature


@dataclass(frozen=True, slots=True)
class PatternTrial:
    """One pattern of a signature and the lines that it occurs in.

    `key` is its place, such as `any[1]`. `counting` are the lines that count as events, `passed`
    those that do not, each with the reason.
    """

    key: str
    text: str
    counting: tuple[int, ...]
    passed: tuple[tuple[int, str], ...]

    @property
    def is_guard(self) -> bool:
        """Whether an occurrence keeps the signature from matching."""
        return self.key.startswith("none")


@dataclass(frozen=True, slots=True)
class SignatureTrial:
    """One signature of an entry: whether it matches, and how near it is if not."""

    pitfall: Pitfall
    number: int
    signature: Signature
    is_match: bool
    patterns: tuple[PatternTrial, ...]
    facts: tuple[tuple[str, bool], ...]

    @property
    def is_near(self) -> bool:
        """Whether it does not match although one of its patterns occurs."""
        occurs = any(p.counting or p.passed for p in self.patterns if not p.is_guard)
        return occurs and not self.is_match

    @property
    def lacks(self) -> tuple[str, ...]:
        """Why it does not match, in words; empty if it does."""
        return () if self.is_match else tuple(self._lacks())

    def _lacks(self) -> Iterator[str]:
        wanted = [p for p in self.patterns if p.key.startswith("all")]
        choice = [p for p in self.patterns if p.key.startswith("any")]
        yield from (f"{p.key} in a line that counts: {p.text}" for p in wanted if not p.counting)
        if choice and not any(p.counting for p in choice):
            yield "one pattern of any in a line that counts"
        yield from (f"the fact {name}" for name, holds in self.facts if not holds)
        for guard in self.patterns:
            if guard.is_guard and guard.counting:
                yield f"the absence of {guard.key}, which is in line {guard.counting[0]}"
        found = all(p.counting for p in wanted) and (not choice or any(p.counting for p in choice))
        if self.signature.within_lines is not None and found:
            yield f"its patterns within {self.signature.within_lines} lines"


def trials(catalog: Catalog, evidence: Evidence) -> list[SignatureTrial]:
    """Each signature of each active entry on the scanned text, in the order of the catalog."""
    hits, facts = Hits([evidence]), Facts([evidence])
    by_pattern: dict[str, list[Hit]] = defaultdict(list)
    for hit in evidence.hits:
        by_pattern[hit.pattern].append(hit)
    return [
        SignatureTrial(
            pitfall=pitfall,
            number=number,
            signature=signature,
            is_match=match_signature(pitfall, signature, hits, facts) is not None,
            patterns=tuple(
                _pattern_trial(f"{kind}[{index}]", text, signature, by_pattern[text])
                for kind in ("all", "any", "none")
                for index, text in enumerate(getattr(signature, kind))
            ),
            facts=tuple((name, facts.get(name) is not None) for name in signature.facts),
        )
        for pitfall in catalog.active
        for number, signature in enumerate(pitfall.signatures)
    ]


def _pattern_trial(key: str, text: str, signature: Signature, hits: Sequence[Hit]) -> PatternTrial:
    counting, passed = [], []
    for hit in hits:
        reason = _passed_because(hit, is_lenient=signature.in_warnings or key.startswith("none"))
        if reason:
            passed.append((hit.line, reason))
        else:
            counting.append(hit.line)
    return PatternTrial(key, text, tuple(counting), tuple(passed))


def _passed_because(hit: Hit, *, is_lenient: bool) -> str:
    """Why a hit is no event, in words; guards and `in_warnings` overlook mentions only."""
    if hit.mention:
        return "a mention: advice, a setting or a quotation"
    if is_lenient:
        return ""
    if hit.warning:
        return "a warning"
    return "handled by the program" if hit.handled else ""
