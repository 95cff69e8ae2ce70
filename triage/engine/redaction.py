"""Secrets out of a text before it is stored.

A text is read in blocks. Each pattern has literals of which one stands in every match, so a block
is first asked for those (a plain byte search, gigabytes a second) and the expression runs only
where one occurs. What replaces a secret names its kind and keeps the line ends, so that line
numbers stay those of the original. Host names and paths are kept: a diagnosis needs them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from triage.engine.regex import regex

#: A secret cut by a block's end is waited for up to this length; more is no secret.
LONGEST_SECRET_BYTES = 24_000
#: How much of a line without an end is held back, in case a secret begins there.
_HELD_BACK_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """How one kind of secret looks.

    One of `literals` occurs in every match of `pattern`. The named group `secret` is what is
    replaced, or the whole match where there is no such group. `starts_a_word` asks for no letter
    or digit before the match; `accepts` can refuse a value that only looks like a secret.
    """

    kind: str
    literals: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    starts_a_word: bool = False
    accepts: Callable[[bytes], bool] | None = None


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Where a secret stands in a block, and its kind."""

    start: int
    end: int
    kind: str


_PLACEHOLDER = regex(
    rb"(?:[<\[{$(*%].*|\.{3,}.*|[xX*.-]+|none|null|nil|true|false|unset|undefined|empty|"
    rb"redacted.*|hidden|required|your[-_ ].*|/[\w.-]+/.*|~/.*|None[,)].*)\Z",
    re.IGNORECASE | re.DOTALL,
)
_EXPRESSION = regex(
    rb"(?:os|self|args|cfg|config|conf|opts?|settings|environ|hparams|kwargs|params)\.\w.*|"
    rb"[A-Za-z_][\w.]*[\[(].*|[A-Za-z_]+[),\]]+\Z",
    re.DOTALL,
)
_NAME_ITSELF = regex(
    rb"(?:\w*[._])?(?:token|secret|password|passwd|pass|key|api_?key)[),\]:;]*\Z", re.IGNORECASE
)


def _is_value(value: bytes) -> bool:
    return not _PLACEHOLDER.match(value) and not _NAME_ITSELF.match(value)


def _is_not_code(value: bytes) -> bool:
    return _is_value(value) and not _EXPRESSION.match(value)


def _is_key(value: bytes) -> bool:
    # Keys carry digits; `token=tokenizer`, `secret: disabled` do not.
    return _is_not_code(value) and len(value) >= 8 and re.search(rb"\d", value) is not None


def _is_token(value: bytes) -> bool:
    # `EOS_TOKEN=50256` is a number of a vocabulary.
    return _is_value(value) and not value.isdigit()


_ASSIGN = (
    rb"""\\?["']?[ \t]{0,8}(?:=>|[:=])[ \t]{0,8}"""
    rb"""(?:\\?"(?P<quoted>[^"\\\r\n]{3,1024})|\\?'(?P<single>[^'\\\r\n]{3,1024})"""
    rb"""|(?P<secret>[^\s"'\\,;&|`]{3,1024}))"""
)


def _assigned(names: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?:" + names + rb")" + _ASSIGN)


