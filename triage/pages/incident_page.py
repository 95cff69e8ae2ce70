"""An incident as its page tells it: rows of the database and the catalog's words, put together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from kb.catalog import Catalog, Pitfall, Proof
from kb.catalog.badges import Badges, badges_of
from triage.models import Diagnosis, Finding, Incident, Submission
from triage.pages.charts import Chart, build_charts
from triage.pages.highlighting import highlight_lines
from triage.pages.log_window import Span
from triage.pages.stack_section import StackSection, build_stacks
from triage.pages.wording import (
    ADVICE,
    CONFIDENCE,
    STATES,
    VERDICTS,
    Wording,
    count_in_words,
    duration_in_words,
    size_in_words,
)
from triage.services.reproductions import torch_of
from triage.services.verifications import proofs_of

#: Evidence lines listed for one finding; the log shows the rest.
MAX_EVIDENCE_SHOWN = 6
#: Rows of the table of texts.
MAX_TEXTS_LISTED = 40
#: Remarks of the scan that are shown.
MAX_NOTES = 12
#: What the page tells of a scan, read out of the evidence without loading the rest.
_READ_FACTS = (
    "evidence__ranks",
    "evidence__first_time",
    "evidence__last_time",
    "evidence__notes",
)
#: Lines of one excerpt.
MAX_EXCERPT_LINES = 12
#: What begins with a capitalised word is a sentence; anything else is a command to copy.
_SENTENCE = re.compile(r"[A-Z][a-z]+[ ,]|An? ")


@dataclass(frozen=True, slots=True)
class EvidenceLink:
    """A line that a finding rests on, with the address that shows it in its place."""

    span: Span
    where: str
    address: str
    html: SafeString


@dataclass(frozen=True, slots=True)
class FindingCard:
    """One finding in words; `pitfall` is None where the catalog no longer has the entry."""

    slug: str
    title: str
    pitfall: Pitfall | None
    role: str
    confidence: Wording
    rank: int | None
    because: Sequence[str]
    evidence: Sequence[EvidenceLink]
    more_evidence: int
    advice_key: str
    advice: Wording


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do next: a command that can be copied, or a sentence."""

    text: str
    is_command: bool


@dataclass(frozen=True, slots=True)
class TextRow:
    """One text in the table of texts."""

    position: int
    label: str
    name: str
    line_count: str
    size: str
    error: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the scan is."""

    read_bytes: int
    total_bytes: int
    findings: int
    texts_read: int
    texts: int

    @property
    def in_words(self) -> str:
        """`12.1 MB of 80 MB read`, with texts where there are several."""
        words = f"{size_in_words(self.read_bytes)} of {size_in_words(self.total_bytes)} read"
        return f"{words}, {self.texts_read} of {self.texts} texts" if self.texts > 1 else words


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """Everything that the incident's templates show."""

    incident: Incident
    submissions: Sequence[Submission]
    diagnosis: Diagnosis | None
    kind: str
    heading: str
    lead: str
    state: Wording
    progress: Progress
    answer: FindingCard | None = None
    consequences: Sequence[FindingCard] = ()
    others: Sequence[FindingCard] = ()
    explained: Sequence[Pitfall] = ()
    steps: Sequence[Step] = ()
    reading: Sequence[str] = ()
    notes: Sequence[str] = ()
    evidence: Sequence[Span] = field(default_factory=tuple)
    stacks: StackSection | None = None
    charts: Sequence[Chart] = ()
    charts_left_out: int = 0
    torch: str = ""
    proofs: Sequence[Proof] = ()
    badges: Badges | None = None

    @property
    def is_working(self) -> bool:
        """Whether a worker still owes this page something."""
        return self.kind == "working"

    @property
    def poll_after_ms(self) -> int:
        """When the page asks again: soon at first, calmly when it takes long."""
        age = timezone.now() - self.incident.updated_at
        return 200 if age < timedelta(seconds=10) else 1_500

    @property
    def is_over_budget(self) -> bool:
        """Whether a worker has been silent for so long that the reader should hear of it."""
        return self.is_working and timezone.now() - self.incident.updated_at > timedelta(minutes=1)

    @property
    def title(self) -> str:
        """The incident's name, where it says more than the job's id."""
        title: str = self.incident.title
        return "" if title == self.incident.job_id else title

    @property
    def job_in_words(self) -> str:
        """`attempt 2 · 8 GPUs × 11 h 52 min idle · slurm`; empty without a job."""
        incident = self.incident
        words = []
        if incident.job_id:
            words.append(f"job {incident.job_id}")
        if incident.attempt:
            words.append(f"attempt {incident.attempt}")
        idle = incident.idle_minutes
        idle_words = "" if idle is None else f"{duration_in_words(idle * 60)} idle"
        gpu_words = count_in_words(incident.gpus, "GPU") if incident.gpus else ""
        if gpu_words or idle_words:
            words.append(" × ".join(filter(None, [gpu_words, idle_words])))
        if incident.scheduler:
            words.append(incident.scheduler)
        return " · ".join(words)

    @property
    def size_in_words(self) -> str:
        """`8 texts · 4,127 lines · 1.2 MB`."""
        words = [
            count_in_words(sum(s.line_count for s in self.submissions), "line"),
            size_in_words(sum(s.size_bytes for s in self.submissions)),
        ]
        if len(self.submissions) > 1:
            words.insert(0, count_in_words(len(self.submissions), "text"))
        return " · ".join(words)

    @property
    def secrets_replaced(self) -> int:
        """Secrets that were replaced in its texts before they were stored."""
        return sum(submission.secrets_replaced for submission in self.submissions)

    @property
    def failed_texts(self) -> Sequence[Submission]:
        """Texts that could not be read."""
        return [s for s in self.submissions if s.state == Submission.State.FAILED]

    @property
    def listed_texts(self) -> list[TextRow]:
        """The first texts, for a table."""
        return [
            TextRow(
                s.position,
                s.label,
                s.name,
                f"{s.line_count:,}",
                size_in_words(s.size_bytes),
                s.error,
            )
            for s in self.submissions[:MAX_TEXTS_LISTED]
        ]

    @property
    def unlisted_texts(self) -> int:
        """How many the table leaves out."""
        return max(0, len(self.submissions) - MAX_TEXTS_LISTED)

    @property
    def can_split(self) -> bool:
        """Whether there are texts enough that some can go and some stay."""
        kept = [s for s in self.submissions if s.state != Submission.State.DESTROYED]
        return len(kept) > 1

    @property
    def has_texts(self) -> bool:
        """Whether any text is still kept."""
        return any(submission.stored_at for submission in self.submissions)


