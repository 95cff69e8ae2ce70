"""What people do on the page of an incident and in the list: a form, a service, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from triage.models import Incident, LogBookEntry, Team
from triage.pages.access import requires
from triage.pages.requests import PageRequest
from triage.pages.story import change_in_words
from triage.pages.wording import count_in_words, list_in_words
from triage.services import log_book, merging, people, response
from triage.services.people import Right
from triage.services.response import ChangeError

Item = TypeVar("Item")

#: Incidents of one bulk action: a page of the list.
MAX_PICKED = 50
_LARGEST_INTEGER = 2**31 - 1
_MOST_IDLE_MINUTES = 10 * 366 * 24 * 60
_CLOCK = re.compile(r"(\d{1,6}):([0-5]\d)")
_SPAN = re.compile(
    r"(?:(?P<d>\d{1,4}(?:\.\d+)?) ?d(?:ays?)?)? ?"
    r"(?:(?P<h>\d{1,6}(?:\.\d+)?) ?h(?:ours?|rs?)?)? ?"
    r"(?:(?P<m>\d{1,8}(?:\.\d+)?) ?(?:m(?:in(?:ute)?s?)?)?)?"
)


def minutes_of(text: str) -> int | None:
    """Minutes in `1 h 30 min`, `1.5 h`, `2 d`, `1:30` or `90`; None for an empty text.

    Raises ValueError for anything else.
    """
    text = " ".join(text.replace(",", ".").lower().split())
    if not text:
        return None
    if clock := _CLOCK.fullmatch(text):
        return int(clock[1]) * 60 + int(clock[2])
    found = _SPAN.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(text)
    days, hours, minutes = (float(part or 0) for part in found.groups())
    return round(days * 24 * 60 + hours * 60 + minutes)


@requires(Right.RESPOND)
@require_POST
def change(request: PageRequest, number: int) -> HttpResponse:
    """Status, severity, owner, team or job facts: whatever of them the form changed."""
    incident = _visible(request, number)
    form = request.POST

    def apply() -> LogBookEntry | None:
        given = {f: _value(f, form[f]) for f in response.FIELDS if f in form}
        expected = {f: _told(f, form[f"was-{f}"]) for f in given if f"was-{f}" in form}
        # A field that the person left alone is no wish, whatever became of it meanwhile.
        wishes = {
            field: value
            for field, value in given.items()
            if field not in expected or response.told_value(field, value) != expected[field]
        }
        return response.change(
            incident, wishes, who=request.user, expected=expected, remark=form.get("remark", "")
        )

    return _do(request, incident, apply)


@requires(Right.RESPOND)
@require_POST
def take(request: PageRequest, number: int) -> HttpResponse:
    """Takes an incident, or gives it back."""
    incident = _visible(request, number)
    expected = {"owner": request.POST["was-owner"]} if "was-owner" in request.POST else None

    def apply() -> LogBookEntry | None:
        if request.POST.get("owner") == "me":
            return response.take(incident, request.user, expected=expected)
        return response.change(incident, {"owner": None}, who=request.user, expected=expected)

    return _do(request, incident, apply)


@requires(Right.RESPOND)
@require_POST
def undo(request: PageRequest) -> HttpResponse:
    """Takes back the changes of these rows of log books."""
    pks = _numbers(request.POST.get("rows", "").split(","))[:MAX_PICKED]
    visible = people.visible_incidents(request.user)
    rows = LogBookEntry.objects.filter(pk__in=pks, kind=log_book.CHANGED, incident__in=visible)
    found = list(rows.select_related("incident").order_by("-pk"))
    done, problems = _each(found, lambda row: response.undo(row, request.user))
    for problem in problems:
        messages.error(request, problem)
    if done:
        names = list_in_words([row.incident.reference for row in done])
        messages.success(request, f"Undone: {names} as before.")
    elif not problems:
        messages.error(request, "There is nothing to undo.")
    target = found[0].incident.get_absolute_url() if found else reverse("triage:incident-list")
    return redirect(_next(request, target))


@requires(Right.RESPOND)
@require_POST
def bulk(request: PageRequest) -> HttpResponse:
    """One action on the incidents that were picked in the list."""
    pks = _numbers(request.POST.getlist("pick"))[:MAX_PICKED]
    picked = list(people.visible_incidents(request.user).filter(pk__in=pks).order_by("-pk"))
    target = redirect(_next(request, reverse("triage:incident-list")))
    action = _bulk_action(request)
    if not picked or action is None:
        messages.error(request, "Pick incidents and an action first." if not picked else
                       "Choose a team first.")  # fmt: skip
        return target
    rows: list[LogBookEntry] = []

    def act(incident: Incident) -> None:
        row = action(incident)
        if row is not None:
            rows.append(row)

    done, problems = _each(picked, act)
    for problem in problems:
        messages.error(request, problem)
    if rows:
        said = f"{count_in_words(len(rows), 'incident')} changed: you {change_in_words(rows[0])}."
        _tell_with_undo(request, said, rows)
    elif done:
        messages.info(request, "They were so already; nothing changed.")
    return target


@requires(Right.RESPOND)
@require_POST
def notes(request: PageRequest, number: int) -> HttpResponse:
    """A new note."""
    incident = _visible(request, number)
    text = request.POST.get("text", "")
    try:
        entry = response.add_note(incident, text, who=request.user)
    except ChangeError as error:
        return _note_form(request, incident, error, text)
    return redirect(f"{incident.get_absolute_url()}#row-{entry.pk}")


@requires(Right.RESPOND)
@require_POST
def note(request: PageRequest, number: int, pk: int) -> HttpResponse:
    """Other words for a note, its removal, or a step back."""
    incident = _visible(request, number)
    entry = get_object_or_404(LogBookEntry, pk=pk, incident=incident, kind=log_book.NOTE)
    text = request.POST.get("text", "").replace("\r\n", "\n")
    was = request.POST.get("was")
    try:
        if request.POST.get("do") == "remove":
            response.remove_note(entry, who=request.user)
        elif request.POST.get("do") == "restore":
            response.restore_note(entry, who=request.user)
        else:
            expected = None if was is None else was.replace("\r\n", "\n")
            response.edit_note(entry, text, who=request.user, expected=expected)
    except ChangeError as error:
        return _note_form(request, incident, error, text, entry)
    return redirect(f"{incident.get_absolute_url()}#row-{entry.pk}")


@requires(Right.RESPOND)
@require_POST
def merge(request: PageRequest, number: int) -> HttpResponse:
    """Merges an incident into the one that was named, and leads there."""
    source = _visible(request, number)
    into = Incident.number_of(request.POST.get("into", ""))
    target = people.visible_incidents(request.user).filter(pk=into).first() if into else None
    if target is None:
        named = request.POST.get("into", "").strip()[:30] or "no incident"
        messages.error(request, f"There is no incident {named} to merge into.")
        return redirect(source)
    try:
        merging.merge(source, target, who=request.user)
    except ChangeError as error:
        messages.error(request, str(error))
        return redirect(source)
    return redirect(f"{target.get_absolute_url()}?from={source.reference}")


@requires(Right.RESPOND)
@require_POST
def unmerge(request: PageRequest, number: int) -> HttpResponse:
    """Undoes the merge of an incident."""
    source = _visible(request, number)
    try:
        merging.unmerge(source, who=request.user)
    except ChangeError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{source.reference} stands by itself again.")
    return redirect(source)


@requires(Right.RESPOND)
@require_POST
def split(request: PageRequest, number: int) -> HttpResponse:
    """Moves the chosen texts to a new incident, and leads there."""
    incident = _visible(request, number)
    try:
        new = merging.split(incident, set(_numbers(request.POST.getlist("text"))), who=request.user)
    except ChangeError as error:
        messages.error(request, str(error))
        return redirect(incident)
    messages.success(
        request,
        f"Split off from {incident.reference}. Merge it back below if they are one after all.",
    )
    return redirect(new)


# ---------------------------------------------------------------------------- parts of the above


def _visible(request: PageRequest, number: int) -> Incident:
    return get_object_or_404(people.visible_incidents(request.user), pk=number)


def _do(
    request: PageRequest, incident: Incident, apply: Callable[[], LogBookEntry | None]
) -> HttpResponse:
    """Does it and leads back, with what was done and a way to undo it, or why it was not."""
    try:
        entry = apply()
    except ChangeError as error:
        messages.error(request, str(error))
    else:
        if entry is not None:
            said = f"You {change_in_words(entry)}."
            _tell_with_undo(request, said, [entry])
    # Given to another team, it may be out of sight now.
    if not people.visible_incidents(request.user).filter(pk=incident.pk).exists():
        return redirect("triage:incident-list")
    return redirect(_next(request, incident.get_absolute_url()))


def _tell_with_undo(request: PageRequest, said: str, rows: Iterable[LogBookEntry]) -> None:
    context = {
        "said": said,
        "rows": ",".join(str(row.pk) for row in rows),
        "next": _next(request, ""),
    }
    messages.success(request, render_to_string("triage/_undo_notice.html", context, request))


def _each(items: Iterable[Item], act: Callable[[Item], Any]) -> tuple[list[Item], list[str]]:
    """Acts on each by itself: those where it went well, and the others' problems in words."""
    done, problems = [], []
    for item in items:
        try:
            act(item)
        except ChangeError as error:
            problems.append(str(error))
        else:
            done.append(item)
    return done, problems