#: Patterns of our own; services add those of maintained collections.
PATTERNS: tuple[SecretPattern, ...] = (
    SecretPattern(
        "private-key",
        (b"PRIVATE KEY",),
        re.compile(
            rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            rb"(?:(?P<secret>[\s\S]{1,20000}?)(?=-----END)|(?P<quoted>[A-Za-z0-9+/=\\\s]{40,20000}))"
        ),
    ),
    SecretPattern(
        "hugging-face-token",
        (b"hf_", b"api_org_"),
        re.compile(rb"(?:hf_|api_org_)[A-Za-z0-9]{30,64}"),
        starts_a_word=True,
    ),
    SecretPattern(
        "wandb-key",
        (b"wandb login", b"wandb_v1_"),
        re.compile(
            rb"wandb login(?: --?[a-z]+)*[ \t]+(?P<secret>[0-9a-f]{40})|"
            rb"(?P<quoted>wandb_v1_[A-Za-z0-9_]{20,256})"
        ),
    ),
    SecretPattern(
        "aws-access-key",
        (b"AKIA", b"ASIA", b"ABIA", b"ACCA"),
        re.compile(rb"A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}(?![0-9A-Za-z])"),
        starts_a_word=True,
    ),
    SecretPattern(
        "github-token",
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
        re.compile(rb"(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{40,255})"),
    ),
    SecretPattern(
        "slack-token",
        (b"xoxa-", b"xoxb-", b"xoxe-", b"xoxo-", b"xoxp-", b"xoxr-", b"xoxs-", b"xapp-"),
        re.compile(rb"(?:xox[abeoprs]|xapp)-[A-Za-z0-9.-]{10,255}"),
    ),
    SecretPattern(
        "slack-webhook",
        (b"hooks.slack.com/",),
        re.compile(
            rb"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9_/]{16,255})"
        ),
    ),
    SecretPattern(
        "pitstop-token",
        (b"pit_",),
        re.compile(rb"pit_[A-Za-z0-9_-]{43}"),
        starts_a_word=True,
    ),
    SecretPattern(
        "google-key",
        (b"AIza",),
        re.compile(rb"AIza[0-9A-Za-z_-]{35}"),
    ),
    SecretPattern(
        "api-key",
        (b"sk-",),
        re.compile(rb"sk-(?:[a-z0-9]{1,10}-){0,3}[A-Za-z0-9_-]{20,255}"),
        starts_a_word=True,
        accepts=lambda value: re.search(rb"\d", value) is not None,
    ),
    SecretPattern(
        "json-web-token",
        (b"eyJ",),
        re.compile(rb"eyJ[\w-]{10,4096}\.eyJ[\w-]{10,8192}\.[\w-]{10,4096}"),
    ),
    SecretPattern(
        "authorization",
        (b"uthorization", b"UTHORIZATION"),
        re.compile(
            rb"""(?:uthorization|UTHORIZATION)\\?["']?[ \t]{0,8}[:=][ \t]{0,8}\\?["']?"""
            rb"""(?:[A-Za-z]{3,20}[ \t]+)?(?P<secret>[^\s"'\\,]{6,4096})"""
        ),
        accepts=_is_value,
    ),
    SecretPattern(
        "bearer-token",
        (b"earer ",),
        re.compile(rb"[Bb]earer (?P<secret>[A-Za-z0-9._~+/=-]{16,4096})"),
        accepts=lambda value: re.search(rb"\d", value) is not None,
    ),
    SecretPattern(
        "password-in-url",
        (b"@",),
        re.compile(rb"""://[^\s:/@"'<>]{0,128}:(?P<secret>[^\s/@"'<>]{1,256})@"""),
        accepts=_is_value,
    ),
    SecretPattern(
        "token-in-url",
        (b"@",),
        re.compile(rb"""://(?P<secret>[A-Za-z0-9_-]{20,256})@"""),
    ),
    SecretPattern(
        "token-in-url",
        (b"token=", b"sig=", b"Signature=", b"X-Amz-Credential="),
        re.compile(
            rb"[?&](?:[a-z]{1,20}_)?(?:token|sig|Signature|X-Amz-Signature|X-Amz-Credential)="
            rb"(?P<secret>[^\s&\"'<>]{8,2048})"
        ),
    ),
    SecretPattern(
        "netrc-password",
        (b"password ",),
        re.compile(rb"login[ \t]+\S{1,128}[ \t]+password[ \t]+(?P<secret>\S{3,512})"),
        accepts=_is_value,
    ),
    SecretPattern(
        "secret-argument",
        (b"--token", b"--password", b"--api-key", b"--api_key", b"--hf", b"--secret", b"--wandb"),
        re.compile(
            rb"""--(?:hf[-_]|wandb[-_])?(?:token|password|api[-_]key|secret)"""
            rb"""(?:["'],[ \t]*["']|[ \t]+|=)["']?(?P<secret>[^\s"'-][^\s"']{5,1024})"""
        ),
        accepts=_is_not_code,
    ),
    SecretPattern(
        "token",
        (b"TOKEN",),
        _assigned(rb"TOKEN"),
        accepts=_is_token,
    ),
    SecretPattern(
        "secret",
        (b"SECRET", b"API_KEY", b"APIKEY", b"ACCESS_KEY", b"PRIVATE_KEY", b"ACCOUNT_KEY"),
        _assigned(
            rb"SECRET(?:_ACCESS)?(?:_KEY)?|API_?KEY|ACCESS_KEY(?:_ID)?|PRIVATE_KEY|ACCOUNT_KEY"
        ),
        accepts=_is_value,
    ),
    SecretPattern(
        "password",
        (b"PASSWORD", b"PASSWD", b"PASSPHRASE"),
        _assigned(rb"PASSWORD|PASSWD|PASSPHRASE"),
        accepts=_is_value,
    ),
    SecretPattern(
        "password",
        (b"assword", b"asswd", b"assphrase"),
        _assigned(rb"assword|asswd|assphrase"),
        accepts=_is_not_code,
    ),
    SecretPattern(
        "secret",
        (b"ecret", b"pi_key", b"pi-key", b"pikey", b"piKey", b"pi-Key", b"ccess_key", b"ccessKey"),
        _assigned(rb"ecret(?:[-_]?(?:access[-_]?)?key)?|pi[-_]?[kK]ey|ccess_?[kK]ey"),
        accepts=_is_key,
    ),
    SecretPattern(
        "token",
        (b"h_token", b"s_token", b"f_token", b"b_token", b"t_token", b"n_token", b"i_token",
         b"hToken", b"sToken", b"hub-token", b"auth-token", b"access-token"),
        _assigned(rb"(?:auth|access|refresh|session|hf|hub|github|gitlab|bot|login|api)[-_]?[tT]oken"),
        accepts=_is_key,
    ),
)  # fmt: skip


