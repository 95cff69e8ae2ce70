"""What people do about an incident, by the API: change, note, merge, split, judge, undo."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest
from ninja import Router, Schema
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field

from triage.api import answers, schemas
from triage.api.access import person_of, token_of, visible
from triage.api.auth import TokenAuth
from triage.api.problems import Problem
from triage.models import Feedback, Incident, LogBookEntry, Team
from triage.services import feedback, merging, response

router = Router()

_LARGEST_INTEGER = 2**31 - 1
#: Ten years: more is a mistyped number.
_MOST_IDLE_MINUTES = 10 * 366 * 24 * 60


class ChangeIn(BaseModel):
    """What to change; keys that are left out stay as they are.

    `expected` holds values as they were read: if one of them is another by now, nothing is changed
    and the answer (409) says what changed and by whom.
    """

    model_config = ConfigDict(extra="forbid")

    status: Incident.Status | None = None
    owner: str | None = Field(None, max_length=150, description="A user name, `me`, or `` for none")
    team: str | None = Field(None, max_length=80, description="A team's slug, or `` for none")
    is_shared: bool | None = None
    severity: Incident.Severity | None = None
    title: str | None = Field(None, max_length=200)
    job_id: str | None = Field(None, max_length=200)
    attempt: int | None = Field(None, ge=0, le=_LARGEST_INTEGER)
    scheduler: str | None = Field(None, max_length=40)
    gpus: int | None = Field(None, ge=0, le=_LARGEST_INTEGER)
    idle_minutes: int | None = Field(
        None, ge=0, le=_MOST_IDLE_MINUTES, description="How long its GPUs stood idle."
    )
    remark: str = Field("", max_length=500, description="Why; kept in the log book.")
    expected: dict[str, Any] = {}


class NoteIn(BaseModel):
    """A note. `expected`: the text as it was read, when an older one is changed."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=response.MAX_NOTE_CHARACTERS)
    expected: str | None = None


class NoteOut(Schema):
    """A note of the log book, as it stands."""

    id: int
    text: str


class MergeIn(BaseModel):
    """The incident that takes the texts."""

    model_config = ConfigDict(extra="forbid")

    into: str = Field(max_length=30, description="Such as INC-7.")


class SplitIn(BaseModel):
    """The numbers of the texts that go to a new incident."""

    model_config = ConfigDict(extra="forbid")

    texts: list[int] = Field(min_length=1, max_length=4096)


class OpinionIn(BaseModel):
    """Whether the answer is right, or, with `fix`, whether that fix worked."""

    model_config = ConfigDict(extra="forbid")

    good: bool
    fix: str = Field("", max_length=200, description="A fix's title; empty: the answer itself.")
    slug: str = Field("", max_length=100, description="The fix's entry, if not the answer's.")
    instead: str = Field("", max_length=100, description="The pitfall that it was, if wrong.")
    note: str = Field("", max_length=500)


class OpinionOut(Schema):
    """What a person said."""

    person: str
    slug: str
    fix: str
    good: bool
    instead: str
    note: str
    at: datetime


def change(request: HttpRequest, reference: str, wanted: ChangeIn) -> dict[str, Any]:
    """The incident after the change. Its endpoint stands beside the one that reads: one address."""
    incident = visible(request, reference)
    token = token_of(request)
    given = wanted.model_fields_set & set(response.FIELDS)
    wishes = {name: _value(request, name, getattr(wanted, name)) for name in given}
    response.change(
        incident,
        wishes,
        who=token.owner,
        token=token,
        expected=_expected(wanted.expected),
        remark=wanted.remark,
    )
    # It may be of a team by now whose incidents this token does not see.
    changed = Incident.objects.with_answer().get(pk=incident.pk)
    return answers.whole(request, changed)


@router.post(
    "/incidents/{reference}/notes",
    auth=TokenAuth("write"),
    response={201: NoteOut},
    summary="Write a note",
)
def add_note(request: HttpRequest, reference: str, note: NoteIn) -> Status[dict[str, Any]]:
    """Adds a note to the log book; secrets in it are replaced."""
    token = token_of(request)
    entry = response.add_note(visible(request, reference), note.text, who=token.owner, token=token)
    return Status(201, _note(entry))


@router.patch(
    "/incidents/{reference}/notes/{number}",
    auth=TokenAuth("write"),
    response=NoteOut,
    summary="Change a note",
)
def edit_note(request: HttpRequest, reference: str, number: int, note: NoteIn) -> dict[str, Any]:
    """Gives a note of one's own other words; the former ones stay in the log book."""
    entry = _entry(visible(request, reference), number)
    response.edit_note(entry, note.text, who=person_of(request), expected=note.expected)
    return _note(entry)


@router.delete(
    "/incidents/{reference}/notes/{number}",
    auth=TokenAuth("write"),
    response={204: None},
    summary="Remove a note",
)
def remove_note(request: HttpRequest, reference: str, number: int) -> Status[None]:
    """Takes a note of one's own out of the story."""
    response.remove_note(_entry(visible(request, reference), number), who=person_of(request))
    return Status(204, None)


