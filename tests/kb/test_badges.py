"""Two badges, honest about age, torch, change and failure; and what a version requirement says."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from kb.catalog import Catalog, Pitfall, Proof
from kb.catalog.badges import badges_of, is_due
from kb.catalog.proof import digest_of
from kb.catalog.versions import fits, is_same_minor, mended_in

TODAY = datetime.date(2026, 12, 1)


@pytest.fixture(scope="module")
def entry(catalog: Catalog) -> Pitfall:
    return catalog.by_slug["dataloader-shm-bus-error"]


def proof(of: Pitfall, /, **changes: Any) -> Proof:
    fields = {
        "device": "cpu",
        "reproduced": True,
        "fix_verified": True,
        "seconds": 8.0,
        "date": "2026-11-28",
        "torch": "2.13.0+cpu",
        "python": "3.11.7",
        "catalog": "c",
        "entry": digest_of(of),
    }
    return Proof(**(fields | changes))


def words(entry: Pitfall, *proofs: Proof, torch: str = "") -> list[tuple[str, str, str]]:
    badges = badges_of(entry, proofs, today=TODAY, torch=torch)
    return [(badge.state, badge.word, badge.remark) for badge in badges.both]


def test_both_are_earned_by_a_fresh_proof(entry: Pitfall) -> None:
    found = badges_of(entry, [proof(entry)], today=TODAY)
    assert [badge.word for badge in found.both] == ["failure reproduced", "fix verified"]
    assert {badge.state for badge in found.both} == {"good"}
    assert found.reproduced.facts == "torch 2.13.0 · cpu · 3 days ago"


@pytest.mark.parametrize(
    ("changes", "torch", "remark"),
    [
        ({"date": "2026-10-31"}, "", "older than 30 days"),
        ({"entry": "another"}, "", "the entry changed since"),
        ({}, "2.1.2+cu121", "seen on another torch than the incident's 2.1.2+cu121"),
    ],
)
def test_what_takes_from_a_proof_is_said(
    entry: Pitfall, changes: dict[str, str], torch: str, remark: str
) -> None:
    assert words(entry, proof(entry, **changes), torch=torch) == [
        ("stale", "failure reproduced", remark),
        ("stale", "fix verified", remark),
    ]


def test_the_same_minor_version_is_the_same_torch(entry: Pitfall) -> None:
    assert {state for state, _, _ in words(entry, proof(entry), torch="2.13.1")} == {"good"}


def test_a_proof_of_half_says_why_it_is_no_more(entry: Pitfall) -> None:
    half = proof(entry, fix_verified=False, reason="the real cause is staged by a stand-in")
    assert words(entry, half) == [
        ("good", "failure reproduced", ""),
        ("failed", "fix not verified", "the real cause is staged by a stand-in"),
    ]
    none = proof(entry, reproduced=False, fix_verified=False, reason="the engine named nothing")
    assert words(entry, none) == [("failed", "failure not reproduced", "the engine named nothing")]


def test_a_newer_failure_of_a_changed_entry_counts_for_more_than_an_old_proof(
    entry: Pitfall,
) -> None:
    old = proof(entry, entry="another", date="2026-11-30")
    failed = proof(entry, device="gpu", reproduced=False, fix_verified=False, reason="it ran")
    assert words(entry, old, failed)[0][:2] == ("failed", "failure not reproduced")


def test_never_run_and_impossible_are_not_the_same(catalog: Catalog, entry: Pitfall) -> None:
    assert words(entry)[0][:2] == ("never", "never run")
    impossible = next(
        p for p in catalog if p.reproduction is not None and p.reproduction.where == "hardware"
    )
    state, word, remark = words(impossible)[0]
    assert (state, word) == ("impossible", "not reproducible here")
    assert remark.startswith("needs the faulty hardware")


def test_what_is_old_or_changed_is_due(entry: Pitfall) -> None:
    digest = digest_of(entry)
    assert not is_due(proof(entry), digest, TODAY)
    assert is_due(proof(entry, date="2026-10-31"), digest, TODAY)
    assert is_due(proof(entry, date="once"), digest, TODAY)
    assert is_due(proof(entry), "another", TODAY)


@pytest.mark.parametrize(
    ("requirement", "torch", "fit"),
    [
        ("torch >= 1.13", "2.1.0+cu121", True),
        ("torch >= 1.13", "1.9", False),
        ("torch >= 2.0, torch < 2.3", "2.3.1", False),
        ("torch >= 2.3; before: torch.cuda.amp.GradScaler()", "2.2", False),
        ("numpy 1.x; torch < 2.3 wheels", "2.4", None),
        ("Kubernetes >= 1.22", "2.4", None),
        ("torch >= 1.13", "unknown", None),
    ],
)
def test_requirements_are_read(requirement: str, torch: str, fit: bool | None) -> None:
    assert fits(requirement, torch) is fit


def test_a_pitfall_of_old_versions_says_which_one_mended_it() -> None:
    assert mended_in("torch >= 1.7, torch < 2.3") == "2.3"
    assert mended_in("torch >= 1.7") == ""
    assert is_same_minor("2.13.0+cpu", "2.13.1")
    assert not is_same_minor("", "")
