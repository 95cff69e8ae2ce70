"""What ranks say of collectives: the NCCL watchdog of every age, barriers, fingerprints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triage.engine import Evidence, Verdict

Scan = Callable[..., Evidence]
Ask = Callable[..., Verdict]


RAN = "ran for 600029 milliseconds before timing out."
CAUGHT = "[Rank 3] Watchdog caught collective operation timeout: "

# What WorkNCCL::checkTimeout and watchdogHandler print, by the first torch that prints it so:
# (the line, SeqNum, OpType, NumelIn, NumelOut, TensorShape).
WATCHDOG = {
    "1.7": (
        ("[I ProcessGroupNCCL.cpp:422] [Rank 3] Caught collective operation timeout for work: "
        "WorkNCCL(OpType=ALLREDUCE, TensorShape=[4, 8], Timeout(ms)=600000)"),
        None, "ALLREDUCE", None, None, "4, 8",
    ),
    "1.8": (
        (f"[E ProcessGroupNCCL.cpp:485] {CAUGHT}WorkNCCL(OpType=BROADCAST, TensorShape=[16], "
        f"Timeout(ms)=600000) {RAN}"),
        None, "BROADCAST", None, None, "16",
    ),
    "1.9": (
        (
            f"[E ProcessGroupNCCL.cpp:566] {CAUGHT}WorkNCCL(OpType=ALLREDUCE, "
            f"Timeout(ms)=600000) {RAN}"
        ),
        None, "ALLREDUCE", None, None, "",
    ),
    "1.12": (
        (f"[E ProcessGroupNCCL.cpp:737] {CAUGHT}WorkNCCL(SeqNum=41, OpType=COALESCED, "
        f"Timeout(ms)=600000) {RAN}"),
        41, "COALESCED", None, None, "",
    ),
    "1.13": (
        (f"[E ProcessGroupNCCL.cpp:821] {CAUGHT}WorkNCCL(SeqNum=41, OpType=_ALLGATHER_BASE, "
        f"TensorShape=[128], Timeout(ms)=600000) {RAN}"),
        41, "_ALLGATHER_BASE", None, None, "128",
    ),
    "2.1": (
        (f"[E ProcessGroupNCCL.cpp:475] {CAUGHT}WorkNCCL(SeqNum=41, OpType=ALLGATHER, NumelIn=1, "
        f"NumelOut=8, Timeout(ms)=600000) {RAN}"),
        41, "ALLGATHER", 1, 8, "",
    ),
    "2.2": (
        (f"[rank3]:[E ProcessGroupNCCL.cpp:523] {CAUGHT}WorkNCCL(SeqNum=41, OpType=ALLTOALL_BASE, "
        f"NumelIn=64, NumelOut=48, Timeout(ms)=600000) {RAN}"),
        41, "ALLTOALL_BASE", 64, 48, "",
    ),
    "2.3": (
        (f"[rank3]:[E519 06:11:02.403916712 ProcessGroupNCCL.cpp:563] {CAUGHT}WorkNCCL(SeqNum=41, "
        f"OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) {RAN}"),
        41, "ALLREDUCE", 1024, 1024, "",
    ),
    "2.8": (
        (f"[rank3]:[E1123 04:11:59.123456789 ProcessGroupNCCL.cpp:685] {CAUGHT}WorkNCCL(SeqNum=41, "
        f"OpType=REDUCE_SCATTER, NumelIn=8192, NumelOut=512, Timeout(ms)=600000) {RAN}"),
        41, "REDUCE_SCATTER", 8192, 512, "",
    ),
    "the thread's end": (
        ("[PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with "
        f"exception: {CAUGHT}WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=2, NumelOut=2, "
        f"Timeout(ms)=600000) {RAN}"),
        41, "ALLREDUCE", 2, 2, "",
    ),
    "what()": (
        (f"  what():  {CAUGHT}WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=2, NumelOut=2, "
        f"Timeout(ms)=600000) {RAN}"),
        41, "ALLREDUCE", 2, 2, "",
    ),
    "blocking wait": (
        ("[rank3]:[E ProcessGroupNCCL.cpp:754] [Rank 3] Work WorkNCCL(SeqNum=41, OpType=ALLREDUCE, "
        "NumelIn=2, NumelOut=2, Timeout(ms)=600000) timed out in blocking wait "
        "(TORCH_NCCL_BLOCKING_WAIT=1)."),
        41, "ALLREDUCE", 2, 2, "",
    ),
    "Intel GPUs": (
        (f"[rank3]:[E1123 04:11:59.123456789 ProcessGroupXCCL.cpp:216] {CAUGHT}WorkXCCL(SeqNum=41, "
        f"OpType=ALLREDUCE, NumelIn=2, NumelOut=2, Timeout(ms)=600000) {RAN}"),
        41, "ALLREDUCE", 2, 2, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", WATCHDOG)
def test_the_watchdog_of_every_age(form: str, scan_text: Scan, ask: Ask) -> None:
    text, seq_num, op, numel_in, numel_out, shape = WATCHDOG[form]

    (event,) = scan_text(text).collectives

    assert (event.kind, event.rank, event.timeout_ms) == ("timeout", 3, 600_000)
    assert (event.seq_num, event.op, event.shape) == (seq_num, op, shape)
    assert (event.numel_in, event.numel_out) == (numel_in, numel_out)
    assert event.ran_ms == (600_029 if RAN in text else None)
    assert ask(text).diagnoses[0].slug == "nccl-watchdog-timeout"


# What the watchdog and the heartbeat monitor say of the group: (line, group, work, enqueued).
STATES = {
    "2.2": (
        ("[rank3]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 3] Timeout at NCCL work: 12, last "
        "enqueued NCCL work: 13, last completed NCCL work: 11."),
        "0", 12, 13,
    ),
    "2.3": (
        ("[rank3]:[E519 06:11:02.403916712 ProcessGroupNCCL.cpp:1316] [PG 2 Rank 3] Received a "
        "timeout signal from this local rank and will start to dump the debug info. Last enqueued "
        "NCCL work: 13, last completed NCCL work: 11."),
        "2", None, 13,
    ),
    "2.4": (
        ("[rank3]:[E913 10:11:17.313379098 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank 3] "
        "Exception (either an error or timeout) detected by watchdog at work: 12, last enqueued "
        "NCCL work: 13, last completed NCCL work: 11."),
        "0", 12, 13,
    ),
    "2.5": (
        ("[rank3]:[E1109 16:13:20.222705810 ProcessGroupNCCL.cpp:1785] [PG ID 1 PG GUID 5 Rank 3] "
        "Exception (either an error or timeout) detected by watchdog at work: 12, last enqueued "
        "NCCL work: 13, last completed NCCL work: 11."),
        "5", 12, 13,
    ),
    "2.6": (
        ("[rank3]:[E1218 20:27:21.484903450 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 5(tp) "
        "Rank 3]  failure detected by watchdog at work sequence id: 12 PG status: last enqueued "
        "work: 13, last completed work: 11"),
        "5(tp)", 12, 13,
    ),
    "dump signal": (
        ("[rank3]:[E813 12:25:31.213133402 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID "
        "0(default_pg) Rank 3] Received a dump signal due to a collective timeout from  rank 5 and "
        "we will try our best to dump the debug info. Last enqueued NCCL work: 13, last completed "
        "NCCL work: 11.This is most likely caused by incorrect usages of collectives"),
        "0(default_pg)", None, 13,
    ),
    "nothing enqueued": (
        ("[rank3]:[E813 12:25:31.213133402 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID "
        "0(default_pg) Rank 3] Received a dump signal due to a collective timeout from  rank 5 and "
        "we will try our best to dump the debug info. Last enqueued NCCL work: -1, last completed "
        "NCCL work: -1."),
        "0(default_pg)", None, -1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", STATES)
def test_the_last_enqueued_work_of_every_age(form: str, scan_text: Scan, ask: Ask) -> None:
    text, group, work, enqueued = STATES[form]

    (event,) = scan_text(text).collectives

    assert (event.kind, event.rank, event.group) == ("state", 3, group)
    assert (event.seq_num, event.last_enqueued) == (work, enqueued)
    assert event.last_completed == (11 if enqueued == 13 else -1)
    assert ask(text).diagnoses[0].slug == "nccl-watchdog-timeout"


@pytest.mark.parametrize(
    "text",
    [
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 3] First PG on this rank that detected no "
            "heartbeat of its watchdog."
        ),
        (
            "[PG 0 Rank 3] Heartbeat monitor timed out! Process will be terminated after dumping "
            "debug info. workMetaList_.size()=2"
        ),
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 "
            "seconds without making progress in monitoring enqueued collectives."
        ),
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 3] Terminating the process after attempting to "
            "dump debug info, due to ProcessGroupNCCL watchdog hang."
        ),
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 3] Terminating the process after attempting to "
            "dump debug info, due to collective timeout or exception."
        ),
        (
            "[PG 0 Rank 3] Received a global timeout from another rank and will start to dump the "
            "debug info. Last enqueued NCCL work: 13, last completed NCCL work: 11."
        ),
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 3] Observed flight recorder dump signal from "
            "another rank via TCPStore."
        ),
    ],
)
def test_the_heartbeat_monitor(text: str, ask: Ask) -> None:
    first = ask(f"[rank3]:[E813 12:25:31.213133402 ProcessGroupNCCL.cpp:1] {text}").diagnoses[0]

    assert (first.slug, first.rank) == ("nccl-watchdog-timeout", 3)


@pytest.mark.parametrize(
    "text",
    [
        (
            "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:129] Timed out "
            "waiting 1800000ms for send operation to complete"
        ),
        (
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
            "[10.3.0.7]:33120"
        ),
        (
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:446] writev [172.20.0.4]:48120: "
            "Broken pipe"
        ),
        (
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] Read error [10.3.0.7]:33120: "
            "Connection reset by peer"
        ),
        (
            "Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] "
            "no error"
        ),
        "Application timeout caused pair closure",
    ],
)
def test_gloo_of_every_age(text: str, ask: Ask) -> None:
    assert ask(f"[rank1]: RuntimeError: {text}").diagnoses[0].slug == "gloo-failure"


def test_one_event_for_a_rank_and_number_however_often_it_is_said(scan_text: Scan) -> None:
    line = (
        "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
        "OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=1000) ran for 1002 milliseconds "
        "before timing out.\n"
    )
    events = scan_text(line.format(0) * 3 + line.format(1) * 3).collectives
    assert [(e.rank, e.line) for e in events] == [(0, 1), (1, 4)]


def test_a_process_group_is_kept_apart_by_its_guid(scan_text: Scan) -> None:
    line = (
        "[rank0]:[E1123 04:11:59.1 ProcessGroupNCCL.cpp:616] [PG ID {0} PG GUID {0}(g) Rank 0] "
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=1000) ran for 1002 milliseconds before timing out.\n"
    )
    groups = {e.group for e in scan_text(line.format(1) + line.format(2)).collectives}
    assert len(groups) == 2
    assert "" not in groups


def test_state_and_signal_of_the_heartbeat(scan_text: Scan) -> None:
    text = (
        "[rank1]:[E1123 04:11:59.1 ProcessGroupNCCL.cpp:1] [PG 0 Rank 1] Exception (either an "
        "error or timeout) detected by watchdog at work: 12, last enqueued NCCL work: 13, last "
        "completed NCCL work: 11.\n"
        "[rank2]:[E1123 04:11:59.1 ProcessGroupNCCL.cpp:2] [PG 0 Rank 2] Observed flight recorder "
        "dump signal from another rank via TCPStore.\n"
    )
    state, seen = scan_text(text).collectives
    assert (state.kind, state.last_enqueued, state.last_completed) == ("state", 13, 11)
    assert (seen.kind, seen.rank) == ("observed", 2)


def test_a_monitored_barrier_names_who_is_absent(scan_text: Scan) -> None:
    text = (
        "RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors while "
        "waiting for send/recv from rank 5. Please check rank 5 logs for faulty rank."
    )
    kinds = {(e.kind, e.rank) for e in scan_text(text).collectives}
    assert kinds == {("timeout", 0), ("absent", 5)}


def test_several_absent_ranks(scan_text: Scan) -> None:
    text = "RuntimeError: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms"
    events = scan_text(text).collectives
    assert [(e.kind, e.rank, e.timeout_ms) for e in events] == [
        ("absent", 1, 30_000),
        ("absent", 3, 30_000),
    ]


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("\t     [2, 5] finished collective #11, but didn't join collective #12 (count from 1)",
         [(2, 12), (5, 12)]),
        (("\t - To our best knowledge, ranks [6] are the lagging ranks that caused this timeout. "
         "They never joined any collectives"), [(6, None)]),
    ],
)  # fmt: skip
def test_the_desync_report(
    text: str, absent: list[tuple[int, int | None]], scan_text: Scan
) -> None:
    events = scan_text(text).collectives
    assert [(e.rank, e.seq_num) for e in events if e.kind == "absent"] == absent


@pytest.mark.parametrize(
    ("why", "waits"),
    [
        ("wait timeout after 600000ms, keys: /default_pg/0//cuda//0", True),
        ("Socket Timeout", True),
        ("Connection reset by peer", False),
    ],
)
def test_a_wait_for_the_root_of_a_communicator(why: str, *, waits: bool, scan_text: Scan) -> None:
    text = (
        "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and "
        "retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') "
        f"got error: {why}"
    )
    events = scan_text(text).collectives
    assert [(e.kind, e.rank) for e in events] == ([("wait", 1)] if waits else [])


def test_who_came_to_the_group(scan_text: Scan) -> None:
    text = (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for "
        "key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)\n"
        "GLOBAL_RANK: 2, MEMBER: 3/8\n"
        "n:7:9 [1] NCCL INFO ncclCommInitRank comm 0x5a rank 5 nranks 16 cudaDev 1 nvmlDev 1 busId "
        "2a000 commId 0xfe - Init START\n"
    )
    events = scan_text(text).collectives
    assert [(e.kind, e.rank, e.size) for e in events] == [
        ("joined", 1, 4), ("joined", 2, 8), ("joined", 5, 16),
    ]  # fmt: skip


CALL = (
    "n:{pid}:9 [0] NCCL INFO {op}: opCount {number:x} sendbuff 0x7f recvbuff 0x7f acc (nil) count "
    "{numel} datatype 7 op 0 root 0 comm 0x5{pid} [nranks=2] stream 0x1\n"
)
INIT = (
    "n:{pid}:9 [0] NCCL INFO ncclCommInitRank comm 0x5{pid} rank {pid} nranks 2 cudaDev 0 nvmlDev "
    "0 busId 1 commId 0xfe - Init COMPLETE\n"
)


def test_logged_calls_are_told_by_rank_and_the_last_are_kept(scan_text: Scan) -> None:
    text = INIT.format(pid=0) + INIT.format(pid=1)
    text += "".join(CALL.format(pid=1, op="AllReduce", number=n, numel=8) for n in range(200))
    text += CALL.format(pid=7, op="AllReduce", number=1, numel=8)

    calls = [e for e in scan_text(text).collectives if e.kind == "called"]

    assert {e.rank for e in calls} == {1}
    assert calls[-1].seq_num == 199
    assert (calls[-1].op, calls[-1].numel_in) == ("AllReduce", 8)
    assert len(calls) < 100


def test_fingerprints_of_a_mismatch(scan_text: Scan) -> None:
    text = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=9, OpType=ALLREDUCE, TensorShape=[8]), "
        "but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=9, "
        "OpType=BROADCAST, TensorShape=[4])."
    )
    events = scan_text(text).collectives
    assert [(e.rank, e.op, e.shape, e.is_named_by_peer) for e in events] == [
        (1, "ALLREDUCE", "8", False),
        (0, "BROADCAST", "4", True),
    ]


def test_a_message_that_a_terminal_wrapped_is_read_whole(scan_text: Scan) -> None:
    text = (
        "[E ProcessGroupNCCL.cpp:828] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=41, OpType=ALLREDUCE,\n"
        "NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600029 milliseconds before "
        "timing out.\n"
    )
    (event,) = scan_text(text).collectives
    assert (event.rank, event.seq_num, event.numel_in) == (3, 41, 1024)


@pytest.mark.parametrize(
    "text",
    [
        "WorkNCCL(",
        "WorkNCCL(SeqNum=, OpType=, Timeout(ms)=)",
        "last enqueued NCCL work: x",
        "missing ranks: {}",
        "Rank 1 is running collective: CollectiveFingerPrint(",
        "missing ranks: {" + "7" * 5_000 + "}",
        "Rank " + "9" * 5_000 + " is running collective: CollectiveFingerPrint(OpType=A",
    ],
)
def test_torn_messages_yield_nothing_false(text: str, scan_text: Scan) -> None:
    for event in scan_text(text).collectives:
        assert event.seq_num is None
        assert event.rank is None or event.rank < 10**18
