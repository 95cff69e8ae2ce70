"""The lexer of training logs: its colours, its fidelity, its cost."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, String, _TokenType

from triage.pages.lexer import MAX_COLOURED_CHARACTERS, TrainingLogLexer

_PIECES = [
    "[rank3]: ", "[default0]:[rank12]: ", "3: ", "node-2: ", "(RayTrainWorker pid=3, ip=10.0.0.1) ",
    "2026-11-04 03:11:07,123 ", "[E1123 03:11:07.1 ", "ERROR ", "WARNING: ", "| INFO | ",
    'File "/a/b.py", line 3, in main', "    loss = model(x)", "RuntimeError: CUDA error",
    "frame #3: c10::f(int) + 0x1a (0x7f in /lib/x.so)", "#4  0x00007f in futex_wait (x=1) at f.c:3",
    'Thread 12 (idle): "MainThread"', "    get (queue.py:171)", " 8%|##2   | 812/10009 [04:02]",
    "NCCL INFO Bootstrap", "Traceback (most recent call last):", "\n", "\r", "\x1b[31m", "\0",
    "中文", "'",
    '"', "(", "[", "0x", "1e9", "/a/b/c", "https://x.y/", "\ud800", "\u2028",
]  # fmt: skip


def tokens_of(text: str) -> list[tuple[_TokenType, str]]:
    return [(kind, value) for _, kind, value in TrainingLogLexer().get_tokens_unprocessed(text)]


@pytest.mark.parametrize(
    ("line", "kind", "value"),
    [
        ("[rank3]: epoch 1", Name.Label, "[rank3]:"),
        ("[default0]:[rank12]: epoch 1", Name.Label, "[rank12]:"),
        ("(Worker pid=7, ip=10.0.0.1) x", Name.Label, "(Worker pid=7, ip=10.0.0.1)"),
        ("2026-11-04 03:11:07,123 ERROR x", Literal.Date, "2026-11-04 03:11:07,123"),
        ("[rank0]:[E1123 03:11:07.123 P.cpp:1] x", Literal.Date, "[E1123 03:11:07.123"),
        ("2026-11-04 03:11:07,123 ERROR x", Generic.Error, "ERROR"),
        ("node-1: WARNING: low disk", Generic.Strong, "WARNING"),
        ("Fatal Python error: Aborted", Generic.Heading, "Fatal Python error: Aborted"),
        ('  File "/x/train.py", line 12, in main', Name.Function, "main"),
        ('  File "/x/train.py", line 12, in main', String, '"/x/train.py"'),
        ("torch.OutOfMemoryError: CUDA out of memory", Name.Exception, "torch.OutOfMemoryError"),
        ("frame #3: c10d::f() + 0x1a2 (0x7f in /x.so)", Name.Function, "c10d::f()"),
        ("frame #3: c10d::f() + 0x1a2 (0x7f in /x.so)", Number.Hex, "0x1a2"),
        ("#4  0x00007f in futex_wait (x=1) at futex.c:3", Name.Function, "futex_wait"),
        ("    get (queue.py:171)", String.Other, "queue.py"),
        ("h:12 NCCL INFO Bootstrap", Name.Tag, "NCCL INFO"),
        (" 12%|##2   | 812/10009 [04:02<45:43]", Generic.Output, "12%|##2   |"),
        ("saved /ckpt/step_100/model.pt", String.Other, "/ckpt/step_100/model.pt"),
        ("killed by signal: Bus error. It", Generic.Error, "Bus error"),
    ],
)  # fmt: skip
def test_colours_what_tells(line: str, kind: _TokenType, value: str) -> None:
    assert (kind, value) in tokens_of(line)


def test_source_below_a_frame_is_python() -> None:
    text = '  File "/x/train.py", line 12, in main\n    return loss.item()\nreturn to sender'
    tokens = tokens_of(text)
    assert (Keyword, "return") in tokens
    assert tokens.count((Keyword, "return")) == 1


def test_muted_parts_of_a_frame_stay_in_the_text() -> None:
    assert (Comment, ", line ") in tokens_of('File "a.py", line 3, in f')


def test_is_known_to_pygments_by_name() -> None:
    assert isinstance(get_lexer_by_name("training-log"), TrainingLogLexer)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(_PIECES), st.text(max_size=30)), max_size=40))
def test_tokens_join_to_the_very_text_in_order(pieces: list[str]) -> None:
    text = "".join(pieces)
    at = 0
    for index, _, value in TrainingLogLexer().get_tokens_unprocessed(text):
        assert index == at
        at += len(value)
    assert "".join(value for _, value in tokens_of(text)) == text


@pytest.mark.parametrize(
    "unit",
    ["a.", "A.A", "[", "(", "'", "'a", '"', "/a", "1:", "a-", "0x", "#1 ((", " + 0x(", "::",
     "\x1b[", "[rank0]: ", "1,1]<", 'File "', "frame #1: ", "a=", "x" * 50 + ".", " \t"],
)  # fmt: skip
def test_hostile_lines_cost_time_in_proportion_to_their_length(unit: str) -> None:
    def seconds(lines: int) -> float:
        line = (unit * MAX_COLOURED_CHARACTERS)[: MAX_COLOURED_CHARACTERS - 1]
        started = time.process_time()
        for _ in TrainingLogLexer().get_tokens_unprocessed("\n".join([line] * lines)):
            pass
        return time.process_time() - started

    # One page is 200 lines; each of the longest coloured lines takes milliseconds at most.
    assert seconds(40) < 1.5


def test_one_endless_line_is_left_plain_past_the_bound() -> None:
    started = time.process_time()
    tokens = tokens_of("'a" * 5_000_000)
    assert time.process_time() - started < 2
    assert len(tokens[-1][1]) == 10_000_000 - MAX_COLOURED_CHARACTERS
