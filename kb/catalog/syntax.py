"""The common subset of Python re, RE2 and Hyperscan: what a catalog pattern may be made of."""

from __future__ import annotations

import re
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

# RE2 refuses a longer counted repeat.
_MAX_COUNT = 1_000
_PYTHON_ONLY = re.compile(r"(?<!\\)(?:\\\\)*(\\[uUN])")
_PLAIN = frozenset((sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN))
_REFUSED = {
    sre.ASSERT: "a lookaround",
    sre.ASSERT_NOT: "a lookaround",
    sre.GROUPREF: "a backreference",
    sre.GROUPREF_EXISTS: "a backreference",
    sre.ATOMIC_GROUP: "an atomic group",
    sre.POSSESSIVE_REPEAT: "a possessive repeat",
}
_PYTHON_ONLY_FLAGS = re.ASCII | re.LOCALE | re.VERBOSE


class PatternError(ValueError):
    """A text that no entry may hold as a pattern; its message says why."""


def parse(pattern: str) -> Any:
    """The pattern's syntax tree, an `re._parser.SubPattern`.

    Raises PatternError for what is no pattern or leaves the common subset, and nothing else.
    """
    try:
        tree = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"is not a pattern: {error}") from error
    if problem := _find_problem(tree, pattern):
        raise PatternError(problem)
    return tree


def group_names(tree: Any) -> frozenset[str]:
    """The names of a parsed pattern's groups: the values that a match of it captures."""
    return frozenset(tree.state.groupdict)


def _find_problem(tree: Any, pattern: str) -> str:
    if tree.state.flags & _PYTHON_ONLY_FLAGS:
        return "sets a flag that other engines lack; only (?i), (?s) and (?m) are shared"
    if found := _PYTHON_ONLY.search(pattern):
        return f"writes a character as {found[1]}…, which other engines lack; write it itself"
    if problem := _structure_problem(tree.data, inside=False):
        return problem
    if tree.getwidth()[0] == 0:
        return "matches the empty text, so it would match every line"
    return ""


def _structure_problem(items: list[tuple[Any, Any]], *, inside: bool) -> str:
    """What a linear-time engine refuses or what hangs `re`, in words; `inside` a repeat, or not."""
    for operator, argument in items:
        if operator in _PLAIN:
            continue
        if construct := _REFUSED.get(operator):
            return f"uses {construct}, which linear-time engines refuse"
        if operator is sre.AT:
            if argument is sre.AT_END_STRING:
                return r"uses \Z, which linear-time engines refuse"
            continue
        endless = inside
        parts: list[Any] = []
        if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, body = argument
            if most is sre.MAXREPEAT:
                if inside:
                    return "has an endless repeat in an endless repeat, as in (a+)+; bound one"
                endless = True
            if max(least, 0 if most is sre.MAXREPEAT else most) > _MAX_COUNT:
                return f"repeats more than {_MAX_COUNT} times, which linear-time engines refuse"
            parts = [body]
        elif operator is sre.SUBPATTERN:
            parts = [argument[3]]
        elif operator is sre.BRANCH:
            parts = argument[1]
        for part in parts:
            if problem := _structure_problem(part.data, inside=endless):
                return problem
    return ""
