"""Python tracebacks as logs carry them: chained, interleaved, boxed, cut, carried from workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triage.engine import Evidence, Limits

Scan = Callable[..., Evidence]

PLAIN = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 88, in <module>
    main()
  File "/home/u/train.py", line 61, in main
    optimizer = build(model, config)
                ^^^^^^^^^^^^^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/optim/adamw.py", line 12, in __init__
    raise ValueError("no parameters")
ValueError: optimizer got an empty parameter list
"""


def test_frames_message_and_extent(scan_text: Scan) -> None:
    (traceback,) = scan_text("step 1\n" + PLAIN).tracebacks
    assert (traceback.line, traceback.end_line) == (2, 10)
    assert traceback.exception == "ValueError"
    assert traceback.message == "optimizer got an empty parameter list"
    assert [(f.line, f.function) for f in traceback.frames] == [
        (88, "<module>"),
        (61, "main"),
        (12, "__init__"),
    ]
    assert traceback.frames[1].code == "optimizer = build(model, config)"


def test_the_culprit_is_the_deepest_frame_outside_libraries(scan_text: Scan) -> None:
    (traceback,) = scan_text(PLAIN).tracebacks
    assert traceback.culprit is not None
    assert (traceback.culprit.function, traceback.culprit.line) == ("main", 61)


def test_two_ranks_interleaved_line_by_line(scan_text: Scan) -> None:
    other = PLAIN.replace("ValueError: optimizer", "KeyError: optimizer")
    pairs = zip(PLAIN.splitlines(), other.splitlines(), strict=True)
    text = "\n".join(f"[rank0]: {a}\n[rank1]: {b}" for a, b in pairs)
    found = {t.rank: (t.exception, len(t.frames)) for t in scan_text(text).tracebacks}
    assert found == {0: ("ValueError", 3), 1: ("KeyError", 3)}


@pytest.mark.parametrize(
    ("words", "link"),
    [
        (
            "The above exception was the direct cause of the following exception:",
            "cause",
        ),
        ("During handling of the above exception, another exception occurred:", "context"),
    ],
)
def test_chained_exceptions_say_how_they_hang_together(
    words: str, link: str, scan_text: Scan
) -> None:
    second = PLAIN.replace("ValueError: optimizer", "RuntimeError: optimizer")
    tracebacks = scan_text(f"{PLAIN}\n{words}\n\n{second}").tracebacks
    assert [(t.exception, t.link) for t in tracebacks] == [
        ("ValueError", ""),
        ("RuntimeError", link),
    ]


def test_an_error_carried_out_of_a_worker_names_it(scan_text: Scan) -> None:
    text = (
        PLAIN.replace(
            "ValueError: optimizer got an empty parameter list",
            "ValueError: Caught ValueError in DataLoader worker process 3.",
        )
        + "Original Traceback (most recent call last):\n"
        + '  File "/home/u/data.py", line 7, in __getitem__\n    raise ValueError("bad")\n'
        + "ValueError: bad\n"
    )
    outer, inner = scan_text(text).tracebacks
    assert outer.inside == "DataLoader worker process 3"
    assert inner.message == "bad"


def test_a_cut_start_leaves_frames_and_exception(scan_text: Scan) -> None:
    (traceback,) = scan_text("\n".join(PLAIN.splitlines()[4:])).tracebacks
    assert traceback.exception == "ValueError"
    assert [f.function for f in traceback.frames] == ["__init__"]


def test_a_cut_end_leaves_frames_without_an_exception(scan_text: Scan) -> None:
    (traceback,) = scan_text("\n".join(PLAIN.splitlines()[:5])).tracebacks
    assert traceback.exception == ""
    assert [f.function for f in traceback.frames] == ["<module>", "main"]


def test_the_lines_behind_the_exception_belong_to_its_message(scan_text: Scan) -> None:
    text = PLAIN + "Please pass model.parameters().\nSee the docs.\n\nunrelated\n"
    (traceback,) = scan_text(text).tracebacks
    assert traceback.message.split("\n")[1:] == ["Please pass model.parameters().", "See the docs."]


def test_a_spawned_process_lends_its_rank(scan_text: Scan) -> None:
    text = "-- Process 2 terminated with the following error:\n" + PLAIN
    (traceback,) = scan_text(text).tracebacks
    assert traceback.rank == 2


