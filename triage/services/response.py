"""What people do about an incident: status, owner, team, severity, job facts, notes; and undo.

Every change is one transaction that locks the incident, compares what the person saw with what is
there, writes the columns and one row of the log book. Of two people at once the second hears what
changed meanwhile, and nothing of either is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from triage.models import ApiToken, Incident, LogBookEntry, Team
from triage.services import log_book
from triage.services.secrets import new_redactor
from triage.services.storable import clean_name

Status = Incident.Status

#: Where a status may lead. Undo goes back over any of them.
NEXT: dict[str, tuple[str, ...]] = {
    Status.OPEN: (Status.INVESTIGATING, Status.MITIGATED, Status.RESOLVED),
    Status.INVESTIGATING: (Status.MITIGATED, Status.RESOLVED, Status.OPEN),
    Status.MITIGATED: (Status.RESOLVED, Status.INVESTIGATING),
    Status.RESOLVED: (Status.REOPENED,),
    Status.REOPENED: (Status.INVESTIGATING, Status.MITIGATED, Status.RESOLVED),
}
#: What a person may change, by the names of the columns.
FIELDS = (
    "status", "owner", "team", "is_shared", "severity", "title",
    "job_id", "attempt", "scheduler", "gpus", "idle_minutes",
)  # fmt: skip
_LENGTHS = {"title": 200, "job_id": 200, "scheduler": 40}
#: A note is an explanation; a log belongs among the texts.
MAX_NOTE_CHARACTERS = 10_000
_MAX_REMARK_CHARACTERS = 500


class ChangeError(Exception):
    """Nothing was changed. `problem` says why, `hint` what to do, `status` is the HTTP status."""

    def __init__(self, problem: str, *, hint: str = "", status: int = 409, code: str) -> None:
        self.problem = problem
        self.hint = hint
        self.status = status
        self.code = code
        super().__init__(f"{problem} {hint}".strip())


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """A field that somebody else changed since it was read: `value` is what it is now."""

    field: str
    value: Any
    who: str


class ConflictError(ChangeError):
    """Somebody else was faster; `changed` says with what."""

    def __init__(self, incident: Incident, changed: list[Meanwhile]) -> None:
        self.changed = changed
        said = "; ".join(
            f"{item.who or 'somebody'} set {NAMES[item.field]} to {_in_words(item)}"
            for item in changed
        )
        super().__init__(
            f"{incident.reference} changed since you opened it: {said}. Your change was not made.",
            hint="Look at it as it is now, and change it again if you still want to.",
            code="changed-meanwhile",
        )


#: The fields as sentences call them.
NAMES = {
    "status": "the status",
    "owner": "the owner",
    "team": "the team",
    "is_shared": "sharing",
    "severity": "the severity",
    "title": "the title",
    "job_id": "the job",
    "attempt": "the attempt",
    "scheduler": "the scheduler",
    "gpus": "the number of GPUs",
    "idle_minutes": "the idle time",
    "note": "the note",
}


def told(incident: Incident, field: str) -> Any:
    """A field as the log book and the forms tell it: people and teams by name, `""` for none."""
    return told_value(field, getattr(incident, field))


def change(
    incident: Incident,
    wishes: Mapping[str, Any],
    *,
    who: User | None,
    token: ApiToken | None = None,
    expected: Mapping[str, Any] | None = None,
    remark: str = "",
) -> LogBookEntry | None:
    """Sets these fields in one step; returns its row, None where all was so already.

    `expected` holds what the person saw, as `told()` tells it. Raises ConflictError if one of the
    wished fields is neither that nor what is wished by now, ChangeError for a step that the status
    does not allow, a job that another incident has, or an incident that was merged.
    """
    wishes = {
        field: clean_name(value, _LENGTHS[field]) if field in _LENGTHS else value
        for field, value in wishes.items()
    }
    with transaction.atomic():
        locked = _lock(incident)
        current = {field: told(locked, field) for field in wishes}
        wished = {field: told_value(field, value) for field, value in wishes.items()}
        _refuse_stale(
            locked,
            {f: v for f, v in (expected or {}).items() if f in wished and wished[f] != current[f]},
        )
        status = wished.get("status", locked.status)
        if status != locked.status and status not in NEXT[locked.status]:
            allowed = ", ".join(NEXT[locked.status])
            raise ChangeError(
                f"{locked.reference} is {locked.status}; it cannot become {status} from there.",
                hint=f"From {locked.status} it goes to: {allowed}.",
                status=422,
                code="step-not-allowed",
            )
        entry = _write(locked, wishes, {}, who=who, token=token, remark=remark)
    incident.refresh_from_db()
    return entry


def take(
    incident: Incident,
    who: User,
    *,
    token: ApiToken | None = None,
    expected: Mapping[str, Any] | None = None,
) -> LogBookEntry | None:
    """Makes the person its owner; what nobody worked at yet is then being investigated."""
    wishes: dict[str, Any] = {"owner": who}
    if incident.status in (Status.OPEN, Status.REOPENED):
        wishes["status"] = Status.INVESTIGATING
    return change(incident, wishes, who=who, token=token, expected=expected)


def undo(entry: LogBookEntry, who: User) -> LogBookEntry:
    """Takes back what this row of kind `changed` did; returns the row that says so.

    Raises ConflictError if a field was changed again since, ChangeError if it was undone already or
    names somebody who is no longer there.
    """
    with transaction.atomic():
        locked = _lock(entry.incident)
        if locked.log_book.filter(kind=log_book.CHANGED, data__undoes=entry.pk).exists():
            raise ChangeError("This was undone already.", code="undone-already")
        changes: dict[str, list[Any]] = entry.data["changes"]
        _refuse_stale(locked, {field: after for field, (_, after) in changes.items()})
        wishes = {field: _value_of(field, before) for field, (before, _) in changes.items()}
        more: dict[str, Any] = {"undoes": entry.pk}
        if wishes.get("status") == Status.RESOLVED:
            more["resolved_at"] = entry.data.get("was_resolved_at")
        undone = _write(locked, wishes, more, who=who)
        assert undone is not None, "what differs from `before` is changed back"
    return undone


def texts_since_resolved(incident: Incident) -> set[int]:
    """Positions of texts that a job sent after its incident was resolved; empty for others."""
    if incident.status != Status.RESOLVED or incident.resolved_at is None:
        return set()
    if not incident.job_id and not incident.merged.exclude(job_id="").exists():
        return set()
    # What a merge brought was sent to another incident; who merged it saw to the status.
    merges = incident.log_book.filter(kind=log_book.MERGED_IN).values_list("data", flat=True)
    brought = {pk for data in merges for pk, _, _ in data["texts"]}
    newer = incident.submissions.filter(created_at__gt=incident.resolved_at)
    newer = newer.exclude(pk__in=brought)
    return set(newer.values_list("position", flat=True))


def reopen(incident: Incident, positions: list[int]) -> None:
    """Reopens a resolved incident for new texts of its job that tell of a failure."""
    with transaction.atomic():
        locked = Incident.objects.select_for_update().get(pk=incident.pk)
        if locked.status == Status.RESOLVED:
            _write(locked, {"status": Status.REOPENED}, {"texts": positions}, who=None)


# ------------------------------------------------------------------------------ notes


def add_note(
    incident: Incident, text: str, *, who: User | None, token: ApiToken | None = None
) -> LogBookEntry:
    """Writes a note into the log book, secrets replaced. Raises ChangeError if it is empty or long.

    A note on a merged incident goes to the one that has its texts now.
    """
    data: dict[str, Any] = {"text": _clean_note(text)}
    if token is not None:
        data["token"] = token.name
    return log_book.write(follow(incident), log_book.NOTE, data, who=who)


def edit_note(entry: LogBookEntry, text: str, *, who: User, expected: str | None = None) -> None:
    """Gives a note other words; the former ones stay in the log book.

    Raises ConflictError if it is no longer what the person saw, ChangeError if it is not theirs.
    """
    with transaction.atomic():
        was = _own_note(entry, who, expected)
        cleaned = _clean_note(text)
        if cleaned != was:
            data = {"note": entry.pk, "text": cleaned, "was": was}
            log_book.write(entry.incident, log_book.NOTE_EDITED, data, who=who)


def remove_note(entry: LogBookEntry, *, who: User) -> None:
    """Takes a note out of the story; editing it brings it back."""
    with transaction.atomic():
        was = _own_note(entry, who, None)
        if was:
            data = {"note": entry.pk, "was": was}
            log_book.write(entry.incident, log_book.NOTE_REMOVED, data, who=who)


def note_text(entry: LogBookEntry) -> str:
    """What a note says now; empty once it was removed."""
    last = _edits(entry).last()
    return str((last or entry).data.get("text", ""))


def restore_note(entry: LogBookEntry, *, who: User) -> None:
    """Undoes the last edit or the removal of a note."""
    last = _edits(entry).last()
    if last is None:
        raise ChangeError("This note was never changed.", code="nothing-to-undo")
    edit_note(entry, last.data["was"], who=who)


def follow(incident: Incident) -> Incident:
    """Where its texts are now: the incident itself unless it was merged."""
    while incident.merged_into is not None:
        incident = incident.merged_into
    return incident


# ------------------------------------------------------------------------------ parts of the above


def _lock(incident: Incident) -> Incident:
    locked = Incident.objects.select_for_update().get(pk=incident.pk)
    refuse_merged(locked)
    return locked


def refuse_merged(incident: Incident) -> None:
    """Raises ChangeError for an incident that is but a pointer."""
    if incident.merged_into_id is not None:
        raise ChangeError(
            f"{incident.reference} was merged into INC-{incident.merged_into_id}.",
            hint="Change that one, or undo the merge first.",
            code="merged",
        )


def _refuse_stale(incident: Incident, expected: Mapping[str, Any]) -> None:
    stale = [field for field, value in expected.items() if told(incident, field) != value]
    if not stale:
        return
    rows = list(
        incident.log_book.filter(kind=log_book.CHANGED).select_related("who").order_by("-pk")[:50]
    )
    changed = []
    for field in stale:
        row = next((row for row in rows if field in row.data["changes"]), None)
        who = row.who.get_username() if row is not None and row.who else ""
        changed.append(Meanwhile(field, told(incident, field), who))
    raise ConflictError(incident, changed)


def _write(
    locked: Incident,
    wishes: Mapping[str, Any],
    more: dict[str, Any],
    *,
    who: User | None,
    token: ApiToken | None = None,
    remark: str = "",
) -> LogBookEntry | None:
    changes: dict[str, list[Any]] = {}
    for field, value in wishes.items():
        before = told(locked, field)
        was_resolved_at = locked.resolved_at
        setattr(locked, field, value)
        after = told(locked, field)
        if after == before:
            continue
        changes[field] = [before, after]
        if field == "status":
            _keep_times(locked, before, after, more)
            if before == Status.RESOLVED and was_resolved_at is not None:
                more["was_resolved_at"] = was_resolved_at.isoformat()
    if not changes:
        return None
    try:
        with transaction.atomic():
            locked.save(update_fields=[*changes, "resolved_at", "reopened_count", "updated_at"])
    except IntegrityError:
        other = Incident.objects.get(job_id=locked.job_id, attempt=locked.attempt)
        raise ChangeError(
            f"{other.reference} is attempt {other.attempt} of job {other.job_id} already.",
            hint=f"If it is the same failure, merge {locked.reference} into {other.reference}.",
            code="job-taken",
        ) from None
    data: dict[str, Any] = {"changes": changes, **more}
    if remark.strip():
        data["remark"] = _redacted(remark.strip()[:_MAX_REMARK_CHARACTERS])
    if token is not None:
        data["token"] = token.name
    return log_book.write(locked, log_book.CHANGED, data, who=who)


def _keep_times(locked: Incident, before: str, after: str, more: dict[str, Any]) -> None:
    if after == Status.RESOLVED:
        kept = more.pop("resolved_at", None)
        locked.resolved_at = (kept and parse_datetime(kept)) or timezone.now()
        if "undoes" in more and before == Status.REOPENED:
            locked.reopened_count = max(0, locked.reopened_count - 1)
    else:
        locked.resolved_at = None
    if after == Status.REOPENED and "undoes" not in more:
        locked.reopened_count += 1


def told_value(field: str, value: Any) -> Any:
    """A column's value as `told()` tells it."""
    if field == "owner":
        return value.get_username() if value else ""
    if field == "team":
        return value.name if value else ""
    return value


