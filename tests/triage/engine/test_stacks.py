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


def test_pystack_prints_outermost_first(scan_text: Scan) -> None:
    text = (
        "Traceback for thread 91 (pt_data_pin) [] (most recent call last):\n"
        '    (Python) File "/env/torch/utils/data/_utils/pin_memory.py", line 59, in _pin\n'
        "        do_one_step()\n"
        "\n"
        "Traceback for thread 70 (python) [Has the GIL] (most recent call last):\n"
        '    (C) File "???", line 0, in _start (/usr/bin/python3.11)\n'
        '    (Python) File "/srv/run/train.py", line 80, in <module>\n'
        "        fit()\n"
        "      Locals:\n"
        '        path: "/data (old)"\n'
        '    (Python) File "/srv/run/train.py", line 44, in fit\n'
        "        with LOCK:\n"
        '    (C) File "./nptl/futex-internal.c", line 57, in futex_wait (inlined) (/lib/c.so)\n'
        "\n"
        "Traceback for thread 71 [] (most recent call last):\n"
        '    (Python) File "/srv/run/train.py", line 80, in <module>\n'
    )
    first, second = scan_text(text).stacks
    assert (first.pid, second.pid) == (70, 71)
    assert [t.name for t in first.threads] == ["pt_data_pin", "python"]
    main = first.threads[1]
    assert main.state == "active+gil"
    assert [(f.function, f.line) for f in main.frames] == [
        ("futex_wait", None),
        ("fit", 44),
        ("<module>", 80),
        ("_start", None),
    ]
    assert main.frames[1].code == "with LOCK:"
    assert scan_text(text).tracebacks == []


def test_both_ends_of_a_deep_stack_of_pystack_are_kept(scan_text: Scan) -> None:
    frame = '    (Python) File "/srv/run/a.py", line {0}, in f{0}\n'
    text = "Traceback for thread 7 (python) [] (most recent call last):\n" + "".join(
        frame.format(n) for n in range(90)
    )
    (stack,) = scan_text(text, limits=Limits(max_frames=20)).stacks
    functions = [f.function for f in stack.threads[0].frames]
    assert (len(functions), functions[0], functions[-1]) == (20, "f89", "f0")


PY_BT = (
    "Traceback (most recent call first):\n"
    "  <built-in method acquire of _thread.lock object at remote 0x7f1a>\n"
    '  File "/srv/run/data.py", line 31, in __getitem__\n'
    "    with self.lock:\n"
)


def test_where_gdb_stopped_is_the_top_of_py_bt(scan_text: Scan) -> None:
    text = (
        "$ gdb -p 31337 -batch -ex py-bt\n"
        "[Thread debugging using libthread_db enabled]\n"
        "0x00007f6d1c4a5197 in __futex_abstimed_wait_common64 () from /lib/libc.so.6\n" + PY_BT
    )
    (stack,) = scan_text(text).stacks
    assert stack.pid == 31337
    assert [f.function for f in stack.threads[0].frames] == [
        "__futex_abstimed_wait_common64",
        "acquire",
        "__getitem__",
    ]
    plain = text.replace("0x00007f6d1c4a5197 in ", "").replace(
        "() from /lib/libc.so.6", "(private=0, cancel=true) at ./nptl/futex-internal.c:57"
    )
    (stack,) = scan_text(plain).stacks
    assert stack.threads[0].frames[0].function == "__futex_abstimed_wait_common64"


def test_py_bt_belongs_to_the_bt_before_it(scan_text: Scan) -> None:
    native = "".join(f"#{n}  0x00007f0{n % 10} in frame_{n} () from /lib/x.so\n" for n in range(40))
    text = "(gdb) bt\n" + native + "(gdb) py-bt\n" + PY_BT
    (stack,) = scan_text(text + "[Inferior 1 (process 77) detached]\n").stacks
    functions = [f.function for f in stack.threads[0].frames]
    assert stack.pid == 77
    assert functions[0] == "frame_0"
    assert functions[-1] == "__getitem__"
    assert stack.threads[0].frames[-1].code == "with self.lock:"
    # Another process: its own dump follows.
    assert len(scan_text((text + "(gdb) detach\n") * 2).stacks) == 2


def test_py_spy_says_who_is_whose_child(scan_text: Scan) -> None:
    text = PY_SPY.replace(
        "Thread 31212", "Python v3.11\nParent Process 31211: python -u train.py\n\nThread 31212"
    )
    assert [s.parent_pid for s in scan_text(text).stacks] == [None, 31211]


def test_locals_are_no_frames(scan_text: Scan) -> None:
    text = (
        "Process 5: python train.py\n"
        'Thread 5 (idle): "MainThread"\n'
        "    step (train.py:9)\n"
        "        Arguments:\n"
        "            shape: (3, 224)\n"
        "        Locals:\n"
        "            rank: 3\n"
        "    at::(anonymous namespace)::run (torch/lib/libtorch_cpu.so)\n"
        "    main (C:\\Program Files (x86)\\fit\\train.py:40)\n"
    )
    (stack,) = scan_text(text).stacks
    assert [(f.function, f.line) for f in stack.threads[0].frames] == [
        ("step", 9),
        ("at::(anonymous namespace)::run", None),
        ("main", 40),
    ]
    assert stack.rank == 3


