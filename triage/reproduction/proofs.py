"""Runs an entry broken and fixed, and says what that proves: two badges, no word for both."""

from __future__ import annotations

import datetime
import re
import threading
from dataclasses import dataclass
from typing import Any

from kb.catalog import Catalog, Pitfall, Proof
from kb.catalog.model import END_LINE
from kb.catalog.proof import digest_of
from triage.reproduction.runner import Outcome, device_of, reproduce

_DECISIVE_LINES = 5
_LINE_CHARS = 300
# Where Python lies on the machine that ran it is nobody's business.
_PYTHON_FOLDER = re.compile(r"(?<![\w.…])/[^\s\"':]*?/(?=lib/python3|bin/python)")


@dataclass(frozen=True, slots=True)
class Checked:
    """The two runs of an entry and what they prove; `fixed` is None where the first was enough."""

    proof: Proof
    broken: Outcome
    fixed: Outcome | None

    def to_json(self) -> dict[str, Any]:
        """As `verify --json` prints it, with the entry's slug."""
        return {
            "slug": self.broken.slug,
            "device": self.proof.device,
            "torch": self.proof.torch,
            "reproduced": self.proof.reproduced,
            "fix_verified": self.proof.fix_verified,
            "reason": self.proof.reason,
            "seconds": self.proof.seconds,
        }


def verify(
    pitfall: Pitfall,
    catalog: Catalog,
    *,
    now: datetime.datetime,
    python: str | None = None,
    cancelled: threading.Event | None = None,
) -> Checked:
    """What a broken and a fixed run of the entry prove; nothing is written.

    Raises what `reproduce` raises: NoSandboxError, and ValueError for an entry without a script.
    """
    broken = reproduce(pitfall, catalog, python=python, cancelled=cancelled)
    missed = why_not_reproduced(pitfall, broken)
    fixed, reason = None, missed
    if not missed:
        fixed = reproduce(pitfall, catalog, fixed=True, python=python, cancelled=cancelled)
        reason = why_not_verified(pitfall, fixed)
    capability, reproduction = broken.capability, pitfall.reproduction
    assert reproduction is not None
    proof = Proof(
        device=device_of(capability, reproduction.where),
        reproduced=not missed,
        fix_verified=not reason,
        reason=reason,
        seconds=round(broken.seconds + (fixed.seconds if fixed else 0), 1),
        date=now.date().isoformat(),
        torch=capability.torch,
        python=capability.python,
        catalog=catalog.version,
        entry=digest_of(pitfall),
        cuda=capability.cuda,
        driver=capability.driver if reproduction.where != "cpu" else "",
        broken_lines=_decisive_lines(broken),
        fixed_lines=_last_lines(fixed) if fixed else (),
    )
    return Checked(proof, broken, fixed)


def why_not_reproduced(pitfall: Pitfall, broken: Outcome) -> str:
    """Why the broken run is no proof of the failure; "" where it is one."""
    assert pitfall.reproduction is not None
    wanted = {"hang": "hung", "exit": ""}[pitfall.reproduction.ends]
    if broken.stopped != wanted:
        return f"the broken run {broken.ending}"
    if broken.named != pitfall.slug:
        return f"the engine named {broken.named or 'nothing'} in the broken run's output"
    answer = broken.verdict.diagnoses[0]
    if pitfall.role == "root" and (broken.verdict.kind != "named" or answer.role != "root"):
        return "the engine saw it in the broken run's output, and not as the root"
    return ""


def why_not_verified(pitfall: Pitfall, fixed: Outcome) -> str:
    """Why the fixed run is no proof of the fix; "" where it is one."""
    assert pitfall.reproduction is not None
    if fixed.stopped:
        return f"the fixed run {fixed.ending}"
    if not fixed.ran_to_its_end:
        return f"the fixed run ended with {fixed.exit_status} and without {END_LINE!r}"
    if fixed.verdict.kind != "clean":
        return f"the engine named {fixed.named or 'a failure'} in the fixed run's output"
    return {
        "cause": "",
        "stand-in": "the real cause is staged by a stand-in",
        "injection": "the fixed run only leaves the fault out",
    }[pitfall.reproduction.proves]


def _decisive_lines(outcome: Outcome) -> tuple[str, ...]:
    evidence = outcome.verdict.diagnoses[0].evidence if outcome.verdict.diagnoses else ()
    texts = dict.fromkeys(_shown(line.text.strip()) for line in evidence)
    return tuple(texts)[:_DECISIVE_LINES] or _last_lines(outcome)


def _last_lines(outcome: Outcome) -> tuple[str, ...]:
    lines = [line.rstrip() for line in outcome.output.splitlines() if line.strip()]
    return tuple(map(_shown, lines[-_DECISIVE_LINES:]))


def _shown(line: str) -> str:
    return _PYTHON_FOLDER.sub("…/", line)[:_LINE_CHARS]
