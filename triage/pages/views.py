"""HTML in and out: form → service → redirect, and rows → page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    QueryDict,
    StreamingHttpResponse,
)
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header, url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect

from kb.catalog.model import OPTIONS
from triage.models import Incident, Reproduction
from triage.pages.access import requires
from triage.pages.context import THEMES
from triage.pages.forms import TextsForm, TriageForm
from triage.pages.incident_page import IncidentPage, build_page
from triage.pages.incident_rows import build_rows
from triage.pages.log_window import LogWindow, open_log
from triage.pages.minimal import build_minimal
from triage.pages.reproduce_section import ReproduceSection, build_section
from triage.pages.requests import PageRequest
from triage.pages.response_section import build_response
from triage.pages.samples import all_samples, find_sample
from triage.pages.story import StoryRow, build_story
from triage.pages.time_section import build_time
from triage.pages.wording import count_in_words
from triage.services import incidents, intake, merging, people, reproductions, response, texts
from triage.services.catalog import current_catalog
from triage.services.people import Right

RECENT_INCIDENTS = 8
THEME_COOKIE_AGE_S = 365 * 24 * 3600
#: The words of a search box; no message is longer.
MAX_QUERY_CHARACTERS = 500
RAW_BLOCK_BYTES = 2**18


@requires(Right.READ)
@require_http_methods(["GET", "HEAD", "POST"])
def home(request: PageRequest) -> HttpResponse:
    """The triage form and recent incidents; a POST opens an incident and leads to its page."""
    if request.method == "POST":
        return _send(request)
    return _home_page(request)


@requires(Right.READ)
@require_GET
def sample(request: PageRequest, name: str) -> HttpResponse:
    """The front page with a sample in its box, ready to be diagnosed."""
    found = find_sample(name)
    if found is None:
        raise Http404(name)
    return _home_page(request, text=found.read_text(), chosen_sample=found.name)


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Keeps the reader's choice of colours in a cookie and leads back."""
    chosen = request.POST.get("theme", "")
    target = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure()):
        target = "/"
    answer = HttpResponseRedirect(target)
    if chosen in THEMES and chosen:
        answer.set_cookie(
            "theme",
            chosen,
            max_age=THEME_COOKIE_AGE_S,
            samesite="Lax",
            secure=settings.SESSION_COOKIE_SECURE,
        )
    else:
        answer.delete_cookie("theme", samesite="Lax")
    return answer


@requires(Right.READ)
@never_cache
@require_GET
def incident(request: PageRequest, number: int) -> HttpResponse:
    """The page of an incident; where its texts are now, if it was merged."""
    page = _page(request, number)
    if elsewhere := _elsewhere(request, page):
        return redirect(elsewhere)
    context = {"section": "incidents", "log": _log(request, page), **_response(request, page)}
    came_from = Incident.number_of(request.GET.get("from", ""))
    if came_from:
        visible = people.visible_incidents(request.user)
        context["came_from"] = visible.filter(pk=came_from, merged_into=page.incident).first()
    context["reproduce"] = _reproduce(page)
    return render(request, "triage/incident_detail.html", context)


@requires(Right.READ)
@never_cache
@require_GET
def incident_status(request: PageRequest, number: int) -> HttpResponse:
    """What the page's head shows now; with the log beside it once there is a verdict."""
    page = _page(request, number)
    context: dict[str, object] = {"page": page, "is_update": True}
    if not page.is_working:
        context |= _response(request, page)
        context["log"] = _log(request, page)
        context["reproduce"] = _reproduce(page)
    return render(request, "triage/_incident_update.html", context)


@requires(Right.READ)
@never_cache
@require_GET
def incident_log(request: PageRequest, number: int) -> HttpResponse:
    """A page of lines of one text; a request without htmx is led to the whole page."""
    if not request.htmx:
        page_address = reverse("triage:incident", args=[f"INC-{number}"])
        return redirect(f"{page_address}?{request.GET.urlencode()}#log")
    page = _page(request, number)
    return render(request, "triage/_log.html", {"page": page, "log": _log(request, page)})