#: Which of its patterns may match in a block; it may name too many, but misses none.
Prefilter = Callable[[bytes], Iterable[SecretPattern]]


class LiteralPrefilter:
    """Asks a block for each literal in turn: as fast as the byte search, on every machine."""

    def __init__(self, patterns: Sequence[SecretPattern]) -> None:
        self._patterns = tuple(patterns)

    def __call__(self, block: bytes) -> list[SecretPattern]:
        """Those patterns of which a literal occurs."""
        return [p for p in self._patterns if any(literal in block for literal in p.literals)]


_BUILT_IN = LiteralPrefilter(PATTERNS)


def find_secrets(block: bytes, prefilter: Prefilter = _BUILT_IN) -> list[Span]:
    """Secrets in this block in their order, overlapping ones merged into the wider."""
    spans: list[Span] = []
    for secret in prefilter(block):
        for match in secret.pattern.finditer(block):
            if secret.starts_a_word and block[max(match.start() - 1, 0) : match.start()].isalnum():
                continue
            start, end = _secret_part(match)
            if block.startswith(_replacement(secret.kind), start):
                continue
            if secret.accepts is None or secret.accepts(block[start:end]):
                spans.append(Span(start, end, secret.kind))
    spans.sort(key=lambda span: (span.start, -span.end))
    merged: list[Span] = []
    for span in spans:
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, span.end), last.kind)
        else:
            merged.append(span)
    return merged


def redact(block: bytes, prefilter: Prefilter = _BUILT_IN) -> tuple[bytes, int]:
    """The block with its secrets replaced, and how many there were.

    For texts that are at hand as a whole; streams go through a Redactor.
    """
    redactor = Redactor(prefilter)
    cleaned = b"".join([*redactor.feed(block), *redactor.finish()])
    return cleaned, redactor.replaced


class Redactor:
    """Replaces secrets in a stream of blocks, those that a block's end cuts included.

    Holds at most one block and LONGEST_SECRET_BYTES. `kinds` counts what was replaced.
    """

    def __init__(self, prefilter: Prefilter = _BUILT_IN) -> None:
        self._prefilter = prefilter
        self._held = b""
        self.kinds: Counter[str] = Counter()

    @property
    def replaced(self) -> int:
        """How many secrets were replaced so far."""
        return self.kinds.total()

    def feed(self, block: bytes) -> Iterator[bytes]:
        """The part of the text that is settled by now: whole lines, where lines end at all."""
        text = self._held + block
        spans = find_secrets(text, self._prefilter)
        cut = _settled_until(text, spans)
        self._held = text[cut:]
        yield from self._replaced(text, cut, spans)

    def finish(self) -> Iterator[bytes]:
        """The rest."""
        text, self._held = self._held, b""
        yield from self._replaced(text, len(text), find_secrets(text, self._prefilter))

    def _replaced(self, text: bytes, cut: int, spans: Iterable[Span]) -> Iterator[bytes]:
        at = 0
        for span in spans:
            if span.end > cut:
                break
            self.kinds[span.kind] += 1
            yield text[at : span.start]
            yield _replacement(span.kind)
            yield b"\n" * text.count(b"\n", span.start, span.end)
            at = span.end
        if at < cut:
            yield text[at:cut]


def _replacement(kind: str) -> bytes:
    return b"[%s removed]" % kind.encode()


def _secret_part(match: re.Match[bytes]) -> tuple[int, int]:
    for group in ("secret", "quoted", "single"):
        if group in match.re.groupindex and match[group] is not None:
            return match.span(group)
    return match.span()


def _settled_until(text: bytes, spans: Sequence[Span]) -> int:
    cut = text.rfind(b"\n") + 1 or max(len(text) - _HELD_BACK_BYTES, 0)
    # A key whose end is yet to come: wait for it, but not for ever.
    key = text.find(
        b"-----BEGIN ", max(len(text) - LONGEST_SECRET_BYTES, text.rfind(b"-----END "), 0)
    )
    if key >= 0:
        cut = min(cut, _start_of_line(text, key))
    while divided := next((span for span in spans if span.start < cut < span.end), None):
        is_short = len(text) - divided.start < LONGEST_SECRET_BYTES
        cut = _start_of_line(text, divided.start) if is_short else divided.end
    return cut


def _start_of_line(text: bytes, at: int) -> int:
    """Where the line begins, as near as is held: a secret is known by the name before it."""
    return max(text.rfind(b"\n", 0, at) + 1, at - _HELD_BACK_BYTES)