def build_page(incident: Incident, catalog: Catalog) -> IncidentPage:
    """The page of an incident, at whatever point of its life it is."""
    submissions = list(incident.submissions.light())
    read = list(
        incident.submissions.filter(state=Submission.State.SCANNED)
        .order_by("position")
        .values("position", *_READ_FACTS)[:MAX_TEXTS_LISTED]
    )
    diagnosis = incident.current_diagnosis
    findings = list(diagnosis.findings.all()) if diagnosis else []
    writer = _CardWriter(incident, submissions, diagnosis, catalog)
    cards = [writer.card(finding) for finding in findings]
    answer = cards[0] if cards else None
    explained = set(findings[0].explains) if findings else set()
    consequences = [card for card in cards[1:] if card.slug in explained]
    named = {card.slug for card in cards}
    kind = _kind(incident)
    heading, lead = _split_sentence(_heading(kind, incident, diagnosis, answer))
    tree, series = _exhibits(diagnosis)
    pitfall = answer.pitfall if answer is not None else None
    torch = torch_of(incident)
    proofs = proofs_of(pitfall) if pitfall is not None else ()
    charts, charts_left_out = build_charts(series, writer.link)
    return IncidentPage(
        incident=incident,
        submissions=submissions,
        diagnosis=diagnosis,
        kind=kind,
        heading=heading,
        lead=lead,
        state=STATES[incident.state],
        progress=_progress(submissions),
        answer=answer,
        consequences=consequences,
        others=[card for card in cards[1:] if card.slug not in explained],
        explained=[p for slug in sorted(explained - named) if (p := catalog.get(slug))],
        steps=_steps(diagnosis, answer),
        reading=_reading(incident, submissions, diagnosis, read),
        notes=[
            f"T{row['position']}: {note}" if len(submissions) > 1 else str(note)
            for row in read
            for note in row["evidence__notes"] or ()
        ][:MAX_NOTES],
        evidence=[link.span for card in cards for link in card.evidence]
        + [span for finding in findings for span in writer.spans(finding)],
        stacks=build_stacks(tree, writer.link, said=diagnosis.sentence if diagnosis else ""),
        charts=charts,
        charts_left_out=charts_left_out,
        torch=torch,
        proofs=proofs,
        badges=badges_of(pitfall, proofs, today=timezone.now().date(), torch=torch)
        if pitfall is not None
        else None,
    )


