"""Roles of threads, and processes grouped by where they wait."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from triage.engine import Evidence, Verdict, stack_tree
from triage.engine.evidence import Frame, StackDump, Thread
from triage.engine.stack_tree import Role, standing_of

Scan = Callable[..., Evidence]
Ask = Callable[..., Verdict]

FEEDER = """\
Thread 90 (idle): "QueueFeederThread"
    Condition.wait (threading.py:327)
    Queue._feed (multiprocessing/queues.py:231)
    Thread.run (threading.py:982)
"""
IDLE_WORKER = """\
Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    _PollLikeSelector.select (selectors.py:415)
    wait (multiprocessing/connection.py:947)
    Queue.get (multiprocessing/queues.py:113)
    _worker_loop (torch/utils/data/_utils/worker.py:334)
    BaseProcess.run (multiprocessing/process.py:108)
    _MultiProcessingDataLoaderIter.__init__ (torch/utils/data/dataloader.py:1176)
    DataLoader.__iter__ (torch/utils/data/dataloader.py:505)
    main (train.py:13)
    <module> (train.py:20)
"""
WAITING_MAIN = """\
Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    _PollLikeSelector.select (selectors.py:415)
    Queue.get (multiprocessing/queues.py:113)
    _MultiProcessingDataLoaderIter._try_get_data (torch/utils/data/dataloader.py:1291)
    _BaseDataLoaderIter.__next__ (torch/utils/data/dataloader.py:725)
    main (train.py:16)
    <module> (train.py:17)
