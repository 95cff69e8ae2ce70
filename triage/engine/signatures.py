"""Step 4: signatures × (hits, facts) → Match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from kb.catalog import Catalog, Pitfall, Signature, syntax
from triage.engine import vetting
from triage.engine.episodes import Course
from triage.engine.evidence import Evidence, Hit
from triage.engine.facts import Fact, Facts
from triage.engine.regex import regex

_ORDER = {"conclusive": 0, "strong": 1, "hint": 2}
_PLACEHOLDER = regex(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Place:
    """A hit and the number of the text it stands in."""

    text_index: int
    hit: Hit


@dataclass(frozen=True, slots=True)
class Match:
    """A pitfall that one of its signatures recognises, with what the signature rests on.

    `recovered` says that the run went on after every one of the hits.
    """

    pitfall: Pitfall
    strength: str
    places: tuple[Place, ...]
    facts: tuple[Fact, ...]
    because: tuple[str, ...]
    values: Mapping[str, str]
    recovered: bool = False

    @property
    def first(self) -> Place | None:
        """The earliest hit in the order of the texts."""
        return self.places[0] if self.places else None

    @property
    def spots(self) -> list[tuple[int, int]]:
        """(text, line) of all evidence; facts count by their own lines."""
        spots = [(p.text_index, p.hit.line) for p in self.places]
        return spots + [(e.text_index, e.line) for fact in self.facts for e in fact.evidence]

    @property
    def position(self) -> tuple[int, int]:
        """(text, line) of the earliest evidence."""
        return min(self.spots, default=(1 << 30, 1 << 30))


# A node's kernel keeps its log for weeks; zones of clocks differ by hours.
_OF_A_NODE = ("hardware", "host")
_DAYS_LATER_S = 2 * 86_400.0


class Hits:
    """Hits of all texts by pattern, with the question whether a run went on after one."""

    def __init__(self, evidences: Sequence[Evidence]) -> None:
        self._courses = [Course(evidence) for evidence in evidences]
        self._end = max((e.last_time for e in evidences if e.last_time is not None), default=0.0)
        self._by_pattern: dict[str, list[Place]] = defaultdict(list)
        for index, evidence in enumerate(evidences):
            for hit in evidence.hits:
                self._by_pattern[hit.pattern].append(Place(index, hit))

    def of(self, pattern: str, *, in_warnings: bool) -> list[Place]:
        """Hits that count as events, earliest first."""
        places = self._by_pattern.get(pattern, ())
        if in_warnings:
            return [p for p in places if not (p.hit.mention or p.hit.handled)]
        return [p for p in places if not (p.hit.mention or p.hit.warning or p.hit.handled)]

    @property
    def patterns(self) -> Iterable[str]:
        """Those that occur at all, spoken of or not."""
        return self._by_pattern.keys()

    def any_of(self, pattern: str) -> bool:
        """Whether the pattern occurs at all, as an event or a warning that nobody dealt with."""
        return any(
            not (p.hit.mention or (p.hit.warning and p.hit.handled))
            for p in self._by_pattern.get(pattern, [])
        )

    def is_of_another_day(self, place: Place) -> bool:
        """Whether the texts go on for days after the hit, by their stamps."""
        return place.hit.time is not None and self._end - place.hit.time > _DAYS_LATER_S

    def is_recovered(self, place: Place) -> bool:
        """Whether the same rank's counters went on by several steps after the hit."""
        hit = place.hit
        return self._courses[place.text_index].went_on(hit.rank, hit.line, hit.text)


class _Index:
    """The signatures of a catalog by the patterns that can make them match."""

    def __init__(self, catalog: Catalog) -> None:
        self._signatures = [(p, s) for p in catalog.active for s in p.signatures]
        self._always: list[int] = []
        self._by_pattern: dict[str, list[int]] = defaultdict(list)
        for number, (_, signature) in enumerate(self._signatures):
            for pattern in signature.patterns:
                self._by_pattern[pattern].append(number)
            if not signature.patterns:
                self._always.append(number)

    def candidates(self, hits: Hits) -> Iterator[tuple[Pitfall, list[Signature]]]:
        """Pitfalls with the signatures that the hits do not rule out, in the catalog's order."""
        numbers = set(self._always)
        for pattern in hits.patterns:
            numbers.update(self._by_pattern.get(pattern, ()))
        rows = (self._signatures[number] for number in sorted(numbers))
        for _, group in groupby(rows, key=lambda row: row[0].slug):
            pairs = list(group)
            yield pairs[0][0], [signature for _, signature in pairs]


def match(catalog: Catalog, evidences: Sequence[Evidence], facts: Facts) -> list[Match]:
    """For each pitfall its best Match, in the order of the catalog."""
    return _match(_Index(catalog), evidences, facts)


def _match(index: _Index, evidences: Sequence[Evidence], facts: Facts) -> list[Match]:
    hits = Hits(evidences)
    matches = []
    for pitfall, signatures in index.candidates(hits):
        found = [m for s in signatures if (m := match_signature(pitfall, s, hits, facts))]
        if found:
            matches.append(_merge(found))
    return matches


