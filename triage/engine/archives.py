"""Compressed texts as streams, bounded against what explodes."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any, BinaryIO, cast

from triage.engine.evidence import TextError

igzip: Any
isal_zlib: Any
try:
    from isal import igzip, isal_zlib
except ImportError:  # no wheel for this platform: the standard library's is slower
    igzip = isal_zlib = None
zstandard: Any
try:
    import zstandard
except ImportError:
    zstandard = None

# What decompressors raise for bytes that are none of theirs.
_BROKEN: tuple[type[Exception], ...] = (
    EOFError,
    OSError,
    zlib.error,
    *(() if isal_zlib is None else (isal_zlib.error,)),
    *(() if zstandard is None else (zstandard.ZstdError,)),
)
_MAX_RATIO = 200
# `zstd --long=27` writes what takes 128 MiB to read; the default takes 8.
_MAX_ZSTD_WINDOW_BYTES = 128 << 20
_ZSTD_PIECE_BYTES = 2048


def open_gzip(stream: BinaryIO, name: str) -> BinaryIO:
    """What a gzip stream holds; reading raises TextError where it is broken or explodes."""
    source = _Counted(stream)
    return cast("BinaryIO", _Archive(name, "gzip", source, _gzip_reader(source)))


def open_zstd(stream: BinaryIO, name: str) -> BinaryIO:
    """The same of a zstd stream; TextError at once where the library is missing."""
    source = _Counted(stream)
    return cast("BinaryIO", _Archive(name, "zstd", source, _zstd_reader(source, name)))


def _gzip_reader(source: _Counted) -> BinaryIO:
    if igzip is not None:
        return cast("BinaryIO", igzip.IGzipFile(fileobj=source))
    return cast("BinaryIO", gzip.GzipFile(fileobj=source))  # type: ignore[call-overload]


def _zstd_reader(source: _Counted, name: str) -> BinaryIO:
    if zstandard is None:
        raise TextError(f"{name}: zstd, which takes `pip install zstandard` or `zstd -d` to read")
    return cast("BinaryIO", _ZstdReader(source))


class _ZstdReader:
    """Frame after frame, in small pieces: a few bytes can stand for megabytes.

    Unlike the library's own reader it tells a cut frame from a whole one.
    """

    def __init__(self, source: _Counted) -> None:
        self._source = source
        self._library = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES)
        self._frame: Any = None
        self._rest = b""
        self._ready = b""

    def read(self, size: int) -> bytes:
        """Up to so many bytes, none at the end; EOFError if the last frame has none."""
        pieces = [self._ready]
        have = len(self._ready)
        while have < size:
            data = self._rest or self._source.read(_ZSTD_PIECE_BYTES)
            self._rest = b""
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends within a frame")
                break
            if self._frame is None:
                self._frame = self._library.decompressobj()
            piece = self._frame.decompress(data)
            if self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
            pieces.append(piece)
            have += len(piece)
        whole = b"".join(pieces)
        self._ready = whole[size:]
        return whole[:size]


class _Archive(io.RawIOBase):
    """Decompresses up to _MAX_RATIO times the bytes read, then refuses."""

    def __init__(self, name: str, kind: str, source: _Counted, reader: BinaryIO) -> None:
        self._name = name
        self._kind = kind
        self._source = source
        self._reader = reader
        self._produced = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._reader.read(len(buffer))
        except _BROKEN as error:
            raise TextError(f"{self._name}: broken {self._kind}: {error}") from error
        self._produced += len(piece)
        if self._produced > 16 << 20 and self._produced > _MAX_RATIO * self._source.count:
            raise TextError(
                f"{self._name}: more than {_MAX_RATIO} times its compressed size; "
                "decompress it yourself and give the part that matters"
            )
        buffer[: len(piece)] = piece
        return len(piece)


class _Counted:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self.count += len(piece)
        return piece

    def readinto(self, buffer: memoryview) -> int:
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)
