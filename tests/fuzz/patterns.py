"""Any text as a catalog pattern: refused in words, or a pattern whose literals every match holds.

The input is a pattern, a NUL and a line to look for it in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kb.catalog import Catalog
from kb.catalog.syntax import PatternError, group_names, parse
from triage.engine.patterns import Pattern, prefilter_regex

_MAX_PATTERN_CHARS = 300
_BIG_REPEAT = re.compile(r"\{\d*,?\d{3,}\}")


def check(data: bytes) -> None:
    """Parses, analyses, compiles, searches; a match holds a literal and passes the prefilter."""
    head, _, tail = data.partition(b"\0")
    text = head.decode("utf-8", "replace")[:_MAX_PATTERN_CHARS]
    line = tail.decode("utf-8", "replace").replace("\n", " ").replace("\r", " ")[:300]
    try:
        tree = parse(text)
    except PatternError:
        return
    group_names(tree)
    if _BIG_REPEAT.search(text):
        # What it may cost is vetting's question.
        return
    pattern = Pattern(text)
    found = pattern.search(line)
    if found is None:
        return
    found.groupdict()
    assert pattern.may_occur_in(line)
    raw = line.encode()
    if pattern.literals is not None:
        folded = raw.lower()
        assert any(
            bytes(literal) in raw or (folds and bytes(literal).lower() in folded)
            for literal, folds in pattern.literals
        )
    re.compile(prefilter_regex(text))


def seeds(catalog: Catalog) -> Iterator[bytes]:
    """The catalog's patterns, each with a line that it matches where an example has one."""
    for pitfall in catalog:
        lines = [
            line
            for example in pitfall.positives
            for line in example.path.read_text("utf-8", "replace").splitlines()
        ]
        for signature in pitfall.signatures:
            for _, text in signature.kinds_and_patterns():
                found = Pattern(text)
                line = next((line for line in lines if found.search(line)), "")
                yield text.encode() + b"\0" + line.encode()


if __name__ == "__main__":
    from driver import start

    start(__file__)
