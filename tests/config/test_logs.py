"""Log lines: one JSON object each, credentials replaced."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from triage.config.logs import JsonLines, WithoutSecrets, without_secrets


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer pit_3fZk29dLmQ0x", "pit_3fZk29dLmQ0x"),
        ("{'authorization': 'Basic YWRtaW46aHVudGVyMg=='}", "YWRtaW46aHVudGVyMg=="),
        ("connect to postgres://pitstop:hunter2@db:5432/pitstop", "hunter2"),
        ("redis://:hunter2@queue:6379/0 is away", "hunter2"),
        ("GET /login/once/1-abc-0f3d11", "1-abc-0f3d11"),
        ('{"token": "abcd1234efgh"}', "abcd1234efgh"),
        ("password=correct-horse", "correct-horse"),
    ],
)
def test_credentials_are_replaced(text: str, secret: str) -> None:
    assert secret not in without_secrets(text)
    assert "[secret]" in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    ["GET /i/INC-3 200", "step 10 tokens 4096", "redis://queue:6379/0", "bearer of bad news"],
)
def test_plain_words_stay(text: str) -> None:
    assert without_secrets(text) == text


def _line(message: str, *args: Any, exc_info: Any = None) -> dict[str, Any]:
    record = logging.LogRecord("name", logging.WARNING, __file__, 1, message, args, exc_info)
    record.incident = "INC-7"
    assert WithoutSecrets().filter(record)
    line: dict[str, Any] = json.loads(JsonLines().format(record))
    return line


def test_a_line_says_when_how_bad_who_and_what() -> None:
    line = _line("opened %s", "redis://:hunter2@queue/0")
    assert line["time"].endswith("Z")
    assert line == {
        "time": line["time"],
        "level": "WARNING",
        "logger": "name",
        "message": "opened redis://:[secret]@queue/0",
        "incident": "INC-7",
    }


def test_tracebacks_are_cleaned_too() -> None:
    try:
        raise ConnectionError("postgres://pitstop:hunter2@db/pitstop refused")
    except ConnectionError:
        line = _line("failed", exc_info=sys.exc_info())
    assert "ConnectionError" in line["exc_info"]
    assert "hunter2" not in json.dumps(line)
