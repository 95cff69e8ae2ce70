"""Months of the site's own zone, by name: 2026-11."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

_NAME = re.compile(r"(?P<year>20\d\d)-(?P<month>0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A calendar month; it begins at midnight of the site's zone (settings.TIME_ZONE)."""

    year: int
    number: int

    @classmethod
    def parse(cls, name: str) -> Month:
        """The month of `2026-11`. Raises ValueError for any other text."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise ValueError(f"no month: {name!r}; write it as 2026-11")
        return cls(int(found["year"]), int(found["month"]))

    @classmethod
    def of(cls, moment: datetime) -> Month:
        """The month in which this moment lies."""
        there = timezone.localtime(moment, timezone.get_default_timezone())
        return cls(there.year, there.month)

    def __str__(self) -> str:
        return f"{self.year}-{self.number:02d}"

    @property
    def words(self) -> str:
        """`November 2026`."""
        return f"{self.start:%B %Y}"

    @property
    def start(self) -> datetime:
        """Its first moment."""
        return datetime(self.year, self.number, 1, tzinfo=timezone.get_default_timezone())

    @property
    def end(self) -> datetime:
        """The first moment of the next one."""
        return self.later(1).start

    @property
    def last_day(self) -> datetime:
        """The first moment of its last day."""
        return self.end - timedelta(days=1)

    def later(self, months: int) -> Month:
        """So many months later; earlier for a negative number."""
        years, number = divmod(self.year * 12 + self.number - 1 + months, 12)
        return Month(years, number + 1)
