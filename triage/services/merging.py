"""Two incidents that are one, and one that is two: merge, split, and back.

Texts move with their rows; where they went stands in the log book of both, so that old links to
their lines find them and a merge can be undone. Both incidents are diagnosed again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Min

from triage.models import ApiToken, Incident, LogBookEntry, Submission, TimeEntry
from triage.services import leases, log_book, queue
from triage.services.response import ChangeError, refuse_merged

_DESTROYED = Submission.State.DESTROYED
_MOVES = (log_book.MERGED, log_book.SPLIT)
_LINKS = (*_MOVES, log_book.MERGED_IN, log_book.SPLIT_FROM)


def merge(
    source: Incident, target: Incident, *, who: User | None, token: ApiToken | None = None
) -> LogBookEntry:
    """Moves texts and times of `source` to `target`; returns the row in the target's log book.

    `source` stays as a pointer. A text that the target has already stays where it is. Raises
    ChangeError if they are one, if either was merged before, or for too many texts.
    """
    with transaction.atomic():
        source, target = _lock_pair(source, target)
        if source == target:
            raise ChangeError(
                f"{source.reference} cannot be merged into itself.", status=422, code="same"
            )
        refuse_merged(source)
        refuse_merged(target)
        known = set(target.submissions.exclude(sha256="").values_list("sha256", flat=True))
        kept = source.submissions.exclude(state=_DESTROYED).light()
        moving = [text for text in kept if text.sha256 not in known]
        if target.texts_received + len(moving) > settings.PITSTOP_MAX_TEXTS:
            raise ChangeError(
                f"An incident holds at most {settings.PITSTOP_MAX_TEXTS:,} texts.",
                status=422,
                code="too-many-texts",
            )
        moved = _move(moving, target)
        times = list(source.time_entries.values_list("pk", flat=True))
        TimeEntry.objects.filter(pk__in=times).update(incident=target)
        source.merged_into = target
        _rest(source)
        _read_again(target)
        data = {"texts": moved, "times": times, "token": token.name if token else ""}
        log_book.write(source, log_book.MERGED, {"into": target.reference, **data}, who=who)
        return log_book.write(
            target,
            log_book.MERGED_IN,
            {"from": source.reference, "duplicates": len(kept) - len(moving), **data},
            who=who,
        )


def unmerge(source: Incident, *, who: User | None) -> None:
    """Undoes the merge of `source`: what moved and is still there moves back to its old numbers.

    Raises ChangeError if it is not merged, or its target was merged itself since.
    """
    if source.merged_into is None:
        raise ChangeError(f"{source.reference} is not merged.", code="not-merged")
    with transaction.atomic():
        source, target = _lock_pair(source, source.merged_into)
        if source.merged_into_id != target.pk:
            raise ChangeError(f"{source.reference} is not merged any more.", code="not-merged")
        if target.merged_into_id is not None:
            raise ChangeError(
                f"{target.reference} was merged into INC-{target.merged_into_id} since.",
                hint="Undo that merge first.",
                code="merged",
            )
        row = source.log_book.filter(kind=log_book.MERGED).order_by("-pk")[0]
        places = {pk: before for pk, before, _ in row.data["texts"]}
        texts = list(target.submissions.filter(pk__in=places).light())
        moved = [[text.pk, text.position, places[text.pk]] for text in texts]
        for text in texts:
            text.incident, text.position = source, places[text.pk]
        Submission.objects.bulk_update(texts, ["incident", "position"])
        TimeEntry.objects.filter(pk__in=row.data["times"], incident=target).update(incident=source)
        source.merged_into = None
        source.error = ""
        _read_again(source)
        _read_again(target)
        for incident, other in ((source, target), (target, source)):
            log_book.write(
                incident,
                log_book.UNMERGED,
                {"source": source.reference, "other": other.reference, "texts": moved},
                who=who,
            )


def split(
    incident: Incident,
    positions: Collection[int],
    *,
    who: User | None,
    token: ApiToken | None = None,
) -> Incident:
    """Moves these texts to a new incident, which is returned.

    It is of the same team, and of no job: the job's further texts join the old one. Raises
    ChangeError if none of the texts is there, or none would stay.
    """
    with transaction.atomic():
        list(incident.submissions.select_for_update().values_list("pk", flat=True))
        incident = Incident.objects.select_for_update().get(pk=incident.pk)
        refuse_merged(incident)
        kept = list(incident.submissions.exclude(state=_DESTROYED).light())
        chosen = [text for text in kept if text.position in positions]
        if not chosen:
            raise ChangeError(
                "No text was chosen.", hint="Choose those of the other failure.", status=422,
                code="no-text",
            )  # fmt: skip
        if len(chosen) == len(kept):
            raise ChangeError(
                "All texts were chosen; at least one stays.", status=422, code="all-texts"
            )
        new = Incident.objects.create(
            title=chosen[0].name or incident.title,
            scheduler=incident.scheduler,
            gpus=incident.gpus,
            job=incident.job,
            created_by=incident.created_by,
            team=incident.team,
            is_shared=incident.is_shared,
            severity=incident.severity,
            is_demo=incident.is_demo,
            diagnosed_at=incident.diagnosed_at,
        )
        moved = _move(chosen, new)
        # It failed when its texts came in, not when somebody saw that it was another failure.
        came_in = new.submissions.aggregate(first=Min("created_at"))["first"]
        Incident.objects.filter(pk=new.pk).update(created_at=came_in)
        new.refresh_from_db()
        incident.intake_key = None
        _read_again(incident)
        _read_again(new)
        data = {"texts": moved, "token": token.name if token else ""}
        log_book.write(incident, log_book.SPLIT, {"into": new.reference, **data}, who=who)
        log_book.write(new, log_book.SPLIT_FROM, {"from": incident.reference, **data}, who=who)
    return new


def moved_to(incident: Incident, position: int) -> tuple[Incident, int] | None:
    """Where text `position` of this incident is now, if a merge or a split moved it elsewhere."""
    rows = incident.log_book.filter(kind__in=_MOVES).order_by("-pk")
    for row in rows:
        for pk, before, _ in row.data["texts"]:
            if before == position:
                text = Submission.objects.light().select_related("incident").filter(pk=pk).first()
                if text is not None and text.incident_id != incident.pk:
                    return text.incident, text.position
    return None


def forget_quotes(incident: Incident) -> None:
    """Deletes what diagnoses of other incidents quote of texts that this one has by merge or split.

    Call it in the transaction that destroys the texts. What another incident is diagnosed with now
    was read after the texts had gone, and stays; an incident that is but a pointer keeps nothing.
    """
    for other in _relatives(incident):
        is_read_since = (
            other.merged_into_id is None and other.diagnosed_revision == other.evidence_revision
        )
        quotes = other.diagnoses.all()
        if is_read_since and other.current_diagnosis_id is not None:
            quotes = quotes.exclude(pk=other.current_diagnosis_id)
        quotes.delete()
        if not is_read_since:
            Incident.objects.filter(pk=other.pk).update(
                current_diagnosis=None, verdict="", slug="", fingerprint=""
            )
        if other.merged_into_id is not None:
            Incident.objects.filter(pk=other.pk).update(state=Incident.State.DESTROYED)


def _relatives(incident: Incident) -> list[Incident]:
    """All incidents with which this one ever shared texts, over however many merges and splits."""
    found: set[int] = {incident.pk}
    waiting: list[int] = [incident.pk]
    while waiting:
        rows = LogBookEntry.objects.filter(incident_id=waiting.pop(), kind__in=_LINKS)
        for data in rows.values_list("data", flat=True):
            number = Incident.number_of(data.get("into") or data.get("from") or "")
            if number is not None and number not in found:
                found.add(number)
                waiting.append(number)
    return list(Incident.objects.filter(pk__in=found).exclude(pk=incident.pk))


def _lock_pair(source: Incident, target: Incident) -> tuple[Incident, Incident]:
    """Both rows locked. Texts come first, then incidents by number: the order in which a scan
    stores its result, so that neither waits for the other in a circle."""
    pks = [source.pk, target.pk]
    texts = Submission.objects.select_for_update().filter(incident_id__in=pks).order_by("pk")
    list(texts.values_list("pk", flat=True))
    rows = {
        row.pk: row
        for row in Incident.objects.select_for_update().filter(pk__in=pks).order_by("pk")
    }
    return rows[source.pk], rows[target.pk]


def _move(texts: Sequence[Submission], target: Incident) -> list[list[int]]:
    """Puts the texts behind those of the target; returns [primary key, old, new position] each."""
    moved = []
    for position, text in enumerate(texts, start=target.texts_received + 1):
        moved.append([text.pk, text.position, position])
        text.incident, text.position = target, position
    Submission.objects.bulk_update(texts, ["incident", "position"])
    target.texts_received += len(texts)
    return moved


def _read_again(incident: Incident) -> None:
    """Owes the incident a diagnosis of the texts that it has now, and stores it."""
    incident.evidence_revision += 1
    incident.diagnosis_attempts = 0
    for column, value in leases.FREE.items():
        setattr(incident, column, value)
    texts = incident.submissions.exclude(state=_DESTROYED)
    if not texts.exists():
        incident.diagnosed_revision = incident.evidence_revision
    elif texts.pending().exists():
        incident.state = Incident.State.SCANNING
    else:
        incident.state = Incident.State.DIAGNOSING
        queue.enqueue(queue.DIAGNOSE_INCIDENT, incident.pk)
    incident.save()


def _rest(incident: Incident) -> None:
    """Owes a merged incident nothing more, and stores it; its last diagnosis stays."""
    for column, value in leases.FREE.items():
        setattr(incident, column, value)
    incident.diagnosed_revision = incident.evidence_revision
    if not incident.is_settled:
        incident.state = (
            Incident.State.DIAGNOSED if incident.current_diagnosis_id else Incident.State.FAILED
        )
        if incident.current_diagnosis_id is None:
            incident.error = f"It was merged into INC-{incident.merged_into_id} before it was read."
    incident.save()