def _bulk_action(request: PageRequest) -> Callable[[Incident], LogBookEntry | None] | None:
    """What the pressed button does to one incident; None for a team that was not chosen."""
    form, person = request.POST, request.user

    def seen(incident: Incident, field: str) -> dict[str, str]:
        key = f"was-{field}-{incident.pk}"
        return {field: form[key]} if key in form else {}

    def take_it(incident: Incident) -> LogBookEntry | None:
        return response.take(incident, person, expected=seen(incident, "owner"))

    def resolve(incident: Incident) -> LogBookEntry | None:
        return response.change(
            incident, {"status": "resolved"}, who=person, expected=seen(incident, "status")
        )

    def assign(incident: Incident) -> LogBookEntry | None:
        return response.change(incident, {"team": team}, who=person)

    action = form.get("do", "")
    if action == "team":
        wanted = form.get("team", "")
        team = Team.objects.filter(name=wanted).first()
        return assign if team is not None or wanted == "none" else None
    return {"take": take_it, "resolve": resolve}.get(action)


def _note_form(
    request: PageRequest,
    incident: Incident,
    error: ChangeError,
    text: str,
    entry: LogBookEntry | None = None,
) -> HttpResponse:
    """What was typed, once more, beside why it was not taken and what the note says now."""
    context = {
        "section": "incidents",
        "incident": incident,
        "error": error,
        "text": text,
        "entry": entry,
        "current": response.note_text(entry) if entry else "",
    }
    return render(request, "triage/note_form.html", context, status=error.status)


