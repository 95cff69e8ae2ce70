"""Pages for what cannot be answered, in words that say what to do next."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, TooManyFilesSent
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from triage.pages.wording import size_in_words


def error_page(request: HttpRequest, status: int, heading: str, *sentences: str) -> HttpResponse:
    """A page with this status; a request by htmx gets a notice instead of a whole page."""
    context = {"status": status, "heading": heading, "sentences": sentences}
    template = "_error.html" if getattr(request, "htmx", False) else "error.html"
    return render(request, template, context, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400, or 413 where the form was too large."""
    if isinstance(exception, RequestDataTooBig):
        return too_large(request)
    if isinstance(exception, TooManyFilesSent):
        return error_page(
            request,
            413,
            "Too many files at once",
            f"At most {settings.PITSTOP_MAX_TEXTS:,} texts make one incident.",
            "Leave out what is not a log, a stack dump or a kernel log, or send an archive of the "
            "ranks that matter.",
        )
    return error_page(
        request,
        400,
        "That request could not be read",
        "The browser sent something that Pitstop does not understand. Go back and try again.",
    )


def too_large(request: HttpRequest) -> HttpResponse:
    """413 for a paste that is over the limit of the form."""
    paste = size_in_words(settings.PITSTOP_MAX_PASTE_BYTES)
    upload = size_in_words(settings.PITSTOP_MAX_UPLOAD_BYTES)
    return error_page(
        request,
        413,
        "That paste is too large",
        f"The box takes up to {paste}. Drop the log as a file instead: files may be {upload} "
        "each, and gzip is fine.",
    )


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403 for a page that this account may not see."""
    return error_page(
        request,
        403,
        "Not for this account",
        "You are signed in, but this page needs more rights. Ask the admin of this site.",
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404: a mistyped address, or an incident that does not exist."""
    return error_page(
        request,
        404,
        "There is nothing here",
        "The address may be cut off or mistyped. Incidents read /i/INC-123, pitfalls "
        "/pitfalls/their-name/.",
    )


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403 for a form whose token is missing or stale."""
    return error_page(
        request,
        403,
        "This form is stale",
        "The page was open while you signed in or out elsewhere, or cookies are blocked. Go back, "
        "reload the page and send it again; the browser keeps what you typed.",
    )
