"""Regexes that are compiled when they are first used, and by one process for the next ones.

Most texts need few of the engine's regexes; but to compile those few takes `re` longer than to
search a short text, so what it makes of them is kept in the store, and handed to the matcher as it
is. The matcher checks it before it takes it.
"""

from __future__ import annotations

import _sre  # type: ignore[import-not-found]
import re
from array import array
from typing import Any, cast, overload

from triage.engine import store

_Source = tuple[str | bytes, int]
#: flags, code, number of groups, their numbers by name
_Code = tuple[int, "array[int]", int, dict[str, int]]
# Of as many bits as the matcher takes.
_CODES = "I"
# Beyond the engine's own some hundreds are those of the catalog that many texts need.
_MAX_KEPT = 4_000


class Kept:
    """What `re` made of regexes in former processes, read when the first is needed."""

    def __init__(self) -> None:
        self._read: dict[_Source, _Code] | None = None
        self._fresh: dict[_Source, _Code] = {}
        self._wanted: set[_Source] = set()
        self._key = ""

    @property
    def _known(self) -> dict[_Source, _Code]:
        if self._read is None:
            self._read = self._load()
        return self._read

    def has(self, source: _Source) -> bool:
        """Whether to compile it takes no time; if not, it is wanted for the next process."""
        if source in self._known:
            return True
        self._wanted.add(source)
        return False

    def compile(self, source: _Source) -> re.Pattern[Any]:
        """The compiled regex; re.error as re.compile raises it."""
        code = self._known.get(source)
        if code is not None:
            try:
                return _assemble(source, code)
            except (OverflowError, RuntimeError, TypeError, ValueError):
                del self._known[source]
        try:
            code = _translate(source)
            made = _assemble(source, code)
        except (AttributeError, ImportError, OverflowError, RuntimeError, TypeError, ValueError):
            # Another Python keeps its translator elsewhere, or the regex is at fault: it says so.
            return re.compile(*source)
        self._fresh[source] = code
        return made

    def save(self) -> None:
        """Keeps what this process compiled or wanted beside what was kept before."""
        if len(self._known) >= _MAX_KEPT:
            return
        for source in sorted(self._wanted - self._fresh.keys(), key=repr):
            self.compile(source)
        if not self._fresh:
            return
        self._known.update(self._fresh)
        self._fresh = {}
        rows, codes = [], array(_CODES)
        for (text, flags), (all_flags, code, groups, names) in self._known.items():
            is_text = isinstance(text, str)
            shown = text if isinstance(text, str) else text.decode("latin-1")
            rows.append((is_text, shown, flags, all_flags, len(code), groups, names))
            codes.extend(code)
        store.save(self._key, rows, [codes.tobytes()])

    def _load(self) -> dict[_Source, _Code]:
        self._key = store.key_of("regexes", "", [str(_sre.MAGIC), str(array(_CODES).itemsize)])
        saved = store.load(self._key)
        known: dict[_Source, _Code] = {}
        if saved is None:
            return known
        rows, (blob,) = saved
        codes, at = array(_CODES, blob), 0
        for is_text, shown, flags, all_flags, size, groups, names in rows:
            text = shown if is_text else shown.encode("latin-1")
            known[text, flags] = all_flags, codes[at : at + size], groups, names
            at += size
        return known


def _translate(source: _Source) -> _Code:
    """What re.compile makes of a regex before it hands it to the matcher."""
    from re import _compiler, _parser  # type: ignore[attr-defined]  # noqa: PLC0415

    text, flags = source
    tree = _parser.parse(text, flags)
    code = _compiler._code(tree, flags)
    return flags | tree.state.flags, array(_CODES, code), tree.state.groups, tree.state.groupdict


def _assemble(source: _Source, code: _Code) -> re.Pattern[Any]:
    flags, body, groups, names = code
    by_number: list[str | None] = [None] * groups
    for name, number in names.items():
        by_number[number] = name
    made = _sre.compile(source[0], flags, body.tolist(), groups - 1, names, tuple(by_number))
    return cast("re.Pattern[Any]", made)


_kept = Kept()


def compile_now(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """As re.compile, but quick for what a former process compiled."""
    return _kept.compile((pattern, int(flags)))


def is_quick(pattern: str, flags: int = 0) -> bool:
    """Whether compile_now is quick for it; after save_compiled it is, in the next process."""
    return _kept.has((pattern, int(flags)))


def save_compiled() -> None:
    """Keeps for the next process what this one compiled; for those that end after one answer."""
    _kept.save()


_METHODS = (
    "findall", "finditer", "flags", "fullmatch", "groupindex", "groups", "match", "pattern",
    "search", "split", "sub", "subn",
)  # fmt: skip


class _Regex:
    """Stands in for a compiled pattern; the first method asked for compiles it."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = pattern, int(flags)

    def __getattr__(self, name: str) -> Any:
        compiled = _kept.compile(self._source)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


@overload
def regex(pattern: str, flags: int = 0) -> re.Pattern[str]: ...


@overload
def regex(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]: ...


def regex(pattern: Any, flags: int = 0) -> Any:
    """What re.compile returns, but compiled on first use; re.error comes then too."""
    return cast("re.Pattern[Any]", _Regex(pattern, flags))