def _value(field: str, text: str) -> Any:
    """The column's value of what a form holds. Raises ChangeError for what it cannot be."""
    text = text.strip()
    if field == "owner":
        return _found(User.objects.filter(username=text, is_active=True).first(), text)
    if field == "team":
        return _found(Team.objects.filter(name=text).first(), text)
    if field == "is_shared":
        return text == "1"
    if field == "idle_minutes":
        try:
            minutes = minutes_of(text)
        except ValueError:
            raise _unusable(text, "a time, such as 1 h 30 min") from None
        if minutes is not None and minutes > _MOST_IDLE_MINUTES:
            raise _unusable(text, "an idle time below ten years")
        return minutes
    if field in ("gpus", "attempt"):
        if not text:
            return None if field == "gpus" else 0
        if not (text.isascii() and text.isdecimal()) or int(text[:12]) > _LARGEST_INTEGER:
            raise _unusable(text, "a whole number")
        return int(text)
    allowed = {"status": Incident.Status.values, "severity": Incident.Severity.values}
    if field in allowed and text not in allowed[field]:
        raise _unusable(text, f"one of {', '.join(allowed[field])}")
    return text


def _told(field: str, text: str) -> Any:
    """What a form says that its reader saw, as `response.told` tells it."""
    if field == "is_shared":
        return text == "1"
    if field in ("gpus", "attempt", "idle_minutes"):
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else None
    return text


def _found(row: Any, text: str) -> Any:
    if text and row is None:
        raise ChangeError(f"There is no {text[:80]}.", status=422, code="no-such-name")
    return row


def _unusable(text: str, wanted: str) -> ChangeError:
    return ChangeError(f"“{text[:40]}” is not {wanted}.", status=422, code="not-usable")


def _numbers(texts: Iterable[str]) -> list[int]:
    return [int(t) for t in texts if t.isascii() and t.isdecimal() and len(t) < 19]


def _next(request: HttpRequest, default: str) -> str:
    target = request.POST.get("next", "")
    allowed = url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure())
    return target if target and allowed else default
