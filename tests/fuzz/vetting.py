"""Any lines as patterns of unknown origin: the child that compiles them ends, and says which cost.

Each input starts a process, so that this target is slow by nature.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from kb.catalog import Catalog
from kb.catalog.syntax import PatternError, parse
from triage.engine import vetting

_MAX_PATTERNS = 8
_MAX_CHARS = 300
# A child may use its time a pattern for each, and start again behind every one that fails.
_MAX_SECONDS = 30.0


def check(data: bytes) -> None:
    """Vets what parses; the answer comes in bounded time and is the same when asked again."""
    texts = []
    for line in data.decode("utf-8", "replace").splitlines()[:_MAX_PATTERNS]:
        try:
            parse(line[:_MAX_CHARS])
        except PatternError:
            continue
        texts.append(line[:_MAX_CHARS])
    start = time.process_time()
    problems = vetting.refused(texts)
    assert time.process_time() - start < _MAX_SECONDS
    assert set(problems) <= set(texts)
    assert all(problems.values())
    assert vetting.refused(texts) == problems
    assert [text for text in dict.fromkeys(texts) if vetting.is_refused(text)] == [
        text for text in dict.fromkeys(texts) if text in problems
    ]


def seeds(catalog: Catalog) -> Iterator[bytes]:
    """Patterns of the catalog, a few to an input, and one that costs too much."""
    texts = [
        text
        for pitfall in catalog
        for signature in pitfall.signatures[:1]
        for _, text in [*signature.kinds_and_patterns()][:1]
    ]
    for at in range(0, len(texts), 6 * _MAX_PATTERNS):
        yield "\n".join(texts[at : at + _MAX_PATTERNS]).encode()
    yield b"(?:\\w{1,999}x){1,999}y\nplain words"


if __name__ == "__main__":
    from driver import start

    start(__file__)
