"""One incident, hosts whose clocks differ: the same root, rank and host."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from kb.catalog import Catalog
from triage.engine import Evidence, Verdict, diagnose
from triage.engine.clocks import Clocks

Scan = Callable[..., Evidence]
Judge = Callable[[dict[str, str]], Verdict]

_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
# Ahead, behind, behind by an hour and by nine hours: skew, and hosts in another time zone.
SHIFTS_S = (0, 90, -90, 3_600, -9 * 3_600)


@pytest.fixture
def judge(catalog: Catalog, scan_text: Scan) -> Judge:
    """The verdict over texts by name, all of one incident."""
    return lambda texts: diagnose([scan_text(t, name=name) for name, t in texts.items()], catalog)


def shifted(text: str, seconds: float) -> str:
    """The text with its stamps moved."""

    def move(found: re.Match[str]) -> str:
        moment = datetime.fromisoformat(found[0]) + timedelta(seconds=seconds)
        return moment.isoformat(sep=" ")

    return _STAMP.sub(move, text)


def line(time: str, rank: int, words: str) -> str:
    return f"2026-03-01 {time} [rank{rank}]: {words}\n"


OOM_WORDS = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0;"
OOM_OF_RANK_3 = (
    line("04:00:00", 3, "start of the run on node-a"),
    line("04:12:00", 3, OOM_WORDS),
)
LOST_BY_RANK_9 = (
    line("04:00:01", 9, "start of the run on node-b"),
    line(
        "04:12:02",
        9,
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
        "closed by peer [10.0.0.3]:4242",
    ),
)
OOM_OF_RANK_9 = line("04:12:05", 9, OOM_WORDS)


@pytest.mark.parametrize("seconds", SHIFTS_S)
@pytest.mark.parametrize("which", ["culprit", "peer"])
def test_a_peer_that_lost_its_connection_is_no_root(seconds: int, which: str, judge: Judge) -> None:
    culprit, peer = "".join(OOM_OF_RANK_3), "".join(LOST_BY_RANK_9)
    verdict = both(culprit, peer, seconds, which, judge)
    assert (verdict.diagnoses[0].slug, verdict.diagnoses[0].rank) == ("cuda-out-of-memory", 3)
    assert "gloo-failure" in verdict.diagnoses[0].explains


@pytest.mark.parametrize("seconds", SHIFTS_S)
@pytest.mark.parametrize("which", ["culprit", "peer"])
def test_of_one_error_on_two_hosts_the_rank_that_lost_no_peer_before_is_the_culprit(
    seconds: int, which: str, judge: Judge
) -> None:
    culprit, peer = "".join(OOM_OF_RANK_3), "".join(LOST_BY_RANK_9) + OOM_OF_RANK_9
    verdict = both(culprit, peer, seconds, which, judge)
    assert (verdict.diagnoses[0].slug, verdict.diagnoses[0].rank) == ("cuda-out-of-memory", 3)


@pytest.mark.parametrize("seconds", SHIFTS_S)
@pytest.mark.parametrize("which", ["culprit", "peer"])
def test_an_unknown_exception_goes_before_what_another_host_says(
    seconds: int, which: str, judge: Judge
) -> None:
    culprit = line("04:00:00", 3, "start") + "".join(
        line("04:12:00", 3, words)
        for words in (
            "Traceback (most recent call last):",
            '  File "/home/u/train.py", line 61, in <module>',
            '    lr = config["lr"]',
            "KeyError: 'lr'",
        )
    )
    verdict = both(culprit, "".join(LOST_BY_RANK_9), seconds, which, judge)
    assert (verdict.diagnoses[0].slug, verdict.diagnoses[0].rank) == ("python-exception", 3)


@pytest.mark.parametrize("seconds", SHIFTS_S)
def test_a_collective_that_timed_out_on_both_sets_the_clocks(seconds: int, judge: Judge) -> None:
    """Rank 9 was out of memory 20 s before rank 3; both ranks' peers timed out in one call."""
    late = line("04:02:20", 3, OOM_WORDS) + watchdog("04:12:20", 2)
    soon = line("04:02:00", 9, OOM_WORDS) + watchdog("04:12:20", 8)
    verdict = both(soon, late, seconds, "peer", judge)
    assert (verdict.diagnoses[0].slug, verdict.diagnoses[0].rank) == ("cuda-out-of-memory", 9)


def watchdog(time: str, rank: int) -> str:
    return line(
        time,
        rank,
        f"[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4411, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran "
        "for 600001 milliseconds before timing out.",
    )


def both(culprit: str, peer: str, seconds: int, which: str, judge: Judge) -> Verdict:
    """The verdict over both hosts' texts, one with another clock; the peer's sorts first."""
    texts = {
        "culprit": shifted(culprit, seconds if which == "culprit" else 0),
        "peer": shifted(peer, seconds if which == "peer" else 0),
    }
    names = {"peer": "node-b.log", "culprit": "node-x.log"}
    return judge({names[who]: text for who, text in texts.items()})


def test_texts_that_begin_and_end_equally_far_apart_are_in_step(scan_text: Scan) -> None:
    text = "".join(OOM_OF_RANK_3)
    clocks = Clocks([scan_text(text), scan_text(shifted(text, 5_400))])
    assert clocks.are_in_step(0, 1)
    assert clocks.moment(0, 2) == clocks.moment(1, 2)


def test_texts_with_nothing_in_common_are_not(scan_text: Scan) -> None:
    longer = "".join(LOST_BY_RANK_9) + line("07:12:02", 9, "RuntimeError: CUDA out of memory.")
    assert not Clocks([scan_text("".join(OOM_OF_RANK_3)), scan_text(longer)]).are_in_step(0, 1)


@pytest.mark.parametrize("seconds", SHIFTS_S)
def test_hosts_that_write_by_turns_are_in_step(seconds: int, scan_text: Scan) -> None:
    lines = []
    for second in range(6):
        words = line(f"04:12:0{second}", second, "RuntimeError: something new")
        host = "node-1" if second % 2 else "node-2"
        lines.append(f"{host}: {shifted(words, seconds if second % 2 else 0)}")
    clocks = Clocks([scan_text("".join(lines))])
    moments = [clocks.moment(0, number) or 0.0 for number in range(1, 7)]
    assert clocks.are_in_step(0, 0)
    assert moments == pytest.approx([moments[0] + n for n in range(6)], abs=2)


def test_a_line_without_a_stamp_has_the_moment_of_the_one_before(scan_text: Scan) -> None:
    clocks = Clocks([scan_text("".join(OOM_OF_RANK_3) + "Killed\n" * 3)])
    assert clocks.moment(0, 5) == clocks.moment(0, 2)
    assert Clocks([scan_text("KeyError: 'lr'\n")]).moment(0, 1) is None