def _value_of(field: str, value: Any) -> Any:
    """The column's value of what the log book tells."""
    if field not in ("owner", "team") or not value:
        return None if field in ("owner", "team") else value
    found = (
        User.objects.filter(username=value, is_active=True).first()
        if field == "owner"
        else Team.objects.filter(name=value).first()
    )
    if found is None:
        raise ChangeError(f"There is no {value} any more.", code="gone")
    return found


def _in_words(item: Meanwhile) -> str:
    if item.field in ("owner", "team") and not item.value:
        return "nobody"
    if isinstance(item.value, bool):
        return "on" if item.value else "off"
    return "nothing" if item.value in ("", None) else str(item.value)


def _own_note(entry: LogBookEntry, who: User, expected: str | None) -> str:
    # The incident's lock: of two edits at once the second sees the first.
    Incident.objects.select_for_update().get(pk=entry.incident_id)
    if entry.kind != log_book.NOTE or entry.who_id != who.pk:
        raise ChangeError(
            "Only who wrote a note changes it.", hint="Write another one.", status=403,
            code="not-yours",
        )  # fmt: skip
    was = note_text(entry)
    if expected is not None and expected != was:
        raise ConflictError(entry.incident, [Meanwhile("note", was, who.get_username())])
    return was


def _edits(entry: LogBookEntry) -> Any:
    return LogBookEntry.objects.filter(
        incident_id=entry.incident_id,
        kind__in=(log_book.NOTE_EDITED, log_book.NOTE_REMOVED),
        data__note=entry.pk,
    ).order_by("pk")


def _clean_note(text: str) -> str:
    cleaned = text.replace("\r\n", "\n").replace("\0", "").strip()
    if not cleaned:
        raise ChangeError("There is nothing in this note.", status=422, code="empty-note")
    if len(cleaned) > MAX_NOTE_CHARACTERS:
        raise ChangeError(
            f"A note has room for {MAX_NOTE_CHARACTERS:,} characters; this one has "
            f"{len(cleaned):,}.",
            hint="Add a log as a text of the incident: it is read, and its lines have links.",
            status=422,
            code="note-too-long",
        )
    return _redacted(cleaned)


def _redacted(text: str) -> str:
    redactor = new_redactor()
    pieces = [*redactor.feed(text.encode("utf-8", "replace")), *redactor.finish()]
    return b"".join(pieces).decode("utf-8", "replace")
