"""Tells an error that happened from one that is only spoken of: handled, advised, quoted, set."""

from __future__ import annotations

import re

from triage.engine.lines import Line

_HANDLED = re.compile(
    r"(?i)\b(?:retrying|will retry|retry \d+|retries left|trying again|try again in"
    r"|attempt \d+ ?(?:/|of)|"
    r"falling back|fall back to|fallback to|using .{1,40} instead|is ignored|ignoring|ignored\b|"
    r"recovered|recover(?:ing|y) from|caught and|handled|continuing (?:without|anyway|with)|"
    r"skipp(?:ed|ing) (?:this |the |that |bad |corrupt(?:ed)? )?(?:batch|sample|file|image|record)|"
    r"reducing batch size|halving the batch|will be disabled|disabling)\b"
)
_ADVICE_BEFORE = re.compile(
    r"(?i)(?:\bif (?:you|this|the|it|there|an?y?)\b.{0,60}|\bin (?:the )?case (?:of|you).{0,40}|"
    r"\b(?:to|can|helps?) (?:avoid|prevent|fix|solve|handle|debug|work around|resolve)\b.{0,40}|"
    r"\bsuch as\b.{0,30}|\be\.g\.,?.{0,30}|\bfor example\b.{0,30}|\berrors? like\b.{0,20}|"
    r"\b(?:might|may|could|can|will|would) (?:be caused by|lead to|result in|cause|raise|see|get"
    r"|hit)\b.{0,40}|"
    r"\b(?:known issue|troubleshooting|faq|docs?|see also)\b.{0,40}|\bwhen(?:ever)? (?:you|the"
    r"|an?)\b.{0,40}|"
    r"\b(?:expected|correctly|properly)[:,]? (?:an? |the )?(?:\w{0,40}(?:error|exception)|failure"
    r"|raise[sd]?|raising|rejected|refused|caught|got)\b.{0,60}|"
    r"\b(?:ok|pass|passed)\b[:\s-]{1,4}(?:it )?(?:raise[sd]|reject(?:s|ed)|throws)\b.{0,60}|"
    r"\b(?:checks? for|search(?:ed|ing)? for|looking for|grep)\b.{0,40}|\bunless\b.{0,30})$"
)
_CODE_LINE = re.compile(
    r"^\s*(?:#(?!\d)|//|/\*|\*\s|\"\"\"|'''|raise |except |assert |logger?\.|logging\.|print\("
    r"|warnings\.warn\(|"
    r"parser\.add_argument|def |class |import |from \S+ import |if .*:\s*$|elif |>>> |return "
    r"|echo |grep |- (?:run|name):|[-+] (?!To our best knowledge|\[\d|Snapshot ))"
)
_SETTING = re.compile(r"^\s*(?:[\"']?[\w.\-]{2,60}[\"']?\s*[:=]\s*[\"'\[{]|--?[\w\-]{2,40}[= ])")
_EXCEPTION_NAME = re.compile(r"^\s*[\w.]*(?:Error|Exception|Warning|Failure|Exit)\b")
_STRUCTURED = re.compile(
    r"(?i)^\s*(?:\{\s*)?[\"']?(?:msg|message|error|exception|log|text|event|detail|stderr|stdout|reason|err|exc_info|stack)[\"']?\s*[:=]"
)
_TASK_LIST = re.compile(
    r"(?i)\b(?:regex|pattern|matcher|rule|signature|expected_error|error_patterns|retry_on|ignore_errors|allowlist)\b"
)


def is_handled(text: str) -> bool:
    """Whether the line itself says that the error was dealt with."""
    return _HANDLED.search(text) is not None


def is_mention(line: Line, text: str, start: int) -> bool:
    """Whether the words at `start` are advice, a setting or code rather than an event."""
    if line.is_code or _CODE_LINE.match(text):
        return True
    before = text[max(0, start - 120) : start]
    # A sentence of its own is not governed by what the sentence before it said.
    sentence = re.split(r"[.;!?]\s+", before)[-1]
    if _ADVICE_BEFORE.search(sentence):
        return True
    if _SETTING.match(text) and not _STRUCTURED.match(text) and not _EXCEPTION_NAME.match(text):
        quoted = before.count('"') % 2 == 1 or before.count("'") % 2 == 1
        if quoted or text.lstrip().startswith("-"):
            return True
    return _TASK_LIST.search(before) is not None