def test_windows_paths_and_own_exceptions(scan_text: Scan) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "C:\\Users\\me\\train.py", line 4, in <module>\n    run()\n'
        "my_pkg.errors.LoaderError: shard 3 is gone\n"
    )
    (traceback,) = scan_text(text).tracebacks
    assert traceback.exception == "my_pkg.errors.LoaderError"
    assert traceback.culprit is not None
    assert traceback.culprit.path == "C:\\Users\\me\\train.py"


def test_a_hundred_thousand_frames_keep_both_ends(scan_text: Scan) -> None:
    frames = "".join(
        f'  File "/home/u/net.py", line {n}, in forward\n    return self(x)\n'
        for n in range(1, 100_001)
    )
    text = (
        "Traceback (most recent call last):\n"
        + frames
        + "RecursionError: maximum recursion depth exceeded\n"
    )
    evidence = scan_text(text)
    (traceback,) = evidence.tracebacks[-1:]
    assert traceback.exception == "RecursionError"
    assert len(traceback.frames) <= Limits().max_frames
    assert traceback.frames[-1].line == 100_000
    assert len(evidence.tracebacks) == 1
    assert traceback.frames[0].line == 1


def test_the_number_of_tracebacks_is_bounded(scan_text: Scan) -> None:
    evidence = scan_text(PLAIN * 300, limits=Limits(max_tracebacks=20))
    assert len(evidence.tracebacks) == 20


def test_a_message_on_a_warning_line_is_no_uncaught_exception(scan_text: Scan) -> None:
    evidence = scan_text("WARNING: ImportError: cannot import name 'fused_adam' from 'apex'\n")
    assert all(t.warning for t in evidence.tracebacks)


@pytest.mark.parametrize(
    ("line", "name", "message"),
    [
        ("zlib.error: Error -3 while decompressing", "zlib.error", "Error -3 while decompressing"),
        ("zipfile.BadZipFile: File is not a zip file", "zipfile.BadZipFile", "File is not a zip"),
        ("queue.Empty", "queue.Empty", ""),
        ("socket.timeout: timed out", "socket.timeout", "timed out"),
    ],
)
def test_right_behind_its_frames_an_exception_may_have_any_dotted_name(
    line: str, name: str, message: str, scan_text: Scan
) -> None:
    text = "\n".join(PLAIN.splitlines()[:-1]) + f"\n{line}\n"
    (traceback,) = scan_text(text).tracebacks
    assert traceback.exception == name
    assert traceback.message.startswith(message)


@pytest.mark.parametrize("line", ["run.sh: line 3: 812 Killed", "node7.cluster: task 3: Killed"])
def test_a_script_or_host_behind_the_frames_is_no_exception(line: str, scan_text: Scan) -> None:
    (traceback,) = scan_text("\n".join(PLAIN.splitlines()[:-1]) + f"\n{line}\n").tracebacks
    assert traceback.exception == ""


def test_a_dotted_name_further_down_is_not_the_exception(scan_text: Scan) -> None:
    text = "\n".join(PLAIN.splitlines()[:-1]) + "\nepoch 3 done\nmodel.Encoder: 12 layers\n"
    (traceback,) = scan_text(text).tracebacks
    assert traceback.exception == ""


def test_a_gathered_traceback_names_the_rank_that_raised_it(scan_text: Scan) -> None:
    header = "Traceback (most recent call last):"
    text = PLAIN.replace(header, f"{header} (RANK 5)")
    (traceback,) = scan_text(text).tracebacks
    assert traceback.rank == 5


NOTEBOOK = """\
BadKey                                    Traceback (most recent call last)
{cell}
      1 for epoch in range(3):
----> 2     fit(loader)

{frame}
     10 def fit(loader):
---> 11     for batch in loader:
     12         raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

BadKey: 'label'
"""


