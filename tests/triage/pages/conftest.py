"""A person in front of the pages, and incidents that went through intake, scan and diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.test import Client

from tests.factories import make_user, send
from triage.models import Incident


@pytest.fixture
def reader(db: None) -> Client:
    """A client of somebody who is signed in."""
    client = Client()
    client.force_login(make_user())
    return client


@pytest.fixture
def diagnosed(work: Callable[[], AbstractContextManager[list[Any]]]) -> Callable[..., Incident]:
    """`diagnosed(text, …)`: an incident of these texts, after the worker's work."""

    def receive(*texts: str | bytes, **more: Any) -> Incident:
        with work():
            received = send(*texts, **more)
        received.incident.refresh_from_db()
        return received.incident

    return receive
