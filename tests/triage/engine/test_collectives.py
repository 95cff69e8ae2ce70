"""What ranks say of collectives: the NCCL watchdog of every age, barriers, fingerprints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triage.engine import Evidence

Scan = Callable[..., Evidence]


@pytest.mark.parametrize(
    ("text", "seq_num", "numel"),
    [
        (
            (
                "[rank3]:[E1123 04:11:59.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog "
                "caught collective operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, "
                "NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600029 milliseconds "
                "before timing out."
            ),
            41,
            1024,
        ),
        (
            (
                "[E ProcessGroupNCCL.cpp:828] [Rank 3] Watchdog caught collective operation "
                "timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, TensorShape=[4, 8], "
                "Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
            ),
            41,
            None,
        ),
        (
            (
                "[E ProcessGroupNCCL.cpp:566] [Rank 3] Watchdog caught collective operation "
                "timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600029 "
                "milliseconds before timing out."
            ),
            None,
            None,
        ),
    ],
)
def test_the_watchdog_of_every_age(
    text: str, seq_num: int | None, numel: int | None, scan_text: Scan
) -> None:
    (event,) = scan_text(text).collectives
    assert (event.kind, event.rank, event.op) == ("timeout", 3, "ALLREDUCE")
    assert (event.seq_num, event.numel_in) == (seq_num, numel)
    assert (event.timeout_ms, event.ran_ms) == (600_000, 600_029)


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
