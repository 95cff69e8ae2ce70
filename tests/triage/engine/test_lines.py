"""Bytes → lines: prefixes of every launcher, colours, bars, escapes, encodings, line numbers."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest

from triage.engine import Evidence, Limits
from triage.engine.lines import BlockReader, CodeMarker, Line, seconds_of, split_line


def parse(text: str, number: int = 1) -> list[Line]:
    """All Lines of one physical line."""
    return list(split_line(text.encode(), number, Limits()))


def only(text: str) -> Line:
    """The one Line that the text is."""
    (line,) = parse(text)
    return line


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[rank3]: ", 3),
        ("[rank3]:", 3),
        ("[default0]:[rank12]:", 12),
        ("3: ", 3),
        ("[1,3]<stderr>:", 3),
        ("[1,3]<stdout>: ", 3),
        ("[RANK 1] ", 1),
        ("[rank=5] || ", 5),
        ("[Rank 7] ", 7),
        ("rank 4: ", 4),
        ("[rank2]:[E1123 04:11:59.123456789 ProcessGroupNCCL.cpp:616] [Rank 2] ", 2),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 6] ", 6),
        ("12: [default3]:[rank15]:", 15),
        ("2024-05-01T10:00:00.123456Z [rank9]: ", 9),
    ],
)
def test_a_prefix_names_the_rank_and_leaves_the_message(prefix: str, rank: int) -> None:
    line = only(prefix + "RuntimeError: boom")
    assert line.rank == rank
    assert line.text == "RuntimeError: boom"
    assert line.full == prefix + "RuntimeError: boom"


@pytest.mark.parametrize(
    "prefix",
    [
        "node-2: 3: [rank3]: ",
        "[default3]:[rank3]:[E1123 04:11:59.123456 ProcessGroupNCCL.cpp:616] ",
        "2024-05-01T10:00:00.123Z (RayTrainWorker pid=812, ip=10.0.0.7) [rank3]: ",
        "[1,3]<stderr>:[rank3]:[2024-05-01 10:00:00,123] ",
        "gpu-node07: [1,3]<stdout>:2024-05-01 10:00:00 ",
    ],
)
def test_three_nested_prefixes_all_go(prefix: str) -> None:
    line = only(prefix + "CUDA error: device-side assert triggered")
    assert line.text == "CUDA error: device-side assert triggered"
    assert line.rank == 3


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("node-2: boom", "node-2"),
        ("gpu-node07: boom", "gpu-node07"),
        ("10.0.0.7: boom", "10.0.0.7"),
        ("(RayTrainWorker pid=812, ip=10.0.0.7) boom", "10.0.0.7"),
    ],
)
def test_pdsh_and_ray_name_the_host(text: str, host: str) -> None:
    line = only(text)
    assert (line.host, line.text) == (host, "boom")


@pytest.mark.parametrize(
    "text",
    [
        "epoch3: done",
        "step-12: loss 2.1",
        "cuda:0: busy",
        "layer1: frozen",
        "loss1: 0.5",
        "fp16: on",
    ],
)
def test_words_with_numbers_are_no_hosts(text: str) -> None:
    line = only(text)
    assert line.host is None
    assert line.text == text


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("E1123 04:11:59.123456 139 torch/distributed/elastic/api.py:869] boom", "E"),
        ("W1123 04:11:59.123456 139 torch/run.py:792] boom", "W"),
        ("[E ProcessGroupNCCL.cpp:475] boom", "E"),
        ("2024-05-01 10:00:00,123 - ERROR - boom", "E"),
        ("2024-05-01 10:00:00.123 | WARNING  | boom", "W"),
        ("[2024-05-01 10:00:00,123] [INFO] boom", "I"),
        ("2024-05-01T10:00:00.000000000Z WARNING: boom", "W"),
    ],
)
def test_stamps_tell_the_level(text: str, level: str) -> None:
    line = only(text)
    assert line.level == level
    assert line.text == "boom"


def test_levels_of_words_in_the_message() -> None:
    assert only("/a/b.py:3: UserWarning: lr_scheduler before optimizer").level == "W"
    assert only("Error: it broke").level == "E"
    assert only("step 3 loss 2.0").level == ""


@pytest.mark.parametrize(
    ("earlier", "later", "seconds"),
    [
        ("2024-05-01 10:00:00,000 a", "2024-05-01 10:00:41,500 a", 41.5),
        ("E1123 23:59:59.000000 1 a.cpp:1] a", "E1124 00:00:01.000000 1 a.cpp:1] a", 2.0),
        ("2024-05-01T10:00:00Z a", "2024-05-01T11:00:00Z a", 3600.0),
        ("Mar  4 10:00:00 n1 kernel: a", "Mar  4 10:00:05 n1 kernel: a", 5.0),
    ],
)
def test_times_differ_by_what_the_stamps_say(earlier: str, later: str, seconds: float) -> None:
    first, second = only(earlier).time, only(later).time
    assert first is not None
    assert second is not None
    assert second - first == pytest.approx(seconds)


def test_the_outermost_stamp_counts() -> None:
    outer = only("2026-11-30 04:00:09,123 plain").time
    nested = only("2026-11-30 04:00:09,123 [2024-01-18 03:12:44,871] plain").time
    assert outer is not None
    assert nested == outer


def test_indentation_survives_a_prefix() -> None:
    assert only('[rank0]:   File "/a/b.py", line 3, in f').text == '  File "/a/b.py", line 3, in f'


# ------------------------------------------------------------------------------ bars and escapes


def test_an_error_glued_to_a_bar_stands_alone() -> None:
    bar, error = parse(" 41%|####      | 41/100 [00:10<00:14,  4.1it/s]RuntimeError: boom")
    assert bar.bar is not None
    assert (bar.bar.done, bar.bar.total, bar.bar.elapsed_s) == (41, 100, 10.0)
    assert error.bar is None
    assert error.text == "RuntimeError: boom"


def test_every_redraw_of_a_bar_is_read_and_the_error_behind_it_too() -> None:
    redraws = "".join(f"\rtrain: {n}%|#| {n}/100 [00:{n:02d}<01:00]" for n in range(1, 4))
    lines = parse(redraws + "\rKilled")
    assert [line.bar.done for line in lines if line.bar] == [1, 2, 3]
    assert lines[0].bar is not None
    assert lines[0].bar.name == "train"
    assert lines[-1].text == "Killed"
    assert {line.number for line in lines} == {1}


def test_thousands_of_redraws_are_sampled_but_no_message_is_lost() -> None:
    pieces = [f"{n % 100}%|#| {n}/9000 [00:10<01:00]" for n in range(9000)]
    pieces[4500] = "CUDA error: an illegal memory access was encountered"
    lines = parse("\r".join(pieces))
    assert len(lines) < 200
    assert any(line.text == pieces[4500] for line in lines)
    assert lines[0].bar is not None
    assert lines[-1].bar is not None
    assert (lines[0].bar.done, lines[-1].bar.done) == (0, 8999)


def test_clock_of_a_bar() -> None:
    assert seconds_of("12:34") == 754.0
    assert seconds_of("1:02:03") == 3723.0


def test_newlines_escaped_in_json_divide_the_line() -> None:
    raw = r'{"log": "Traceback (most recent call last):\n  File \"a.py\", line 3\nKeyError: 1\n"}'
    texts = [line.text for line in parse(raw)]
    assert '  File "a.py", line 3' in texts
    assert "KeyError: 1" in texts


def test_windows_paths_are_not_escapes() -> None:
    text = r'  File "C:\new\train\net.py", line 12, in <module>, called by C:\nets\run.py'
    assert only(text).text == text


def test_a_rich_box_is_taken_off() -> None:
    line = only("│ RuntimeError: boom                │")
    assert line.is_boxed
    assert line.text == "RuntimeError: boom"
    assert only("╭──────────── Traceback ────────────╮").text == ""


def test_the_rank_of_a_json_line_is_that_of_each_line_of_its_message() -> None:
    raw = b'{"ts": 1, "rank": 3, "msg": "Traceback (most recent call last):\\n  x\\nKeyError: 1"}'
    assert {line.rank for line in split_line(raw, 1, Limits())} == {3}
    assert only('{"level": "info", "rank":"12", "msg": "step 1"}').rank == 12
    assert only('{"error_rank": 3, "msg": "step 1"}').rank is None


def test_a_rank_before_a_counter_is_the_lines() -> None:
    line = only("rank 0 step 4/5 loss 2.1")
    assert (line.rank, line.text) == (0, "step 4/5 loss 2.1")
    assert only("Rank=7, epoch: 3").rank == 7
    assert only("rank 0 is in evaluate while ranks 1-7 wait").rank is None


# ----------------------------------------------------------------------------------- bytes


def blocks(raw: bytes, limits: Limits | None = None) -> tuple[bytes, BlockReader]:
    reader = BlockReader(io.BytesIO(raw), limits or Limits())
    return b"".join(block.data for block in reader), reader


def test_blocks_in_place_are_those_of_the_copies_until_the_next_but_one() -> None:
    pytest.importorskip("stringzilla")
    limits = Limits()
    lines = [b"line %d %s" % (n, b"x" * (n % 300)) for n in range(9_000)]
    lines[2_000] = b"long " + b"y" * 100_000
    lines[4_000] = b"red \x1b[31mtext\x1b[0m"
    lines[6_000] = b"n\0l"
    raw = b"\n".join(lines) + b"\nno end"
    copies = list(BlockReader(io.BytesIO(raw), limits))
    before, in_place, kinds = None, [], set()
    for block in BlockReader(io.BytesIO(raw), limits, in_place=True):
        if before is not None:
            in_place.append(replace(before, data=bytes(before.data)))
        kinds.add(type(block.data))
        before = block
    assert before is not None
    assert [*in_place, replace(before, data=bytes(before.data))] == copies
    assert len(copies) > 4
    assert memoryview in kinds


def test_colours_titles_and_nul_bytes_go() -> None:
    raw = b"\x1b[31mRed\x1b[0m \x1b]0;title\x07te\0xt\x1b[2K\x1b[1A\n"
    assert blocks(raw)[0] == b"Red text\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_with_and_without_its_mark(encoding: str) -> None:
    text = "步骤 1 loss 2.5\r\nCUDA out of memory. Tried to allocate 2 GiB\r\n" * 4
    raw = text.encode(encoding)
    data, reader = blocks(raw)
    assert data.decode() == text
    assert reader.encoding.startswith("utf-16")
    assert reader.lines == 8
    assert reader.bytes_read == len(raw)


def test_a_utf8_mark_is_no_text() -> None:
    assert blocks("\ufeffhello\n".encode())[0] == b"hello\n"


def test_broken_utf8_stays_readable() -> None:
    line = next(split_line(b"Epoch \xff\xfe 3: CUDA error\xc3", 1, Limits()))
    assert "CUDA error" in line.text
    assert "\ufffd" in line.text


def test_crlf_is_one_line_end(scan_text: Callable[..., Evidence]) -> None:
    evidence = scan_text("one\r\ntwo\r\nKeyError: 'lr'\r\n")
    assert evidence.lines == 3
    assert evidence.tracebacks[0].line == 3
    assert evidence.tracebacks[0].message == "'lr'"


@pytest.mark.parametrize(
    ("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n\n", 3), ("a\n\nb\n", 3)]
)
def test_lines_are_counted_as_an_editor_counts_them(
    text: str, lines: int, scan_text: Callable[..., Evidence]
) -> None:
    assert scan_text(text).lines == lines


def test_line_numbers_hold_in_every_part_of_a_long_text(
    scan_text: Callable[..., Evidence],
) -> None:
    lines = [f"step {n} loss {2 - n / 1e6:.4f}" for n in range(60_000)]
    wanted = {7, 20_000, 41_234, 59_990}
    for index in wanted:
        lines[index - 1] = "CUDA out of memory. Tried to allocate 2.00 GiB"
    evidence = scan_text("\n".join(lines))
    assert {hit.line for hit in evidence.hits if "out of memory" in hit.text} == wanted
    assert evidence.lines == 60_000


def test_an_overlong_line_is_cut_and_said_so(scan_text: Callable[..., Evidence]) -> None:
    limits = Limits(max_line_bytes=1024)
    evidence = scan_text("x" * 600_000 + "\nKeyError: 'lr'\n", limits=limits)
    assert evidence.lines == 2
    assert any("line 1 is longer than 1024 bytes" in note for note in evidence.notes)
    assert [t.line for t in evidence.tracebacks] == [2]


def test_what_a_line_without_an_end_holds_behind_carriage_returns_is_read(
    scan_text: Callable[..., Evidence],
) -> None:
    bars = "".join(f"\r{n % 100}%|#| {n}/99999 [00:10<01:00]" for n in range(40_000))
    evidence = scan_text(bars + "\rCUDA out of memory. Tried to allocate 2.00 GiB")
    assert evidence.lines == 1
    assert any("out of memory" in hit.text for hit in evidence.hits)


# ------------------------------------------------------------------------------ quoted code


def test_code_under_a_frame_is_marked_for_each_rank() -> None:
    texts = [
        '[rank0]:   File "a.py", line 3, in f',
        '[rank1]:   File "b.py", line 9, in g',
        '[rank0]:     raise ValueError("CUDA out of memory")',
        "[rank1]:     ^^^^^^^^",
        "[rank1]: ValueError: CUDA out of memory",
    ]
    marker = CodeMarker()
    marks = []
    for text in texts:
        line = only(text)
        marker.mark(line)
        marks.append(line.is_code)
    assert marks == [False, False, True, True, False]


@pytest.mark.parametrize("before", [100, 3_000, 5_000, 9_000, 40_000, 65_000])
@pytest.mark.parametrize("padding", [0, 400_000])
def test_a_message_is_found_wherever_it_stands_in_a_line(
    scan_text: Callable[..., Evidence], before: int, padding: int
) -> None:
    message = "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error."
    noise = "step 1 loss 0.5\n" * (padding // 16)
    hits = scan_text(f"{noise}{'word ' * (before // 5)}{message} and more\n{noise}").hits
    found = [hit for hit in hits if "killed by signal: Bus error" in hit.text]
    assert found
    assert {hit.values.get("pid") for hit in found} >= {"4242"}
    assert max(len(hit.text) for hit in hits) <= Limits().max_text_chars


def test_an_escaped_message_keeps_its_windows_paths() -> None:
    raw = rb'{"msg": "Traceback:\n  File \"C:\\new\\train.py\", line 3, in main\nKeyError: 3"}'
    texts = [line.text for line in split_line(raw, 1, Limits())]
    assert texts[1] == '  File "C:\\new\\train.py", line 3, in main'


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (r"exceeds job hard limit \"h_vmem\" of queue", "exceeds job"),
        (r"\u6bb5\u9519\u8bef", "段错误"),
        (r"\ud83d\n\u001b[31m\u6bb5\u9519\u8bef\u001b[0m", "段错误"),
    ],
    ids=["quotes", "letters", "colours"],
)
def test_patterns_match_what_json_escapes(
    message: str, words: str, scan_text: Callable[..., Evidence]
) -> None:
    hits = scan_text(rf'{{"msg": "job failed\n{message}\nbye"}}').hits
    assert any(words in hit.pattern for hit in hits)


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        (b"2026-11-30T04:00:01.123456789Z stderr F ", None),
        (b"[pod/train-0/pytorch] ", None),
        (b"trainer-1  | ", None),
        (b"[1,mpirank:5,algo-2]<stderr>:", 5),
        (b"2026-11-30 04:00:01.123 | ERROR    | train:<module>:41 - ", None),
    ],
    ids=["containerd", "kubectl", "compose", "sagemaker", "loguru"],
)
def test_what_a_platform_or_logger_puts_before_each_line_goes(
    prefix: bytes, rank: int | None
) -> None:
    (line,) = split_line(prefix + b"KeyError: 3", 1, Limits())
    assert (line.text, line.rank) == ("KeyError: 3", rank)


def test_the_first_column_of_a_table_stays() -> None:
    (line,) = split_line(b"encoder | ResNet | 23.5 M", 1, Limits())
    assert line.text == "encoder | ResNet | 23.5 M"


def test_dockers_objects_are_taken_off_with_their_time(scan_text: Callable[..., Evidence]) -> None:
    text = "".join(
        f'{{"log":"{log}\\n","stream":"stderr","time":"2026-11-30T04:00:0{n}.5Z"}}\n'
        for n, log in enumerate(
            [
                "Traceback (most recent call last):",
                r"  File \"/app/train.py\", line 3, in main",
                "    fit()",
                r"KeyError: \"lr\"",
            ]
        )
    )
    evidence = scan_text(text)
    (traceback,) = evidence.tracebacks
    assert (traceback.exception, traceback.message) == ("KeyError", '"lr"')
    assert traceback.frames[0].code == "fit()"
    assert evidence.first_time is not None


def test_an_indented_exception_is_no_code_although_a_frame_lacks_its_own() -> None:
    texts = [
        "    Traceback (most recent call last):",
        '      File "<string>", line 1, in <module>',
        '      File "/home/u/train.py", line 3, in main',
        "        fit()",
        "    KeyError: 'lr'",
    ]
    lines = [Line(number, text, text) for number, text in enumerate(texts)]
    marker = CodeMarker()
    for line in lines:
        marker.mark(line)
    assert [line.is_code for line in lines] == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[2] Traceback (most recent call last):", 2),
        ('[2]   File "/app/train.py", line 8, in step', 2),
        ("[2] torch.OutOfMemoryError: CUDA out of memory", 2),
        ("[2] 48213", None),
        ("[2]   Running                 python train.py &", None),
        ("rank 1 RuntimeError: boom", 1),
        ("rank 0 step 4/5", 0),
        ("rank 3 died", None),
        ('{"rank": 3, "msg": "loss 2.1"}', 3),
        ('{"msg": "loss 2.1", "global_rank": 3}', 3),
        ('{"msg": "of \\"rank\\": 3"}', None),
    ],
)
def test_ranks_without_a_colon_or_in_a_field(text: str, rank: int | None) -> None:
    assert only(text).rank == rank


def test_a_rank_in_json_is_that_of_every_line_of_its_message() -> None:
    text = '{"rank":3,"exc_info":"Traceback (most recent call last):\\n  x\\nValueError: boom\\n"}'
    assert {line.rank for line in parse(text)} == {3}
