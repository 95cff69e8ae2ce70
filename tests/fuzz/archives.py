"""Any bytes as an archive, and any text in a whole or cut one: the text, or a refusal in words.

The first byte says how the rest is packed, the second where the archive is cut.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator

import zstandard

from kb.catalog import Catalog
from triage.engine import terminal

_MAX_READ_BYTES = 32 << 20


def check(data: bytes) -> None:
    """Opens the archive; whole ones give back what was packed, others a part of it or TextError."""
    if len(data) < 2:
        return
    way, where, body = data[0] % 6, data[1], data[2:]
    if way == 0:
        _read(body)
        return
    if way == 1:
        _read(b"\x1f\x8b\x08" + body)
        return
    if way == 2:
        _read(b"\x28\xb5\x2f\xfd" + body)
        return
    half = len(body) // 2
    packed = {
        3: gzip.compress(body, mtime=0),
        4: zstandard.compress(body[:half]) + zstandard.compress(body[half:]),
        5: gzip.compress(body[:half], mtime=0) + gzip.compress(body[half:], mtime=0),
    }[way]
    assert _read(packed) == body
    cut = len(packed) * where // 256
    part = _read(packed[:cut])
    if cut >= 4:
        assert part is None or body.startswith(part)
    _read(packed + body[:where])
    damaged = bytearray(packed)
    damaged[cut] ^= 1 + where % 255
    _read(bytes(damaged))


def _read(packed: bytes) -> bytes | None:
    """What the archive holds; None where it is refused."""
    pieces = []
    size_bytes = 0
    try:
        opened = terminal._opened(io.BytesIO(packed), "x")
        while piece := opened.read(65_536):
            pieces.append(piece)
            size_bytes += len(piece)
            assert size_bytes < _MAX_READ_BYTES
    except terminal.TextError:
        return None
    return b"".join(pieces)


def seeds(catalog: Catalog) -> Iterator[bytes]:
    """One example of every third entry, packed in each way; and a real archive of each kind."""
    examples = [p.positives[0].path.read_bytes()[:4_000] for p in catalog if p.positives]
    for number, text in enumerate(examples[::3]):
        yield bytes([number % 6, number * 7 % 256]) + text
    yield b"\0\0" + gzip.compress(examples[0], mtime=0)
    yield b"\0\0" + zstandard.compress(examples[0])
    yield b"\1\0" + gzip.compress(examples[0], mtime=0)[3:]
    yield b"\2\0" + zstandard.compress(examples[0])[4:]
    yield b"\0\0\x1f\x8b\x08\x10" + bytes(6) + b"a comment\0" + zlib.compress(b"text")


if __name__ == "__main__":
    from driver import start

    start(__file__)
