"""Brings up the house on a folder of its own, has one real failure diagnosed by REST, stops it.

Standard library only: it runs where nothing but the product is installed. Prints what it saw.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 10
_TEXT = """\
Epoch 3:  41%|████      | 512/1250 [03:12<04:37,  2.66it/s, loss=1.93]
ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared \
memory (shm).
Traceback (most recent call last):
  File "/workspace/train.py", line 88, in <module>
    for images, labels in loader:
  File "/usr/local/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 734, in \
__next__
    data = self._next_data()
RuntimeError: DataLoader worker (pid 2211) is killed by signal: Bus error. It is possible that \
dataloader's workers are out of shared memory. Please try to raise your shared memory limit.
"""


def main() -> None:
    """Exits with a sentence where something is not as it should be."""
    with tempfile.TemporaryDirectory(prefix="pitstop-smoke-") as folder:
        data = Path(folder) / "data"
        port = _free_port()
        environment = {**os.environ, "PITSTOP_DATA": str(data)}
        with (Path(folder) / "terminal").open("w+", encoding="utf-8") as terminal:
            started = time.monotonic()
            command = [sys.executable, "manage.py", "up", "--port", str(port), "--workers", "1"]
            house = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=terminal, stderr=subprocess.STDOUT
            )
            try:
                address = f"http://127.0.0.1:{port}"
                _wait_for_web(house, address, terminal.name)
                print(f"up: /healthz answers after {time.monotonic() - started:.1f} s")
                _diagnose(address, environment)
            finally:
                print(Path(terminal.name).read_text("utf-8"))
                _stop(house, data)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_web(house: subprocess.Popen[bytes], address: str, terminal: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if house.poll() is not None:
            sys.exit(f"up ended by itself:\n{Path(terminal).read_text('utf-8')}")
        try:
            with urllib.request.urlopen(f"{address}/healthz", timeout=2) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"/healthz did not answer within {_START_TIMEOUT_S} s")


def _diagnose(address: str, environment: dict[str, str]) -> None:
    token = subprocess.run(
        [sys.executable, "manage.py", "token", "smoke", "--scope", "submit"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    started = time.monotonic()
    received = _call(f"{address}/api/v1/incidents", token, {"text": _TEXT, "name": "rank0.log"})
    answer = _call(f"{address}/api/v1/incidents/{received['id']}?wait=20", token)
    slugs = [diagnosis["slug"] for diagnosis in answer["diagnoses"]]
    print(f"{received['id']}: {answer['verdict']} {slugs} after {time.monotonic() - started:.2f} s")
    if answer["verdict"] != "named" or slugs[:1] != ["dataloader-shm-bus-error"]:
        sys.exit(f"the wrong answer: {answer}")


def _call(url: str, token: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode() if body else None,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def _stop(house: subprocess.Popen[bytes], data: Path) -> None:
    started = time.monotonic()
    house.send_signal(signal.SIGTERM)
    try:
        house.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        house.kill()
        sys.exit(f"SIGTERM did not stop it within {_STOP_TIMEOUT_S} s")
    left = _processes_on(data)
    if house.returncode or left:
        sys.exit(f"it ended with status {house.returncode} and left {left or 'nothing'}")
    print(f"stopped after {time.monotonic() - started:.1f} s, no process left")


def _processes_on(data: Path) -> list[str]:
    """Command lines of living processes that work on the folder (Linux)."""
    wanted = f"PITSTOP_DATA={data}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


if __name__ == "__main__":
    main()
