"""Lines of a text → safe HTML: terminal codes gone, control characters seen, colours by class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from pygments.token import STANDARD_TYPES, _TokenType

from triage.pages.lexer import TrainingLogLexer

#: A line longer than this is cut on the page; the raw text has all of it.
MAX_SHOWN_CHARACTERS = 4_000

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)"
    r"|[@-Z\\-_=>()][0-9A-Z]?)"
)
_PROGRESS = re.compile(r"\d{1,3}%|\d{1,12}/\d{1,12}\b|(?:it|s|B)/(?:s|it)\b")


def _control_pictures() -> dict[int, str]:
    pictures = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
    pictures[0x7F] = "\u2421"
    pictures.update(dict.fromkeys(range(128, 160), "�"))
    # Characters that reorder or hide what stands beside them.
    for first, last in ((0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x2069), (0xFEFF, 0xFEFF)):
        pictures.update(dict.fromkeys(range(first, last + 1), "�"))
    return pictures


_CONTROL_PICTURES = _control_pictures()


def visible(line: str) -> tuple[str, int]:
    """(the line as a terminal would leave it, number of progress updates folded away).

    A progress bar overwrites itself by carriage returns; of a run of such updates the last stays,
    and whatever is not one stays too, since errors are glued between them.
    """
    text = _ANSI.sub("", line).rstrip("\r\n")
    folded = 0
    if "\r" in text:
        parts = [part for part in text.split("\r") if part.strip()]
        kept = []
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            if following is not None and _is_progress(part) and _is_progress(following):
                folded += 1
            else:
                kept.append(part)
        text = "  ".join(kept)
    return text.translate(_CONTROL_PICTURES), folded


def highlight_lines(lines: Sequence[str]) -> list[SafeString]:
    """Each line as safe HTML, in order; what follows from the lines before it is kept."""
    if not lines:
        return []
    shown = [visible(line) for line in lines]
    texts = [text[:MAX_SHOWN_CHARACTERS] for text, _ in shown]
    coloured = _split(TrainingLogLexer().get_tokens_unprocessed("\n".join(texts)))
    result = []
    for colours, (text, folded) in zip(coloured, shown, strict=True):
        before, after = SafeString(""), SafeString("")
        if folded:
            before = format_html(
                '<span class="folded" title="earlier states of this progress bar">'
                "{} updates</span> ",
                folded,
            )
        if len(text) > MAX_SHOWN_CHARACTERS:
            after = format_html(
                ' <span class="folded">and {} more characters</span>',
                f"{len(text) - MAX_SHOWN_CHARACTERS:,}",
            )
        result.append(before + colours + after)
    return result


def _is_progress(part: str) -> bool:
    return len(part) < 500 and _PROGRESS.search(part) is not None


def _split(tokens: Iterable[tuple[int, _TokenType, str]]) -> list[SafeString]:
    """One string of spans a line; neighbours of one class share a span."""
    lines: list[list[str]] = [[]]
    run_class, run_text = "", ""

    def close() -> None:
        nonlocal run_text
        if run_text:
            text = escape(run_text)
            lines[-1].append(f'<span class="{run_class}">{text}</span>' if run_class else text)
            run_text = ""

    for _, kind, value in tokens:
        css_class = _css_class(kind)
        for number, piece in enumerate(value.split("\n")):
            if number:
                close()
                lines.append([])
            if css_class != run_class:
                close()
                run_class = css_class
            run_text += piece
    close()
    return [mark_safe("".join(parts)) for parts in lines]  # noqa: S308 (escaped piece by piece)


def _css_class(kind: _TokenType) -> str:
    while kind not in STANDARD_TYPES:
        kind = kind.parent  # type: ignore[assignment]
    return STANDARD_TYPES[kind]
