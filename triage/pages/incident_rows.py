"""Incidents as one line each, for lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils import timezone

from kb.catalog import Catalog
from triage.models import Incident
from triage.pages.wording import CONFIDENCE, STATES, VERDICTS, age_in_words, count_in_words


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One row: `mark` is the shape and colour, `word` says the same."""

    incident: Incident
    mark: str
    word: str
    answer: str
    confidence: str
    rank: int | None
    subject: str
    owner: str
    age: str


def build_rows(found: Iterable[Incident], catalog: Catalog) -> list[IncidentRow]:
    """Rows of incidents that were loaded `with_answer()`."""
    return [_row(incident, catalog) for incident in found]


def _row(incident: Incident, catalog: Catalog) -> IncidentRow:
    diagnosis = incident.current_diagnosis
    finding = next(iter(diagnosis.findings.all()), None) if diagnosis else None
    pitfall = catalog.get(finding.slug) if finding else None
    is_diagnosed = incident.state == Incident.State.DIAGNOSED
    is_working = not incident.is_settled
    answer = ""
    if not is_working and finding is not None:
        answer = pitfall.title if pitfall else finding.slug
    return IncidentRow(
        incident=incident,
        mark="working" if is_working else (incident.verdict if is_diagnosed else incident.state),
        word=VERDICTS[incident.verdict].word if is_diagnosed else STATES[incident.state].word,
        answer=answer
        or (
            STATES[incident.state].meaning
            if not is_diagnosed
            else VERDICTS[incident.verdict].meaning
        ),
        confidence=CONFIDENCE[finding.confidence].word.lower()
        if finding is not None and answer and finding.confidence in CONFIDENCE
        else "",
        rank=finding.rank if finding is not None and answer else None,
        subject=incident.title or _texts(incident.texts_received),
        owner=incident.owner.get_username() if incident.owner else "",
        age=age_in_words((timezone.now() - incident.created_at).total_seconds()),
    )


def _texts(number: int) -> str:
    return count_in_words(number, "text") if number > 1 else ""
