"""The script that runs the reproductions for one GPU, on a machine that has none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "run.sh"


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="there is a GPU")
def test_says_that_there_is_no_gpu_and_is_content(tmp_path):
    out = tmp_path / "proofs.json"
    done = subprocess.run([RUN, out], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "there is no GPU here: nothing was run\n"
    assert not out.exists()
