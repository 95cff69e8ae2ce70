"""Template filters of the knowledge base: guide.md → safe HTML, code → coloured HTML."""

from __future__ import annotations

from functools import lru_cache

import nh3
from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

register = template.Library()

_TAGS = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h2", "h3", "h4", "hr", "li", "ol", "p",
    "pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {
    "a": {"href", "title"},
    "code": {"class"},
    "pre": {"class"},
    "span": {"class"},
    "ol": {"start"},
    "h2": {"id"},
}
_FORMATTER = HtmlFormatter(nowrap=True)
_LANGUAGES_OF_LOGS = {"log", "text", "console-output", "output"}


def _coloured(code: str, language: str) -> str:
    """The code as HTML spans; an unknown language is escaped and left plain."""
    name = "training-log" if language in _LANGUAGES_OF_LOGS else language
    try:
        lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return escape(code)
    return str(highlight(code, lexer, _FORMATTER))


def _highlight_fence(code: str, language: str, _attributes: str) -> str:
    return f'<pre class="code"><code>{_coloured(code, language)}</code></pre>' if language else ""


_MARKDOWN = MarkdownIt("commonmark", {"html": False, "highlight": _highlight_fence}).enable("table")


@lru_cache(maxsize=512)
def _guide_html(text: str) -> str:
    # Entries come from curators, so the result is cleaned although raw HTML is off.
    return nh3.clean(
        _MARKDOWN.render(text),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer",
    )


@lru_cache(maxsize=1024)
def _snippet_html(code: str, language: str) -> str:
    return _coloured(code, language)


@register.filter
def guide(text: str) -> SafeString:
    """guide.md as safe HTML, its code coloured."""
    return mark_safe(_guide_html(text))  # noqa: S308 (cleaned by nh3)


@register.filter
def snippet(code: str, language: str = "python") -> SafeString:
    """Code as coloured HTML, without a `<pre>` around it."""
    return mark_safe(_snippet_html(code, language))  # noqa: S308 (escaped by Pygments)


@register.filter
def lowfirst(text: str) -> str:
    """The sentence as it goes on after a colon: a small first letter, but `DDP` stays."""
    return text[:1].lower() + text[1:] if text[1:2].islower() or text.startswith("A ") else text