class _CardWriter:
    def __init__(
        self,
        incident: Incident,
        submissions: Sequence[Submission],
        diagnosis: Diagnosis | None,
        catalog: Catalog,
    ) -> None:
        self.incident = incident
        self.submissions = submissions
        self.catalog = catalog
        self.positions = list(diagnosis.texts) if diagnosis else []

    def spans(self, finding: Finding) -> list[Span]:
        """Where the finding's evidence stands, in the finding's order."""
        return [
            Span(
                position=self._position(item.get("text_index", 0)),
                line=item["line"],
                end_line=item.get("end_line") or item["line"],
                # Red is for the answer's own lines; all else is what came of it or beside it.
                role=finding.role if finding.position == 0 else "symptom",
            )
            for item in finding.evidence
        ]

    def card(self, finding: Finding) -> FindingCard:
        pitfall = self.catalog.get(finding.slug)
        spans = self.spans(finding)
        shown = list(zip(spans, finding.evidence, strict=True))[:MAX_EVIDENCE_SHOWN]
        return FindingCard(
            slug=finding.slug,
            title=pitfall.title if pitfall else finding.slug.replace("-", " ").capitalize(),
            pitfall=pitfall,
            role=finding.role,
            confidence=CONFIDENCE.get(finding.confidence, Wording(finding.confidence, "")),
            rank=finding.rank,
            because=finding.because,
            evidence=[self._link(span, item.get("text", "")) for span, item in shown],
            more_evidence=len(spans) - len(shown),
            advice_key=finding.advice,
            advice=ADVICE.get(finding.advice, Wording(finding.advice, "")),
        )

    def _position(self, text_index: int) -> int:
        if text_index < len(self.positions):
            return int(self.positions[text_index])
        return text_index + 1

    def link(self, text_index: int, line: int) -> tuple[str, str]:
        """(words, address) of a line of the text that the diagnosis counts as `text_index`."""
        position = self._position(text_index)
        return self._where(position, line), line_address(self.incident, position, line)

    def _where(self, position: int, line: int) -> str:
        where = f"line {line:,}".replace(",", "\u2009") if line > 99_999 else f"line {line}"
        return f"T{position} {where}" if len(self.submissions) > 1 else where

    def _link(self, span: Span, text: str) -> EvidenceLink:
        lines = highlight_lines(text.split("\n")[:MAX_EXCERPT_LINES])
        return EvidenceLink(
            span=span,
            where=self._where(span.position, span.line),
            address=line_address(self.incident, span.position, span.line),
            html=format_html_join("\n", "{}", ((line,) for line in lines)),
        )


def _exhibits(diagnosis: Diagnosis | None) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The stored stack tree and series; lists of incidents load the diagnosis without them."""
    if diagnosis is None:
        return None, []
    return Diagnosis.objects.values_list("stack_tree", "series").get(pk=diagnosis.pk)


def line_address(incident: Incident, position: int, line: int) -> str:
    """The link to one line: the query serves readers without scripts, the anchor everyone."""
    page = reverse("triage:incident", args=[incident.reference])
    return f"{page}?text={position}&line={line}#T{position}-L{line}"


def _kind(incident: Incident) -> str:
    """Which of the page's faces to show: working, failed, destroyed, or the verdict."""
    if incident.state == Incident.State.DESTROYED:
        return incident.verdict or "destroyed"
    if incident.state == Incident.State.FAILED:
        return "failed"
    return incident.verdict if incident.state == Incident.State.DIAGNOSED else "working"


def _heading(
    kind: str, incident: Incident, diagnosis: Diagnosis | None, answer: FindingCard | None
) -> str:
    if kind == "working":
        return STATES[incident.state].meaning
    if kind in ("failed", "destroyed"):
        return STATES[kind].meaning
    if diagnosis is not None and diagnosis.sentence:
        return diagnosis.sentence
    if answer is not None and answer.pitfall is not None and kind == "named":
        return answer.pitfall.summary
    return VERDICTS[kind].meaning


def _split_sentence(text: str) -> tuple[str, str]:
    """The first sentence, which is the heading, and the rest."""
    first, stop, rest = text.partition(". ")
    return (first + ".", rest) if stop else (text, "")


def _progress(submissions: Sequence[Submission]) -> Progress:
    return Progress(
        read_bytes=sum(
            s.size_bytes
            if s.state == Submission.State.SCANNED
            else min(s.bytes_scanned, s.size_bytes)
            for s in submissions
        ),
        total_bytes=sum(s.size_bytes for s in submissions),
        findings=sum(s.findings_so_far for s in submissions),
        texts_read=sum(not s.is_pending for s in submissions),
        texts=len(submissions),
    )


def _steps(diagnosis: Diagnosis | None, answer: FindingCard | None) -> list[Step]:
    texts = list(diagnosis.next) if diagnosis else []
    if not texts and answer is not None and answer.pitfall is not None:
        texts = list(answer.pitfall.confirm)
    return [Step(text, _SENTENCE.match(text) is None) for text in dict.fromkeys(texts)]


def _reading(
    incident: Incident,
    submissions: Sequence[Submission],
    diagnosis: Diagnosis | None,
    read: Sequence[dict[str, Any]],
) -> list[str]:
    """What was read, in words: texts, lines, size, ranks, the time it tells of, and how long."""
    lines = sum(s.line_count for s in submissions)
    size_bytes = sum(s.size_bytes for s in submissions)
    words = [count_in_words(lines, "line"), size_in_words(size_bytes)]
    if len(submissions) > 1:
        words.insert(0, count_in_words(len(submissions), "text"))
    ranks = {rank for row in read for rank in row["evidence__ranks"] or ()}
    if ranks:
        words.append(f"rank {min(ranks)}" if len(ranks) == 1 else f"{len(ranks)} ranks")
    starts = [row["evidence__first_time"] for row in read]
    ends = [row["evidence__last_time"] for row in read]
    if len(starts) == 1 and starts[0] is not None and ends[0] is not None and ends[0] > starts[0]:
        words.append(f"{duration_in_words(ends[0] - starts[0])} of the run")
    if diagnosis is not None:
        taken = _between(incident.created_at, diagnosis.created_at)
        words.append(f"diagnosed {duration_in_words(taken)} after it came in")
    return words


def _between(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())