@pytest.mark.parametrize(
    ("cell", "frame"),
    [
        ("<ipython-input-4-0a1b2c> in <module>", "/content/fit.py in fit(loader)"),
        ("Cell In[4], line 2", "File ~/project/fit.py:11, in fit(loader)"),
        ("Input In [4], in <cell line: 1>()", "File ~/project/fit.py:11, in fit(loader)"),
    ],
)
def test_a_notebooks_traceback(cell: str, frame: str, scan_text: Scan) -> None:
    evidence = scan_text(NOTEBOOK.format(cell=cell, frame=frame))
    (traceback,) = evidence.tracebacks
    assert (traceback.exception, traceback.message) == ("BadKey", "'label'")
    assert [(f.function, f.line) for f in traceback.frames] == [("<module>", 2), ("fit", 11)]
    assert traceback.frames[1].code == "for batch in loader:"
    assert traceback.culprit == traceback.frames[1]
    assert not any("out of memory" in hit.text for hit in evidence.hits)


@pytest.mark.parametrize("first", [0, 1], ids=["whole", "header cut off"])
def test_a_traceback_indented_as_a_block(first: int, scan_text: Scan) -> None:
    lines = PLAIN.splitlines()[first:]
    (traceback,) = scan_text("\n".join(f"    {line}" for line in lines)).tracebacks
    assert traceback.exception == "ValueError"
    assert traceback.message == "optimizer got an empty parameter list"
    assert [f.function for f in traceback.frames] == ["<module>", "main", "__init__"]


def test_the_exceptions_of_a_group(scan_text: Scan) -> None:
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/home/u/serve.py", line 9, in <module>\n'
        "  |     asyncio.run(main())\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/home/u/serve.py", line 4, in load\n'
        "    |     raise ValueError(path)\n"
        "    | ValueError: /data/w.bin\n"
        "    +------------------------------------\n"
    )
    found = [(t.exception, t.frames[-1].function) for t in scan_text(text).tracebacks]
    assert found[-1] == ("ValueError", "load")


PYTEST_LONG = """\
_________________________________ test_warmup __________________________________

    def test_warmup():
>       fit(steps=3)

tests/test_fit.py:12:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

    def fit(steps):
>       return table[steps]
E       KeyError: 3

src/fit.py:40: KeyError
=========================== short test summary info ============================
FAILED tests/test_fit.py::test_warmup - KeyError: 3
"""
PYTEST_SHORT = """\
tests/test_fit.py:12: in test_warmup
    fit(steps=3)
src/fit.py:40: in fit
    assert steps < 3
E   assert 3 < 3
E    +  where 3 = len([1, 2, 3])
"""


@pytest.mark.parametrize(
    ("text", "exception", "frames"),
    [
        (PYTEST_LONG, "KeyError", [("tests/test_fit.py", 12), ("src/fit.py", 40)]),
        (PYTEST_SHORT, "AssertionError", [("tests/test_fit.py", 12), ("src/fit.py", 40)]),
        (PYTEST_LONG.splitlines()[-1], "KeyError", [("tests/test_fit.py", None)]),
    ],
    ids=["long", "short", "summary"],
)
def test_pytests_report(
    text: str, exception: str, frames: list[tuple[str, int | None]], scan_text: Scan
) -> None:
    (traceback,) = scan_text(text).tracebacks
    assert traceback.exception == exception
    assert [(f.path, f.line) for f in traceback.frames] == frames


@pytest.mark.parametrize(
    "line",
    ["src/fit.py:40: UserWarning: steps is 3", "src/fit.py:40: error: no such name", "E   3 of 4"],
)
def test_a_linters_or_warnings_line_is_no_frame(line: str, scan_text: Scan) -> None:
    assert scan_text(f"{line}\n{line}\n").tracebacks == []


def test_behind_a_box_an_exception_may_have_any_name(scan_text: Scan) -> None:
    box = """\
╭──────────────────── Traceback (most recent call last) ─────────────────────╮
│ /home/u/exp/run.py:31 in <module>                                          │
│                                                                            │
│ ❱ 31 │   claim(run)                                                        │
╰────────────────────────────────────────────────────────────────────────────╯
"""
    (traceback,) = scan_text(f"{box}RunIsTaken: run 7 belongs to another job\n").tracebacks
    assert traceback.exception == "RunIsTaken"
    assert traceback.message == "run 7 belongs to another job"
    (cut_off,) = scan_text(f"{box}Epoch 3 starts: run 7\n").tracebacks
    assert cut_off.exception == ""
