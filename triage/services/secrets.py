"""Every secret pattern Pitstop knows: its own and those of detect-secrets, behind one prefilter."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from typing import cast

from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.npm import NpmDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector

from triage.engine.redaction import (
    PATTERNS,
    LiteralPrefilter,
    Prefilter,
    Redactor,
    SecretPattern,
)

try:
    import hyperscan
except ImportError:
    # No wheel for this machine: the byte search of the engine serves.
    hyperscan = None  # type: ignore[assignment]

# Detectors whose matches begin with words rare in training logs. Those without a fixed word
# (Discord, Twilio, Artifactory, entropy) would take hashes and run names for secrets.
_DETECTORS: tuple[tuple[str, type[RegexBasedDetector], tuple[bytes, ...]], ...] = (
    ("azure-storage-key", AzureStorageKeyDetector, (b"AccountKey=",)),
    (
        "gitlab-token",
        GitLabTokenDetector,
        (
            *(b"glpat-", b"gldt-", b"glft-", b"glsoat-", b"glrt-", b"GR1348941", b"glcbt-"),
            *(b"glimt-", b"glptt-", b"glagent-", b"gloas-"),
        ),
    ),
    ("npm-token", NpmDetector, (b":_authToken=",)),
    ("api-key", OpenAIDetector, (b"T3BlbkFJ",)),
    ("pypi-token", PypiTokenDetector, (b"pypi-AgE",)),
    ("sendgrid-key", SendGridDetector, (b"SG.",)),
    ("square-secret", SquareOAuthDetector, (b"sq0csp-",)),
    ("stripe-key", StripeDetector, (b"k_live_",)),
)
_FLAGS_OF_BYTES = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE


def _detect_secrets_patterns() -> Iterable[SecretPattern]:
    for kind, detector, literals in _DETECTORS:
        for expression in cast("Iterable[re.Pattern[str]]", detector.denylist):
            yield SecretPattern(
                kind=kind,
                literals=literals,
                pattern=re.compile(
                    expression.pattern.encode("ascii"), expression.flags & _FLAGS_OF_BYTES
                ),
            )


@cache
def patterns() -> tuple[SecretPattern, ...]:
    """All patterns, the more telling kinds first."""
    return (*PATTERNS, *_detect_secrets_patterns())


class HyperscanPrefilter:
    """One pass over a block for the literals of all patterns. Serves one thread."""

    def __init__(self, secret_patterns: Sequence[SecretPattern]) -> None:
        self._patterns = tuple(secret_patterns)
        owners: dict[bytes, list[int]] = {}
        for number, secret in enumerate(self._patterns):
            for literal in secret.literals:
                owners.setdefault(literal, []).append(number)
        self._owners = list(owners.values())
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=[re.escape(literal) for literal in owners],
            ids=list(range(len(owners))),
            elements=len(owners),
            flags=[hyperscan.HS_FLAG_SINGLEMATCH] * len(owners),
        )

    def __call__(self, block: bytes) -> list[SecretPattern]:
        """Those patterns of which a literal occurs."""
        found: set[int] = set()

        def on_match(literal: int, start: int, end: int, flags: int, context: object) -> None:
            found.update(self._owners[literal])

        self._database.scan(block, match_event_handler=on_match)
        return [self._patterns[number] for number in sorted(found)]


_of_thread = threading.local()


def prefilter() -> Prefilter:
    """The fastest prefilter of this machine over all patterns, one a thread."""
    ready: Prefilter | None = getattr(_of_thread, "prefilter", None)
    if ready is None:
        build = LiteralPrefilter if hyperscan is None else HyperscanPrefilter
        ready = _of_thread.prefilter = build(patterns())
    return ready


def new_redactor() -> Redactor:
    """A redactor for one text, with all patterns."""
    return Redactor(prefilter())
