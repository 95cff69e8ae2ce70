"""Flight-recorder dumps: every kind of mismatch, every hostile pickle, real dumps of torch 2.13."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kb.catalog import Catalog
from triage.engine import Evidence, EvidenceError, diagnose, flight, scan
from triage.engine.evidence import FlightDump
from triage.engine.parsers import flight_recorder

DUMPS = Path(__file__).resolve().parents[2] / "data" / "flight_recorder"
FRAMES = [
    {
        "name": "all_reduce",
        "filename": "/opt/venv/lib/python3.11/site-packages/torch/x.py",
        "line": 9,
    },
    {"name": "step", "filename": "/srv/train.py", "line": 52},
]


def record(op: str = "all_reduce", numel: int = 8, **changes: Any) -> dict[str, Any]:
    """One record as torch writes it, without its numbers, which dump() gives."""
    return {
        "profiling_name": f"nccl:{op}",
        "process_group": ("0", "default_pg"),
        "pg_id": 0,
        "is_p2p": op.startswith(("send", "recv")),
        "input_sizes": [[numel]],
        "input_dtypes": ["Float"],
        "output_sizes": [[numel]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "frames": FRAMES,
        "time_created_ns": None,
        "timeout_ms": 600_000,
        **changes,
    }


def open_record(op: str = "all_reduce", numel: int = 8, **changes: Any) -> dict[str, Any]:
    return record(op, numel, **{"state": "started", **changes})


def dump(rank: int | None, *records: dict[str, Any], world: int = 4, **changes: Any) -> FlightDump:
    """The dump of a rank that enqueued these, numbered in each group from 1."""
    return flight_recorder.read_pickle(
        pickle.dumps(document(*records, world=world, **changes), protocol=2),
        "" if rank is None else f"nccl_trace_rank_{rank}",
    )


def document(*records: dict[str, Any], world: int = 4, **changes: Any) -> dict[str, Any]:
    counts: dict[Any, int] = {}
    entries = []
    for number, item in enumerate(records):
        key = (item["process_group"], item["is_p2p"])
        counts[key] = counts.get(key, 0) + 1
        seq = "p2p_seq_id" if item["is_p2p"] else "collective_seq_id"
        numbers = {"collective_seq_id": 0, "p2p_seq_id": 0, seq: counts[key]}
        entries.append(
            {"record_id": number, "time_created_ns": 1_000 + number, **numbers}
            | {key: value for key, value in item.items() if value is not None}
        )
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    return {"version": "2.10", "pg_config": config, "entries": entries, **changes}


def four(*odd: dict[str, Any], usual: tuple[dict[str, Any], ...]) -> list[FlightDump]:
    """Four ranks that agree on one record; then rank 2 does `odd`, the others `usual`."""
    return [dump(r, record(), *(odd if r == 2 else usual)) for r in range(4)]


# ------------------------------------------------------------------- each kind of mismatch

# (kind, what rank 2 does, what the others do, words of the sentence)
KINDS = {
    "type": (
        [open_record("broadcast")], [open_record("all_reduce")],
        ["call 2 of default_pg differs in its kind", "rank 2 called broadcast of [8] Float",
         "ranks 0, 1 and 3 called all_reduce of [8] Float at /srv/train.py:52 (step)"],
    ),
    "input-size": (
        [open_record(numel=16)], [open_record(numel=8)],
        ["size of its input", "rank 2 called all_reduce of [16] Float", "[8]"],
    ),
    "output-size": (
        [open_record("_all_gather_base", output_sizes=[[64]])],
        [open_record("_all_gather_base", output_sizes=[[32]])],
        ["size of its output", "rank 2 called _all_gather_base into [64]", "into [32]"],
    ),
    "dtype": (
        [open_record(input_dtypes=["Half"], output_dtypes=["Half"])], [open_record()],
        ["data type", "rank 2 called all_reduce of [8] Half", "of [8] Float"],
    ),
    "missing": (
        [], [open_record(numel=5)],
        ["rank 2 never called all_reduce 2 ([5] Float) of default_pg",
         "in which ranks 0, 1 and 3 wait at /srv/train.py:52 (step)",
         "the last call of rank 2 was all_reduce 1 ([8] Float), completed"],
    ),
    "extra": (
        [open_record("barrier", 1)], [],
        ["only rank 2 called barrier 2 ([1] Float) of default_pg", "ranks 0, 1 and 3 never did"],
    ),
    "state": (
        [open_record(state="scheduled")], [open_record()],
        ["rank 2 has not started", "all_reduce 2 ([8] Float) of default_pg",
         "which ranks 0, 1 and 3 have started"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_mismatch_names_the_odd_rank(kind: str) -> None:
    odd, usual, words = KINDS[kind]

    (mismatch,) = flight.compare(four(*odd, usual=tuple(usual)))

    assert (mismatch.kind, mismatch.seq, mismatch.culprit) == (kind, 2, 2)
    assert (mismatch.ranks, mismatch.others) == ((2,), (0, 1, 3))
    for word in words:
        assert word in mismatch.sentence
    assert {index for index, _ in mismatch.lines} & {0, 1, 3}
    assert 2 in {index for index, _ in mismatch.lines}


@pytest.mark.parametrize(
    ("slug", "kind"),
    [
        ("collective-desync", "type"),
        ("collective-desync", "input-size"),
        ("collective-desync", "output-size"),
        ("collective-desync", "dtype"),
        ("collective-rank-conditional", "missing"),
        ("collective-rank-conditional", "extra"),
    ],
)
def test_the_verdict_over_four_dumps(catalog: Catalog, slug: str, kind: str) -> None:
    odd, usual, words = KINDS[kind]
    texts = [Evidence(name=f"r{d.rank}", flight=d) for d in four(*odd, usual=tuple(usual))]

    for order in itertools.islice(itertools.permutations(texts), 0, 24, 7):
        verdict = diagnose(order, catalog)
        first = verdict.diagnoses[0]
        assert (verdict.kind, first.slug, first.rank) == ("named", slug, 2)
        assert any(words[0] in reason for reason in first.because)


def test_a_rank_that_is_merely_behind_leaves_the_verdict_open(catalog: Catalog) -> None:
    odd, usual, _ = KINDS["state"]

    verdict = diagnose([Evidence(flight=d) for d in four(*odd, usual=tuple(usual))], catalog)

    assert (verdict.kind, verdict.diagnoses) == ("undetermined", ())
    assert "Rank 2 has not started" in verdict.sentence


def test_one_against_one_is_not_decided() -> None:
    dumps = [dump(0, open_record(), world=2), dump(1, open_record("broadcast"), world=2)]

    (mismatch,) = flight.compare(dumps)

    assert (mismatch.kind, mismatch.culprit) == ("type", None)


def test_every_mismatch_is_listed_in_order() -> None:
    usual = (record(numel=4), record("broadcast"), open_record())
    odd = (record(numel=5), record("broadcast", input_dtypes=["Half"], output_dtypes=["Half"]))

    mismatches = flight.compare(four(*odd, usual=usual))

    assert [(m.kind, m.seq) for m in mismatches] == [
        ("input-size", 2), ("dtype", 3), ("missing", 4),
    ]  # fmt: skip


def test_a_rank_that_began_no_further_round_of_a_loop(catalog: Catalog) -> None:
    rounds = [record(numel=100), record(numel=7)] * 3
    dumps = [
        dump(r, record("broadcast"), *rounds, *([] if r == 1 else [open_record(numel=100)]))
        for r in range(4)
    ]

    (mismatch,) = flight.compare(dumps)
    verdict = diagnose([Evidence(flight=d) for d in dumps], catalog)

    assert mismatch.is_next_round
    assert "it had made this call in 3 rounds of a loop and began no other" in mismatch.sentence
    assert verdict.diagnoses[0].slug == "collective-uneven-inputs"
    assert verdict.diagnoses[0].rank == 1


def test_ranks_that_only_ran_ahead_are_no_mismatch() -> None:
    dumps = [
        dump(r, record(), open_record(), *[open_record(state="scheduled")] * r) for r in range(4)
    ]

    assert flight.compare(dumps) == []
    sentences = " ".join(flight.standing(dumps))
    assert "ranks 0 to 3 wait in all_reduce 2 ([8] Float) of default_pg" in sentences
    assert "all 4 ranks of default_pg are in this call and their calls agree" in sentences


def test_a_finished_job_is_clean(catalog: Catalog) -> None:
    dumps = [dump(r, record(), record("barrier", 1)) for r in range(4)]

    assert flight.compare(dumps) == []
    assert diagnose([Evidence(flight=d) for d in dumps], catalog).kind == "clean"


# Sizes that are each rank's own affair: nothing of this is a mismatch.
OWN_SIZES = {
    "gather": [{"output_sizes": [[8]] * 4 if r == 0 else []} for r in range(4)],
    "scatter": [{"input_sizes": [[8]] * 4 if r == 0 else []} for r in range(4)],
    "all_to_all": [{"input_sizes": [[r + 1]], "output_sizes": [[4 - r]]} for r in range(4)],
    "all_gather": [{"input_sizes": [[r]], "output_sizes": [[0], [1], [2], [3]]} for r in range(4)],
    "reduce_scatter": [
        {"input_sizes": [[0], [1], [2], [3]], "output_sizes": [[r]]} for r in range(4)
    ],
    "_broadcast_oop": [{"input_sizes": [[r]], "output_sizes": [[3]]} for r in range(4)],
    "broadcast": [{"input_sizes": [[2, 4] if r else [8]]} for r in range(4)],
}


@pytest.mark.parametrize("op", OWN_SIZES)
def test_sizes_that_may_differ_between_ranks(op: str) -> None:
    dumps = [dump(r, open_record(op, **OWN_SIZES[op][r])) for r in range(4)]

    assert flight.compare(dumps) == []


# (op, rank 2's sizes, the others', what differs)
UNEVEN: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "all_gather": ({"output_sizes": [[3], [3]]}, {"output_sizes": [[3], [4]]}, "output-size"),
    "_all_gather_base": (
        {"input_sizes": [[3]], "output_sizes": [[12]]},
        {"input_sizes": [[4]], "output_sizes": [[16]]},
        "input-size",
    ),
    "reduce_scatter": ({"input_sizes": [[3], [3]]}, {"input_sizes": [[3], [4]]}, "input-size"),
    "_reduce_scatter_base": (
        {"input_sizes": [[12]], "output_sizes": [[3]]},
        {"input_sizes": [[16]], "output_sizes": [[4]]},
        "input-size",
    ),
    "broadcast": ({"input_sizes": [[3]]}, {"input_sizes": [[4]]}, "input-size"),
    "gather": ({"input_sizes": [[3]]}, {"input_sizes": [[4]]}, "input-size"),
    "scatter": ({"output_sizes": [[3]]}, {"output_sizes": [[4]]}, "output-size"),
}


@pytest.mark.parametrize("op", UNEVEN)
def test_sizes_that_must_be_equal(op: str) -> None:
    odd, usual, kind = UNEVEN[op]

    (mismatch,) = flight.compare(four(open_record(op, **odd), usual=(open_record(op, **usual),)))

    assert (mismatch.kind, mismatch.culprit) == (kind, 2)


def test_an_all_to_all_that_does_not_add_up() -> None:
    sizes = [{"input_sizes": [[4]], "output_sizes": [[4 + (r == 3)]]} for r in range(4)]

    (mismatch,) = flight.compare([dump(r, open_record("all_to_all", **sizes[r])) for r in range(4)])

    assert (mismatch.kind, mismatch.culprit) == ("input-size", None)
    assert "send 16 elements and expect 17" in mismatch.sentence


# ---------------------------------------------------------------- sends and receives, groups


def test_a_send_that_nobody_receives() -> None:
    dumps = [dump(0, open_record("send 0->1")), dump(1, record("broadcast")), dump(2), dump(3)]

    mismatch = next(m for m in flight.compare(dumps) if m.kind == "unpaired")

    assert (mismatch.ranks, mismatch.others) == ((1,), (0,))
    assert "rank 0 called send 1 ([8] Float) of default_pg to send to rank 1" in mismatch.sentence
    assert "rank 1 never enqueued the receive" in mismatch.sentence


def test_a_send_and_a_receive_of_unlike_sizes() -> None:
    dumps = [dump(0, open_record("send 0->1", 8)), dump(1, open_record("recv 1<-0", 9))]

    (mismatch,) = flight.compare(dumps)

    assert mismatch.kind == "pair-size"
    assert "rank 0 sends [8]" in mismatch.sentence
    assert "receives [9]" in mismatch.sentence


def test_sends_that_meet_their_receives_agree() -> None:
    dumps = [
        dump(0, record("send 0->1"), record("recv 0<-1", 3)),
        dump(1, record("recv 1<-0"), record("send 1->0", 3)),
    ]

    assert flight.compare(dumps) == []


def test_groups_of_one_name_and_other_members_are_told_apart() -> None:
    config = [{"0": {"name": "0", "desc": "tp", "ranks": ranks}} for ranks in ("[0, 1]", [2, 3])]
    group = {"process_group": ("0", "tp")}
    dumps = [
        dump(
            r,
            open_record("all_reduce" if r < 2 else "broadcast", **group),
            pg_config=config[r // 2],
        )
        for r in range(4)
    ]

    assert flight.compare(dumps) == []


def _with_members(rank: int, ranks: list[int], *records: dict[str, Any]) -> FlightDump:
    config = {"4": {"name": "4", "desc": "dp", "ranks": ranks}}
    return dump(rank, *records, pg_config=config)


def test_ranks_that_hold_a_group_for_unlike_members(catalog: Catalog) -> None:
    inner: dict[str, Any] = {"process_group": ("4", "dp"), "pg_id": 1}
    dumps = [
        _with_members(r, [0, 1, 2] if r != 1 else [0, 1], open_record(**inner)) for r in range(3)
    ]

    mismatch = flight.compare(dumps)[0]
    verdict = diagnose([Evidence(flight=d) for d in dumps], catalog)

    assert (mismatch.kind, mismatch.ranks, mismatch.others) == ("members", (1,), (0, 2))
    assert mismatch.sentence == (
        "dp (4) is not one group: for rank 1 it holds ranks 0 and 1, for ranks 0 and 2 it holds "
        "ranks 0 to 2"
    )
    assert (verdict.diagnoses[0].slug, verdict.diagnoses[0].rank) == ("collective-desync", 1)


def test_parts_of_one_split_are_no_unlike_members() -> None:
    inner: dict[str, Any] = {"process_group": ("4", "dp"), "pg_id": 1}
    dumps = [_with_members(r, [0, 1] if r < 2 else [2, 3], record(**inner)) for r in range(4)]

    assert flight.compare(dumps) == []


def test_a_rank_that_hangs_in_another_group_is_missing_as_a_consequence(catalog: Catalog) -> None:
    both = document(world=4)["pg_config"] | {"7": {"name": "7", "desc": "tp", "ranks": [2, 3]}}
    inner = {"process_group": ("7", "tp"), "pg_id": 1}
    dumps = [
        dump(0, record(), open_record(), pg_config=both),
        dump(1, record(), open_record(), pg_config=both),
        dump(2, record(), open_record("all_gather", 3, **inner), pg_config=both),
        dump(3, record(), open_record(), pg_config=both),
    ]

    second, first = flight.compare(dumps)
    verdict = diagnose([Evidence(flight=d) for d in dumps], catalog)

    assert (first.kind, first.group, first.ranks) == ("missing", "tp (7)", (3,))
    assert first.waits_elsewhere
    assert second.waits_elsewhere
    assert (second.kind, second.group, second.ranks) == ("missing", "default_pg", (2,))
    assert "rank 2 waits in all_gather 1 ([3] Float) of tp (7)" in second.sentence
    # Each waits for the other in another group: the dumps show no first mover.
    assert verdict.kind == "undetermined"


# ------------------------------------------------------------------------- dumps that lack


def test_a_rank_without_a_dump_is_not_taken_for_innocent(catalog: Catalog) -> None:
    dumps = [dump(r, record(), open_record()) for r in (0, 1, 3)]

    verdict = diagnose([Evidence(flight=d) for d in dumps], catalog)

    assert flight.ranks_without_dump(dumps) == (2,)
    assert verdict.kind == "undetermined"
    assert "No dump from rank 2: nothing is known of what it did." in verdict.sentence
    assert any("--together" in command and "rank 2" in command for command in verdict.next)


def test_the_dump_of_one_rank_alone_tells_where_it_stands(catalog: Catalog) -> None:
    verdict = diagnose([Evidence(flight=dump(0, record(), open_record(numel=5)))], catalog)

    assert (verdict.kind, verdict.diagnoses) == ("undetermined", ())
    assert "Rank 0 waits in all_reduce 2 ([5] Float) of default_pg" in verdict.sentence
    assert "/srv/train.py:52 (step); completed up to 1." in verdict.sentence
    assert "No dump from ranks 1 to 3" in verdict.sentence


def test_a_rank_that_never_enqueued_anything(catalog: Catalog) -> None:
    dumps = [dump(r, *([] if r == 2 else [open_record()])) for r in range(4)]

    (mismatch,) = flight.compare(dumps)
    verdict = diagnose([Evidence(flight=d) for d in dumps], catalog)

    assert (mismatch.kind, mismatch.ranks, mismatch.culprit) == ("missing", (2,), 2)
    assert "rank 2 enqueued nothing in this group" in mismatch.sentence
    assert (verdict.kind, verdict.diagnoses[0].rank) == ("named", 2)


def test_what_the_answer_rests_on_is_the_recorder(catalog: Catalog) -> None:
    for kind in ("type", "missing"):
        odd, usual, _ = KINDS[kind]
        verdict = diagnose([Evidence(flight=d) for d in four(*odd, usual=tuple(usual))], catalog)
        assert "(shown by the flight-recorder dumps)" in verdict.diagnoses[0].because[0]


def test_dumps_whose_rank_no_name_tells_are_compared_all_the_same() -> None:
    calls = ["all_reduce", "all_reduce", "broadcast"]

    (mismatch,) = flight.compare([dump(None, open_record(op), world=3) for op in calls])

    assert mismatch.culprit is None
    assert "the 3. dump called broadcast" in mismatch.sentence


def test_a_buffer_that_came_round_accuses_nobody_of_what_it_lost() -> None:
    late = [record(record_id=5_000 + n, collective_seq_id=6_000 + n) for n in range(3)]
    early = [record(record_id=n, collective_seq_id=n + 1) for n in range(3)]

    dumps = [dump(0, *late), dump(1, *early, pg_status={"0": {"last_enqueued_collective": 6_002}})]

    assert flight.compare(dumps) == []


def test_a_buffer_that_came_round_still_shows_the_last_mismatch() -> None:
    def late(numel: int) -> list[dict[str, Any]]:
        numbers: list[dict[str, Any]] = [
            {"record_id": 5_000 + n, "collective_seq_id": 6_000 + n} for n in range(3)
        ]
        return [record(**numbers[0]), record(**numbers[1]), open_record(numel=numel, **numbers[2])]

    dumps = [dump(r, *late(9 if r == 1 else 8)) for r in range(4)]

    (mismatch,) = flight.compare(dumps)

    assert (mismatch.kind, mismatch.seq, mismatch.culprit) == ("input-size", 6_002, 1)


def test_a_buffer_that_lost_a_whole_group_accuses_nobody() -> None:
    inner: dict[str, Any] = {"process_group": ("7", "tp"), "pg_id": 1}
    config = document()["pg_config"] | {"7": {"name": "7", "desc": "tp", "ranks": [0, 1]}}
    full = [record(record_id=9_000, collective_seq_id=70)]
    dumps = [
        dump(0, record(), open_record(**inner), pg_config=config),
        dump(1, *full, pg_config=config),
    ]

    assert [m for m in flight.compare(dumps) if m.group == "tp (7)"] == []


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3), ("/tmp/nccl_trace_rank_12", 12), ("rank3.json", 3),
        ("dump-7.pkl", 7), ("node_2_rank_9.json.gz", 9), ("C:\\dumps\\rank4.pickle", 4),
        ("0", 0), ("trace.json", None), ("", None),
    ],
)  # fmt: skip
def test_the_rank_stands_in_the_name(name: str, rank: int | None) -> None:
    assert flight_recorder.rank_of_name(name) == rank


# --------------------------------------------------------------------- forms of the format


def test_dumps_of_older_versions() -> None:
    old = {
        "version": "1.1",
        "pg_config": {"0": "[0, 1]"},
        "entries": [
            {"seq_id": 4, "pg_id": 0, "profiling_name": "nccl:all_reduce", "state": "started",
             "input_sizes": ((8,),), "output_sizes": [[8]], "process_group": "0"},
        ],
    }  # fmt: skip
    oldest = [{"seq_id": 4, "pg_id": 0, "profiling_name": "nccl:all_reduce", "frames": [None, 7]}]

    first = flight_recorder.read_pickle(pickle.dumps(old, protocol=4), "rank_0")
    second = flight_recorder.read_pickle(pickle.dumps(oldest, protocol=2), "rank_1")

    assert (first.rank, first.groups[0].ranks, first.groups[0].last_enqueued) == (0, (0, 1), 4)
    assert first.groups[0].entries[0].inputs == ((8,),)
    assert (second.groups[0].name, second.groups[0].entries[0].seq) == ("0", 4)
    assert second.groups[0].entries[0].state == "scheduled"


def _scan_file(catalog: Catalog, name: str) -> Evidence:
    with (DUMPS / name).open("rb") as stream:
        return scan(stream, catalog=catalog, name=name)


def test_dumps_that_torch_wrote(catalog: Catalog) -> None:
    texts = [_scan_file(catalog, f"nccl_trace_rank_{rank}") for rank in (2, 3)]

    verdict = diagnose(texts, catalog)

    assert [text.ranks for text in texts] == [(2,), (3,)]
    assert texts[0].kind == "rank 2, flight recorder"
    assert (verdict.kind, verdict.diagnoses[0].slug) == ("named", "collective-rank-conditional")
    assert verdict.diagnoses[0].rank == 3
    reasons = " ".join(verdict.diagnoses[0].because)
    assert "rank 3 never called all_gather 2 ([3] Float) of tensor_parallel (2)" in reasons
    assert "in which rank 2 waits at /srv/jobs/train/train.py:" in reasons


@pytest.mark.parametrize("rank", [2, 3])
def test_json_and_pickle_give_the_same(catalog: Catalog, rank: int) -> None:
    from_pickle = _scan_file(catalog, f"nccl_trace_rank_{rank}").flight
    from_json = _scan_file(catalog, f"rank{rank}.json").flight
    assert from_pickle is not None
    # torch leaves the stacks out of its JSON.
    groups = tuple(
        dataclasses.replace(
            group, entries=tuple(dataclasses.replace(e, frames=()) for e in group.entries)
        )
        for group in from_pickle.groups
    )
    assert dataclasses.replace(from_pickle, groups=groups) == from_json

    data = (DUMPS / f"nccl_trace_rank_{rank}").read_bytes()
    converted = flight_recorder.pickle_to_json(data)
    assert flight_recorder.read_json(converted, f"rank{rank}") == from_pickle
    plain = json.dumps(pickle.loads(data), indent=1).encode()
    assert flight_recorder.read_json(plain, f"rank{rank}") == from_pickle


def test_evidence_survives_json(catalog: Catalog) -> None:
    evidence = _scan_file(catalog, "nccl_trace_rank_2")

    stored = json.dumps(evidence.to_json(), allow_nan=False)

    assert Evidence.from_json(json.loads(stored)) == evidence


def test_a_long_dump_is_kept_small(catalog: Catalog) -> None:
    records = [record(process_group=(str(n % 40), "")) for n in range(8_000)]
    data = pickle.dumps(document(*records), protocol=2)

    evidence = scan(io.BytesIO(data), catalog=catalog, name="rank_0")

    assert evidence.flight is not None
    assert evidence.flight.entries == 8_000
    assert all(group.is_cut for group in evidence.flight.groups if group.entries)
    assert len(json.dumps(evidence.to_json())) < 2 * 1024 * 1024


def test_a_call_that_is_open_far_back_is_kept() -> None:
    records = [record(numel=3), *[open_record(state="scheduled")] * 2_000]

    group = dump(0, *records).groups[0]

    assert (group.entries[1].seq, group.entries[1].state) == (2, "scheduled")
    assert group.last_enqueued == 2_001


# --------------------------------------------------------------- texts that are not dumps


class _Drops:
    """A stream that hands out its bytes in pieces of its own choosing."""

    def __init__(self, data: bytes, size: int) -> None:
        self._source, self._size = io.BytesIO(data), size

    def read(self, size: int = -1, /) -> bytes:
        return self._source.read(self._size if size < 0 else min(size, self._size))


TEXTS = {
    "pickle": (DUMPS / "nccl_trace_rank_2").read_bytes(),
    "json": (DUMPS / "rank2.json").read_bytes(),
    "cut json": (DUMPS / "rank2.json").read_bytes()[:-40],
    "config": b'{"version": 1, "entries": 3}\n' + b"RuntimeError: CUDA out of memory\n" * 20,
    "json log": b'{"rank": 0, "message": "RuntimeError: boom"}\n' * 30_000,
    "brace": b"{\nTraceback (most recent call last):\n",
    "hostile": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
    "empty": b"",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_answer_does_not_hang_on_how_bytes_come(catalog: Catalog, kind: str) -> None:
    data = TEXTS[kind]
    whole = scan(io.BytesIO(data), catalog=catalog, name="rank2")

    for size in (1, 7, 4_096) if len(data) < 10_000 else (4_096, 300_000):
        assert scan(_Drops(data, size), catalog=catalog, name="rank2") == whole
    assert whole.bytes == len(data)


def test_a_text_that_begins_with_a_brace_goes_on_as_text(catalog: Catalog) -> None:
    text = scan(io.BytesIO(TEXTS["config"]), catalog=catalog)

    assert text.flight is None
    assert text.hits
    assert text.lines == 21


def test_a_cut_dump_is_read_as_text_and_said_so(catalog: Catalog) -> None:
    text = scan(io.BytesIO(TEXTS["cut json"]), catalog=catalog)

    assert text.flight is None
    assert any("begins like a flight-recorder dump" in note for note in text.notes)


# ------------------------------------------------------------------------- hostile pickles


class _Runs:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_runs_code_runs_none(catalog: Catalog, protocol: int, tmp_path: Path) -> None:
    made = tmp_path / "made"
    data = pickle.dumps({"entries": [record()], "pg_config": {}, "x": _Runs(made)}, protocol)

    evidence = scan(io.BytesIO(data), catalog=catalog, name="trace")
    verdict = diagnose([evidence], catalog)

    assert not made.exists()
    opcode = "STACK_GLOBAL (posix.mkdir)" if protocol >= 4 else "GLOBAL (posix.mkdir)"
    assert f"would run code when unpickled: {opcode}" in evidence.refused
    assert evidence.flight is None
    assert any(note.startswith("not read: ") for note in evidence.notes)
    assert verdict.kind == "undetermined"
    assert "nothing of it was run" in verdict.sentence
    with pytest.raises(EvidenceError, match="would run code"):
        flight_recorder.pickle_to_json(data)


def _nested(depth: int) -> bytes:
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


def _shared(value: Any, times: int, levels: int) -> Any:
    for _ in range(levels):
        value = [value] * times
    return value


HOSTILE = {
    "os.system by GLOBAL": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
    "by STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "INST": b"\x80\x02(S'true'\nios\nsystem\n.",
    "BUILD": b"\x80\x02}}b.",
    "extension registry": b"\x80\x02\x82\x01.",
    "persistent id": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "memo bomb": b"\x80\x02]r\xff\xff\xff\xff.",
    "string longer than the file": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "frame longer than the file": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.",
    "huge number": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "colliding keys": pickle.dumps({"entries": [{n * (2**61 - 1): 1 for n in range(4)}]}, 2),
    "deep nesting": _nested(1_000_000),
    "no end": b"\x80\x02}",
    "no value": b"\x80\x02.",
    "only a mark": b"\x80\x02(.",
    "append to nothing": b"\x80\x02a.",
    "recall of nothing": b"\x80\x02h\x07.",
    "a checkpoint": pickle.dumps({"model": [1.0] * 1_000, "epoch": 3}, 2),
    "entries that are none": pickle.dumps({"entries": [1, "a"], "pg_config": {}}, 2),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_pickle_is_refused_at_once(catalog: Catalog, what: str) -> None:
    started = time.process_time()

    evidence = scan(io.BytesIO(HOSTILE[what]), catalog=catalog)

    assert evidence.refused.startswith("a Python pickle, but no flight-recorder dump: ")
    assert evidence.flight is None
    assert time.process_time() - started < 10


@pytest.mark.parametrize("place", ["frames", "version", "process_group"])
def test_shared_references_do_not_unfold(place: str) -> None:
    laughs = _shared("lol", 10, 11)
    content = document(record())
    (content if place == "version" else content["entries"][0])[place] = laughs
    data = pickle.dumps(content, protocol=2)
    started = time.process_time()

    assert flight_recorder.read_pickle(data).entries == 1
    with pytest.raises(EvidenceError, match=r"unfolds|nested"):
        flight_recorder.pickle_to_json(data)
    assert time.process_time() - started < 30


def test_a_list_that_holds_itself() -> None:
    circle: list[Any] = []
    circle.append(circle)
    data = pickle.dumps(document(record(frames=circle, input_sizes=circle)), protocol=2)

    assert flight_recorder.read_pickle(data).groups[0].entries[0].frames == ()
    with pytest.raises(EvidenceError, match="nested"):
        flight_recorder.pickle_to_json(data)


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"a":' * 200_000, b"[]," * 5_000_000])
def test_hostile_json_is_refused(text: bytes) -> None:
    with pytest.raises(EvidenceError):
        flight_recorder.read_json(b'{"entries": ' + text)


def test_every_cut_of_a_pickle_is_refused() -> None:
    data = TEXTS["pickle"]
    for end in range(2, len(data)):
        with pytest.raises(EvidenceError):
            flight_recorder.read_pickle(data[:end])


@given(
    position=st.integers(0, len(TEXTS["pickle"]) - 1), byte=st.integers(0, 255), kind=st.booleans()
)
@example(position=0, byte=0, kind=True)
def test_a_flipped_byte_gives_evidence_or_a_refusal(
    position: int, byte: int, kind: bool, catalog: Catalog
) -> None:
    data = bytearray(TEXTS["pickle" if kind else "json"])
    data[position % len(data)] = byte

    evidence = scan(io.BytesIO(bytes(data)), catalog=catalog, name="rank2")

    assert Evidence.from_json(evidence.to_json()) == evidence
    assert diagnose([evidence], catalog).kind in ("named", "undetermined", "clean")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
_ODD_RECORDS = st.dictionaries(st.sampled_from(sorted({*record(), "seq_id", "retired"})), _VALUES)


@given(
    entries=st.lists(_ODD_RECORDS, max_size=4),
    config=_VALUES,
    status=_VALUES,
    version=_VALUES,
)
def test_any_values_in_a_dump_are_read_or_refused(
    entries: list[Any], config: Any, status: Any, version: Any
) -> None:
    content = {"version": version, "pg_config": config, "pg_status": status, "entries": entries}
    read: Callable[[bytes, str], FlightDump] = flight_recorder.read_json
    try:
        odd = read(json.dumps(content).encode(), "rank_1")
    except EvidenceError:
        return
    flight.compare([odd, dump(0, open_record(), world=2), dataclasses.replace(odd, rank=2)])
    assert Evidence.from_json(json.loads(json.dumps(Evidence(flight=odd).to_json()))).flight == odd
