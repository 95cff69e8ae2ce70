"""Versions of torch: what a requirement such as `torch >= 1.13` says of one of them."""

from __future__ import annotations

import re

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_CLAUSE = re.compile(r"\btorch\s*(>=|<=|==|<|>)\s*(\d+\.\d+(?:\.\d+)?)")


def numbers_of(version: str) -> tuple[int, int, int] | None:
    """(2, 13, 0) of `2.13.0+cpu`, `2.13` or `v2.13.0a0`; None without such numbers."""
    found = _VERSION.search(version)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def is_same_minor(one: str, other: str) -> bool:
    """Whether both are of the same major.minor; a version that says nothing is never the same."""
    first, second = numbers_of(one), numbers_of(other)
    return first is not None and second is not None and first[:2] == second[:2]


def fits(requirement: str, torch: str) -> bool | None:
    """Whether the version meets the requirement; None where the latter says nothing of torch.

    What follows a semicolon is a remark: `torch >= 2.3; before: torch.cuda.amp.GradScaler()`.
    """
    version = numbers_of(torch)
    clauses = _CLAUSE.findall(requirement.partition(";")[0])
    if version is None or not clauses:
        return None
    return all(_holds(operator, version, numbers_of(bound)) for operator, bound in clauses)


def mended_in(requirement: str) -> str:
    """The version from which on a pitfall of `torch < 2.3` is gone; "" where there is none."""
    found = re.search(r"\btorch\s*<\s*(\d+\.\d+(?:\.\d+)?)", requirement.partition(";")[0])
    return found[1] if found else ""


def _holds(
    operator: str, version: tuple[int, int, int], bound: tuple[int, int, int] | None
) -> bool:
    assert bound is not None
    return {
        ">=": version >= bound,
        "<=": version <= bound,
        "==": version == bound,
        "<": version < bound,
        ">": version > bound,
    }[operator]
