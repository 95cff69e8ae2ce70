"""What tests of incidents share: tasks that run at the commit, API clients, endless streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.test import Client

from tests.factories import make_token
from triage.models import ApiToken


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
