"""The maintained patterns work on bytes, and the fast prefilter misses none of them."""

from __future__ import annotations

import time

import pytest

from triage.engine.redaction import LiteralPrefilter, redact
from triage.services.secrets import new_redactor, patterns, prefilter

_ALNUM = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@pytest.mark.parametrize(
    "secret",
    [
        "AccountKey=" + _ALNUM + _ALNUM[:26],
        "glpat-" + _ALNUM[:20],
        "//registry.npmjs.org/:_authToken=" + "npm_" + _ALNUM[:36],
        "sk-" + _ALNUM[:20] + "T3Blbk" + "FJ" + _ALNUM[:20],
        "pypi-AgEIcHlw" + "aS5vcmc" + _ALNUM + _ALNUM[:10],
        "SG." + _ALNUM[:22] + "." + _ALNUM[:43],
        "sk_" + "live_" + _ALNUM[:24],
    ],
)
def test_patterns_of_detect_secrets_are_used(secret: str) -> None:
    cleaned, count = redact(f"key is {secret} here".encode(), prefilter())

    assert count == 1
    assert secret[-16:].encode() not in cleaned


def test_the_fast_prefilter_names_what_the_plain_one_names() -> None:
    for secret in patterns():
        for literal in secret.literals:
            block = b"noise " * 50 + literal + b" noise" * 50
            plain = LiteralPrefilter(patterns())(block)
            assert secret in plain
            assert list(prefilter()(block)) == plain


def test_cleaning_keeps_up_with_an_upload() -> None:
    block = (
        b"[rank3]: step 81324 | loss 3.3209 | grad_norm 1.2468 | tokens/s 84181.8 | mem 33\n"
        * 12_000
    )
    redactor = new_redactor()
    started = time.process_time()
    for _ in range(20):
        for _ in redactor.feed(block):
            pass

    # 20 MB; measured: a thirtieth of a second. The bound is for the slowest of machines.
    assert time.process_time() - started < 2
