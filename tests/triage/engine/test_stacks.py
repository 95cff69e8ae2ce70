"""Stack dumps: py-spy, faulthandler and gdb, one or many processes, prints of others between."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

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


def pyspy_json(pid: int, function: str, *, active: bool) -> list[dict[str, object]]:
    frame = {
        "name": function, "filename": "/srv/run/train.py", "module": None,
        "short_filename": "train.py", "line": 12, "locals": None, "is_entry": False,
    }  # fmt: skip
    thread = {
        "pid": pid, "thread_id": 140304222074560, "thread_name": "MainThread",
        "os_thread_id": pid, "active": active, "owns_gil": active,
    }  # fmt: skip
    feeder = thread | {"thread_name": None, "os_thread_id": pid + 1, "active": False}
    return [
        {**feeder, "owns_gil": False, "frames": [frame | {"name": "_feed"}]},
        {**thread, "frames": [frame, frame | {"name": "<module>", "line": 0}]},
    ]


@pytest.mark.parametrize("indent", [2, None])
def test_py_spy_json_of_two_processes(indent: int | None, scan_text: Scan) -> None:
    text = "".join(
        json.dumps(pyspy_json(pid, name, active=pid == 71), indent=indent) + "\n"
        for pid, name in ((71, "step"), (72, "save"))
    )
    first, second = scan_text("$ py-spy dump --json\n" + text).stacks
    assert (first.pid, second.pid) == (71, 72)
    assert [(t.name, t.state, t.thread_id) for t in first.threads] == [
        ("", "idle", "72"),
        ("MainThread", "active+gil", "71"),
    ]
    assert second.main is not None
    assert [(f.function, f.path, f.line) for f in second.main.frames] == [
        ("save", "train.py", 12),
        ("<module>", "train.py", None),
    ]


def test_json_of_something_else_is_no_dump(scan_text: Scan) -> None:
    text = '{"pid": 5, "name": "step", "line": 3}\n{\n  "pid": 5,\n  "name": "x",\n  "line": 3\n}\n'
    assert scan_text(text).stacks == []


FAULT = (
    "Thread 0x00007f0{0} (most recent call first):\n"
    '  File "/usr/lib/python3.11/threading.py", line 327 in wait\n'
    '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap\n'
    "\n"
    "Current thread 0x00007f1{0} (most recent call first):\n"
    '  File "/srv/run/train.py", line {0} in step\n'
    '  File "/srv/run/train.py", line 99 in <module>\n'
)


def test_faulthandler_dumps_of_processes_in_one_stream(scan_text: Scan) -> None:
    stacks = scan_text(FAULT.format(1) + FAULT.format(2)).stacks
    assert [len(s.threads) for s in stacks] == [2, 2]
    assert [s.main.frames[0].line for s in stacks if s.main] == [1, 2]


def test_faulthandler_dumps_of_ranks_line_by_line(scan_text: Scan) -> None:
    rows = zip(FAULT.format(1).splitlines(), FAULT.format(2).splitlines(), strict=True)
    text = "".join(f"[rank0]: {one}\n[rank1]: {other}\n" for one, other in rows)
    stacks = scan_text(text).stacks
    assert [(s.rank, [len(t.frames) for t in s.threads]) for s in stacks] == [
        (0, [2, 2]),
        (1, [2, 2]),
    ]


def test_gdb_on_one_process_after_the_other(scan_text: Scan) -> None:
    text = "".join(
        f'Thread 2 (Thread 0x7f12 (LWP {pid + 1}) "python"):\n'
        "#0  0x00007f00 in epoll_wait () from /lib/libc.so.6\n"
        f'Thread 1 (Thread 0x7f13 (LWP {pid}) "python"):\n'
        "#0  0x00007f00 in pthread_cond_wait@@GLIBC_2.3.2 () from /lib/libc.so.6\n"
        "#1  0x00007f01 in c10d::ProcessGroupGloo::barrier (this=0x1) from /lib/libtorch_cpu.so\n"
        "#2  <frame at 0x7f02, file '/srv/run/train.py', line 40, code save> (x=1) at ceval.c:1\n"
        for pid in (500, 600)
    )
    stacks = scan_text(text).stacks
    assert [s.pid for s in stacks] == [500, 600]
    frame = stacks[0].threads[1].frames[2]
    assert (frame.path, frame.line, frame.function) == ("/srv/run/train.py", 40, "save")


def test_kernel_stacks_and_what_they_wait_for(scan_text: Scan) -> None:
    text = (
        "==> /proc/12/stack <==\n"
        "[<0>] rpc_wait_bit_killable+0x1e/0xb0\n"
        "[<0>] nfs4_file_open+0x1e/0xb0\n"
        "[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e\n"
        "\n"
        "==> /proc/13/stack <==\n"
        "[<0>] futex_wait+0x1e/0xb0\n"
    )
    first, second = scan_text(text).stacks
    assert (first.pid, second.pid) == (12, 13)
    assert [f.function for f in first.threads[0].frames][:2] == [
        "rpc_wait_bit_killable",
        "nfs4_file_open",
    ]


def test_a_captured_kernel_stack_is_the_main_threads_wait(scan_text: Scan) -> None:
    text = (
        "=== pid 58 ppid 53 state S\n"
        "threads (tid comm wchan syscall-number):\n"
        "  58 python 0 running\n"
        "  59 python 0 202\n"
        "kernel stack: [<0>] wait_woken+0x8/0x9 | [<0>] sk_wait_data+0x1/0x2\n"
        "Process 58: python train.py\n"
        'Thread 58 (idle): "MainThread"\n'
        "    __getitem__ (train.py:32)\n"
        'Thread 59 (idle): "h"\n'
        "    wait (threading.py:327)\n"
    )
    (stack,) = scan_text(text).stacks
    assert [t.wait_channel for t in stack.threads] == ["wait_woken", "futex"]


def test_a_jvms_threads_are_no_part_of_a_dump(scan_text: Scan) -> None:
    java = (
        '"main" #1 prio=5 os_prio=0 tid=0x00007f nid=0x1 waiting on condition [0x00007f]\n'
        "   java.lang.Thread.State: WAITING (parking)\n"
        "    at java.util.concurrent.locks.LockSupport.park(LockSupport.java:194)\n"
        "    at sun.misc.Unsafe.park(Native Method)\n"
    )
    assert scan_text(java).stacks == []
    (stack,) = scan_text('Thread 5 (idle): "MainThread"\n    f (train.py:1)\n' + java).stacks
    assert [f.function for f in stack.threads[0].frames] == ["f"]