def match_parts(
    catalog: Catalog, evidences: Sequence[Evidence], parts: Sequence[Sequence[Evidence]]
) -> list[list[Match]]:
    """The matches within each part of the texts.

    What only the whole shows, a setting at the start and the failure that follows from it, counts
    for the part in which it ends.
    """
    index = _Index(catalog)
    found = [_match(index, part, Facts(part)) for part in parts]
    if len(parts) == 1:
        return found
    known = {m.pitfall.slug for matches in found for m in matches}
    for one in _match(index, evidences, Facts(evidences)):
        if one.pitfall.slug in known or one.facts:
            continue
        at = sorted({_part_of(spot, parts) for spot in one.spots})
        if set(at) <= {0, at[-1]}:
            found[at[-1]].append(one)
    return found


def _part_of(spot: tuple[int, int], parts: Sequence[Sequence[Evidence]]) -> int:
    """The number of the part in which the line stands."""
    text_index, line = spot
    for number, part in enumerate(parts):
        if line < part[text_index].lines:
            return number
    return len(parts) - 1


def _merge(found: Sequence[Match]) -> Match:
    """The strongest of a pitfall's matches, with the evidence of the others behind its own."""
    best = min(found, key=lambda m: (m.recovered, _ORDER[m.strength]))
    others = [m for m in found if m is not best and m.recovered == best.recovered]
    places = {(p.text_index, p.hit.line): p for m in (best, *others) for p in m.places}
    values = dict(best.values)
    for other in others:
        for key, value in other.values.items():
            values.setdefault(key, value)
    because = dict.fromkeys(best.because)
    if not because:
        because = dict.fromkeys(reason for other in others for reason in other.because)
    return Match(
        pitfall=best.pitfall,
        strength=best.strength,
        places=tuple(places[key] for key in sorted(places)),
        facts=tuple({f.name: f for m in (best, *others) for f in m.facts}.values()),
        because=tuple(because),
        values=values,
        recovered=best.recovered,
    )


def match_signature(
    pitfall: Pitfall, signature: Signature, hits: Hits, facts: Facts
) -> Match | None:
    """The Match if the signature recognises the pitfall, else None."""
    shown: list[Fact] = []
    for name in signature.facts:
        fact = facts.get(name)
        if fact is None:
            return None
        shown.append(fact)
    if any(hits.any_of(pattern) for pattern in signature.none):
        return None
    wanted = [hits.of(p, in_warnings=signature.in_warnings) for p in signature.all]
    if not all(wanted):
        return None
    choices = [p for t in signature.any for p in hits.of(t, in_warnings=signature.in_warnings)]
    if signature.any:
        if not choices:
            return None
        wanted.append(sorted(choices, key=lambda p: (p.text_index, p.hit.line)))
    if signature.within_lines is not None and len(wanted) > 1:
        wanted = _close_together(wanted, signature.within_lines)
        if not wanted:
            return None
    if not all(_is_usable(pattern) for pattern in signature.none):
        return None
    places = [p for group in wanted for p in group]
    recovered = False
    if places and not signature.in_warnings:
        is_of_a_node = pitfall.group in _OF_A_NODE
        lasting = [
            p
            for p in places
            if not (hits.is_recovered(p) or (is_of_a_node and hits.is_of_another_day(p)))
        ]
        recovered = not lasting
        places = lasting or places
    places.sort(key=lambda p: (p.text_index, p.hit.line))
    values: dict[str, str] = {}
    for fact in shown:
        values.update(fact.values)
    for place in places:
        for key, value in place.hit.values.items():
            values.setdefault(key, value)
    return Match(
        pitfall=pitfall,
        strength=signature.strength,
        places=tuple(places),
        facts=tuple(shown),
        because=_reasons(signature, shown, values),
        values=values,
        recovered=recovered,
    )


def _is_usable(pattern: str) -> bool:
    """Whether the scan looks for it: a guard that it leaves out must not count as absent."""
    return _is_pattern(pattern) and not vetting.is_refused(pattern)


@lru_cache(maxsize=4096)
def _is_pattern(pattern: str) -> bool:
    try:
        syntax.parse(pattern)
    except syntax.PatternError:
        return False
    return True


def _close_together(wanted: list[list[Place]], within_lines: int) -> list[list[Place]]:
    """The groups without the places that no place of every other group stands near."""
    anchor = min(wanted, key=len)
    kept = []
    for place in anchor:
        near = [
            [
                p
                for p in group
                if p.text_index == place.text_index
                and abs(p.hit.line - place.hit.line) <= within_lines
            ]
            for group in wanted
        ]
        if all(near):
            kept.append(near)
    if not kept:
        return []
    return [[p for near in kept for p in near[i]] for i in range(len(wanted))]


def _reasons(
    signature: Signature, facts: Sequence[Fact], values: Mapping[str, str]
) -> tuple[str, ...]:
    reasons = [reason for fact in facts for reason in (fact.because, *fact.details)]
    if signature.because:
        names = _PLACEHOLDER.findall(signature.because)
        if all(name in values for name in names):
            reasons.insert(0, _PLACEHOLDER.sub(lambda m: values[m[1]].strip(), signature.because))
    return tuple(dict.fromkeys(reasons))
