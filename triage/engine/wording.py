"""Tells an error that happened from one that is only spoken of: handled, advised, quoted, set."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

from triage.engine.evidence import Hit, Traceback
from triage.engine.lines import Line
from triage.engine.regex import regex

_HANDLED = regex(
    r"(?i)\b(?:retrying|will retry|retry \d+|retries left|trying again|try again in|"
    r"retry (?:in|after) \d|(?:trying|attempting) to resume|"
    r"falling back|falls back|fell back|will fall back|fallback to|using .{1,40} instead|"
    r"(?:used|uses) (?:instead|in its place)|(?:switching|switched|defaulting) to|"
    r"(?:proceeding|carrying on|going on|moving on) (?:without|with|anyway|regardless)|"
    r"reconnecting|reconnected|backing off|non-?fatal|not fatal|best.effort|swallow(?:ed|ing)|"
    r"tolerated|treated as|quarantined|next smaller|"
    r"is ignored|ignoring|ignored\b|(?:error )?suppress(?:ed|ing)\b|"
    r"recovered|recover(?:ing|y) from|caught and|"
    r"(?<!not )(?<!un)handled|continuing (?:without|anyway|with)|"
    r"(?:skipp|dropp|discard|exclud)(?:ed|ing) "
    r"(?:this |the |that |it\b|bad |broken |corrupt(?:ed)? )?"
    r"(?:batch|sample|file|image|record|row|shard|item|step|trial|example|\d)|"
    r"(?:batch|sample|file|image|record|row|shard|item|example|config\w*|candidate|choice|trial)"
    r" (?:\S{1,60} )?(?:is |was )?(?:skipped|dropped|discarded|rejected|pruned)|"
    r"(?:reducing|decreasing|lowering|halving) (?:the )?batch|halving to|"
    r"(?:trying|retry) (?:with (?:a )?(?:smaller )?)?batch.size|"
    r"(?:using|taking|substituting) (?:an?other|a neighbou?r|the (?:next|previous|default)|"
    r"\S{1,30} (?:for it|in its place))|"
    r"replaced (?:by|with)|(?:re)?building it|rebuilding|rebuilt|starting (?:\S{1,20} )?afresh|"
    r"(?:start(?:ing|s|ed)?|train(?:ing)?) (?:from scratch|over|with a (?:fresh|new)|anew)|"
    r"(?:running|runs|run) (?:it |on |in )?(?:eager|eagerly|sdpa|cpu)\b|"
    r"(?:raised|refused|rejected|failed|fails|raises|throws|caught|error) as expected|"
    r"(?:can|may) (?:safely )?be ignored|safe to ignore|harmless|"
    r"(?:on purpose|intentionally|deliberately|simulated|injected|injecting|fault injection)|"
    r"(?:is |are |was |were )?left out|(?:is|are) not affected|remount(?:ing|ed)|offline|"
    r"will not be (?:logged|used|available|recorded|shown|reported|exported)|"
    r"will be disabled|disabling)\b"
    r"|\bXFAIL\b|\((?:as )?expected\)|^\s*caught: |备份|备用|跳过|忽略|重试|降级|改用|已恢复"
    r"|スキップ|無視|再試行|代わりに"
    r"|건너뜀|건너뛰|무시|다시 시도|대신"
    r"|^\s*[\[【(<]?(?:警告|경고|Warnung|Avertissement|Advertencia|Aviso)[\]】)>]?[:\uff1a ]"
    r"|(?:\.{2}|->|=>|:|-) ?(?:[Pp]ass(?:ed)?|PASS(?:ED)?|ok|OK|XFAIL)\W{0,3}$"
)
_CLAUSE = regex(r"(?:[;,.:(–—。，；：]|\s-)\s*(?:(?:now|so|will|and|then|->) )?\Z")
_ATTEMPT = regex(r"(?i)\b(?:attempt|try|retry) #?(?P<this>\d{1,4}) ?(?:/|of) ?(?P<all>\d{1,4})\b")
# The program's own sentence around an exception, which goes on behind it.
_NARRATED = regex(
    r"^(?!\s*[\w.]*(?:Error|Exception)\b).{3,200}?(?:Error|Exception)\w{0,40}(?:\(|: )"
    r".{3,400}?[)\"'](?:[,;]|\.(?= ))\s+(?P<sequel>[A-Za-z][^\"']{3,200})$"
)
_ENDS = regex(
    r"(?i)\b(?:see|exit|abort|stop|giv(?:e|ing) up|gave up|fail|dead|die[sd]?|kill|rais|crash|"
    r"fatal|terminat|shut|quit|cannot|can't|caused|thrown|panic)"
)
_ADVICE_BEFORE = regex(
    r"(?i)(?:\bif (?:you|this|the|it|there|an?y?)\b.{0,60}|\bin (?:the )?case (?:of|you).{0,40}|"
    r"\b(?:to|can|helps?) (?:avoid|prevent|fix|solve|handle|debug|work around|resolve)\b.{0,40}|"
    r"\bsuch as\b.{0,30}|\be\.g\.,?.{0,30}|\bfor example\b.{0,30}|\berrors? like\b.{0,20}|"
    r"\b(?:might|may|could|can|will|would) (?:be caused by|lead to|result in|cause|raise|see|get"
    r"|hit|(?:end|fail|die|stop|crash|break) (?:in|with|by|on)|run into|show|print|say|report|throw"
    r"|produce|trigger)\b.{0,40}|"
    r"\b(?:known issue|troubleshooting|faq|docs?|see also)\b.{0,40}|\bwhen(?:ever)? (?:you|the"
    r"|an?)\b.{0,40}|"
    r"\b(?:expected|correctly|properly)[:,]? (?:an? |the )?(?:\w{0,40}(?:error|exception)|failure"
    r"|raise[sd]?|raising|rejected|refused|caught|got)\b.{0,60}|"
    r"\b(?:refused|rejected|raised|failed|caught|handled) as expected\b.{0,60}|"
    r"\b(?:ok|pass|passed)\b[:\s-]{1,4}(?:it )?(?:raise[sd]|reject(?:s|ed)|throws)\b.{0,60}|"
    r"\bexpect(?:ing|s) [\"'`].{0,60}|"
    r"\b(?:checks? for|search(?:ed|ing)? for|looking for|grep)\b.{0,40}|\bunless\b.{0,30}|"
    r"\b(?:no|without|never) (?:more |such |further |an? )?|"
    r"\b(?:used to|(?:we|i) (?:once |also )?(?:had|saw)) .{0,40}|"
    r"(?:如果|若是|假如|一旦|万一|常见(?:报错|问题|错误)|例如|比如|之前|以前|曾经|もし|例えば|以前|만약|"
    r"예를 들어|이전에|예전에).{0,40}|若(?:出现|报错|遇到).{0,40})$"
)
# Behind the words: a condition in the languages that put it there.
_CONDITION_BEHIND = regex(
    r"^.{0,120}?(?:[がのは] ?(?:出る?|出た|発生する?|発生した)?(?:場合|時)|"
    r"(?:의|가|이) ?(?:발생|나)?\w{0,3} ?(?:경우|때는)|(?:错误|报错|问题)?(?:的话|的时候)[，,])"
)
_CODE_LINE = regex(
    r"^\s*(?:#(?!\d)|//|/\*|\*\s|[rbuf]?\"\"\"|'''|raise |except |assert |logger?\."
    r"|logging\.|print\(|warnings\.warn\(|"
    r"parser\.add_argument|def |class |import |from \S+ import |if .*:\s*$|elif |>>> |return "
    r"|echo |grep |- (?:run|name):|[-+] (?!To our best knowledge|\[\d|Snapshot ))"
)
# The string is what a function of the program is given: a name in small letters, as Python's
# classes of exceptions are not.
_ARGUMENT = regex(
    r"(?:^|[^\w.])(?:[a-z_]\w{0,40}\.){0,4}[a-z_]\w{1,40}\((?:[\w\s=,.]{0,60},\s?)?[rbf]?[\"'][^\"']{0,120}$"
)
_COMPARED = regex(r"[\"'][^\"']{0,120}[\"'] (?:not )?in [a-z_]\w{0,40}(?:\(|\b)")
# A phrase in quotes in the middle of somebody's sentence, but not what "error" or ":" introduce.
_QUOTED_BEFORE = regex(
    r"(?i)(?<![:=,{\[(])(?<!\berror)(?<!\bmessage)(?<!\bfailed)(?<!\bexception)(?<!\breason)"
    r"(?<!\bwith)(?<!\bbecause)(?<!\bmsg)(?<!\bassertion)(?<!\bget)(?<!\bgets)(?<!\bgetting)"
    r"(?<!\bgot)(?<!\bgives)(?<!\bgive)(?<!\bsee)(?<!\bsees)(?<!\bseeing)(?<!\bthrows)"
    r"(?<!\braises)(?<!\bsays)(?<!\bsaying)(?<!\bshows)(?<!\bprints)(?<!\bprinted)"
    r"(?<!\breports)(?<!\bfollowing)(?<!\bthis)(?<!\bis)(?<!\bas)(?<!\bhit)(?<!^) "
    r"(?:[\"“「《](?:[\w.]{1,60}(?:Error|Exception)[: ]{1,2})?"
    r"|`(?:[\w.]{1,60}(?:Error|Exception)[: ]{1,2}|(?P<bare>)))$"
)
_EXCEPTION_WORD = regex(r"[\w.]{1,60}(?:Error|Exception)\b")
# The key of a program's table, 'CUDA out of memory': 'lower the batch size', but not a value of it,
# which a JSON file's error is.
_TABLE_ENTRY = regex(r"\s+['\"](?P<key>[^'\"]{1,200})['\"]: ['\"][^'\"]{1,200}['\"],\s*$")
_NUMBERED_STRING = regex(r"\s*[\w.#\-]{0,20}\s*'[^']{1,300}',?\s*$")
_IN_LIST = regex(r"^[^\"]{0,120}\"(?:,\s?\"[^\"]{1,120}\"(?!\s?:)|\s?[\])]\s?,?$)")
# The repr of an exception that another one carries: got RuntimeError("shape '[2]' is invalid").
_OPENS_MESSAGE = regex(r"(?:Error|Exception)\(\"[^\"]{0,120}$")
_LISTED = regex(r"\"[^\"]{1,120}\",\s?\"[^\"]{0,60}$")
_SETTING = regex(r"^\s*(?:[\"']?[\w.\-]{2,60}[\"']?\s*[:=]\s*[\"'\[{(]|--?[\w\-]{2,40}[= ])")
_EXCEPTION_NAME = regex(r"^\s*[\w.]*(?:Error|Exception|Warning|Failure|Exit)\b")
_STRUCTURED = regex(
    r"(?i)^\s*(?:\{\s*)?[\"']?(?:msg|message|error|exception|log|text|event|detail|stderr|stdout|reason|err|exc_info|stack)[\"']?\s*[:=]"
)
_TASK_LIST = regex(
    r"(?i)\b(?:regex|pattern|matcher|rule|signature|expected_error|error_patterns|retry_on|ignore_errors|allowlist)\b"
)


@lru_cache(maxsize=512)
def is_handled(text: str) -> bool:
    """Whether the line itself says that the error was dealt with."""
    if (attempt := _ATTEMPT.search(text)) is not None:
        return int(attempt["this"]) < int(attempt["all"])
    if _EXCEPTION_NAME.match(text):
        # What an exception's own sentence ignores or skips is not the exception.
        return any(
            m[0][0] == "(" or _CLAUSE.search(text, 0, m.start()) for m in _HANDLED.finditer(text)
        )
    if _HANDLED.search(text) is not None:
        return True
    if "NCCL WARN" in text:
        # A native logger tells of no exception that somebody caught.
        return False
    told = _NARRATED.search(text[:700]) if "Error" in text or "Exception" in text else None
    return told is not None and _ENDS.search(told["sequel"]) is None


def is_mention(line: Line, text: str, start: int) -> bool:
    """Whether the words at `start` are advice, a setting or code rather than an event."""
    if line.is_code or _CODE_LINE.match(text):
        return True
    before = text[max(0, start - 120) : start]
    # A sentence of its own is not governed by what the sentence before it said.
    sentence = re.split(r"[.;!?]\s+|[。；！？]", before)[-1]
    if _ADVICE_BEFORE.search(sentence):
        return True
    if not text.isascii() and _CONDITION_BEHIND.search(text[start : start + 300]):
        return True
    if _is_quoted(text, before, start):
        return True
    if _SETTING.match(text) and not _STRUCTURED.match(text) and not _EXCEPTION_NAME.match(text):
        quoted = before.count('"') % 2 == 1 or before.count("'") % 2 == 1
        if quoted or text.lstrip().startswith("-"):
            return True
    return _TASK_LIST.search(before) is not None


def _is_quoted(text: str, before: str, start: int) -> bool:
    """Whether the words at `start` are a string of a program, one of a list, or a quotation."""
    if '"' not in before and "'" not in before and not ("`" in before or "“" in before):
        return "「" in before and _QUOTED_BEFORE.search(before) is not None
    if _ARGUMENT.search(before) and not _STRUCTURED.match(text):
        return True
    if before.count('"') % 2 == 1 and not _OPENS_MESSAGE.search(before):
        behind = text[start : start + 400]
        if _LISTED.search(before) or _IN_LIST.search(behind):
            return not _STRUCTURED.match(text)
    is_compared = _COMPARED.search(text) is not None and _EXCEPTION_NAME.match(text) is None
    if is_compared or _NUMBERED_STRING.match(text):
        return True
    entry = _TABLE_ENTRY.match(text)
    if entry is not None and start < entry.end("key"):
        return True
    quoted = _QUOTED_BEFORE.search(before)
    if quoted is None:
        return False
    return quoted["bare"] is None or _EXCEPTION_WORD.match(text[start:]) is not None


# ------------------------------------------------------------------ what the lines around it say

_HEADER = "Traceback (most recent call last)"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_DIFF_OPENS = regex(r"diff --git |@@ -\d{1,9}(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})? @@")
_DIFF_GOES_ON = regex(r"[-+ @\\]|(?:diff|index|new|deleted|old|rename|similarity|Binary) |$")
_HELP_OPENS = regex(
    r"(?:[Uu]sage: \S|(?:positional arguments|optional arguments|options|Options|Commands|Arguments"
    r"|Flags):\s*$|Help on (?:\w{1,20} ){1,3}|(?:NAME|DESCRIPTION|FUNCTIONS|CLASSES)$)"
)
_HELP_GOES_ON = regex(
    r"\s|$|(?:NAME|DESCRIPTION|FUNCTIONS|CLASSES|DATA|FILE)$|(?:class )?[A-Za-z_]\w{0,80}\(.*\)"
    r"(?: -> .*)?$"
)
# git log: the message of a commit is indented, its header is not.
_COMMIT_OPENS = regex(r"commit [0-9a-f]{7,40}(?: \(|$)")
_COMMIT_GOES_ON = regex(
    r" {4}|$|(?:Author|AuthorDate|Commit|CommitDate|Date|Merge): |commit [0-9a-f]"
)
# A report written afterwards quotes what the run said.
_RETROSPECT = regex(
    r"(?i)#{1,4} .{0,60}\b(?:post-?mortem|incident re(?:view|port)|retrospective|run ?book|glossary"
    r"|change ?log|release notes)\b"
)
_PYDOC_LINE = regex(r" \|(?:  |$)")
_SAMPLE = regex(r"\s+>>> ")
_DOCSTRING_OPENS = regex(r"\s{2,40}[rbuf]?(?:\"\"\"|\'\'\')(?!.*(?:\"\"\"|\'\'\'))")
_MAX_DOCSTRING_LINES = 80
_INTRODUCES = regex(
    r"(?i)(?:exception ignored (?:in|on)\b|\bdue to:\s*$|\bfollowing (?:error|exception)\b|:\s*$)"
)
_PLAIN_INTRODUCTION = regex(r"(?i)exception ignored (?:in|on)\b|^\s*due to:\s*$")
_CRASH = regex(r"(?i)crash|fatal|abort|\bdied\b|terminat|uncaught|unhandled|giving up")
_ADDRESSED = regex(
    r"(?i)^\W{0,4}(?:if|you|to|for|please|set|try|note|consider|make sure|see|exception ignored)\b"
    r"|\byour?\b"
)
_SEQUEL = regex(
    r"(?i)^\W{0,4}(?:skip(?:ping|ped)?|retrying|ignor(?:ing|ed)|falling back|decreasing|reducing|"
    r"halving|rebuilding|recover(?:ing|ed)|continuing|suppressing|"
    r"(?:using|taking|substituting) (?:an?other|a neighbou?r|the (?:next|previous|default)))\b"
)
_SEQUEL_STARTS = frozenset("sSrRiIfFdDhHcCuUtT")
_BULLETS = " \t-*>:.,;|"
_FINISHED = regex(
    r"(?i)\b(?:training|run|job|worker group|fit|all epochs)\b.{0,30}"
    r"\b(?:finished|completed?|succeeded)"
)
# A glossary says below a message when it is printed.
_DEFINITION = regex(
    r"\s{2,}(?:printed|raised|thrown|shown|emitted|logged|reported) (?:when|if|by|where|after)\b",
    re.IGNORECASE,
)
_LIVE_LOG = regex(r".{0,300}-{4,} live log (?:call|setup|teardown) -{4,}$")
_PASSED = regex(r"\s*(?:ok|OK|PASSED|passed)(?:\s+\[ {0,2}\d{1,3}%\])?\s*$")
_NAMED_EXCEPTION = regex(r"\b\w{1,60}(?:Error|Exception)\b")
_MAX_RANGES = 4_096
_LINES_BEHIND = 8
_Key = tuple[int | None, str | None]


@dataclass(slots=True)
class _Told:
    """A traceback on its way: where it began, where its exception stands, who introduced it.

    `is_retry`: a warning about one of several tries stood before it. `exception` is the name.
    """

    begin: int
    is_introduced: bool
    is_retry: bool = False
    end: int = 0
    exception: str = ""


class Surroundings:
    """Reads lines in order and says which are quoted, and which errors their neighbours cope with.

    Quoted are patches, help output, documentation with its samples. An error is coped with where
    the line before introduces it as a warning, or the line behind it says what was done instead.
    """

    def __init__(self) -> None:
        self._passage: re.Pattern[str] | None = None
        self._sample = ""
        self._docstring = 0
        self._is_retrospect = False
        self._live_log = 0
        self._number = 0
        self._before: dict[_Key, Line] = {}
        self._told: dict[_Key, _Told] = {}
        self._is_finished = False
        self._has_own = False
        self._handled: dict[_Key, list[tuple[int, int]]] = {}
        self._count = 0

    def is_quoted(self, line: Line) -> bool:
        """Takes the next line; whether it belongs to a patch, to help or to documentation."""
        if line.number > self._number + 1:
            self._passage, self._sample, self._docstring = None, "", 0
        self._number = line.number
        if line.bar is not None or line.is_code:
            return False
        if self._is_passage(line.full):
            return True
        if line.text.strip():
            self._follow(line)
        return False

    def _is_passage(self, text: str) -> bool:
        if self._passage is not None:
            if self._passage.match(text) or _HELP_OPENS.match(text):
                return True
            self._passage = None
        start = text[:1]
        if start in "d@" and _DIFF_OPENS.match(text):
            self._passage = _DIFF_GOES_ON
        elif start == "c" and _COMMIT_OPENS.match(text):
            self._passage = _COMMIT_GOES_ON
        elif start == "#" and _RETROSPECT.match(text):
            self._is_retrospect = True
        elif start == ">" and self._is_retrospect:
            return True
        elif start in "uUpoOCAFHNDFC" and _HELP_OPENS.match(text):
            self._passage = _HELP_GOES_ON
        if self._passage is not None or (start == " " and _PYDOC_LINE.match(text)):
            return True
        return self._is_documentation(text)

    def _is_documentation(self, text: str) -> bool:
        if self._docstring:
            self._docstring -= 1
            if '"""' in text or "'''" in text:
                self._docstring = 0
            return True
        if text[:1] in " \t" and _DOCSTRING_OPENS.match(text):
            self._docstring = _MAX_DOCSTRING_LINES
            return True
        if not text.strip():
            self._sample = ""
        elif ">>> " in text and _SAMPLE.match(text):
            self._sample = "code"
        elif self._sample == "code" and _HEADER in text:
            self._sample = "header"
        elif self._sample == "header":
            # Documentation leaves the frames out; a real session has them.
            self._sample = "elided" if text.strip() == "..." else ""
        return self._sample == "elided"

    def _follow(self, line: Line) -> None:
        key = (line.rank, line.host)
        text = line.text
        told = self._told.get(key)
        before = self._before.get(key)
        if _HEADER in text:
            chained = told is not None and told.end and before is not None
            if chained and told is not None and before is not None and _is_link(before.text):
                self._told[key] = _Told(told.begin, told.is_introduced)
            else:
                is_introduced = _introduces(before, line) or (
                    self._is_finished
                    and before is not None
                    and before.text.startswith("Exception in thread ")
                )
                begin = before.number if is_introduced and before is not None else line.number
                is_retry = before is not None and before.level == "W" and is_handled(before.text)
                self._told[key] = _Told(begin, is_introduced, is_retry)
        elif told is not None and not told.end:
            if text[0] not in " \t":
                told.end = line.number
                told.exception = text.partition(":")[0]
                if not (told.is_introduced or line.full.startswith(">")):
                    self._has_own = True
                if told.is_introduced:
                    self._keep(key, told.begin, told.end)
        elif told is not None and not _is_link(text):
            if line.number - told.end > _LINES_BEHIND:
                del self._told[key]
            elif (
                _PASSED.match(text)
                or (told.is_retry and line.level == "I")
                or (is_handled(text) and not _ADDRESSED.search(text) and _is_of(text, told))
            ):
                self._keep(key, told.begin, told.end)
                del self._told[key]
        elif self._live_log and _PASSED.match(text):
            self._keep(key, self._live_log, line.number)
        elif before is not None and " ... " in before.text and _PASSED.match(text):
            # unittest prints the verdict behind what the test said.
            self._keep(key, before.number, before.number)
        elif (
            before is not None
            and line.number - before.number == 1
            and before.text[:1] not in " \t"
            and text[:1] in " \t"
            and _DEFINITION.match(text)
        ):
            self._keep(key, before.number, before.number)
        elif (
            before is not None
            and before.level in ("W", "I")
            and line.number - before.number <= 2
            and before.text.rstrip().endswith("due to:")
        ):
            self._keep(key, line.number, line.number)
        elif (
            before is not None
            and text.lstrip(_BULLETS)[:1] in _SEQUEL_STARTS
            and line.number - before.number <= 2
            and _SEQUEL.match(text)
        ):
            self._keep(key, before.number, before.number)
        if "live log" in text and _LIVE_LOG.match(text):
            self._live_log = line.number
        elif self._live_log and (_PASSED.match(text) or "=====" in text):
            self._live_log = 0
        if "inish" in text or "omplete" in text or "ucceeded" in text:
            self._is_finished = self._is_finished or _FINISHED.search(text) is not None
        self._before[key] = line
        if len(self._before) > 4_096:
            self._before.clear()
            self._told.clear()

    def _keep(self, key: _Key, begin: int, end: int) -> None:
        if self._count < _MAX_RANGES:
            self._handled.setdefault(key, []).append((begin, end))
            self._count += 1

    def copes_with(self, found: Hit | Traceback) -> bool:
        """Whether the lines around say that the error was dealt with, or is somebody else's.

        What a mail quotes behind ">" did not happen where the text has its own traceback.
        """
        if self._has_own and isinstance(found, Hit) and found.text.startswith("> "):
            return True
        ranges = self._handled.get((found.rank, found.host), [])
        at = bisect_right(ranges, (found.line, 1 << 62))
        return any(begin <= found.line <= end for begin, end in ranges[max(at - 4, 0) : at])


def _is_of(text: str, told: _Told) -> bool:
    """Whether a line that names an exception names the traceback's."""
    named = _NAMED_EXCEPTION.findall(text)
    return not named or any(told.exception.endswith(name) for name in named)


def _is_link(text: str) -> bool:
    return text.lstrip().startswith(_LINKS)


def _introduces(before: Line | None, header: Line) -> bool:
    """Whether the line before a traceback says that what follows was only reported."""
    if before is None or header.number - before.number > 2:
        return False
    text = before.text.rstrip()
    if _PLAIN_INTRODUCTION.search(text):
        return True
    is_mild = before.level in ("W", "I") or is_handled(text)
    return is_mild and _INTRODUCES.search(text) is not None and _CRASH.search(text) is None
