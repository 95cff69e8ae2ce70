"""The section "Reproduce" of an incident: the form with its numbers, the runs, the badges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from kb.catalog import Catalog, Pitfall, Proof
from kb.catalog.badges import Badges, badges_of, why_impossible
from kb.catalog.versions import fits, is_same_minor, mended_in
from triage.models import Incident, Reproduction
from triage.pages.wording import VERDICTS, Wording, duration_in_words
from triage.services import reproductions, verifications, workers
from triage.services.reproductions import Suggestion

#: Runs that the page shows; the log book has all of them.
MAX_RUNS_SHOWN = 6
_BUSY_POLL_MS = 700
_IDLE_POLL_MS = 2_500
# A refusal stands until it was read.
_READING_MS = 8_000
#: The last lines of an output on the page.
MAX_OUTPUT_LINES = 400

RUN_STATES = {
    "waiting": Wording("waiting", "no worker can run it now"),
    "queued": Wording("queued", "a worker takes it in a moment"),
    "running": Wording("running", "in its sandbox"),
    "done": Wording("done", ""),
    "failed": Wording("not run", "it could not be run"),
    "cancelled": Wording("cancelled", "it was stopped before its end"),
}
OPTION_WORDS = {
    "world-size": "Ranks",
    "num-workers": "DataLoader workers",
    "shm-mb": "Shared memory, MiB",
    "classes": "Classes",
}


@dataclass(frozen=True, slots=True)
class Field:
    """An option of the script in the form; `remark` says where its number comes from."""

    name: str
    label: str
    lowest: int
    highest: int
    value: int | None
    remark: str


@dataclass(frozen=True, slots=True)
class RunPanel:
    """One run in words; `mark` is the class of its mark, `said` what came of it."""

    row: Reproduction
    state: Wording
    mark: str
    said: str
    facts: str
    named: str
    named_pitfall: Pitfall | None
    because: str
    ending: str
    notes: Sequence[str]
    output: str
    lines_left_out: int

    @property
    def title(self) -> str:
        """Which of the two modes it is."""
        return "With the fix" if self.row.fixed else "Without the fix"


@dataclass(frozen=True, slots=True)
class ReproduceSection:
    """All that the section shows; `pitfall` is None where nothing comes near the incident."""

    incident: Incident
    pitfall: Pitfall | None
    is_answer: bool
    why_not: str
    no_worker: str
    fields: Sequence[Field]
    runs: Sequence[RunPanel]
    badges: Badges | None
    verification: str
    advice: Sequence[str]
    own_title: str
    problem: str = ""

    @property
    def is_active(self) -> bool:
        """Whether more is to come by itself, so that the page asks again."""
        return bool(self.verification) or any(run.row.is_pending for run in self.runs)

    @property
    def poll_after_ms(self) -> int:
        """Soon while something runs or is about to; what waits for a worker can wait."""
        if self.problem:
            return _READING_MS
        states = {self.verification, *(run.row.state for run in self.runs)}
        is_busy = states & {Reproduction.State.RUNNING, Reproduction.State.QUEUED}
        return _BUSY_POLL_MS if is_busy else _IDLE_POLL_MS

    @property
    def has_values(self) -> bool:
        """Whether the form starts with a number of the incident."""
        return any(field.value is not None for field in self.fields)

    @property
    def has_news_of_fix(self) -> bool:
        """Whether the badge beside the fix is to be drawn again with the runs."""
        return self.badges is not None and bool(self.runs)


def build_section(
    incident: Incident,
    catalog: Catalog,
    *,
    problem: str = "",
    known: tuple[str, Sequence[Proof]] | None = None,
) -> ReproduceSection:
    """The section of an incident that was diagnosed.

    `known` is its torch version and its answer's proofs, where the caller has read them already.
    """
    pitfall = reproductions.nearest(incident, catalog)
    diagnosis = incident.current_diagnosis
    findings = list(diagnosis.findings.all()) if diagnosis else []
    answer = catalog.get(findings[0].slug) if findings else None
    is_answer = pitfall is not None and answer is not None and pitfall.slug == answer.slug
    torch = known[0] if known else reproductions.torch_of(incident)
    proofs: Sequence[Proof] = ()
    if pitfall is not None:
        proofs = known[1] if known and is_answer else verifications.proofs_of(pitfall)
    today = timezone.now().date()
    rows = list(incident.reproductions.select_related("asked_by")[:MAX_RUNS_SHOWN])
    route = workers.route(pitfall.reproduction) if pitfall and pitfall.reproduction else None
    return ReproduceSection(
        incident=incident,
        pitfall=pitfall,
        is_answer=is_answer,
        why_not=why_impossible(answer) if answer is not None else "",
        no_worker=route.waits_for if route is not None else "",
        fields=[_field(s) for s in reproductions.suggested(incident, pitfall)] if pitfall else [],
        runs=[_panel(row, catalog) for row in rows],
        badges=badges_of(pitfall, proofs, today=today, torch=torch) if pitfall else None,
        verification=verifications.pending_state(pitfall.slug) if pitfall else "",
        advice=version_advice(pitfall, proofs, torch) if pitfall else [],
        own_title=answer.title if answer else VERDICTS.get(incident.verdict, Wording("", "")).word,
        problem=problem,
    )


def version_advice(pitfall: Pitfall, proofs: Sequence[Proof], torch: str) -> list[str]:
    """What the incident's torch version says of the pitfall, its fixes and its proof, in words."""
    if not torch:
        return []
    advice = []
    if (mended := mended_in(pitfall.versions)) and fits(pitfall.versions, torch):
        advice.append(
            f"Version first: torch {mended} mended this, and the incident had torch {torch}."
        )
    elif fits(pitfall.versions, torch) is False:
        advice.append(f"Known of {pitfall.versions}; the incident had torch {torch}.")
    advice += [
        f"The fix “{fix.title}” is for {fix.versions}; the incident had torch {torch}."
        for fix in pitfall.fixes
        if fits(fix.versions, torch) is False
    ]
    seen = sorted({proof.torch.partition("+")[0] for proof in proofs if proof.reproduced})
    if seen and not any(is_same_minor(version, torch) for version in seen):
        advice.append(
            f"The incident had torch {torch}; the failure was reproduced on torch {seen[-1]}. "
            "Messages and defaults may differ between them."
        )
    return advice


