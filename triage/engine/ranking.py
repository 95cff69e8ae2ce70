"""Step 5: root before symptom, earlier before later, stronger before weaker → Verdict."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from kb.catalog import Catalog, Pitfall
from triage.engine import flight, stack_tree
from triage.engine.clocks import Clocks
from triage.engine.episodes import Course
from triage.engine.evidence import Evidence, Traceback
from triage.engine.fingerprint import fingerprint
from triage.engine.regex import regex
from triage.engine.signatures import Match, Place
from triage.engine.stack_tree import StackTree
from triage.engine.verdict import Diagnosis, EvidenceLine, Verdict

_ORDER = {"conclusive": 0, "strong": 1, "hint": 2}
# Exceptions that report another failure, or that somebody's hand caused.
_WRAPPERS = regex(
    r"(?:ChildFailedError|ProcessExitedException|ProcessRaisedException|CalledProcessError|"
    r"SignalException|KeyboardInterrupt|SystemExit|RayTaskError|RayActorError|ActorDiedError|"
    r"BrokenProcessPool|TrainingFailedError|TuneError|MisconfigurationException\b(?=.*exited)|"
    r"StopIteration|BdbQuit|GeneratorExit|Warning)(?:\(\w+\))?$"
)
_OTHER_RUNTIME = regex(r"(?:java|javax|scala|kotlin|org\.apache)\.")
_SECONDS_LATER = 120.0
# What a rank says that has lost a peer: the peer was first.
_OF_LOST_PEERS = ("nccl-watchdog-timeout", "nccl-remote-error", "gloo-failure")
# More than the catalog has entries: a log of many failures names them all.
MAX_DIAGNOSES = 120
MAX_REASONS = 8
MAX_EVIDENCE = 12
_OF_ONE_HOST = ("data", "cuda", "hardware", "host")
FALLBACK = "python-exception"
LAUNCHER = "torchrun-child-failed"


@dataclass(frozen=True, slots=True)
class _Candidate:
    match: Match
    explains: frozenset[str]

    @property
    def pitfall(self) -> Pitfall:
        return self.match.pitfall

    @property
    def slug(self) -> str:
        return self.match.pitfall.slug


@dataclass(frozen=True, slots=True)
class Episode:
    """One failure: the texts with the lines that tell of it, and what matches in them."""

    evidences: Sequence[Evidence]
    matches: Sequence[Match]


def decide(catalog: Catalog, evidences: Sequence[Evidence], episodes: Sequence[Episode]) -> Verdict:
    """The Verdict over all texts: the root of each episode, what it explains, what else was seen.

    Independent failures are several roots, in order; a slug stands once, with the evidence of all
    episodes that it has the same part in. There are at most MAX_DIAGNOSES.
    """
    judged = [_judge(catalog, episode) for episode in episodes]
    if len(judged) == 1:
        ordered = judged[0]
    else:
        together = [found for part in judged for found in part if not _is_bare(found)]
        ordered = _once(sorted(together, key=lambda found: _tier(catalog, found)), catalog)
    return _verdict(catalog, evidences, [f.diagnosis for f in ordered[:MAX_DIAGNOSES]])


@dataclass(frozen=True, slots=True)
class _Found:
    diagnosis: Diagnosis
    is_consequence: bool = False


def _judge(catalog: Catalog, episode: Episode) -> list[_Found]:
    """The diagnoses of one episode: the answer first, then what it explains."""
    evidences = episode.evidences
    lasting = [m for m in episode.matches if not m.recovered]
    closure = _closure(catalog, {m.pitfall.slug for m in lasting})
    candidates = [_Candidate(m, closure[m.pitfall.slug]) for m in lasting]
    scene = _Scene(evidences, lasting)
    kept, explained = _drop_explained(candidates, scene)
    roots = sorted((c for c in kept if c.pitfall.role == "root"), key=scene.root_order)
    symptoms = sorted((c for c in kept if c.pitfall.role != "root"), key=_symptom_order)
    diagnoses = [_diagnosis(c, scene, explained) for c in roots]
    fallback = _uncaught(catalog, evidences, lasting)
    if fallback is not None and not _is_first(fallback, roots, closure[fallback.slug], scene):
        fallback = None
    if fallback is not None:
        reach = closure[fallback.slug]
        told = tuple(c.slug for c in (*roots, *symptoms) if c.slug in reach)
        # A launcher that reports a dead worker says that the exception before it was not caught.
        is_told_by_launcher = [c.slug for c in symptoms] == [LAUNCHER] and not roots
        confidence = "strong" if is_told_by_launcher else fallback.confidence
        diagnoses.insert(0, dataclasses.replace(fallback, explains=told, confidence=confidence))
    shown = [_diagnosis(c, scene, {}) for c in symptoms]
    told_slugs = {d.slug for d in (*diagnoses, *shown)}
    consequences = [_diagnosis(c, scene, {}) for c in _consequences(candidates, explained)]
    diagnoses = [_with_rank_of_effect(d, catalog, consequences) for d in diagnoses]
    return [_Found(d) for d in _answer_first(diagnoses, shown)] + [
        _Found(d, is_consequence=True) for d in consequences if d.slug not in told_slugs
    ]


def _with_rank_of_effect(
    diagnosis: Diagnosis, catalog: Catalog, consequences: Sequence[Diagnosis]
) -> Diagnosis:
    """The diagnosis; where it names no rank, with that whose device failed by it.

    A kernel log knows no ranks. A peer's complaint names no culprit, a CUDA error is a rank's own.
    """
    for effect in consequences if diagnosis.rank is None else ():
        pitfall = catalog.get(effect.slug)
        is_own = pitfall is not None and pitfall.group == "cuda"
        if is_own and effect.slug in diagnosis.explains and effect.rank is not None:
            return dataclasses.replace(diagnosis, rank=effect.rank)
    return diagnosis


def _is_bare(found: _Found) -> bool:
    """Whether it is an exception that no entry knows, without a frame: no failure of its own."""
    return found.diagnosis.slug == FALLBACK and found.diagnosis.confidence == "hint"


def _tier(catalog: Catalog, found: _Found) -> int:
    """Roots before warnings before unexplained symptoms, whatever the episode."""
    diagnosis = found.diagnosis
    pitfall = catalog.get(diagnosis.slug)
    if found.is_consequence:
        return 4
    if diagnosis.role != "root":
        return 2
    if diagnosis.confidence == "hint":
        return 3
    return 1 if pitfall is not None and pitfall.is_advisory else 0


def _once(found: Sequence[_Found], catalog: Catalog) -> list[_Found]:
    """Each slug in its first place, with what later episodes of the same tier add to it."""
    first: dict[str, _Found] = {}
    for one in found:
        slug = one.diagnosis.slug
        known = first.setdefault(slug, one)
        if known is not one and _tier(catalog, known) == _tier(catalog, one):
            first[slug] = dataclasses.replace(known, diagnosis=_add(known.diagnosis, one.diagnosis))
    return list(first.values())


def _add(diagnosis: Diagnosis, later: Diagnosis) -> Diagnosis:
    """The diagnosis with the lines of a later failure of the same cause."""
    because = diagnosis.because
    if later.evidence and len(because) < MAX_REASONS:
        reason = later.because[0] if later.because else "the same"
        because = (*because, f"again on line {later.evidence[0].line}: {reason}")
    return dataclasses.replace(
        diagnosis,
        because=because,
        evidence=(diagnosis.evidence + later.evidence)[:MAX_EVIDENCE],
        explains=tuple(dict.fromkeys((*diagnosis.explains, *later.explains))),
    )


def _is_first(
    fallback: Diagnosis, roots: Sequence[_Candidate], reach: frozenset[str], scene: _Scene
) -> bool:
    """Whether the exception that no entry knows stands before all that it cannot explain.

    A gloo or NCCL line of another rank follows from a rank that died; whatever an entry names by
    its own words goes before an exception that nobody knows.
    """
    line = fallback.evidence[0]
    for candidate in roots:
        if candidate.match.strength == "hint" or candidate.pitfall.is_advisory:
            continue
        if candidate.slug not in reach:
            return False
        if scene.is_before(candidate.match.spots, [(line.text_index, line.line)]):
            return False
    return True


def _closure(catalog: Catalog, shown: Set[str]) -> Mapping[str, frozenset[str]]:
    """For what is shown all slugs that it explains: directly, by symptoms, by what else is shown.

    A chain over a root that the text does not show would explain anything by anything.
    """
    direct = {p.slug: p.explains for p in catalog}
    links = shown | {p.slug for p in catalog if p.role == "symptom"}
    result = {}
    for slug in shown | {FALLBACK}:
        seen: set[str] = set()
        todo = list(direct.get(slug, ()))
        while todo:
            other = todo.pop()
            if other not in seen:
                seen.add(other)
                todo.extend(direct.get(other, ()) if other in links else ())
        seen.discard(slug)
        result[slug] = frozenset(seen)
    return result


def _drop_explained(
    candidates: Sequence[_Candidate], scene: _Scene
) -> tuple[list[_Candidate], dict[str, list[str]]]:
    """The candidates that nothing stronger explains, and who explains whom."""
    explained: dict[str, list[str]] = {}
    gone: set[str] = set()
    for cause in sorted(candidates, key=scene.root_order):
        for effect in candidates:
            if effect.slug in gone and cause.slug in gone:
                continue
            if effect.slug in cause.explains and _can_explain(cause, effect, scene):
                if (
                    cause.slug in effect.explains
                    and cause.slug not in gone
                    and effect.slug not in gone
                    and _goes_first(effect, cause, scene)
                ):
                    continue
                gone.add(effect.slug)
                explained.setdefault(cause.slug, []).append(effect.slug)
    return [c for c in candidates if c.slug not in gone], explained


def _goes_first(one: _Candidate, other: _Candidate, scene: _Scene) -> bool:
    """Of two that explain each other the earlier one; on one line, the one that says so itself."""
    is_before = scene.is_before(one.match.spots, other.match.spots)
    if is_before is None:
        return other.slug in one.pitfall.explains and one.slug not in other.pitfall.explains
    return is_before


def _can_explain(cause: _Candidate, effect: _Candidate, scene: _Scene) -> bool:
    if cause.pitfall.is_advisory and not effect.pitfall.is_advisory:
        return False
    if cause.pitfall.role == "symptom" and effect.pitfall.role == "root":
        # A symptom may end its own process; what stood before it, or on a rank that shows no such
        # symptom, is not its doing.
        mine, theirs = _ranks(cause.match), _ranks(effect.match)
        is_same = not (mine and theirs) or theirs <= mine
        return is_same and scene.is_before(cause.match.spots, effect.match.spots) is True
    if _is_of_one_host(cause) and _is_of_one_host(effect):
        here, there = _hosts(cause.match), _hosts(effect.match)
        if here and there and here.isdisjoint(there):
            return False
    if cause.match.strength == "hint" and effect.match.strength != "hint":
        return effect.pitfall.role == "symptom" and bool(cause.match.facts)
    return not scene.began_much_later(cause.match, effect.match)


def _is_of_one_host(candidate: _Candidate) -> bool:
    """Whether it stays on the host where it happens: no other one runs out of the same memory."""
    return candidate.pitfall.role == "root" and candidate.pitfall.group in _OF_ONE_HOST


class _Scene:
    """What of one episode happened first, whatever its hosts' clocks say."""

    def __init__(self, evidences: Sequence[Evidence], matches: Sequence[Match]) -> None:
        self.evidences = evidences
        self.clocks = Clocks(evidences)
        self._complaints: dict[tuple[int, int | None], int] = {}
        for match in matches:
            if match.pitfall.slug in _OF_LOST_PEERS:
                for place in match.places:
                    key = (place.text_index, place.hit.rank)
                    line = self._complaints.get(key, place.hit.line)
                    self._complaints[key] = min(line, place.hit.line)

    def root_order(self, candidate: _Candidate) -> tuple[object, ...]:
        """Sorts what is likelier to be the answer before what is less so."""
        match = candidate.match
        moment = self.moment(match)
        complains = self.clocks.are_several and bool(match.places)
        return (
            candidate.pitfall.is_fallback,
            candidate.pitfall.is_advisory,
            match.strength == "hint",
            candidate.pitfall.role != "root",
            complains and all(self._has_lost_a_peer(place) for place in match.places),
            moment is None,
            moment if moment is not None else 0.0,
            match.position,
            _ORDER[match.strength],
            candidate.slug,
        )

    def moment(self, match: Match) -> float | None:
        """The earliest moment that the match's lines name, on one scale."""
        moments = (self.clocks.moment(*spot) for spot in match.spots)
        return min((moment for moment in moments if moment is not None), default=None)

    def is_before(
        self, ones: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]
    ) -> bool | None:
        """Whether the earliest of the lines stands before the others'; None: nobody can tell."""
        one, other = min(ones, default=None), min(others, default=None)
        if one is None or other is None or one == other:
            return None
        shared = {text for text, _ in ones} & {text for text, _ in others}
        if shared:
            text = min(shared)
            first = min(line for at, line in ones if at == text)
            second = min(line for at, line in others if at == text)
            return first < second if first != second else None
        if not self.clocks.are_in_step(one[0], other[0]):
            return None
        moments = self.clocks.moment(*one), self.clocks.moment(*other)
        if moments[0] is None or moments[1] is None or moments[0] == moments[1]:
            return None
        return moments[0] < moments[1]

    def began_much_later(self, cause: Match, effect: Match) -> bool:
        """Whether the cause began minutes after the effect; hosts' clocks differ by seconds."""
        mine = [p for p in cause.places if p.hit.time is not None]
        others = [p for p in effect.places if p.hit.time is not None]
        if not mine or not others:
            return False
        if not self.clocks.are_in_step(mine[0].text_index, others[0].text_index):
            return False
        began, before = (
            min(self.clocks.moment(p.text_index, p.hit.line) or 0.0 for p in places)
            for places in (mine, others)
        )
        return began - before > _SECONDS_LATER

    def earliest(self, match: Match) -> Place | None:
        """The place that names the culprit: of a rank that did not complain of its peers before."""
        ranked = [p for p in match.places if p.hit.rank is not None]
        if len({p.text_index for p in match.places}) > 1:
            timed = [p for p in ranked if p.hit.time is not None]
            if places := timed or ranked:
                return min(places, key=self._place_order)
        return ranked[0] if ranked and match.first and match.first.hit.rank is None else match.first

    def _place_order(self, place: Place) -> tuple[object, ...]:
        moment = self.clocks.moment(place.text_index, place.hit.line)
        return (self._has_lost_a_peer(place), moment or 0.0, place.text_index, place.hit.line)

    def _has_lost_a_peer(self, place: Place) -> bool:
        line = self._complaints.get((place.text_index, place.hit.rank))
        return line is not None and line < place.hit.line


