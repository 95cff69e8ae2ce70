"""What the workers of reproductions have, and which queue one that can do the work listens to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from django.utils import timezone

from kb.catalog import Reproduction
from triage.models import WorkerCapability
from triage.reproduction import Capability, memory_limit_mib

#: The queues of reproductions; what no GPU is needed for may also go to a worker that has one.
QUEUES = ("cpu", "gpu")
_NEEDS = {
    "cpu": "a worker for reproductions",
    "gpu1": "a worker with a GPU",
    "gpuN": "a worker with two GPUs or more",
}


@dataclass(frozen=True, slots=True)
class Route:
    """The queue to send to; "" where no living worker can do it, and then what is waited for."""

    queue: str
    waits_for: str = ""


def announce(name: str, queue: str, capability: Capability) -> None:
    """Nothing; writes down that this worker lives, and what it has."""
    now = timezone.now()
    why = capability.lacks("gpu1" if queue == "gpu" else "cpu")
    said = {
        "queue": queue,
        "is_able": not why,
        "why": why[:300],
        "capability": capability.to_json(),
        "heartbeat_at": now,
    }
    WorkerCapability.objects.update_or_create(
        name=name[:200], defaults=said, create_defaults={**said, "started_at": now}
    )


def leave(name: str) -> None:
    """Nothing; takes back what this worker announced."""
    WorkerCapability.objects.filter(name=name[:200]).delete()


def route(reproduction: Reproduction) -> Route:
    """Where a run of this reproduction is to be sent, as the living workers stand now."""
    alive = list(WorkerCapability.objects.alive(timezone.now()).order_by("queue", "name"))
    missing = []
    for worker in alive:
        lacks = _lacks(worker, reproduction)
        if not lacks:
            return Route(worker.queue)
        missing.append(f"{worker.name}: {lacks}")
    needed = _NEEDS.get(reproduction.where, f"a worker for {reproduction.where}")
    if missing:
        return Route("", f"{needed}. {'; '.join(missing)}"[:300])
    return Route("", f"{needed}: none is running")


def is_any_able(where: str) -> bool:
    """Whether a living worker can run reproductions for there at all."""
    alive = WorkerCapability.objects.alive(timezone.now())
    return any(not _capability(worker).lacks(where) for worker in alive)


def _lacks(worker: WorkerCapability, reproduction: Reproduction) -> str:
    capability = _capability(worker)
    if missing := capability.lacks(reproduction.where):
        return missing
    needed_mib = memory_limit_mib(reproduction)
    if capability.memory_mib < needed_mib:
        return f"has {capability.memory_mib} MiB of memory, {needed_mib} are needed"
    return ""


def _capability(worker: WorkerCapability) -> Capability:
    """As it was announced; what another version of Pitstop says besides is left out."""
    known = {field.name for field in fields(Capability)}
    said: dict[str, Any] = {"sandbox": False, "why": "it did not say what it has"}
    for name, value in worker.capability.items():
        if name in known:
            said[name] = tuple(value) if isinstance(value, list) else value
    return Capability(**said)
