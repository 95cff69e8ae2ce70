"""/healthz: this process answers. /readyz: database, queue and worker do too."""

from __future__ import annotations

import time

from django.conf import settings
from django.core.cache import cache
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

_HEARTBEAT_KEY = "worker-heartbeat"
# Workers beat every two seconds; one that was silent this long is dead or stuck.
_HEARTBEAT_LIFETIME_S = 30


def note_worker_heartbeat() -> None:
    """Nothing; leaves the time of a living worker's heartbeat where /readyz looks for it."""
    cache.set(_HEARTBEAT_KEY, time.time(), _HEARTBEAT_LIFETIME_S)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the process answers; asks nothing else, so that a probe never kills it."""
    return HttpResponse("ok\n", content_type="text/plain")


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 or 503 with the state of each part, in words: {"database": "ok", …}."""
    parts = {"database": _database(), "redis": _redis(), "worker": _worker()}
    is_ready = all(state == "ok" for state in parts.values())
    return JsonResponse(parts, status=200 if is_ready else 503)


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "does not answer"
    return "ok"


def _redis() -> str:
    if not settings.REDIS_URL:
        return "ok"
    try:
        cache.get(_HEARTBEAT_KEY)
    except RedisError:
        return "does not answer"
    return "ok"


def _worker() -> str:
    # Without Redis the tasks run in this very process.
    if not settings.REDIS_URL:
        return "ok"
    try:
        seen_at = cache.get(_HEARTBEAT_KEY)
    except RedisError:
        return "unknown, Redis does not answer"
    return "ok" if seen_at else f"none was heard of for {_HEARTBEAT_LIFETIME_S} s"
