"""What tests of incidents share: tasks that run at the commit, API clients, a fake sandbox."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from django.test import Client

from kb.catalog import Catalog, Pitfall
from kb.catalog.model import END_LINE
from tests.factories import BUS_ERROR, CAPABLE, make_token
from triage.models import ApiToken
from triage.reproduction import Outcome
from triage.reproduction.runner import read
from triage.services.catalog import current_catalog


@pytest.fixture
def work(
    django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[list[Any]]],
) -> Callable[[], AbstractContextManager[list[Any]]]:
    """`with work():` runs at its end, in place, the tasks that were queued in it."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


class ApiClient(Client):
    """A client that carries a token."""

    def __init__(self, token: ApiToken, key: str) -> None:
        super().__init__(headers={"Authorization": f"Bearer {key}"})
        self.token = token

    def send_json(self, document: Any, path: str = "/api/v1/incidents", **more: Any) -> Any:
        """POST of a JSON document."""
        return self.post(path, document, content_type="application/json", **more)


@pytest.fixture
def api_as(db: None) -> Callable[..., ApiClient]:
    """`api_as("read")`: a client with a new token of that scope."""
    return lambda scope="submit", **token: ApiClient(*make_token(scope, **token))


class Generated:
    """A stream of `size_bytes` made of one block over and over; it never exists as a whole."""

    def __init__(self, block: bytes, size_bytes: int, *, start: bytes = b"") -> None:
        self._pieces = self._generate(block, size_bytes, start)
        self._rest = b""
        self.bytes_read = 0

    @staticmethod
    def _generate(block: bytes, size_bytes: int, start: bytes) -> Iterator[bytes]:
        if start:
            yield start
        left = size_bytes - len(start)
        while left > 0:
            yield block[:left]
            left -= len(block)

    def read(self, size: int = -1, /) -> bytes:
        """The next piece, shorter than asked for where pieces end."""
        piece = self._rest or next(self._pieces, b"")
        if size >= 0:
            piece, self._rest = piece[:size], piece[size:]
        else:
            piece, self._rest = piece + b"".join(self._pieces), b""
        self.bytes_read += len(piece)
        return piece


@dataclass
class FakeSandbox:
    """Stands in for the run of a script: prints what it was told to, and the engine reads it.

    `during` is called while the script "runs", with the event that cancels it.
    """

    broken: str = BUS_ERROR
    fixed: str = f"step 1 loss 2.31\n{END_LINE}\n"
    error: Exception | None = None
    during: Callable[[threading.Event], None] = lambda cancelled: None
    calls: list[dict[str, Any]] = field(default_factory=list)

    def reproduce(
        self,
        pitfall: Pitfall,
        catalog: Catalog,
        *,
        fixed: bool = False,
        options: Any = None,
        python: str | None = None,
        on_output: Callable[[str], None] = lambda piece: None,
        cancelled: threading.Event | None = None,
    ) -> Outcome:
        """As `triage.reproduction.reproduce`."""
        self.calls.append({"slug": pitfall.slug, "fixed": fixed, "options": dict(options or {})})
        if self.error is not None:
            raise self.error
        output = self.fixed if fixed else self.broken
        on_output(output)
        cancelled = cancelled or threading.Event()
        self.during(cancelled)
        return Outcome(
            slug=pitfall.slug,
            fixed=fixed,
            options=dict(options or {}),
            output=output,
            verdict=read(output, catalog),
            exit_status=0 if fixed else 1,
            stopped="cancelled" if cancelled.is_set() else "",
            seconds=4.2,
            memory_mib=300,
            capability=CAPABLE,
        )


@pytest.fixture
def unproved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog as it was before anything of it was verified."""
    catalog = current_catalog()
    bare = Catalog(tuple(replace(p, proofs=()) for p in catalog), catalog.version)
    monkeypatch.setattr("triage.services.catalog._load", lambda folders: bare)


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> FakeSandbox:
    """No script is run in this test: the sandbox prints what the test says."""
    fake = FakeSandbox()
    monkeypatch.setattr("triage.services.reproductions.reproduce", fake.reproduce)
    monkeypatch.setattr("triage.reproduction.proofs.reproduce", fake.reproduce)
    return fake