def _field(suggestion: Suggestion) -> Field:
    option, seen, value = suggestion.option, suggestion.seen, suggestion.value
    if seen is None:
        remark = "not shown by this incident"
    elif seen != value:
        remark = f"this incident had {seen}"
    else:
        remark = "as in this incident"
    return Field(
        name=option.name,
        label=OPTION_WORDS[option.name],
        lowest=option.lowest,
        highest=option.highest,
        value=value,
        remark=f"{option.lowest} to {option.highest}, {remark}",
    )


def _panel(row: Reproduction, catalog: Catalog) -> RunPanel:
    result: dict[str, Any] = row.result or {}
    lines = row.output.rstrip("\n").split("\n")
    mark, said = _outcome(row, result)
    diagnoses = result.get("diagnoses") or [{}]
    return RunPanel(
        row=row,
        state=RUN_STATES[row.state],
        mark=mark,
        said=said,
        facts=_facts(row, result),
        named=row.named,
        named_pitfall=catalog.get(row.named) if row.named else None,
        because="; ".join(diagnoses[0].get("because", [])[:2]),
        ending=result.get("ending", ""),
        notes=result.get("notes", []),
        output="\n".join(lines[-MAX_OUTPUT_LINES:]),
        lines_left_out=max(0, len(lines) - MAX_OUTPUT_LINES),
    )


def _outcome(row: Reproduction, result: dict[str, Any]) -> tuple[str, str]:
    """The mark's class and its words."""
    if row.state != Reproduction.State.DONE:
        mark = {"failed": "failed", "cancelled": "destroyed"}.get(row.state, "working")
        return mark, RUN_STATES[row.state].word
    if row.fixed:
        if result.get("ran_to_its_end") and result.get("verdict") == "clean":
            return "clean", "clean: it ran to its end"
        return "failed", "the fix did not hold"
    if row.same_failure is None:
        if row.named:
            return "named", "it failed"
        if result.get("ran_to_its_end") and result.get("verdict") == "clean":
            return "clean", "no failure"
        return "undetermined", "nothing was named"
    return ("named", "same failure") if row.same_failure else ("undetermined", "not the same")


def _facts(row: Reproduction, result: dict[str, Any]) -> str:
    words = [f"{OPTION_WORDS.get(name, name)} {value}" for name, value in row.options.items()]
    if result:
        words += [
            f"torch {str(result.get('torch', '')).partition('+')[0]}",
            str(result.get("device", "")),
            duration_in_words(result.get("seconds", 0)),
            f"{result.get('memory_mib', 0)} MiB",
        ]
    return " · ".join(word for word in words if word)