@pytest.mark.parametrize(
    "heading", ["--- rank {0} (gpu1{0})", "RANK={0}", "==> /tmp/rank_{0}.txt <=="]
)
def test_headings_that_name_a_rank(heading: str, scan_text: Scan) -> None:
    first, second = PY_SPY.split("\nProcess 31212", 1)
    text = heading.format(6) + "\n" + first + heading.format(7) + "\nProcess 31212" + second
    assert [s.rank for s in scan_text(text).stacks] == [6, 7]


@pytest.mark.parametrize("prefix", ["> ", "worker-1: ", "[7]: ", "train-3 | "])
def test_a_prefix_that_no_launcher_is_known_by(prefix: str, scan_text: Scan) -> None:
    text = "".join(f"{prefix}{line}\n" for line in PY_SPY.splitlines())
    stacks = scan_text(text).stacks
    assert [[len(t.frames) for t in s.threads] for s in stacks] == [[3, 1], [2]]
    assert {s.rank for s in stacks} == ({7} if prefix == "[7]: " else {None})


PS_WITH_HEADING = (
    "    PID    PPID STAT WCHAN                   COMMAND\n"
    "     21       1 Sl   poll_schedule_timeout   python\n"
    "     31      21 D    -                       python\n"
)
PS_ROWS = "21 1 21 Sl poll_schedule_timeout python\n31 21 31 D nfs_wait_on_request pt_data_worker\n"


@pytest.mark.parametrize(
    ("table", "channel"),
    [(PS_WITH_HEADING, "uninterruptible"), (PS_ROWS, "nfs_wait_on_request")],
)
def test_wait_channels_that_ps_shows(table: str, channel: str, scan_text: Scan) -> None:
    dump = 'Process {0}: python\nThread {0} (idle): "MainThread"\n    f (a.py:1)\n'
    main, worker = scan_text(table + dump.format(21) + dump.format(31)).stacks
    assert worker.parent_pid == 21
    assert main.threads[0].wait_channel == "poll_schedule_timeout"
    assert worker.threads[0].wait_channel == channel


def test_a_table_of_numbers_is_no_ps(scan_text: Scan) -> None:
    table = "  PID STAT WCHAN COMMAND\n  21 0.5 best_model python\n300 R some_word x\n"
    dump = 'Process 300: python\nThread 300 (idle): "MainThread"\n    f (a.py:1)\n'
    (stack,) = scan_text("  PID STAT WCHAN COMMAND\n  300 0.5 best_model python\n" + dump).stacks
    assert stack.threads[0].wait_channel == ""
    assert scan_text(table).stacks == []


def test_a_second_json_dump_of_a_process_is_one_of_its_own(scan_text: Scan) -> None:
    dump = json.dumps(pyspy_json(71, "step", active=True), indent=2) + "\n"
    stacks = scan_text("rank 4, 10:00\n" + dump + "rank 4, 10:20\n" + dump).stacks
    assert [(s.pid, s.rank, len(s.threads)) for s in stacks] == [(71, 4, 2), (71, 4, 2)]


def crowd(number: int, odd: int) -> str:
    """Dumps of that many processes, of which one reads data while the others wait."""
    feeders = "".join(
        f'Thread {90_000 + n} (idle): "w{n}"\n    wait (threading.py:320)\n    _feed (q.py:2{n})\n'
        for n in range(4)
    )
    waits = "    all_reduce (torch/distributed/distributed_c10d.py:2805)\n    main (train.py:70)\n"
    reads = "    read (h5py/_hl/dataset.py:758)\n    main (train.py:66)\n"
    return "".join(
        f"Process {10_000 + n}: python train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\n"
        f'Thread {10_000 + n} (active): "MainThread"\n{reads if n == odd else waits}{feeders}\n'
        for n in range(number)
    )


def test_the_odd_process_of_many_is_kept_beyond_the_bounds(scan_text: Scan) -> None:
    stacks = scan_text(crowd(200, 150), limits=Limits(max_stack_threads=100)).stacks
    assert sum(len(s.threads) for s in stacks) <= 101
    assert 10_150 in [s.pid for s in stacks]


def test_the_odd_process_amid_a_long_text_opens_a_window(scan_text: Scan) -> None:
    limits = Limits(head_bytes=4_096, tail_bytes=4_096)
    stacks = scan_text(crowd(1_300, 550), limits=limits).stacks
    assert 10_550 in [s.pid for s in stacks]
    # The windows around the first ones, the odd one, and what the last block holds.
    assert len(stacks) < 900


def test_a_json_dump_amid_a_long_text_opens_a_window(scan_text: Scan) -> None:
    noise = "".join(f"2025-03-01 10:00:00 lr 0.001 note {n:06d}\n" for n in range(20_000))
    dump = json.dumps(pyspy_json(71, "step", active=False), indent=2) + "\n"
    limits = Limits(head_bytes=4_096, tail_bytes=4_096)
    (stack,) = scan_text(noise + dump + noise, limits=limits).stacks
    assert (stack.pid, len(stack.threads)) == (71, 2)