@requires(Right.READ)
@require_GET
def incident_raw(
    request: PageRequest, number: int, position: int
) -> HttpResponse | StreamingHttpResponse:
    """A stored text as it is kept: an attachment, never shown as a page."""
    target = get_object_or_404(people.visible_incidents(request.user), pk=number)
    submission = get_object_or_404(target.submissions.light(), position=position)
    try:
        stream = texts.open_text(submission)
    except FileNotFoundError:
        raise Http404(str(submission)) from None
    name = re.sub(r"[^\w.-]+", "-", submission.name).strip("-.") or submission.label
    name = f"INC-{number}-{name.removesuffix('.gz')}{'' if '.' in name else '.txt'}"
    # Under ASGI an ordinary iterator would be read whole before the first byte is sent.
    blocks = _blocks_async(stream) if hasattr(request, "scope") else _blocks(stream)
    answer = StreamingHttpResponse(blocks, content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


@requires(Right.RESPOND)
@require_POST
def incident_add(request: PageRequest, number: int) -> HttpResponse:
    """More texts for an incident: what a command printed, another rank's log."""
    target = get_object_or_404(people.visible_incidents(request.user), pk=number)
    form = TextsForm(request.POST, request.FILES)
    if not form.is_valid():
        return _complain(request, form.problem(), 413, target)
    try:
        received = intake.receive(form.texts(), who=request.user, incident=target)
    except intake.IntakeError as error:
        return _refuse(request, error, target)
    _tell(request, received)
    return _lead_to(request, received.incident)


@requires(Right.READ)
@never_cache
@require_http_methods(["GET", "POST"])
def incident_reproductions(request: PageRequest, number: int) -> HttpResponse:
    """The runs of an incident; a POST asks for one with the numbers of the form."""
    target = get_object_or_404(people.visible_incidents(request.user).with_answer(), pk=number)
    problem = ""
    if request.method == "POST":
        if not people.may(request.user, Right.RESPOND):
            raise PermissionDenied
        try:
            reproductions.ask(
                target,
                request.POST.get("slug", ""),
                fixed=request.POST.get("fixed") == "1",
                options=_options(request.POST),
                who=request.user,
            )
        except reproductions.RefusedError as error:
            problem = f"{error.problem} {error.hint}".strip()
    return _show_runs(request, target, problem)


@requires(Right.RESPOND)
@require_POST
def incident_reproduction_cancel(request: PageRequest, number: int, run: int) -> HttpResponse:
    """Cancels a run that waits or is at work."""
    target = get_object_or_404(people.visible_incidents(request.user).with_answer(), pk=number)
    row = get_object_or_404(Reproduction, pk=run, incident=target)
    problem = ""
    try:
        reproductions.cancel(row, request.user)
    except reproductions.RefusedError as error:
        problem = error.problem
    return _show_runs(request, target, problem)


@requires(Right.READ)
@require_GET
def incident_minimal(request: PageRequest, number: int) -> HttpResponse:
    """The nearest reproduction's code, and what to keep when a script is cut down to it."""
    target = get_object_or_404(people.visible_incidents(request.user).with_answer(), pk=number)
    pitfall = reproductions.nearest(target, current_catalog())
    context: dict[str, object] = {"section": "incidents", "incident": target}
    if pitfall is not None:
        context["minimal"] = build_minimal(pitfall, reproductions.suggested(target, pitfall))
    return render(request, "triage/incident_minimal.html", context)


@requires(Right.RESPOND)
@require_POST
def incident_destroy(request: PageRequest, number: int) -> HttpResponse:
    """Destroys the texts of an incident for good."""
    target = get_object_or_404(people.visible_incidents(request.user), pk=number)
    incidents.destroy_texts(target, who=request.user)
    messages.success(request, "The texts are destroyed. Nothing of them is kept.")
    return redirect(target)


# ---------------------------------------------------------------------------- parts of the above


@requires(Right.RESPOND)
def _send(request: PageRequest) -> HttpResponse:
    form = TriageForm(request.POST, request.FILES)
    if not form.is_valid():
        return _complain(request, form.problem(), 422)
    try:
        received = intake.receive(form.texts(), who=request.user, job=form.job())
    except intake.IntakeError as error:
        return _refuse(request, error)
    _tell(request, received)
    return _lead_to(request, received.incident)


def _refuse(
    request: PageRequest, error: intake.IntakeError, target: Incident | None = None
) -> HttpResponse:
    """The complaint beside the form that was sent, which keeps what was typed."""
    return _complain(request, error.problem, error.status, target, hint=error.hint)


def _complain(
    request: PageRequest,
    problem: str,
    status: int,
    target: Incident | None = None,
    *,
    hint: str = "",
) -> HttpResponse:
    if request.htmx:
        context = {"heading": problem.rstrip("."), "sentences": [hint]}
        return render(request, "_error.html", context, status=status)
    if target is not None:
        messages.error(request, f"{problem} {hint}")
        return redirect(target)
    return _home_page(request, problem=f"{problem} {hint}", status=status)


def _tell(request: PageRequest, received: intake.Received) -> None:
    """What the reader should know of the intake beyond the page itself."""
    for skipped in received.skipped:
        messages.warning(request, f"Left out: {skipped.problem}")
    if received.secrets_replaced:
        secrets = count_in_words(received.secrets_replaced, "secret")
        messages.info(request, f"{secrets} in the text replaced before it was stored.")
    if received.duplicates and not received.created:
        messages.info(request, "This text was sent before; here is what was found then.")


def _lead_to(request: PageRequest, target: Incident) -> HttpResponse:
    address = target.get_absolute_url()
    return HttpResponseClientRedirect(address) if request.htmx else redirect(address)


def _home_page(
    request: PageRequest,
    *,
    text: str = "",
    chosen_sample: str = "",
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    form = TriageForm(request.POST or None, initial={"text": text})
    visible = people.visible_incidents(request.user).filter(merged_into=None)
    recent = list(visible.newest_first().with_answer()[:RECENT_INCIDENTS])
    context = {
        "section": "triage",
        "form": form,
        "text": request.POST.get("text", text),
        "problem": problem,
        "samples": all_samples(),
        "chosen_sample": chosen_sample,
        "recent": build_rows(recent, current_catalog()),
        "can_respond": people.may(request.user, Right.RESPOND),
    }
    return render(request, "triage/home.html", context, status=status)


def _page(request: PageRequest, number: int) -> IncidentPage:
    found = get_object_or_404(people.visible_incidents(request.user).with_answer(), pk=number)
    return build_page(found, current_catalog())


def _log(request: PageRequest, page: IncidentPage) -> LogWindow:
    wishes = request.GET
    return open_log(
        page.submissions,
        page.evidence,
        position=_whole_number(wishes, "text"),
        first=_whole_number(wishes, "first"),
        line=_whole_number(wishes, "line"),
        query=wishes.get("q", "")[:MAX_QUERY_CHARACTERS],
        after=_whole_number(wishes, "after") or 0,
    )


def _story(incident: Incident, reader: User) -> list[StoryRow]:
    entries = incident.log_book.select_related("who").order_by("at", "pk")
    can_respond = people.may(reader, Right.RESPOND) and incident.merged_into_id is None
    return build_story(entries, reader=reader, can_respond=can_respond)


def _response(request: PageRequest, page: IncidentPage) -> dict[str, object]:
    """What the templates show of people's work on an incident."""
    pitfall = page.answer.pitfall if page.answer is not None else None
    return {
        "page": page,
        "response": build_response(page.incident, request.user, pitfall),
        "story": _story(page.incident, request.user),
        "time": build_time(page.incident, request.user),
        "pitfalls": sorted(current_catalog().active, key=lambda entry: entry.title.lower()),
    }


def _elsewhere(request: PageRequest, page: IncidentPage) -> str:
    """Where a link to a merged incident leads, or to a text that was split off; else empty."""
    incident = page.incident
    position = _whole_number(request.GET, "text")
    if incident.merged_into is None:
        known = {submission.position for submission in page.submissions}
        if position is None or position in known:
            return ""
    elif "stay" in request.GET:
        return ""
    moved = merging.moved_to(incident, position) if position is not None else None
    target = moved[0] if moved else response.follow(incident)
    if not people.visible_incidents(request.user).filter(pk=target.pk).exists():
        return ""
    query = {"from": incident.reference}
    anchor = "answer"
    if moved:
        line = _whole_number(request.GET, "line")
        query |= {"text": str(moved[1])} | ({"line": str(line)} if line is not None else {})
        anchor = f"T{moved[1]}-L{line}" if line is not None else "log"
    # Of its own, so that the browser does not keep the number that the text had before.
    return f"{target.get_absolute_url()}?{urlencode(query)}#{anchor}" if target != incident else ""


def _reproduce(page: IncidentPage) -> ReproduceSection | None:
    """The section of an incident that has a diagnosis."""
    if page.is_working or page.kind in ("failed", "destroyed", "clean"):
        return None
    return build_section(page.incident, current_catalog(), known=(page.torch, page.proofs))


def _show_runs(request: PageRequest, target: Incident, problem: str) -> HttpResponse:
    """The runs alone for a script; for people without, the page with what is to be said."""
    if not request.htmx:
        if problem:
            messages.error(request, problem)
        return redirect(f"{target.get_absolute_url()}#reproduce")
    context = {
        "reproduce": build_section(target, current_catalog(), problem=problem),
        "story": _story(target, request.user),
        # All that the story's rows ask of it; the page asks again each second.
        "response": {"can_respond": people.may(request.user, Right.RESPOND), "incident": target},
        "is_update": True,
    }
    status = 422 if problem else 200
    return render(request, "triage/_reproduce_state.html", context, status=status)


def _options(form: QueryDict) -> dict[str, int]:
    """The numbers of a form's options; a field left empty is left to the script."""
    found: dict[str, int] = {}
    for name in OPTIONS:
        text = form.get(f"option-{name}", "").strip()
        if text:
            is_number = text.isascii() and text.isdecimal() and len(text) < 7
            # What is no number is outside every range.
            found[name] = int(text) if is_number else -1
    return found


def _whole_number(wishes: QueryDict, name: str) -> int | None:
    value = wishes.get(name, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 16 else None


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    with stream:
        while block := stream.read(RAW_BLOCK_BYTES):
            yield block


async def _blocks_async(stream: BinaryIO) -> AsyncIterator[bytes]:
    read = sync_to_async(stream.read, thread_sensitive=False)
    try:
        while block := await read(RAW_BLOCK_BYTES):
            yield block
    finally:
        stream.close()
