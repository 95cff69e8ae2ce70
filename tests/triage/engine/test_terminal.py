"""`diagnose` on files: the JSON contract, gzip, what cannot be read, standard input."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb.catalog import Catalog
from triage.engine.terminal import run

ROOT = Path(__file__).resolve().parents[3]

OOM = (
    "[rank3]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79 GiB total)\n"
)
HEALTHY = "".join(f"step {n}/9 loss 2.{n}\n" for n in range(9))

Run = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def diagnose_files(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> Run:
    """`diagnose_files(path, …)`: exit status, the JSON objects, what stands on stderr."""

    def call(*names: object, together: bool = False) -> tuple[int, list[dict[str, Any]], str]:
        status = run([str(n) for n in names], catalog, as_json=True, together=together)
        captured = capsys.readouterr()
        return status, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return call


def test_the_object_of_a_named_failure(
    tmp_path: Path, diagnose_files: Run, catalog: Catalog
) -> None:
    path = tmp_path / "rank3.log"
    path.write_text(OOM)
    status, (answer,), errors = diagnose_files(path)
    assert (status, errors) == (0, "")
    assert answer["file"] == str(path)
    assert (answer["lines"], answer["bytes"]) == (1, len(OOM))
    assert answer["catalog"] == catalog.version
    assert answer["verdict"] == "named"
    first = answer["diagnoses"][0]
    assert (first["slug"], first["role"], first["rank"]) == ("cuda-out-of-memory", "root", 3)
    assert first["confidence"] in ("conclusive", "strong")
    assert first["advice"] in ("retry", "retry-elsewhere", "do-not-retry")
    assert first["because"]
    assert first["evidence"][0]["line"] == first["evidence"][0]["end_line"] == 1
    assert first["evidence"][0]["text"] == OOM.strip()
    assert isinstance(first["values"], dict)
    assert isinstance(first["explains"], list)
    assert isinstance(answer["next"], list)


def test_a_healthy_file_is_clean(tmp_path: Path, diagnose_files: Run) -> None:
    path = tmp_path / "ok.log"
    path.write_text(HEALTHY)
    _, (answer,), _ = diagnose_files(path)
    assert (answer["verdict"], answer["diagnoses"], answer["next"]) == ("clean", [], [])


def test_one_object_a_file_in_their_order(tmp_path: Path, diagnose_files: Run) -> None:
    names = ["b.log", "a.log", "c.log"]
    for name, text in zip(names, (OOM, HEALTHY, ""), strict=True):
        (tmp_path / name).write_text(text)
    _, found, _ = diagnose_files(*(tmp_path / name for name in names))
    assert [Path(a["file"]).name for a in found] == names
    assert [a["verdict"] for a in found] == ["named", "clean", "clean"]


def test_together_the_files_tell_of_one_incident(tmp_path: Path, diagnose_files: Run) -> None:
    (tmp_path / "a.log").write_text(HEALTHY)
    (tmp_path / "b.log").write_text(OOM)
    _, (answer,), _ = diagnose_files(tmp_path / "a.log", tmp_path / "b.log", together=True)
    assert answer["verdict"] == "named"
    assert answer["diagnoses"][0]["evidence"][0]["text_index"] == 1


def test_gzip_is_read_through(tmp_path: Path, diagnose_files: Run) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress((HEALTHY * 50 + OOM).encode()))
    status, (answer,), _ = diagnose_files(path)
    assert status == 0
    assert answer["diagnoses"][0]["slug"] == "cuda-out-of-memory"
    assert answer["diagnoses"][0]["evidence"][0]["line"] == 451


def test_an_archive_that_explodes_is_refused(tmp_path: Path, diagnose_files: Run) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", 9) as file:
        for _ in range(24):
            file.write(bytes(1 << 20))
    (tmp_path / "next.log").write_text(OOM)
    status, found, errors = diagnose_files(path, tmp_path / "next.log")
    assert status == 2
    assert "bomb.gz" in errors
    assert "200 times" in errors
    assert [a["verdict"] for a in found] == ["named"]


@pytest.mark.parametrize("content", [b"\x1f\x8b", b"\x1f\x8b\x08\x00garbage that is no gzip"])
def test_broken_gzip_is_said_so(content: bytes, tmp_path: Path, diagnose_files: Run) -> None:
    path = tmp_path / "broken.gz"
    path.write_bytes(content)
    status, found, errors = diagnose_files(path)
    assert (status, found) == (2, [])
    assert "broken.gz: broken gzip" in errors


def test_what_cannot_be_read_is_named_and_the_rest_answered(
    tmp_path: Path, diagnose_files: Run
) -> None:
    (tmp_path / "a.log").write_text(OOM)
    status, found, errors = diagnose_files(tmp_path / "missing.log", tmp_path, tmp_path / "a.log")
    assert status == 2
    assert "missing.log: No such file" in errors
    assert len(errors.splitlines()) == 2
    assert [Path(a["file"]).name for a in found] == ["a.log"]


class _Stdin:
    def __init__(self, raw: bytes, *, seekable: bool) -> None:
        self.buffer = io.BytesIO(raw)
        if not seekable:
            self.buffer.seekable = lambda: False  # type: ignore[method-assign]


@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("compress", [False, True])
def test_a_dash_is_standard_input(
    *, seekable: bool, compress: bool, diagnose_files: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = gzip.compress(OOM.encode()) if compress else OOM.encode()
    monkeypatch.setattr(sys, "stdin", _Stdin(raw, seekable=seekable))
    _, (answer,), _ = diagnose_files("-")
    assert (answer["file"], answer["verdict"]) == ("-", "named")


def test_text_is_plain_json_whatever_the_log_holds(tmp_path: Path, diagnose_files: Run) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(b"\xff\x00\x1b[31m<script>" + OOM.encode() + b"\xed\xa0\x80 loss nan\n")
    _, (answer,), _ = diagnose_files(path)
    assert answer["diagnoses"][0]["slug"] == "cuda-out-of-memory"
    assert "\x1b" not in json.dumps(answer, ensure_ascii=False)


def test_the_words_for_a_person(
    tmp_path: Path, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(OOM.strip().encode() + "\x07\x9b31m".encode() + b"\n")
    assert run([str(path)], catalog, as_json=False, together=False) == 0
    out = capsys.readouterr().out
    assert "cuda-out-of-memory (root, conclusive, rank 3" in out
    assert "because " in out
    assert "line 1: " in out
    assert all(char.isprintable() or char == "\n" for char in out)


def test_a_reader_that_wants_no_more_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n" * 40)
    command = f"{sys.executable} -m triage.engine {' '.join([str(path)] * 40)} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.stderr == ""
    assert str(path) in done.stdout
