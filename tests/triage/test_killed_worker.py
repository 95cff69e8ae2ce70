"""The worker of a running house is killed in the middle of a scan: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.factories import BUS_ERROR

pytestmark = pytest.mark.up

ROOT = Path(__file__).resolve().parents[2]
# Long enough to be met in the middle, by whoever asks every few milliseconds.
_LOG_BYTES = 120_000_000


def _make_token(data: Path) -> str:
    command = [sys.executable, "manage.py", "token", "test", "--scope", "read"]
    environment = {**os.environ, "PITSTOP_DATA": str(data)}
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)
    made = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return made.stdout.strip()


def test_a_killed_worker_leaves_nothing_undone_and_nothing_twice(
    start_house: Callable[..., Any],
) -> None:
    house = start_house()
    house.wait_until_ready()
    token = _make_token(house.data)

    def call(path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(
            f"{house.address}/api/v1{path}",
            data=body,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "text/plain"},
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)

    def wait_for(condition: Callable[[Any], bool], timeout_s: float, wait_s: float = 0) -> Any:
        until = time.monotonic() + timeout_s
        while not condition(answer := call(f"/incidents/{reference}?wait={wait_s}")):
            assert time.monotonic() < until, answer
        return answer

    lines = b"".join(b"[rank%d]: step %d loss 2.%d\n" % (n % 8, n, n) for n in range(100_000))
    log = lines * (_LOG_BYTES // len(lines)) + BUS_ERROR.encode()
    reference = call("/incidents?name=train.log", log)["id"]
    wait_for(lambda answer: answer["texts"][0]["state"] == "scanning", timeout_s=30)

    house.child("worker").kill()

    assert call(f"/incidents/{reference}")["state"] != "diagnosed"
    answer = wait_for(lambda answer: answer["state"] == "diagnosed", timeout_s=120, wait_s=20)
    assert answer["verdict"] == "named"
    assert answer["diagnoses"][0]["slug"] == "dataloader-shm-bus-error"
    kinds = [entry["kind"] for entry in call(f"/incidents/{reference}/log-book")]
    assert kinds == ["received", "scanned", "diagnosed"]
    house.stop()
