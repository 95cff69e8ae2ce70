"""Sizes, durations, confidence and advice as people say them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """A word for a label and the sentence that explains it."""

    word: str
    meaning: str


CONFIDENCE = {
    "conclusive": Wording("Conclusive", "the text itself says so"),
    "strong": Wording("Strong", "little else leaves these marks"),
    "hint": Wording("A hint", "it fits, but other causes look alike"),
}
ADVICE = {
    "retry": Wording("Retrying is fine", "the cause is likely to be gone next time"),
    "retry-elsewhere": Wording("Retry on other nodes", "leave out the node that failed"),
    "do-not-retry": Wording("Do not just retry", "it will fail the same way again"),
}
STATES = {
    "received": Wording("waiting", "A worker will read it in a moment"),
    "scanning": Wording("reading", "Reading the texts"),
    "diagnosing": Wording("deciding", "All read; deciding what happened"),
    "diagnosed": Wording("diagnosed", "Diagnosed"),
    "failed": Wording("not read", "Pitstop could not read this"),
    "destroyed": Wording("destroyed", "The texts were destroyed"),
}
VERDICTS = {
    "named": Wording("cause named", "The cause is known"),
    "undetermined": Wording("not determined", "A failure, but not its cause"),
    "clean": Wording("no failure", "No failure in this text"),
}
#: `meaning` is what somebody did who set the status.
STATUSES = {
    "open": Wording("open", "set it back to open"),
    "investigating": Wording("investigating", "started to investigate"),
    "mitigated": Wording("mitigated", "mitigated it"),
    "resolved": Wording("resolved", "resolved it"),
    "reopened": Wording("reopened", "reopened it"),
}
#: The buttons that lead to a status.
STATUS_STEPS = {
    "open": "Set back to open",
    "investigating": "Investigate",
    "mitigated": "Mitigated",
    "resolved": "Resolve",
    "reopened": "Reopen",
}


def size_in_words(size_bytes: int) -> str:
    """`812 bytes`, `1.2 MB`, `5 GB`: decimal units, as disks and `ls` on most systems count."""
    if size_bytes < 1_000:
        return "1 byte" if size_bytes == 1 else f"{size_bytes} bytes"
    value = float(size_bytes)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1_000
        if value < 999.5 or unit == "TB":
            break
    digits = f"{value:.1f}" if value < 100 else f"{value:.0f}"
    return f"{digits.removesuffix('.0')} {unit}"


def duration_in_words(seconds: float) -> str:
    """`84 ms`, `1.4 s`, `41 s`, `12 min`, `1 h 30 min`, `3 d 4 h`."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def age_in_words(seconds: float) -> str:
    """`just now`, `12 min ago`, `3 d 4 h ago`."""
    return "just now" if seconds < 60 else f"{duration_in_words(seconds)} ago"


def count_in_words(number: int, noun: str) -> str:
    """`1 line`, `4,127 lines`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def list_in_words(items: list[str], most: int = 3) -> str:
    """`a`, `a and b`, `a, b and 4 more`."""
    if len(items) > most:
        return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)