def _symptom_order(candidate: _Candidate) -> tuple[object, ...]:
    return (_ORDER[candidate.match.strength] // 2, candidate.match.position, candidate.slug)


def _consequences(
    candidates: Sequence[_Candidate], explained: Mapping[str, Sequence[str]]
) -> list[_Candidate]:
    told = {slug for slugs in explained.values() for slug in slugs}
    return sorted((c for c in candidates if c.slug in told), key=lambda c: c.match.position)


def _answer_first(roots: list[Diagnosis], symptoms: list[Diagnosis]) -> list[Diagnosis]:
    """Roots before symptoms, unless the only root is a mere hint or warning beside a failure."""
    strong = [d for d in roots if d.confidence != "hint"]
    hints = [d for d in roots if d.confidence == "hint"]
    return strong + (symptoms + hints if symptoms else hints)


def _diagnosis(
    candidate: _Candidate, scene: _Scene, explained: Mapping[str, Sequence[str]]
) -> Diagnosis:
    match, pitfall = candidate.match, candidate.pitfall
    rank, host = _culprit(match, scene)
    because = list(match.because)
    consequences = tuple(dict.fromkeys(explained.get(pitfall.slug, ())))
    if rank is not None and match.first is not None and len(_ranks(match)) > 1:
        because.append(f"rank {rank} was the first of {len(_ranks(match))} ranks to say so")
    if not because and match.first is not None:
        because.append(f"line {match.first.hit.line} says so")
    return Diagnosis(
        slug=pitfall.slug,
        role=pitfall.role,
        confidence=match.strength,
        sentence=pitfall.summary,
        rank=rank,
        host=host,
        because=tuple(because),
        evidence=_evidence_lines(match),
        values={k: _number(v) for k, v in match.values.items()},
        explains=consequences,
        advice=pitfall.advice,
    )


def _hosts(match: Match) -> set[str]:
    return {p.hit.host for p in match.places if p.hit.host is not None}


def _ranks(match: Match) -> set[int]:
    return {p.hit.rank for p in match.places if p.hit.rank is not None}


def _culprit(match: Match, scene: _Scene) -> tuple[int | None, str | None]:
    """The rank and host that the match points at: by its facts, its words, its first line."""
    for fact in match.facts:
        if fact.rank is not None:
            return fact.rank, fact.host
    named = match.values.get("rank")
    evidences = scene.evidences
    first = scene.earliest(match)
    host = first.hit.host if first else None
    if named is not None and named.isdecimal():
        return int(named), host
    if first is not None and first.hit.rank is not None:
        return first.hit.rank, host
    if first is not None:
        for evidence in evidences[first.text_index : first.text_index + 1]:
            for traceback in evidence.tracebacks:
                if (
                    traceback.line <= first.hit.line <= traceback.end_line + 3
                    and traceback.rank is not None
                ):
                    return traceback.rank, traceback.host or host
            for ending in evidence.exits:
                if ending.is_first and ending.rank is not None:
                    return ending.rank, ending.host or host
    if len(evidences) == 1 and len(evidences[0].ranks) == 1:
        # The one rank that the text names may be a peer that waited for the culprit.
        waited = {e.rank for e in evidences[0].collectives if e.kind == "timeout"}
        return next((r for r in evidences[0].ranks if r not in waited), None), host
    return None, host


def _evidence_lines(match: Match) -> tuple[EvidenceLine, ...]:
    lines = [
        EvidenceLine(p.hit.line, p.hit.end_line or p.hit.line, p.hit.text, p.text_index)
        for p in match.places
    ]
    lines += [line for fact in match.facts for line in fact.evidence]
    unique = {(e.text_index, e.line): e for e in lines}
    ordered = [unique[key] for key in sorted(unique)]
    return tuple(ordered[:MAX_EVIDENCE])


def _number(text: str) -> str | int | float:
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    return text


# --------------------------------------------------------------- nothing known: the exception


def _uncaught(
    catalog: Catalog, evidences: Sequence[Evidence], matches: Sequence[Match]
) -> Diagnosis | None:
    """The first uncaught exception that no entry speaks of, with its deepest own frame."""
    pitfall = catalog.get(FALLBACK)
    if pitfall is None:
        return None
    for index, evidence in enumerate(evidences):
        spoken = _spoken_lines(index, matches)
        course = Course(evidence)
        for traceback in evidence.tracebacks:
            if not _is_failure(traceback, course):
                continue
            if any(traceback.line <= line <= traceback.end_line for line in spoken):
                continue
            return _exception_diagnosis(pitfall, index, traceback)
    return None


def _spoken_lines(index: int, matches: Sequence[Match]) -> set[int]:
    return {
        place.hit.line
        for match in matches
        if match.strength != "hint" or match.pitfall.role == "symptom"
        for place in match.places
        if place.text_index == index
    }


def _is_failure(traceback: Traceback, course: Course) -> bool:
    if not traceback.exception or traceback.warning or _WRAPPERS.search(traceback.exception):
        return False
    if _OTHER_RUNTIME.match(traceback.exception):
        return False
    if not traceback.frames and traceback.exception.count(".") == 0 and not traceback.message:
        return False
    return not course.went_on(traceback.rank, traceback.end_line)


def _exception_diagnosis(pitfall: Pitfall, index: int, traceback: Traceback) -> Diagnosis:
    message = traceback.message.split("\n")[0][:300]
    what = f"{traceback.exception}: {message}" if message else traceback.exception
    because = [f"uncaught {what}"]
    values: dict[str, str | int | float] = {"exception": traceback.exception, "message": message}
    culprit = traceback.culprit
    if culprit is not None:
        where = f"{culprit.path}:{culprit.line}" if culprit.line else culprit.path
        because.append(f"raised under {culprit.function or 'the module'} at {where}")
        values |= {"path": culprit.path, "function": culprit.function}
        if culprit.line is not None:
            values["line"] = culprit.line
    line = EvidenceLine(traceback.line, traceback.end_line, what, index)
    return Diagnosis(
        slug=pitfall.slug,
        role=pitfall.role,
        confidence="strong" if traceback.frames else "hint",
        sentence=f"The program stopped with {what}",
        rank=traceback.rank,
        host=traceback.host,
        because=tuple(because),
        evidence=(line,),
        values=values,
        advice=pitfall.advice,
    )


# ------------------------------------------------------------------------------- the verdict

_TOGETHER = "python manage.py diagnose --together nccl_trace_rank_*"
_SETTLE = (
    "py-spy dump --pid PID   # on every rank, or: gdb -p PID -batch -ex 'thread apply all bt'",
    "dmesg -T | grep -iE 'xid|oom|killed process|nvrm'",
    "NCCL_DEBUG=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...   # again, keep each rank's log",
)
_SERIOUS = regex(
    r"(?:\bERROR\b|\bFATAL\b|\bCRITICAL\b|\b\w*Error\b: |\bException\b: |\bterminate called\b|"
    r"\bcore dumped\b|\bKilled\b|\baborting\b)"
)


def _verdict(
    catalog: Catalog,
    evidences: Sequence[Evidence],
    diagnoses: Sequence[Diagnosis],
) -> Verdict:
    first = diagnoses[0] if diagnoses else None
    tree = stack_tree.build(evidences)
    if first is not None and first.role == "root" and first.confidence != "hint":
        kind, sentence = "named", first.sentence
    elif first is not None or _shows_failure(evidences, tree):
        kind = "undetermined"
        sentence = _undetermined_sentence(first)
        told = (first is None and _unread(evidences)) or _recorded(evidences) or tree.sentence
        if told:
            sentence = told if first is None else f"{sentence} {told}"
    else:
        kind, sentence = "clean", _clean_sentence(evidences, tree)
    return Verdict(
        kind=kind,
        sentence=sentence,
        diagnoses=tuple(diagnoses),
        next=_next(catalog, kind, diagnoses, evidences),
        lines=sum(e.lines for e in evidences),
        bytes=sum(e.bytes for e in evidences),
        catalog=catalog.version,
        fingerprint=fingerprint(
            [first.slug] if first else [],
            [line.text for line in first.evidence[:1]] if first else _error_texts(evidences),
        ),
    )


def _unread(evidences: Sequence[Evidence]) -> str:
    """Which files were refused, and why; "" if none was."""
    refused = [e for e in evidences if e.refused]
    return " ".join(f"{e.name or 'A file'} was not read: {e.refused}." for e in refused[:3])


def _recorded(evidences: Sequence[Evidence]) -> str:
    """Where the flight recorders' dumps leave the ranks; "" without dumps."""
    dumps = [e.flight for e in evidences if e.flight is not None]
    if not dumps:
        return ""
    sentences = [m.sentence for m in flight.compare(dumps)[:3]] + flight.standing(dumps)[:6]
    if not sentences:
        return ""
    if without := flight.ranks_without_dump(dumps):
        sentences.append(flight.ask_for(without))
    elif len(dumps) == 1:
        sentences.append("only the dumps of the other ranks can tell whether they came there, too")
    return " ".join(f"{s[:1].upper()}{s[1:]}." for s in sentences)


def _clean_sentence(evidences: Sequence[Evidence], tree: StackTree) -> str:
    if not any(e.bytes for e in evidences):
        return "The text is empty."
    if all(e.encoding == "binary" for e in evidences if e.bytes):
        return "This does not read as text: there is nothing to diagnose."
    if tree.is_working:
        return f"No failure in this text: the processes were at work. {tree.sentence}"
    return "No failure in this text."


def _undetermined_sentence(first: Diagnosis | None) -> str:
    if first is None:
        return "Something failed, but this text does not show what."
    if first.role == "symptom":
        return f"{first.sentence.rstrip('.')}. What caused it is not determinable from this text."
    return f"Possibly: {first.sentence[:1].lower()}{first.sentence[1:]}"


def _shows_failure(evidences: Sequence[Evidence], tree: StackTree) -> bool:
    for evidence in evidences:
        if any(e.exit_code or e.signal for e in evidence.exits):
            return True
        course = Course(evidence)
        if any(_is_failure(t, course) or _is_cut_off(t) for t in evidence.tracebacks):
            return True
        # Of one rank's errors the last decides: a run that went on after it survived them all.
        last = {
            h.rank: h
            for h in evidence.errors
            if not h.handled and not h.warning and _SERIOUS.search(h.text)
        }
        if any(not course.went_on(h.rank, h.line, h.text) for h in last.values()):
            return True
        # Whoever dumps stacks has a reason, unless they show the job at work.
        if evidence.refused or (evidence.stacks and not tree.is_working):
            return True
        if evidence.flight is not None and flight.has_open_call(evidence.flight):
            return True
    return False


def _is_cut_off(traceback: Traceback) -> bool:
    """Whether the text ends before the exception that the frames led to."""
    return not traceback.exception and len(traceback.frames) >= 2


def _error_texts(evidences: Sequence[Evidence]) -> list[str]:
    return [h.text for evidence in evidences for h in evidence.errors[:3]]


def _next(
    catalog: Catalog, kind: str, diagnoses: Sequence[Diagnosis], evidences: Sequence[Evidence]
) -> tuple[str, ...]:
    """Commands: the first answer's own; undetermined, those of all that remain possible."""
    if kind == "clean":
        return ()
    commands: dict[str, None] = {}
    wanted = diagnoses[:1] if kind == "named" else diagnoses[:3]
    for diagnosis in wanted:
        pitfall = catalog.get(diagnosis.slug)
        for command in pitfall.confirm if pitfall else ():
            commands.setdefault(command)
    if kind == "undetermined":
        dumps = [e.flight for e in evidences if e.flight is not None]
        without = flight.ranks_without_dump(dumps)
        if without or len(dumps) == 1:
            whose = flight.names(without) if without else "all ranks"
            commands.setdefault(f"{_TOGETHER}   # with the dumps of {whose}")
        for command in _SETTLE:
            commands.setdefault(command)
    return tuple(commands)[:8]
