"""Rows for tests: each function makes one, complete, and takes what the test cares about."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser

from triage.models import ApiToken, Incident, Submission
from triage.reproduction import Capability
from triage.services import tokens, workers
from triage.services.intake import JobFacts, NamedStream, Received, receive
from triage.services.texts import TextWriter

_numbers = itertools.count(1)

#: A failure every catalog names: a worker of rank 3 ran out of shared memory.
BUS_ERROR = """\
[rank3]: epoch 1 step 811 loss 2.31
[rank3]: Traceback (most recent call last):
[rank3]:   File "/workspace/train.py", line 88, in <module>
[rank3]:     main()
[rank3]: RuntimeError: DataLoader worker (pid 2211) is killed by signal: Bus error. \
It is possible that dataloader's workers are out of shared memory. \
Please try to raise your shared memory limit.
"""
#: A run that ended well.
HEALTHY = """\
epoch 1 step 100 loss 2.3105
epoch 1 step 200 loss 2.1177
epoch 1 step 300 loss 1.9921
training finished, checkpoint saved
"""

#: What a machine has that runs reproductions on its CPU.
CAPABLE = Capability(
    sandbox=True, why="", python="3.11.7", torch="2.13.0+cpu", memory_mib=16_000, cpus=4
)


def make_worker(queue: str = "cpu", **capability: Any) -> None:
    """A living worker that announced this."""
    workers.announce(f"{queue}-{next(_numbers)}@node", queue, replace(CAPABLE, **capability))


def make_user(**changes: Any) -> AbstractUser:
    """A person who can sign in by the password `correct horse`."""
    fields = {"username": f"person-{next(_numbers)}", "password": "correct horse"} | changes
    return get_user_model().objects.create_user(**fields)


def make_incident(**changes: Any) -> Incident:
    """An incident without texts."""
    return Incident.objects.create(**({"title": f"run-{next(_numbers)}"} | changes))


def make_submission(
    text: str | bytes = BUS_ERROR, *, incident: Incident | None = None, **changes: Any
) -> Submission:
    """A stored text that waits for its scan, of an incident of its own unless one is given."""
    incident = incident or make_incident()
    with TextWriter() as writer:
        writer.write(text.encode() if isinstance(text, str) else text)
        stored_at = writer.save()
        incident.texts_received += 1
        incident.evidence_revision += 1
        incident.save()
        fields = {
            "incident": incident,
            "position": incident.texts_received,
            "name": "train.log",
            "sha256": writer.sha256,
            "size_bytes": writer.size_bytes,
            "line_count": writer.line_count,
            "line_index": writer.line_index,
            "stored_at": stored_at,
        }
        return Submission.objects.create(**(fields | changes))


def make_token(scope: str = "submit", **changes: Any) -> tuple[ApiToken, str]:
    """An API token and its key."""
    return tokens.make_token(f"token-{next(_numbers)}", scope, **changes)


def send(
    *texts: str | bytes, names: tuple[str, ...] = (), job: JobFacts | None = None, **more: Any
) -> Received:
    """These texts through intake."""
    streams = [
        NamedStream(
            names[number] if number < len(names) else f"rank{number}.log",
            io.BytesIO(text.encode() if isinstance(text, str) else text),
        )
        for number, text in enumerate(texts)
    ]
    return receive(streams, job=job, **more)
