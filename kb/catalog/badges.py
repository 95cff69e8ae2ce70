"""The two badges of an entry, from what `verify` saw: "failure reproduced" and "fix verified".

They are two sentences and never one word. What is old, of another torch, failed, never run or
impossible here says so.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from kb.catalog.model import RUNNABLE, Pitfall, Proof
from kb.catalog.proof import digest_of
from kb.catalog.versions import is_same_minor

#: A proof older than this says so, and is due again.
FRESH_DAYS = 30

_WHERE_NOT = {
    "hardware": "needs the faulty hardware",
    "environment": "needs that environment",
    "none": "cannot be made to happen on purpose",
}


@dataclass(frozen=True, slots=True)
class Badge:
    """A claim and how it stands: "good", "stale", "failed", "never" or "impossible".

    `facts` says by what it was seen, `remark` what takes from it.
    """

    claim: str
    state: str
    word: str
    facts: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Badges:
    """Both badges of an entry; `verified` is None where the first one leaves nothing to say."""

    reproduced: Badge
    verified: Badge | None = None

    @property
    def both(self) -> list[Badge]:
        """Those there are, the failure's first."""
        return [self.reproduced, *([self.verified] if self.verified else [])]


def badges_of(
    pitfall: Pitfall, proofs: Sequence[Proof], *, today: datetime.date, torch: str = ""
) -> Badges:
    """What these proofs are worth today; `torch` is the version of the incident at hand, if any.

    Of several devices' proofs the best one counts: the fix's, the current script's, the newest.
    """
    why_not = why_impossible(pitfall)
    if why_not:
        return Badges(Badge("reproduced", "impossible", "not reproducible here", remark=why_not))
    current = digest_of(pitfall)
    if not proofs:
        return _never_run(pitfall)
    best = max(proofs, key=lambda p: (p.entry == current, p.fix_verified, p.reproduced, p.date))
    facts = _facts(best, today)
    if not best.reproduced:
        return Badges(Badge("reproduced", "failed", "failure not reproduced", facts, best.reason))
    remarks = _remarks(best, today, torch, is_current=best.entry == current)
    state = "stale" if remarks else "good"
    reproduced = Badge("reproduced", state, "failure reproduced", facts, remarks)
    if best.fix_verified:
        return Badges(reproduced, Badge("verified", state, "fix verified", facts, remarks))
    return Badges(reproduced, Badge("verified", "failed", "fix not verified", facts, best.reason))


def why_impossible(pitfall: Pitfall) -> str:
    """Why no run can show this pitfall, in words; "" where one can."""
    reproduction = pitfall.reproduction
    if reproduction is None:
        return "there is no reproduction of it"
    if reproduction.is_runnable:
        return ""
    if reproduction.where in RUNNABLE:
        return "its reproduction is not written yet"
    words = _WHERE_NOT[reproduction.where]
    return f"{words}: {reproduction.reason}" if reproduction.reason else words


def is_due(proof: Proof, digest: str, today: datetime.date) -> bool:
    """Whether the entry is to be verified again: it changed since, or the proof is old."""
    return proof.entry != digest or _age_days(proof, today) > FRESH_DAYS


def _never_run(pitfall: Pitfall) -> Badges:
    assert pitfall.reproduction is not None
    needs = {"gpu1": "needs one GPU", "gpuN": "needs several GPUs"}.get(pitfall.reproduction.where)
    if needs:
        return Badges(Badge("reproduced", "never", "not verified on this site", remark=needs))
    return Badges(Badge("reproduced", "never", "never run", remark="there is a script for it"))


def _facts(proof: Proof, today: datetime.date) -> str:
    days = _age_days(proof, today)
    age = {0: "today", 1: "yesterday"}.get(days, f"{days} days ago")
    return f"torch {proof.torch.partition('+')[0]} · {proof.device} · {age}"


def _remarks(proof: Proof, today: datetime.date, torch: str, *, is_current: bool) -> str:
    remarks = []
    if not is_current:
        remarks.append("the entry changed since")
    if _age_days(proof, today) > FRESH_DAYS:
        remarks.append(f"older than {FRESH_DAYS} days")
    if torch and not is_same_minor(torch, proof.torch):
        remarks.append(f"seen on another torch than the incident's {torch}")
    return ", ".join(remarks)


def _age_days(proof: Proof, today: datetime.date) -> int:
    try:
        return max(0, (today - datetime.date.fromisoformat(proof.date)).days)
    except ValueError:
        return FRESH_DAYS + 1
