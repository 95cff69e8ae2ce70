"""Any bytes as a text: an answer, the same in whatever pieces they come."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

from kb.catalog import Catalog, load_catalog
from triage.engine import Evidence, Limits, diagnose, scan

_CATALOG = load_catalog()
# The smallest limits, so that short texts reach every part.
_LIMITS = Limits(head_bytes=256, tail_bytes=256, max_line_bytes=2_048, hits_per_pattern=4)


class _Pieces:
    def __init__(self, data: bytes, size: int) -> None:
        self._rest = io.BytesIO(data)
        self._size = size

    def read(self, size: int = -1, /) -> bytes:
        """At most the chosen size."""
        return self._rest.read(self._size if size < 0 else min(size, self._size))


def check(data: bytes) -> None:
    """Scans and diagnoses; the Evidence survives JSON; pieces do not matter."""
    evidence = scan(io.BytesIO(data), catalog=_CATALOG, limits=_LIMITS)
    document = json.dumps(evidence.to_json(), allow_nan=False)
    again = Evidence.from_json(json.loads(document))
    verdict = diagnose([again], _CATALOG)
    assert "\0" not in json.dumps(verdict.to_json(), allow_nan=False)
    assert evidence.bytes == len(data)
    assert (verdict.kind == "clean") <= (not verdict.diagnoses)
    for diagnosis in verdict.diagnoses:
        for line in diagnosis.evidence:
            assert 1 <= line.line <= line.end_line <= max(evidence.lines, 1)
    pieces = _Pieces(data, 1 + len(data) % 61)
    assert json.dumps(scan(pieces, catalog=_CATALOG, limits=_LIMITS).to_json()) == document
    if len(data) % 4 == 0:
        whole = scan(io.BytesIO(data), catalog=_CATALOG)
        diagnose([whole, evidence], _CATALOG)


def seeds(catalog: Catalog) -> Iterator[bytes]:
    """The first example of each entry of its own, and its first near miss."""
    for pitfall in catalog:
        for examples in (pitfall.positives, pitfall.near_misses):
            for example in examples[:1]:
                yield example.path.read_bytes()


if __name__ == "__main__":
    from driver import start

    start(__file__)
