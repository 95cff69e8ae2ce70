"""What people said of an entry's fixes and answers, and the order of fixes that comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kb.catalog.model import Fix


@dataclass(frozen=True, slots=True)
class Tally:
    """How many said yes, of how many."""

    good: int = 0
    total: int = 0

    @property
    def share(self) -> float:
        """The share of yes, drawn towards one half while few have spoken (Laplace's rule)."""
        return (self.good + 1) / (self.total + 2)

    @property
    def worked(self) -> str:
        """`worked 5 of 6 times`, `worked once`, `did not work`; empty while nobody said."""
        if not self.total:
            return ""
        if self.total == 1:
            return "worked once" if self.good else "did not work the one time it was tried"
        return f"worked {self.good} of {self.total} times"


@dataclass(frozen=True, slots=True)
class Experience:
    """What people said of an entry: of its answers as a whole, and of each fix by its title."""

    answers: Tally = Tally()
    fixes: Mapping[str, Tally] = field(default_factory=dict)
    #: Slugs that people named where the answer was wrong, with how often, the most frequent first.
    instead: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class RatedFix:
    """A fix with its tally; `mine` is what the reader said of it here, None for nothing.

    `number` is its place in the entry, from 1: guides speak of "the second snippet".
    """

    number: int
    fix: Fix
    tally: Tally
    mine: bool | None = None


def order_fixes(
    fixes: Sequence[Fix],
    experience: Experience,
    mine: Mapping[str, bool] | None = None,
) -> list[RatedFix]:
    """The fixes, what worked best first; those that nobody judged keep their order in the middle.

    `mine` holds what the reader said, by the fix's title.
    """
    rated = [
        RatedFix(number, fix, experience.fixes.get(fix.title, Tally()), (mine or {}).get(fix.title))
        for number, fix in enumerate(fixes, start=1)
    ]
    return sorted(rated, key=lambda item: -item.tally.share)
