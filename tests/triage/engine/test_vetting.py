"""A pattern that would explode is named and left out; the process that scans never meets it."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from kb.catalog import builtin_folder, load_catalog
from triage.engine import diagnose, scan, vetting
from triage.engine.pipeline import compile_catalog

EXPLODES = "(?:[ab]{200}){200}"
ENTRY = """title = "Turbine stalled"
group = "hardware"
role = "root"
status = "reviewed"
summary = "The turbine stalled."
[[signature]]
strength = "conclusive"
any = ["turbine stalled badly", "{other}"]
{guard}
[[fix]]
title = "Start it again"
language = "bash"
snippet = "turbine start"
[[reference]]
title = "Manual"
url = "https://example.org/turbine"
[reproduction]
where = "none"
reason = "no turbine here"
"""
GUIDE = "".join(f"## {word}\nText.\n\n" for word in ("What you see", "Why", "Confirm", "Fix"))


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of the test's own, and nothing known of any pattern."""
    monkeypatch.setenv("PITSTOP_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(vetting, "_refused", {})
    monkeypatch.setattr(vetting, "_accepted", set())


def _site(folder: Path, other: str, guard: str = "") -> Path:
    entry = folder / "turbine-stalled"
    entry.mkdir(parents=True)
    (entry / "pitfall.toml").write_text(ENTRY.format(other=other, guard=guard))
    (entry / "guide.md").write_text(GUIDE + "## Prevent\nText.\n")
    return folder


def test_a_harmless_pattern_passes_and_an_exploding_one_is_refused() -> None:
    pytest.importorskip("hyperscan")
    start = time.monotonic()
    refused = vetting.refused(["turbine stalled", EXPLODES, "another line"])
    assert list(refused) == [EXPLODES]
    assert "time or memory" in refused[EXPLODES]
    assert vetting.is_refused(EXPLODES)
    assert not vetting.is_refused("turbine stalled")
    assert time.monotonic() - start < vetting._MAX_SECONDS


def test_the_answer_is_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    vetting.refused(["turbine stalled"])
    monkeypatch.setattr(vetting, "_accepted", set())
    monkeypatch.setattr(vetting, "_ask", lambda texts: pytest.fail("asked again"))
    assert vetting.refused(["turbine stalled"]) == {}


def test_after_many_failures_the_rest_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vetting, "_run_child", lambda texts: 0)
    refused = vetting.refused([f"text {n}" for n in range(20)])
    assert len(refused) == 20
    assert sum("not tried" in why for why in refused.values()) == 20 - vetting._MAX_FAILURES


def test_an_entry_of_a_site_loses_its_exploding_pattern_and_says_so(
    tmp_path: Path, engine_log: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("hyperscan")
    catalog = load_catalog([builtin_folder(), _site(tmp_path / "site", EXPLODES)])
    compiled = compile_catalog(catalog)
    assert EXPLODES not in {pattern.text for pattern in compiled.patterns}
    evidence = scan(io.BytesIO(b"turbine stalled badly\n"), catalog=catalog)
    assert "turbine-stalled: signature[0].any was left out" in engine_log.text
    assert diagnose([evidence], catalog).diagnoses[0].slug == "turbine-stalled"


def test_a_refused_guard_does_not_count_as_absent(tmp_path: Path) -> None:
    pytest.importorskip("hyperscan")
    site = _site(tmp_path / "site", "turbine gone", f'none = ["{EXPLODES}"]')
    catalog = load_catalog([builtin_folder(), site])
    evidence = scan(io.BytesIO(b"turbine stalled badly\n"), catalog=catalog)
    slugs = [diagnosis.slug for diagnosis in diagnose([evidence], catalog).diagnoses]
    assert "turbine-stalled" not in slugs