"""


def process(pid: int, *frames: str, state: str = "idle") -> str:
    lines = "".join(f"    {frame}\n" for frame in frames)
    return f'Process {pid}: python train.py\nThread {pid} ({state}): "MainThread"\n{lines}'


def in_all_reduce(pid: int) -> str:
    return process(
        pid,
        "all_reduce (torch/distributed/distributed_c10d.py:2805)",
        "wrapper (torch/distributed/c10d_logger.py:81)",
        "clip_gradients (train.py:58)",
        "<module> (train.py:180)",
    )


def saving(pid: int) -> str:
    return process(
        pid,
        "_save (torch/serialization.py:967)",
        "save (torch/serialization.py:849)",
        "save_checkpoint (train.py:141)",
        "<module> (train.py:180)",
        state="active",
    )


def thread_of(*frames: str, name: str = "MainThread", state: str = "", channel: str = "") -> Thread:
    parsed = []
    for frame in frames:
        function, _, place = frame.partition(" @")
        path, _, line = place.partition(":")
        parsed.append(Frame(path, int(line) if line else None, function))
    return Thread(name, tuple(parsed), 1, state, channel)


LOOP = "_worker_loop @torch/utils/data/_utils/worker.py:334"
FETCH = "fetch @torch/utils/data/_utils/fetch.py:54"


@pytest.mark.parametrize(
    ("thread", "role"),
    [
        (thread_of("select @selectors.py:1", LOOP), Role.WORKER_IDLE),
        (thread_of("__getitem__ @data.py:8", FETCH, LOOP, state="idle"), Role.WORKER_LOCKED),
        (thread_of("__getitem__ @data.py:8", FETCH, LOOP, state="active"), Role.WORKER_FETCHING),
        (thread_of("__getitem__ @data.py:8", FETCH, LOOP), Role.WORKER_FETCHING),
        (
            thread_of("__getitem__ @data.py:8", FETCH, LOOP, channel="futex_do_wait"),
            Role.WORKER_LOCKED,
        ),
        (thread_of("__getitem__ @data.py:8", FETCH, LOOP, channel="wait_woken"), Role.WORKER_IO),
        (
            thread_of("readinto @socket.py:706", "__getitem__ @data.py:8", FETCH, LOOP),
            Role.WORKER_IO,
        ),
        (
            thread_of("gomp_team_barrier_wait_end @libgomp.so.1", "f @d.py:1", FETCH, LOOP),
            Role.WORKER_LOCKED,
        ),
        (
            thread_of("do_one_step @torch/utils/data/_utils/pin_memory.py:40", name="Thread-1"),
            Role.PIN_MEMORY,
        ),
        (
            thread_of("wait @threading.py:327", "_feed @multiprocessing/queues.py:231", name="x"),
            Role.QUEUE_FEEDER,
        ),
        (thread_of("wait @torch/utils/file_baton.py:50", "main @t.py:1"), Role.BUILD_LOCK),
        (
            thread_of("compile_fx @torch/_inductor/compile_fx.py:9", "main @t.py:1"),
            Role.COMPILE,
        ),
        (
            thread_of(
                "call @/tmp/x.py:1", "__call__ @torch/_inductor/output_code.py:5", "m @t.py:1"
            ),
            Role.USER,
        ),
        (thread_of("read @torch/_inductor/compile_worker/subproc_pool.py:1"), Role.COMPILE_POOL),
        (thread_of("step @torch/optim/adamw.py:220", "main @t.py:1"), Role.OPTIMIZER),
        (
            thread_of("_engine_run_backward @torch/autograd/graph.py:979", "m @t.py:1"),
            Role.BACKWARD,
        ),
        (thread_of("forward @torch/nn/modules/linear.py:134", "main @t.py:1"), Role.FORWARD),
        (
            thread_of("forward @torch/nn/modules/linear.py:134", "evaluate @t.py:1"),
            Role.EVALUATION,
        ),
        (thread_of("save @torch/serialization.py:849", "main @t.py:1"), Role.CHECKPOINT),
        # Activation checkpointing writes no file.
        (
            thread_of(
                "checkpoint @torch/utils/checkpoint.py:489", "forward @torch/nn/modules/a.py:1"
            ),
            Role.FORWARD,
        ),
        (thread_of("synchronize @torch/cuda/__init__.py:1000", "main @t.py:1"), Role.GPU_WAIT),
        (thread_of("cuStreamSynchronize @libcuda.so.1", "main @t.py:1"), Role.GPU_WAIT),
        (
            thread_of(
                "_invoke_run @torch/distributed/elastic/agent/server/api.py:745", "m @t.py:1"
            ),
            Role.LAUNCHER,
        ),
        # Lightning and torch.multiprocessing call the training inside their launchers.
        (
            thread_of(
                "forward @torch/nn/modules/linear.py:134",
                "launch @lightning/pytorch/strategies/launchers/subprocess_script.py:105",
                "fit @lightning/pytorch/trainer/trainer.py:561",
                "main @t.py:1",
            ),
            Role.FORWARD,
        ),
        (
            thread_of(
                "wait @multiprocessing/connection.py:1", "join @torch/multiprocessing/spawn.py:117"
            ),
            Role.LAUNCHER,
        ),
        (
            thread_of("pthread_cond_wait@@GLIBC_2.3.2 @libpthread.so", "f @d.py:1", FETCH, LOOP),
            Role.WORKER_LOCKED,
        ),
        (
            thread_of(
                "_acquireLock @logging/__init__.py:225", "f @d.py:1", FETCH, LOOP, state="idle"
            ),
            Role.WORKER_LOCKED,
        ),
        (thread_of("read @h5py/_hl/dataset.py:758", "main @t.py:1"), Role.DATA),
        (thread_of("__getitem__ @data.py:8", FETCH, "main @t.py:1"), Role.DATA),
        (
            thread_of("load @shards.py:8", "main @t.py:1", channel="rpc_wait_bit_killable"),
            Role.DATA,
        ),
        (
            thread_of(
                "run @subprocess.py:550", "compile @triton/compiler/compiler.py:1", "m @t.py:1"
            ),
            Role.COMPILE,
        ),
        (
            thread_of(
                "destroy_process_group @torch/distributed/distributed_c10d.py:1", "m @t.py:1"
            ),
            Role.ENDED,
        ),
        (thread_of("_shutdown @/usr/lib/python3.11/threading.py:1590"), Role.ENDED),
        # The autograd engine waits for the GPU, too.
        (
            thread_of(
                "cudaEventSynchronize @libcudart.so.12",
                "torch::autograd::Engine::execute @torch/lib/libtorch_cpu.so",
                "main @t.py:1",
            ),
            Role.BACKWARD,
        ),
        (thread_of("c10d::HeartbeatMonitor::runLoop @libtorch.so", name="x"), Role.WATCHDOG),
        (
            thread_of("wait @threading.py:331", "tmonitor @tqdm/_monitor.py:60", name="t"),
            Role.HELPER,
        ),
        (thread_of("main @train.py:5"), Role.USER),
        # A queue's recv is no collective, and a function named reduce of one's own neither.
        (thread_of("recv @multiprocessing/connection.py:250", "main @t.py:1"), Role.USER),
        (thread_of("reduce @stats.py:4", "main @train.py:1"), Role.USER),
        (thread_of(), Role.UNKNOWN),
    ],
)
def test_roles(thread: Thread, role: Role) -> None:
    assert standing_of(thread).role is role


@pytest.mark.parametrize(
    ("frames", "op", "caller"),
    [
        (
            ["barrier @torch/distributed/distributed_c10d.py:4627", "save_all @train.py:3"],
            "barrier",
            "save_all",
        ),
        (
            [
                "wait @accelerate/utils/other.py:1",
                "wait_for_everyone @accelerate/state.py:9",
                "m @t.py:1",
            ],
            "wait_for_everyone",
            "m",
        ),
        (["c10d::ProcessGroupGloo::allreduce @libtorch_cpu.so"], "all_reduce", ""),
        (["c10d::Work::wait @libtorch.so", "run_eval_code_obj @a.c:1"], "a collective", ""),
        (["pncclBroadcast @libnccl.so.2", "sync @train.py:7"], "broadcast", "sync"),
        (
            ["_store_based_barrier @torch/distributed/distributed_c10d.py:1", "setup @t.py:2"],
            "_store_based_barrier",
            "setup",
        ),
    ],
)
def test_collectives_and_who_called_them(frames: list[str], op: str, caller: str) -> None:
    standing = standing_of(thread_of(*frames))
    assert (standing.role, standing.op, standing.caller) == (Role.COLLECTIVE, op, caller)


def test_what_inductor_generated_called_nothing() -> None:
    standing = standing_of(
        thread_of(
            "wait @torch/_inductor/async_compile.py:468",
            "<module> @torchinductor_ann/ab/cab.py:5",
            "forward @block.py:40",
        )
    )
    assert (standing.role, standing.caller) == (Role.COMPILE, "forward")


def test_a_wait_inside_backward_is_backward() -> None:
    thread = thread_of(
        "c10d::WorkNCCL::synchronize @libtorch.so",
        "torch::autograd::Engine::execute @libtorch.so",
        "_engine_run_backward @torch/autograd/graph.py:979",
        "main @train.py:4",
        state="idle",
    )
    standing = standing_of(thread)
    assert (standing.role, standing.op, standing.waits) == (Role.BACKWARD, "", True)


def test_the_odd_process_comes_first(scan_text: Scan) -> None:
    evidence = scan_text(in_all_reduce(11) + in_all_reduce(12) + saving(13) + in_all_reduce(14))
    tree = stack_tree.build([evidence])
    assert [(g.role, g.count, g.pids) for g in tree.groups] == [
        (Role.CHECKPOINT, 1, (13,)),
        (Role.COLLECTIVE, 3, (11, 12, 14)),
    ]
    assert tree.sentence == (
        "1 of 4 processes saves or loads a checkpoint, under save_checkpoint (train.py:141); "
        "3 of 4 processes wait in all_reduce, called from clip_gradients (train.py:58)."
    )
    assert not tree.is_working
    document = tree.to_json()
    assert json.loads(json.dumps(document)) == document
    assert document["groups"][0]["frames"][2] == "save_checkpoint (train.py:141)"
    assert document["groups"][0]["line"] == 14


def test_ranks_of_several_texts_are_named(scan_text: Scan) -> None:
    texts = [scan_text(f"[rank{r}]: step 5\n" + in_all_reduce(100 + r)) for r in range(3)]
    texts.append(scan_text("[rank3]: step 5\n" + saving(103)))
    tree = stack_tree.build(texts)
    assert [g.ranks for g in tree.groups] == [(3,), (0, 1, 2)]
    assert tree.sentence.startswith("Rank 3 saves")
    assert "ranks 0 to 2 wait in all_reduce" in tree.sentence
    assert tree.groups[0].text_index == 3


def test_workers_hang_under_the_process_they_serve(scan_text: Scan) -> None:
    text = (
        "21 ppid 1 state S\n  31 ppid 21 state S\n"
        + WAITING_MAIN.format(pid=21) + FEEDER + IDLE_WORKER.format(pid=31)
    )  # fmt: skip
    (group,) = stack_tree.build([scan_text(text)]).groups
    assert group.role is Role.LOADER_WAIT
    assert [c.role for c in group.children] == [Role.WORKER_IDLE, Role.QUEUE_FEEDER]
    assert group.children[0].label == "1 DataLoader worker waits for work"


def test_a_thread_that_waits_for_none_was_left_behind_by_fork(scan_text: Scan) -> None:
    worker = process(
        31,
        "wait (threading.py:331)",
        "sync (fsspec/asyn.py:95)",
        "__getitem__ (data.py:18)",
        "fetch (torch/utils/data/_utils/fetch.py:51)",
        "_worker_loop (torch/utils/data/_utils/worker.py:308)",
    )
    loop = 'Thread 32 (idle): "fsspecIO"\n    select (selectors.py:468)\n'
    (alone,), (served,) = (stack_tree.processes([scan_text(t)]) for t in (worker, worker + loop))
    assert alone.standing.role is Role.WORKER_LOCKED
    assert served.standing.role is Role.WORKER_IO


def test_a_dump_that_repeats_at_the_same_lines_is_no_work(ask: Ask) -> None:
    dump = process(11, "_engine_run_backward (torch/autograd/graph.py:979)", "m (t.py:14)")
    dump = dump.replace("idle", "active")
    assert ask(dump).kind == "clean"
    verdict = ask(dump + "# 20 minutes later\n" + dump)
    assert verdict.kind == "undetermined"
    assert verdict.sentence == (
        "1 process is in backward, under m (t.py:14) and did not move between two dumps."
    )
    assert ask(dump + dump.replace("t.py:14", "t.py:15")).kind == "clean"


def timer(line: int) -> str:
    return (
        "Timeout (0:05:00)!\n"
        "Thread 0x00007f01 (most recent call first):\n"
        f'  File "/srv/run/fit.py", line {line} in step\n'
        '  File "/srv/run/fit.py", line 90 in <module>\n'
    )


def steps(first: int, last: int) -> str:
    return "".join(f"step {n}/900 loss 2.{n}\n" for n in range(first, last))


def test_dumps_of_a_timer_are_one_process_that_went_on(ask: Ask, scan_text: Scan) -> None:
    text = steps(1, 9) + timer(20) + steps(9, 15) + timer(20) + steps(15, 22)
    assert stack_tree.build([scan_text(text)]).processes == 1
    assert stack_tree.processes([scan_text(text)]) == []
    assert ask(text).kind == "clean"
    assert ask(steps(1, 9) + timer(20) + timer(20)).kind == "undetermined"


def test_a_pasted_dump_has_no_place_in_time(scan_text: Scan) -> None:
    # Somebody's dump stands above the log of the run that it is of.
    assert len(stack_tree.processes([scan_text(in_all_reduce(1) + steps(1, 20))])) == 1


def test_the_loop_in_a_thread_beside_an_idle_main_one(scan_text: Scan) -> None:
    text = (
        "Process 8: ray::RayTrainWorker\n"
        'Thread 8 (idle): "MainThread"\n'
        "    main_loop (ray/_private/worker.py:850)\n"
        "    <module> (ray/_private/workers/default_worker.py:278)\n"
        'Thread 9 (idle): "Thread-9"\n'
        "    all_reduce (torch/distributed/distributed_c10d.py:2805)\n"
        "    train_loop (ray_train.py:55)\n"
    )
    (found,) = stack_tree.processes([scan_text(text)])
    assert (found.standing.role, found.standing.caller) == (Role.COLLECTIVE, "train_loop")


def test_ranks_that_only_the_command_lines_name(scan_text: Scan) -> None:
    texts = [
        in_all_reduce(40 + r).replace("train.py\n", f"t.py --local_rank={r}\n", 1) for r in (0, 1)
    ]
    found = stack_tree.processes([scan_text("".join(texts))])
    assert [p.rank for p in found] == [0, 1]
    # Two nodes have the same numbers: they are no ranks of the job.
    again = [t.replace("Process 4", "Process 5") for t in texts]
    assert {p.rank for p in stack_tree.processes([scan_text("".join(texts + again))])} == {None}


AT_BARRIER = (
    "barrier (torch/distributed/distributed_c10d.py:4627)",
    "main (train.py:{line})",
    "<module> (train.py:99)",
)


@pytest.mark.parametrize(
    ("odd", "line", "slug"),
    [
        # Saved ahead of the barrier: the rank will come to it.
        (("save (torch/serialization.py:849)", "main (train.py:50)"), 52, "collective-slow-rank"),
        (("forward (torch/nn/modules/a.py:1)", "evaluate (train.py:9)", "main (train.py:50)"), 52,
         "collective-slow-rank"),
        # Behind it: nothing says that it comes.
        (("save (torch/serialization.py:849)", "main (train.py:50)"), 44,
         "collective-rank-conditional"),
        (("read (h5py/_hl/dataset.py:758)", "load (data.py:3)", "main (train.py:60)"), 44,
         "collective-slow-rank"),
        (("compile (triton/compiler/compiler.py:276)", "main (train.py:60)"), 44,
         "collective-slow-rank"),
        (("destroy_process_group (torch/distributed/distributed_c10d.py:9)", "main (train.py:70)"),
         44, "collective-rank-conditional"),
    ],
)  # fmt: skip
def test_late_or_never_to_come(odd: tuple[str, ...], line: int, slug: str, ask: Ask) -> None:
    waiting = [frame.format(line=line) for frame in AT_BARRIER]
    text = process(1, *odd, "<module> (train.py:99)") + process(2, *waiting) + process(3, *waiting)
    assert [d.slug for d in ask(text).diagnoses] == [slug]


def test_ranks_between_two_steps_are_not_late(ask: Ask) -> None:
    reads = process(1, "read (h5py/_hl/dataset.py:758)", "next_batch (data.py:3)", "main (t.py:60)")
    back = process(2, "_engine_run_backward (torch/autograd/graph.py:979)", "main (t.py:64)")
    assert ask(reads + back).diagnoses == ()


def test_a_rank_that_decodes_a_sample_is_not_late_yet(ask: Ask) -> None:
    decodes = "decode (PIL/ImageFile.py:293)", "main (train.py:60)", "<module> (train.py:99)"
    waits = process(2, *(frame.format(line=44) for frame in AT_BARRIER))
    assert ask(process(1, *decodes, state="active") + waits).diagnoses == ()
    (late,) = ask(process(1, *decodes) + waits).diagnoses
    assert late.slug == "collective-slow-rank"
    prepares = ("map (datasets/arrow_dataset.py:3073)", *decodes[1:])
    (late,) = ask(process(1, *prepares, state="active+gil") + waits).diagnoses
    assert late.slug == "collective-slow-rank"


def test_a_lock_in_a_worker_that_was_not_forked(ask: Ask) -> None:
    worker = process(
        2,
        "acquire (filelock/_api.py:255)",
        "__getitem__ (data.py:8)",
        "fetch (torch/utils/data/_utils/fetch.py:54)",
        "_worker_loop (torch/utils/data/_utils/worker.py:374)",
    )
    assert ask(WAITING_MAIN.format(pid=1) + worker).kind == "named"
    spawned = worker + "    spawn_main (multiprocessing/spawn.py:116)\n"
    assert ask(WAITING_MAIN.format(pid=1) + spawned).kind == "undetermined"


def test_a_worker_alone_on_a_lock_is_a_hint(ask: Ask) -> None:
    verdict = ask(
        "#0  0x00007f2d in gomp_team_barrier_wait_end () from /env/torch/lib/libgomp.so.1\n"
        "#1  0x00000000004fc9b0 in _PyEval_EvalFrameDefault ()\n"
        "(gdb) py-bt\n"
        "Traceback (most recent call first):\n"
        '  File "/home/u/data.py", line 41, in __getitem__\n'
        '  File "/env/torch/utils/data/_utils/worker.py", line 287, in _worker_loop\n'
    )
    assert verdict.kind == "undetermined"
    assert [d.slug for d in verdict.diagnoses] == ["dataloader-fork-deadlock"]


def test_a_main_thread_whose_workers_make_batches_is_at_work(ask: Ask) -> None:
    worker = process(
        2,
        "decode (PIL/Image.py:1)",
        "__getitem__ (data.py:8)",
        "fetch (torch/utils/data/_utils/fetch.py:54)",
        "_worker_loop (torch/utils/data/_utils/worker.py:374)",
        state="active",
    )
    assert ask(WAITING_MAIN.format(pid=1) + worker).kind == "clean"


def test_the_last_dump_of_a_process_counts(scan_text: Scan) -> None:
    tree = stack_tree.build([scan_text(saving(13) + in_all_reduce(13))])
    assert [g.role for g in tree.groups] == [Role.COLLECTIVE]
    assert tree.processes == 1


def test_a_job_at_work_is_clean(ask: Ask) -> None:
    text = process(
        11,
        "_engine_run_backward (torch/autograd/graph.py:979)",
        "main (train.py:14)",
        state="active",
    )
    verdict = ask(text + FEEDER + IDLE_WORKER.format(pid=12))
    assert (verdict.kind, verdict.diagnoses) == ("clean", ())
    assert "in backward, under main (train.py:14)" in verdict.sentence


def test_equal_stacks_in_one_collective_are_undetermined(ask: Ask) -> None:
    verdict = ask(in_all_reduce(1) + in_all_reduce(2))
    assert (verdict.kind, verdict.diagnoses) == ("undetermined", ())
    assert verdict.sentence == (
        "2 processes wait in all_reduce, called from clip_gradients (train.py:58)."
    )


def test_active_means_nothing_where_sleepers_are_called_active(scan_text: Scan) -> None:
    # As py-spy prints across a pid namespace.
    text = process(
        11, "forward (torch/nn/modules/linear.py:134)", "main (train.py:14)", state="active"
    )
    assert stack_tree.build([scan_text(text)]).is_working
    assert not stack_tree.build([scan_text(text + FEEDER.replace("idle", "active"))]).is_working


def test_main_alone_in_the_loader_is_no_proof_of_a_deadlock(ask: Ask) -> None:
    verdict = ask(WAITING_MAIN.format(pid=1) + FEEDER + IDLE_WORKER.format(pid=2))
    assert verdict.kind == "undetermined"
    assert {d.confidence for d in verdict.diagnoses} == {"hint"}


@pytest.mark.parametrize(
    ("states", "kind"), [(("idle", "idle"), "named"), (("idle", "active"), "undetermined")]
)
def test_a_lock_that_a_working_sibling_holds_is_no_deadlock(
    states: tuple[str, str], kind: str, ask: Ask
) -> None:
    text = WAITING_MAIN.format(pid=1)
    for pid, state in enumerate(states, 2):
        text += process(
            pid,
            "__getitem__ (data.py:8)",
            "_MapDatasetFetcher.fetch (torch/utils/data/_utils/fetch.py:54)",
            "_worker_loop (torch/utils/data/_utils/worker.py:374)",
            state=state,
        )
    assert ask(text).kind == kind


def test_evaluation_that_all_ranks_are_in_is_no_branch_of_one(ask: Ask) -> None:
    slow = process(1, "forward (torch/nn/modules/linear.py:1)", "evaluate (t.py:5)", "m (t.py:9)")
    others = process(
        2,
        "all_reduce (torch/distributed/distributed_c10d.py:2805)",
        "evaluate (t.py:8)",
        "m (t.py:9)",
    )
    assert ask(slow + others).kind == "undetermined"
    alone = slow.replace("m (t.py:9)", "on_main (t.py:7)\n    m (t.py:9)")
    waits = others.replace("evaluate (t.py:8)", "m (t.py:8)")
    assert ask(alone + waits).diagnoses[0].slug == "collective-rank-conditional"


def test_no_dump_gives_an_empty_tree() -> None:
    tree = stack_tree.build([Evidence()])
    assert (tree.groups, tree.sentence, tree.is_working) == ((), "", False)


def test_thousands_of_processes_and_threads_stay_bounded() -> None:
    helper = Thread("h", (Frame("threading.py", 327, "wait"),), 1, "idle")
    stacks = []
    for number in range(4_000):
        own = Frame("train.py", 10 + number % 200, "work")
        main = Thread("MainThread", (own, Frame("train.py", 1, "<module>")), number, "idle")
        threads = (main, *([helper] * 4))
        stacks.append(StackDump(1_000 + number, number, number, threads, rank=number))
    started = time.process_time()
    tree = stack_tree.build([Evidence(stacks=stacks)])
    assert time.process_time() - started < 10
    assert tree.processes == 4_000
    assert len(tree.groups) == 64
    assert tree.left_out == 136
    assert all(len(g.ranks) <= 64 and len(g.pids) <= 64 for g in tree.groups)
    assert len(tree.sentence) < 1_500
