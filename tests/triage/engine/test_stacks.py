"""Stack dumps: py-spy, faulthandler and gdb, one or many processes, prints of others between."""

from __future__ import annotations

from collections.abc import Callable

from triage.engine import Evidence, Limits

Scan = Callable[..., Evidence]

PY_SPY = """\
Process 31211: python -u train.py
Python v3.11.9 (/usr/bin/python3.11)

Thread 31211 (active): "MainThread"
    barrier (torch/distributed/distributed_c10d.py:4627)
    save_checkpoint (train.py:141)
    <module> (train.py:180)
Thread 31299 (idle): "QueueFeederThread"
    wait (threading.py:327)

Process 31212: python -u train.py
Thread 31212 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2805)
    <module> (train.py:180)
"""


def test_py_spy_dumps_of_two_processes(scan_text: Scan) -> None:
    first, second = scan_text(PY_SPY).stacks
    assert (first.pid, second.pid) == (31211, 31212)
    assert first.command == "python -u train.py"
    assert [(t.name, t.state) for t in first.threads] == [
        ("MainThread", "active"),
        ("QueueFeederThread", "idle"),
    ]
    assert first.main is not None
    assert [(f.function, f.path, f.line) for f in first.main.frames][:2] == [
        ("barrier", "torch/distributed/distributed_c10d.py", 4627),
        ("save_checkpoint", "train.py", 141),
    ]
    assert second.main is not None
    assert second.main.frames[0].function == "all_reduce"


def test_another_ranks_prints_do_not_cut_a_dump(scan_text: Scan) -> None:
    lines = PY_SPY.splitlines()
    mixed = "\n".join(f"{line}\n[rank5]: step {n} loss 2.0" for n, line in enumerate(lines))
    shapes = [[len(t.frames) for t in s.threads] for s in scan_text(mixed).stacks]
    assert shapes == [[3, 1], [2]]


def test_faulthandler_prints_innermost_first(scan_text: Scan) -> None:
    text = (
        "Fatal Python error: Segmentation fault\n\n"
        "Thread 0x00007f01 [Thread-1] (most recent call first):\n"
        '  File "/usr/lib/python3.11/threading.py", line 324 in wait\n\n'
        "Current thread 0x00007f02 (most recent call first):\n"
        '  File "/home/u/ext.py", line 9 in native\n'
        '  File "/home/u/train.py", line 80 in <module>\n'
    )
    (stack,) = scan_text(text).stacks
    current = stack.threads[-1]
    assert current.state == "current"
    assert [f.function for f in current.frames] == ["native", "<module>"]


def test_gdb_threads_with_c_and_python_frames(scan_text: Scan) -> None:
    text = (
        'Thread 2 (Thread 0x7f12 (LWP 4712) "pt_main_thread"):\n'
        "#0  0x00007f00 in __lll_lock_wait () from /lib/libpthread.so.0\n"
        "#1  0x00007f01 in pthread_mutex_lock (mutex=0x1) at pthread_mutex_lock.c:80\n"
        "#2  Frame 0x55, for file /home/u/data.py, line 32, in __getitem__ (self=1)\n"
    )
    (stack,) = scan_text(text).stacks
    frames = stack.threads[0].frames
    assert [f.function for f in frames] == ["__lll_lock_wait", "pthread_mutex_lock", "__getitem__"]
    assert (frames[1].path, frames[1].line) == ("pthread_mutex_lock.c", 80)
    assert (frames[2].path, frames[2].line) == ("/home/u/data.py", 32)


def test_wait_channels_and_parents_of_a_capture(scan_text: Scan) -> None:
    text = (
        "=== pid 15258 ppid 15253 state S\n"
        "threads (tid comm wchan syscall-number):\n"
        "  15258 pt_data_worker futex_do_wait 202\n"
        "Process 15258: python train.py\n"
        'Thread 15258 (idle): "MainThread"\n'
        "    __getitem__ (train.py:32)\n"
        "    _worker_loop (torch/utils/data/_utils/worker.py:374)\n"
    )
    (stack,) = scan_text(text).stacks
    assert (stack.pid, stack.parent_pid) == (15258, 15253)
    assert stack.threads[0].wait_channel == "futex_do_wait"


def test_threads_and_frames_are_bounded(scan_text: Scan) -> None:
    thread = 'Thread {0} (idle): "T{0}"\n' + "    f (a.py:1)\n" * 200
    text = "Process 1: python\n" + "".join(thread.format(n) for n in range(50))
    limits = Limits(max_stack_threads=10, max_frames=32)
    (stack,) = scan_text(text, limits=limits).stacks
    assert len(stack.threads) == 10
    assert {len(t.frames) for t in stack.threads} == {32}


def test_a_log_about_processes_is_no_dump(scan_text: Scan) -> None:
    text = "Process 0: starting\nThread pool ready\n  (indented)\n#1 priority: speed (maybe)\n"
    assert scan_text(text).stacks == []
