"""Any text as stack dumps: threads read, processes grouped, a sentence said."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

from kb.catalog import Catalog, load_catalog
from triage.engine import Evidence, Limits, diagnose, scan, stack_tree
from triage.engine.lines import split_line
from triage.engine.parsers.stacks import StackParser

_CATALOG = load_catalog()
_MARKS = (b"most recent call first", b"MainThread", b"Thread 0x", b"#0 ", b'{"pid"')


def check(data: bytes) -> None:
    """Parses all lines as a dump, and the whole as a text."""
    limits = Limits()
    parser = StackParser(limits)
    for number, raw in enumerate(data.split(b"\n"), 1):
        for line in split_line(raw, number, limits):
            parser.feed(line)
    parser.finish()
    for stack in parser.stacks:
        assert 1 <= stack.line <= stack.end_line
    evidence = Evidence(name="stacks", lines=data.count(b"\n") + 1, stacks=parser.stacks)
    again = Evidence.from_json(json.loads(json.dumps(evidence.to_json(), allow_nan=False)))
    assert again.stacks == evidence.stacks
    tree = stack_tree.build([again])
    assert isinstance(tree.sentence, str)
    scanned = scan(io.BytesIO(data), catalog=_CATALOG)
    diagnose([again, scanned], _CATALOG)


def seeds(catalog: Catalog) -> Iterator[bytes]:
    """Examples of the catalog that hold stacks."""
    for pitfall in catalog:
        for example in (*pitfall.positives, *pitfall.near_misses):
            data = example.path.read_bytes()
            if any(mark in data for mark in _MARKS):
                yield data


if __name__ == "__main__":
    from driver import start

    start(__file__)
