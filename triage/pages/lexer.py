"""A Pygments lexer for what training runs print: ranks, levels, tracebacks, NCCL, stack dumps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pygments.lexer import Lexer
from pygments.lexers.python import PythonLexer
from pygments.token import (
    Comment,
    Generic,
    Keyword,
    Literal,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    _TokenType,
)

Tokens = Iterator[tuple[int, _TokenType, str]]

#: Past this column a line is left plain: nobody reads colours there, and work stays bounded.
MAX_COLOURED_CHARACTERS = 2_000
#: Source lines inside tracebacks are short; longer ones are minified code or hostile.
MAX_SOURCE_CHARACTERS = 200
#: Prefixes nest: srun around torchrun around a time stamp around a level.
MAX_PREFIXES = 6

# Every repetition below is bounded, so that a scan over a line costs a constant times its length.
_PREFIX = re.compile(
    r"""
      (?P<space>[ \t]{1,200})
    | (?P<rank>
          \[(?:rank|default|RANK|Rank|local_rank)[ =:]?\d{1,6}\]:?(?:[ ]\|\|)? # [rank3]:
        | \(\w{1,64}\ pid=\d{1,9}(?:,\ ip=[\d.:a-fA-F]{3,45})?\)              # (RayTrainWorker …)
        | \[\d{1,5},\d{1,5}\]<std(?:err|out)>:                                # [1,3]<stderr>:
        | \d{1,5}:(?=\s)                                                      # srun -l
        | (?:node|host|worker|gpu)[-_]?\w{0,20}(?:-\w{1,20}){0,3}:(?=\s)      # pdsh
      )
    | (?P<time>
          \[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:?
        | (?:\[\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?\]|\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?=\s))
        | \[?[IWEF]\d{4}\ \d\d:\d\d:\d\d(?:\.\d{1,9})?                            # glog
        | \[\s{0,12}\d{1,9}\.\d{6}\]                                          # dmesg
      )
    | (?P<error>\[?(?:ERROR|CRITICAL|FATAL|Error|E)\]?(?=[\s:|]|$))
    | (?P<warn>\[?(?:WARNING|WARN|Warning|W)\]?(?=[\s:|]|$))
    | (?P<level>\[?(?:INFO|DEBUG|TRACE|NOTSET|SUCCESS)\]?(?=[\s:|]|$))
    | (?P<mark>\|(?=\s)|-(?=\s))
    """,
    re.VERBOSE,
)
_PREFIX_TYPES: dict[str, _TokenType] = {
    "space": Text,
    "rank": Name.Label,
    "time": Literal.Date,
    "error": Generic.Error,
    "warn": Generic.Strong,
    "level": Keyword.Type,
    "mark": Punctuation,
}

# A line that is one of these as a whole, after its prefixes.
_PYTHON_FRAME = re.compile(
    r'(?P<word>File )(?P<path>"[^"\n]{1,1000}")(?P<word2>, line )(?P<line>\d{1,9})'
    r"(?:(?P<word3>,? in )(?P<name>[^\n]{1,300}))?$"
)
_TRACEBACK = re.compile(
    r"(?:Traceback \(most recent call last\):|\+ Exception Group Traceback .{0,80}"
    r"|During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:"
    r"|(?:Current t|T)hread 0x[0-9a-f]{4,16}.{0,80}\(most recent call first\):"
    r"|Fatal Python error: .{0,200}"
    r"|Original Traceback \(most recent call last\):)$"
)
_EXCEPTION = re.compile(
    r"(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}"
    r"(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Failure|StopIteration|Unpickling\w{0,20}))"
    r"(?P<colon>:(?=\s|$)|$)"
)
_CPP_FRAME = re.compile(
    r"(?P<number>frame #\d{1,5}:) (?P<name>[^\n]{1,1500}?)(?: \+ (?P<address>0x[0-9a-f]{1,16}))?"
    r"(?: \((?P<path>[^()\n]{1,500})\))?$"
)
_GDB_FRAME = re.compile(
    r"(?P<number>#\d{1,5})(?P<gap>\s{1,8})(?:(?P<address>0x[0-9a-f]{1,16})(?P<word> in ))?"
    r"(?P<name>[^\s(]{1,500})(?P<rest>.{0,1500})$"
)
_SPY_THREAD = re.compile(
    r"(?P<word>(?:Thread|Process) )(?P<number>\d{1,12}|0x[0-9a-f]{1,16})(?P<rest>[: (].{0,600})$"
)
_SPY_FRAME = re.compile(
    r"(?P<name>[\w<>.]{1,200})(?P<open> \()(?P<path>[^():\n]{1,500})(?P<colon>:)(?P<line>\d{1,9})"
    r"(?P<close>\))$"
)
_CARETS = re.compile(r"[\^~]{2,300}$|\^$")

_INNER = re.compile(
    r"""
      (?P<nccl>\bNCCL\ (?:INFO|WARN|ERROR|TRACE|WATCHDOG)\b|\bNCCL_[A-Z_]{2,40}\b
        |\bncclResult\w{0,20}
        |\b(?:ProcessGroup(?:NCCL|Gloo)|WorkNCCL|Watchdog)\b)
    | (?P<bar>\d{1,3}%\|[^|\n]{0,120}\|)
    | (?P<exception>\b(?:[A-Za-z_]\w{0,40}\.){0,4}[A-Z]\w{0,40}(?:Error|Exception)\b)
    | (?P<error>\b(?:ERROR|CRITICAL|FATAL|FAILED|Aborted|Killed
        |SIG(?:BUS|SEGV|ABRT|KILL|TERM|FPE|ILL)
        |Segmentation\ fault|Bus\ error)\b)
    | (?P<warn>\b(?:WARNING|WARN|UserWarning|FutureWarning|DeprecationWarning)\b)
    | (?P<rank>\b[Rr]ank\ ?[=:]?\ ?\d{1,6}\b|\blocal_rank\ ?[=:]\ ?\d{1,4}\b)
    | (?P<path>(?:\.{0,2}/|[A-Z]:\\)[\w.+@~%-]{1,120}(?:[/\\][\w.+@~%-]{1,120}){1,30})
    | (?P<url>https?://[^\s<>"']{1,400})
    | (?P<hex>\b0x[0-9a-fA-F]{1,16}\b)
    | (?P<key>\b[A-Za-z_]\w{0,40}(?==[\w"'(\[.-]))
    | (?P<string>"[^"\n]{0,200}"|(?<![\w'])'[^'\n]{0,200}'(?!\w))
    | (?P<number>(?<![\w.])-?\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,4})?(?![\w.]))
    | (?P<nan>\b(?:nan|inf|NaN|Inf)\b)
    | (?P<word>\w{1,500})
    """,
    re.VERBOSE,
)
_INNER_TYPES: dict[str, _TokenType] = {
    "nccl": Name.Tag,
    "bar": Generic.Output,
    "exception": Name.Exception,
    "error": Generic.Error,
    "warn": Generic.Strong,
    "rank": Name.Label,
    "path": String.Other,
    "url": String.Other,
    "hex": Number.Hex,
    "key": Name.Attribute,
    "string": String,
    "number": Number,
    "nan": Generic.Error,
    "word": Text,
}


class TrainingLogLexer(Lexer):
    """Colours the log of a training run, line by line.

    Its tokens join to the very text, whatever that is, and the time is linear in its length.
    The only state between lines is whether the last one was a Python frame, whose source follows.
    """

    name = "Training log"
    aliases = ["training-log"]
    filenames = ["*.trainlog"]
    mimetypes = ["text/x-training-log"]
    url = "https://pytorch.org/docs/stable/elastic/errors.html"

    def __init__(self, **options: Any) -> None:
        options.setdefault("stripnl", False)
        options.setdefault("ensurenl", False)
        super().__init__(**options)
        self._python = PythonLexer(stripnl=False, ensurenl=False)

    def get_tokens_unprocessed(self, text: str) -> Tokens:
        """(index, token type, text) in order."""
        start = 0
        after_frame = False
        for line in text.split("\n"):
            yield from self._line(start, line[:MAX_COLOURED_CHARACTERS], after_frame)
            if len(line) > MAX_COLOURED_CHARACTERS:
                yield (
                    start + MAX_COLOURED_CHARACTERS,
                    Text,
                    line[MAX_COLOURED_CHARACTERS:],
                )
            after_frame = 'File "' in line[:400] and ", line " in line[:1500]
            start += len(line)
            if start < len(text):
                yield start, Text, "\n"
            start += 1

    def _line(self, start: int, line: str, after_frame: bool) -> Tokens:
        at = 0
        for _ in range(MAX_PREFIXES):
            found = _PREFIX.match(line, at)
            if found is None or not found.group():
                break
            yield start + at, _PREFIX_TYPES[found.lastgroup or "space"], found.group()
            at = found.end()
        rest = line[at:]
        if rest:
            whole = self._whole(rest, after_frame)
            yield from (
                (start + at + index, kind, value)
                for index, kind, value in (whole if whole is not None else _inner(rest))
            )

    def _whole(self, rest: str, after_frame: bool) -> Tokens | None:
        """The tokens of a line that is a frame, header or exception; None for any other line."""
        if _TRACEBACK.match(rest):
            return iter([(0, Generic.Heading, rest)])
        if found := _PYTHON_FRAME.match(rest):
            return _groups(found, path=String, line=Number, name=Name.Function)
        if found := _CPP_FRAME.match(rest):
            return _groups(
                found, number=Keyword, name=Name.Function, address=Number.Hex, path=String.Other
            )
        if found := _GDB_FRAME.match(rest):
            return _groups(found, number=Keyword, address=Number.Hex, name=Name.Function)
        if found := _SPY_THREAD.match(rest):
            return _groups(found, word=Generic.Heading, number=Generic.Heading, rest=Generic.Emph)
        if found := _SPY_FRAME.match(rest):
            return _groups(found, name=Name.Function, path=String.Other, line=Number)
        if _CARETS.match(rest):
            return iter([(0, Operator, rest)])
        if found := _EXCEPTION.match(rest):
            return _exception(rest, found)
        if after_frame and len(rest) <= MAX_SOURCE_CHARACTERS:
            return self._python.get_tokens_unprocessed(rest)
        return None


def _groups(found: re.Match[str], **types: _TokenType) -> Tokens:
    """The match cut at its named groups; what lies between them is muted."""
    at = 0
    text = found.group()
    for name, kind in sorted(types.items(), key=lambda item: found.start(item[0])):
        begin, end = found.span(name)
        if begin < at or begin == end:
            continue
        if begin > at:
            yield at, Comment, text[at:begin]
        yield begin, kind, text[begin:end]
        at = end
    if at < len(text):
        yield at, Comment, text[at:]


def _exception(rest: str, found: re.Match[str]) -> Tokens:
    yield 0, Name.Exception, found["name"]
    at = found.end("name")
    if at < len(rest):
        yield from ((at + index, kind, value) for index, kind, value in _inner(rest[at:]))


def _inner(text: str) -> Tokens:
    at = 0
    for found in _INNER.finditer(text):
        if found.start() > at:
            yield at, Text, text[at : found.start()]
        yield found.start(), _INNER_TYPES[found.lastgroup or "word"], found.group()
        at = found.end()
    if at < len(text):
        yield at, Text, text[at:]
