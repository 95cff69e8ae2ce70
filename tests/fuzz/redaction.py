"""Any bytes through redaction: lines keep their numbers, and the pieces do not matter."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kb.catalog import Catalog
from triage.engine.redaction import PATTERNS, LiteralPrefilter, Redactor, find_secrets, redact

_ALL = LiteralPrefilter(PATTERNS)


def check(data: bytes) -> None:
    """Redacts whole, in pieces and again."""
    spans = find_secrets(data)
    assert all(0 <= s.start < s.end <= len(data) for s in spans)
    assert all(one.end <= other.start for one, other in pairwise(spans))
    cleaned, count = redact(data)
    assert cleaned.count(b"\n") == data.count(b"\n")
    assert (count == 0) == (cleaned == data)
    assert redact(cleaned) == (cleaned, 0)
    size = 1 + len(data) // (2 + len(data) % 13)
    redactor = Redactor(_ALL)
    pieces: list[bytes] = []
    for at in range(0, len(data), size):
        pieces += redactor.feed(data[at : at + size])
    pieces += redactor.finish()
    assert b"".join(pieces) == cleaned
    assert redactor.replaced == count


def seeds(catalog: Catalog) -> Iterator[bytes]:
    """One example an entry with a secret of each kind in it, put together so that it is none."""
    texts = [p.positives[0].path.read_bytes()[:2_000] for p in catalog if p.positives]
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL0123456789"
    for number, text in enumerate(texts):
        pattern = PATTERNS[number % len(PATTERNS)]
        start = pattern.literals[0]
        yield (
            text + b"\nHF_" + b"TOKEN=" + start + letters + b"\n" + start + b' = "' + letters + b'"'
        )
    # Taken apart, so that nobody's scanner takes this file for a key.
    begin, end = (b"-----%s RSA PRIVATE KEY-----" % word for word in (b"BEGIN", b"END"))
    yield b"\n".join((begin, letters * 5, end))


if __name__ == "__main__":
    from driver import start

    start(__file__)
