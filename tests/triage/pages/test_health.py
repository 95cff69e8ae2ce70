"""/healthz and /readyz: the process, and what it needs."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.db import Error
from django.test import Client

from triage.pages import health


def test_healthz_asks_nothing_else(client: Client) -> None:
    response = client.get("/healthz")
    assert (response.status_code, response.content) == (200, b"ok\n")
    assert "no-store" in response.headers["Cache-Control"]


@pytest.mark.django_db
def test_readyz_without_redis_needs_the_database_alone(client: Client, settings: Any) -> None:
    settings.REDIS_URL = ""
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {"database": "ok", "redis": "ok", "worker": "ok"}


@pytest.mark.django_db
def test_readyz_wants_a_worker_that_was_heard_of(client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://stands.for/any"
    cache.clear()
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["worker"] == "none was heard of for 30 s"
    health.note_worker_heartbeat()
    assert client.get("/readyz").json()["worker"] == "ok"


def test_readyz_names_a_redis_that_is_away(
    client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_database", lambda: "ok")
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": settings.REDIS_URL,
        }
    }
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["redis"] == "does not answer"
    # The fixture that empties the cache after a test must find one that answers.
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}


def test_readyz_names_a_database_that_is_away(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away:
        def cursor(self) -> None:
            raise Error("connection refused")

    monkeypatch.setattr(health, "connection", Away())
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["database"] == "does not answer"
