"""Opinions on answers and fixes: given on the incident's page, listed for the curator."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from triage.pages.access import requires
from triage.pages.requests import PageRequest
from triage.services import feedback, people
from triage.services.catalog import current_catalog
from triage.services.people import Right
from triage.services.response import ChangeError


@requires(Right.RESPOND)
@require_POST
def give(request: PageRequest, number: int) -> HttpResponse:
    """Stores an opinion on the answer or a fix; an empty `good` takes it back."""
    incident = get_object_or_404(people.visible_incidents(request.user), pk=number)
    form = request.POST
    fix = form.get("fix", "")[:200]
    try:
        if not form.get("good"):
            feedback.withdraw(incident, who=request.user, fix_title=fix)
        else:
            opinion = feedback.Opinion(
                is_good=form["good"] == "1",
                fix_title=fix,
                other_slug=form.get("instead", "")[:100],
                note=form.get("note", ""),
            )
            feedback.give(incident, opinion, who=request.user)
    except ChangeError as error:
        messages.error(request, str(error))
    return redirect(f"{incident.get_absolute_url()}#answer")


@requires(Right.CURATE)
@require_GET
def feedback_list(request: PageRequest) -> HttpResponse:
    """Entries that people called wrong or whose fixes failed them, and what they said."""
    catalog = current_catalog()
    visible = people.visible_incidents(request.user)
    slug = request.GET.get("pitfall", "")[:100]
    context = {
        "section": "curate",
        "disputed": [
            {"row": row, "pitfall": catalog.get(row.slug)} for row in feedback.disputed(visible)
        ],
        "opinions": [
            {"row": row, "pitfall": catalog.get(row.slug)}
            for row in feedback.newest(visible, slug=slug)
        ],
        "chosen": catalog.get(slug) if slug else None,
    }
    return render(request, "triage/feedback_list.html", context)