@router.post(
    "/incidents/{reference}/log-book/{number}/undo",
    auth=TokenAuth("write"),
    response=schemas.IncidentOut,
    summary="Undo a change",
)
def undo_change(request: HttpRequest, reference: str, number: int) -> dict[str, Any]:
    """Takes back what a row of kind `changed` did, unless it was changed again since."""
    incident = visible(request, reference)
    entry = _entry(incident, number, kind="changed")
    response.undo(entry, person_of(request))
    return answers.whole(request, Incident.objects.with_answer().get(pk=incident.pk))


@router.post(
    "/incidents/{reference}/merge",
    auth=TokenAuth("write"),
    response=schemas.IncidentOut,
    summary="Merge an incident into another",
)
def merge(request: HttpRequest, reference: str, wanted: MergeIn) -> dict[str, Any]:
    """Moves its texts and times to the other one, which is answered and diagnosed again."""
    token = token_of(request)
    target = visible(request, wanted.into)
    merging.merge(visible(request, reference), target, who=token.owner, token=token)
    return answers.whole(request, visible(request, wanted.into))


@router.delete(
    "/incidents/{reference}/merge",
    auth=TokenAuth("write"),
    response=schemas.IncidentOut,
    summary="Undo a merge",
)
def unmerge(request: HttpRequest, reference: str) -> dict[str, Any]:
    """Moves the texts of a merged incident back; both are diagnosed again."""
    merging.unmerge(visible(request, reference), who=token_of(request).owner)
    return answers.whole(request, visible(request, reference))


@router.post(
    "/incidents/{reference}/split",
    auth=TokenAuth("write"),
    response={201: schemas.IncidentOut},
    summary="Split an incident",
)
def split(request: HttpRequest, reference: str, wanted: SplitIn) -> Status[dict[str, Any]]:
    """Moves these texts to a new incident, which is answered; both are diagnosed again."""
    token = token_of(request)
    new = merging.split(
        visible(request, reference), set(wanted.texts), who=token.owner, token=token
    )
    return Status(201, answers.whole(request, new))


@router.get(
    "/incidents/{reference}/feedback",
    auth=TokenAuth("read"),
    response=list[OpinionOut],
    summary="Read opinions",
)
def read_feedback(request: HttpRequest, reference: str) -> list[dict[str, Any]]:
    """What people say of the answer and its fixes, one opinion a person and question."""
    return [_opinion(row) for row in feedback.standing(visible(request, reference))]


@router.put(
    "/incidents/{reference}/feedback",
    auth=TokenAuth("write"),
    response=OpinionOut,
    summary="Give an opinion",
)
def give_feedback(request: HttpRequest, reference: str, said: OpinionIn) -> dict[str, Any]:
    """Says whether the answer is right or a fix worked, in place of what one said before."""
    opinion = feedback.Opinion(
        is_good=said.good,
        fix_title=said.fix,
        other_slug=said.instead,
        note=said.note,
        slug=said.slug,
    )
    row = feedback.give(visible(request, reference), opinion, who=person_of(request))
    return _opinion(row)


@router.delete(
    "/incidents/{reference}/feedback",
    auth=TokenAuth("write"),
    response={204: None},
    summary="Withdraw an opinion",
)
def withdraw_feedback(
    request: HttpRequest, reference: str, fix: str = "", slug: str = ""
) -> Status[None]:
    """Takes back what one said of the answer, or of `fix`."""
    incident = visible(request, reference)
    if not feedback.withdraw(incident, who=person_of(request), fix_title=fix, slug=slug):
        raise Problem(404, "not-found", "You have not said anything about this.")
    return Status(204, None)


def _expected(given: dict[str, Any]) -> dict[str, Any]:
    """What was read, as the log book tells it: the API names teams by their slugs."""
    unknown = sorted(set(given) - set(response.FIELDS))
    if unknown:
        raise Problem(422, "invalid-request", f"`expected` has no {unknown[0][:80]}.")
    if team := given.get("team"):
        found = Team.objects.filter(slug=str(team)).first()
        return {**given, "team": found.name if found else team}
    return given


def _value(request: HttpRequest, name: str, value: Any) -> Any:
    """The column's value of a key."""
    if name == "owner" and value:
        if value == "me":
            return person_of(request)
        return _found(User.objects.filter(username=value, is_active=True).first(), name, value)
    if name == "team" and value:
        return _found(Team.objects.filter(slug=value).first(), name, value)
    if name in ("owner", "team"):
        return None
    if value is None and name not in ("gpus", "idle_minutes"):
        raise Problem(422, "invalid-request", f"{name}: it cannot be null.")
    return value


def _found(row: Any, name: str, value: str) -> Any:
    if row is None:
        raise Problem(422, "invalid-request", f"{name}: there is no {value}.")
    return row


def _entry(incident: Incident, number: int, kind: str = "note") -> LogBookEntry:
    entry = incident.log_book.filter(pk=number, kind=kind).first()
    if entry is None:
        raise Problem(404, "not-found", f"{incident.reference} has no such row {number}.")
    return entry


def _note(entry: LogBookEntry) -> dict[str, Any]:
    return {"id": entry.pk, "text": response.note_text(entry)}


def _opinion(row: Feedback) -> dict[str, Any]:
    return {
        "person": row.person.get_username() if row.person else "",
        "slug": row.slug,
        "fix": row.fix_title,
        "good": row.is_good,
        "instead": row.other_slug,
        "note": row.note,
        "at": row.at,
    }
