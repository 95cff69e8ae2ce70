"""zstd is read as gzip is; big files side by side give what one after the other does."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from kb.catalog import Catalog
from triage.engine import Evidence, archives, terminal

zstandard = pytest.importorskip("zstandard")

OOM = b"[rank3]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0)\n"
HEALTHY = b"".join(b"step %d/9 loss 2.%d\n" % (n, n) for n in range(9))


def _first_slug(found: Evidence | terminal.TextError, catalog: Catalog) -> str:
    assert isinstance(found, Evidence)
    return terminal.diagnose([found], catalog).diagnoses[0].slug


def test_zstd_frames_are_read_through(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "train.log.zst"
    path.write_bytes(zstandard.compress(HEALTHY * 50_000) + zstandard.compress(OOM))
    evidence = terminal.scan_file(str(path), catalog)
    assert evidence.lines == 450_001
    assert evidence.bytes == len(HEALTHY) * 50_000 + len(OOM)
    assert _first_slug(evidence, catalog) == "cuda-out-of-memory"


@pytest.mark.parametrize("cut", ["half", "one byte", "garbage behind"])
def test_broken_zstd_is_said_so(cut: str, tmp_path: Path, catalog: Catalog) -> None:
    whole = zstandard.compress(HEALTHY * 50 + OOM)
    broken = {
        "half": whole[: len(whole) // 2],
        "one byte": whole[:-1],
        "garbage behind": whole + b"no frame at all",
    }
    path = tmp_path / "broken.zst"
    path.write_bytes(broken[cut])
    with pytest.raises(terminal.TextError, match=r"broken\.zst: broken zstd"):
        terminal.scan_file(str(path), catalog)


def test_zstd_that_explodes_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "bomb.zst"
    path.write_bytes(zstandard.compress(bytes(64 << 20)))
    with pytest.raises(terminal.TextError, match="200 times"):
        terminal.scan_file(str(path), catalog)


def test_zstd_without_its_wheel_says_what_to_do(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.log.zst"
    path.write_bytes(zstandard.compress(OOM))
    monkeypatch.setattr(archives, "zstandard", None)
    with pytest.raises(terminal.TextError, match="zstd -d"):
        terminal.scan_file(str(path), catalog)


def test_gzip_is_read_without_its_fast_wheel(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(HEALTHY) + gzip.compress(OOM))
    fast = terminal.scan_file(str(path), catalog)
    monkeypatch.setattr(archives, "igzip", None)
    assert terminal.scan_file(str(path), catalog) == fast
    assert fast.lines == 10


@pytest.fixture
def big_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three files of which two count as big, one that is missing, and the first once more."""
    monkeypatch.setattr(terminal, "_WORTH_A_PROCESS_BYTES", 100_000)
    monkeypatch.setattr(terminal, "_cores", lambda: range(2))
    (tmp_path / "a.log").write_bytes(HEALTHY * 1_000 + OOM)
    (tmp_path / "b.log").write_bytes(HEALTHY)
    (tmp_path / "c.log").write_bytes(OOM + HEALTHY * 1_000)
    return [str(tmp_path / name) for name in ("a.log", "b.log", "none.log", "c.log", "a.log")]


def test_big_files_side_by_side_give_the_same_in_the_same_order(
    big_files: list[str], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [_told(one) for one in terminal.scan_files(big_files, catalog)]
    monkeypatch.setattr(terminal, "_cores", lambda: range(1))
    assert found == [_told(one) for one in terminal.scan_files(big_files, catalog)]
    assert "No such file" in found[2]


def _told(found: Evidence | terminal.TextError) -> str:
    return str(found) if isinstance(found, OSError) else json.dumps(found.to_json())


def test_a_worker_that_dies_leaves_its_file_to_this_process(
    big_files: list[str], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed:
        def __init__(self, *args: object, **kwargs: object) -> None: ...

        def __enter__(self) -> Killed:
            return self

        def __exit__(self, *error: object) -> None: ...

        def submit(self, *args: object) -> Killed:
            return self

        def result(self) -> Iterator[Evidence]:
            raise BrokenProcessPool

        def shutdown(self, **kwargs: object) -> None: ...

    monkeypatch.setattr("concurrent.futures.process.ProcessPoolExecutor", Killed)
    found = list(terminal.scan_files(big_files, catalog))
    assert [_first_slug(found[n], catalog) for n in (0, 3)] == ["cuda-out-of-memory"] * 2


def test_standard_input_may_be_zstd(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    class Input:
        buffer = Pipe(zstandard.compress(OOM))

    monkeypatch.setattr(terminal.sys, "stdin", Input())
    assert _first_slug(terminal.scan_file("-", catalog), catalog) == "cuda-out-of-memory"
