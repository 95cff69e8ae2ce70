"""A folder for a new entry: a draft that loads as it stands and says what goes where."""

from __future__ import annotations

from pathlib import Path

from kb.catalog.lint import HEADINGS
from kb.catalog.loader import is_slug
from kb.catalog.model import (
    ADVICE,
    ENDS,
    GROUPS,
    PROVES,
    ROLES,
    SEVERITIES,
    STRENGTHS,
    WHERE,
    Catalog,
    CatalogError,
)

_PITFALL = """\
title = "@TITLE@"                # what goes wrong, as a heading
group = "application"            # @GROUPS@
role = "root"                    # @ROLES@: a symptom is seen, but something else caused it
severity = "failure"             # @SEVERITIES@: an advisory is a warning that a run survives
status = "draft"                 # draft until the entry is complete, then reviewed
advice = "do-not-retry"          # @ADVICE@
summary = "@TITLE@."             # the sentence of the verdict: what happened, and why
versions = ""                    # such as "torch >= 1.13"
explains = []                    # slugs of entries that are consequences of this one
confirm = []                     # commands that settle it

# One signature for each way to recognise it. A pattern is searched in one line at a time, without
# rank and time prefixes; no lookaround, no backreference, no endless repeat inside another, and
# each alternative with a literal of 6 characters or more. Named groups become values.
# [[signature]]
# strength = "strong"            # @STRENGTHS@
# all = []                       # each must match a line
# any = ['the message that (?P<path>\\S+) appears in']     # one of them must match a line
# none = []                      # none may match anywhere
# within_lines = 20              # at most so far apart do the patterns match
# facts = []                     # questions that the engine answers, such as "loss_is_nan"
# in_warnings = false            # whether a warning counts too
# because = "{path} is named in the message"
# printed_by = "the source file that prints it"

# [[fix]]
# title = "What to change"
# language = "python"
# snippet = "fix.py"             # a file of this folder, fix.py#part of it, or the code itself
# versions = ""

# A reviewed entry has two references or more.
# [[reference]]
# title = "Where this can be read up"
# url = "https://docs.pytorch.org/"

# [reproduction]
# where = "cpu"                  # @WHERE@
# reason = "how it is made to happen, or why it cannot be"
# With a repro.py (README, Reproductions):
# differs = "what --fixed changes"
# proves = "cause"               # @PROVES@
# ends = "exit"                  # @ENDS@
# seconds = 5                    # as measured
# memory_mib = 200               # as measured
"""
_EXAMPLES = """\
# A reviewed entry has two positives (expect: its own slug) and two near misses (expect: another
# slug, or "none" for a text without a failure). All run against the whole catalog.
# [[example]]
# file = "message.log"           # beside this file, 5 to 40 lines
# source = "own run, torch 2.13.0, CPU"      # or: message as FILE prints it
# torch = "2.13"
# expect = "@SLUG@"
# rank = 3                       # only where the text shows the culprit
"""
_HINTS = {
    "What you see": "The lines of the log, as they are printed, and what the run does.",
    "Why": "What happens underneath, and in which versions.",
    "Confirm": "Commands that settle it, and what they print if it is this.",
    "Fix": "What to change first; the snippets stand below the guide.",
    "Prevent": "What keeps it from coming back.",
}


def write_draft(folder: Path, slug: str, catalog: Catalog) -> Path:
    """The new folder of the entry below `folder`, with its files.

    Raises CatalogError for an ill-formed slug, one that the catalog or the folder already holds,
    and a folder that is not there or cannot be written.
    """
    entry = folder / slug
    if not is_slug(slug):
        raise CatalogError(entry, "slug", "a slug is lower-case words joined by single hyphens")
    if (other := catalog.get(slug)) is not None:
        raise CatalogError(other.folder, "slug", f"{slug} is an entry already")
    if not folder.is_dir():
        raise CatalogError(folder, "", "no such folder of catalog entries")
    title = slug.replace("-", " ").capitalize()
    try:
        entry.mkdir()
        (entry / "examples").mkdir()
        _write(entry / "pitfall.toml", _PITFALL, title=title)
        _write(entry / "examples" / "index.toml", _EXAMPLES, slug=slug)
        _write(entry / "guide.md", "\n".join(f"## {h}\n{_HINTS[h]}\n" for h in HEADINGS))
    except OSError as error:
        raise CatalogError(entry, "", f"cannot be written: {error.strerror}") from error
    return entry


def _write(path: Path, text: str, **values: str) -> None:
    choices = {
        "groups": GROUPS,
        "roles": ROLES,
        "severities": SEVERITIES,
        "advice": ADVICE,
        "strengths": STRENGTHS,
        "where": WHERE,
        "proves": PROVES,
        "ends": ENDS,
    }
    for name, words in choices.items():
        text = text.replace(f"@{name.upper()}@", ", ".join(words))
    for name, value in values.items():
        text = text.replace(f"@{name.upper()}@", value)
    path.write_text(text, encoding="utf-8")
