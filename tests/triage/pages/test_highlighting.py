"""Lines as the page shows them: escaped, readable, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from triage.pages.highlighting import MAX_SHOWN_CHARACTERS, highlight_lines, visible


def test_markup_in_a_log_is_text() -> None:
    html = highlight_lines(["<script>alert(1)</script>", "a & b \"c\" 'd'"])
    assert "<script" not in html[0]
    assert "&lt;script&gt;" in html[0]
    assert "&amp;" in html[1]


@given(st.lists(st.text(st.characters(exclude_characters="\n")), max_size=8))
def test_every_line_has_its_html_without_loose_brackets(lines: list[str]) -> None:
    html = highlight_lines(lines)
    assert len(html) == len(lines)
    for line in html:
        bare = line.replace("</span>", "")
        while '<span class="' in bare:
            before, _, rest = bare.partition('<span class="')
            bare = before + rest.partition('">')[2].removeprefix(" title=")
        assert "<" not in bare


def test_terminal_colours_are_gone_and_other_controls_are_seen() -> None:
    assert visible("\x1b[1;31merror\x1b[0m: \x1b]0;title\x07bad\x07") == ("error: bad␇", 0)


def test_characters_that_reorder_text_are_replaced() -> None:
    assert visible("a\u202eb\u200bc")[0] == "a\ufffdb\ufffdc"


def test_progress_updates_fold_and_the_error_between_them_stays() -> None:
    bars = [f" {n}%|#   | {n}/100 [00:01, 2.0it/s]" for n in range(1, 40)]
    line = "\r".join([*bars[:20], "CUDA out of memory", *bars[20:]])
    text, folded = visible(line)
    assert folded == 37
    assert "CUDA out of memory" in text
    assert " 39%|" in text
    assert " 20%|" in text


def test_a_very_long_line_is_cut_and_says_so() -> None:
    (html,) = highlight_lines(["x" * (MAX_SHOWN_CHARACTERS + 1_234)])
    assert "1,234 more characters" in html
