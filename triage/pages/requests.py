"""What a request carries once middleware and `login_required` have seen it."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails


class PageRequest(HttpRequest):
    """A request of somebody who is signed in; `htmx` is true for what a script asked for."""

    user: User
    htmx: HtmxDetails
