"""NCCL's RAS as text and as JSON: dead processes, unlike counts, and a job in good order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triage.engine import Evidence, Verdict
from triage.engine.facts import Fact, Facts

Scan = Callable[..., Evidence]
Ask = Callable[..., Verdict]

SUMMARY = """\
NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
{rows}
Errors
======

{errors}Warnings
========

{warnings}"""
WORLD = "    0         1         2         4         8         8   RUNNING  {}\n"
TENSOR = "    1         4         1         2         2         8   RUNNING  {}\n"


def status(errors: str = "", warnings: str = "", rows: str = WORLD.format("OK")) -> str:
    return SUMMARY.format(rows=rows, errors=errors, warnings=warnings)


def fact_of(name: str, evidence: Evidence) -> Fact:
    fact = Facts([evidence]).get(name)
    assert fact is not None
    return fact


def mismatch(*lines: str, comm: str = "#0-0 (5a1c0dd2e87b3f41)", op: str = "AllReduce") -> str:
    head = f"{comm} MISMATCH\n  Communicator ranks have different {op} operation counts\n"
    return head + "".join(f"  {line}\n" for line in lines) + "\n"


ON = "-- GPU 1 managed by process 7305 on node 10.9.0.12"


def test_a_job_in_good_order_is_clean(ask: Ask) -> None:
    assert ask(status()).kind == "clean"


@pytest.mark.parametrize(
    ("lines", "op", "words"),
    [
        (
            (
                "7 ranks have launched up to operation 418",
                f"Rank 5 has launched up to operation 417 {ON}",
            ),
            "AllReduce",
            "Rank 5 has launched up to operation 417",
        ),
        (
            (
                "7 ranks have launched up to operation 418",
                f"Rank 5 has not launched any operations {ON}",
            ),
            "ReduceScatter",
            "Rank 5 has not launched any operations",
        ),
        (
            (
                "7 ranks have not launched any operations",
                f"Rank 5 has launched up to operation 1 {ON}",
            ),
            "Broadcast",
            "Rank 5 has launched up to operation 1",
        ),
    ],
)
def test_the_rank_that_stands_out_and_its_host(
    lines: tuple[str, ...], op: str, words: str, scan_text: Scan, ask: Ask
) -> None:
    text = status(warnings=mismatch(*lines, op=op), rows=WORLD.format("MISMATCH"))
    evidence = scan_text(text)

    fact = fact_of("communicator_counts_differ", evidence)
    verdict = ask(text)

    assert (fact.rank, fact.host) == (5, "10.9.0.12")
    assert words in fact.because
    assert {e.op for e in evidence.collectives} == {op}
    # Counts of a job at work differ for a moment: nothing is named from one query.
    assert verdict.kind == "undetermined"
    assert verdict.diagnoses[0].rank == 5


def test_of_several_that_stand_out_the_one_behind(scan_text: Scan) -> None:
    lines = (
        "6 ranks have launched up to operation 90",
        f"Rank 1 has launched up to operation 91 {ON}",
        f"Rank 6 has launched up to operation 88 {ON}",
    )

    fact = fact_of("communicator_counts_differ", scan_text(status(warnings=mismatch(*lines))))

    assert fact.rank == 6


def test_ranks_of_a_part_of_the_job_are_not_taken_for_its_ranks(scan_text: Scan) -> None:
    lines = (
        f"Rank 0 has launched up to operation 12 {ON}",
        f"Rank 1 has launched up to operation 11 {ON}",
    )
    rows = WORLD.format("OK") + TENSOR.format("MISMATCH")
    warnings = mismatch(*lines, comm="#1-2 (77ac10)")

    fact = fact_of("communicator_counts_differ", scan_text(status(warnings=warnings, rows=rows)))

    assert fact.rank is None
    assert "#1-2 (77ac10): Rank 1 has launched up to operation 11" in fact.because


def test_unlike_status_is_told(scan_text: Scan) -> None:
    warnings = (
        "#0-0 (5a1c) MISMATCH\n  Communicator ranks have different status\n"
        f"  7 ranks have status RUNNING\n  Rank 2 has status ABORT {ON}\n\n"
    )

    fact = fact_of("communicator_counts_differ", scan_text(status(warnings=warnings)))

    assert fact.rank == 2
    assert "Rank 2 has status ABORT" in fact.because


DEAD = """\
DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 7305 on node 10.9.0.12 managing GPU 1

#0-0 (5a1c0dd2e87b3f41) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 5 -- GPU 1 managed by process 7305 on node 10.9.0.12

"""


def test_a_dead_process_with_its_rank_and_host(scan_text: Scan, ask: Ask) -> None:
    text = status(errors=DEAD, rows=WORLD.format("INCOMPLETE"))

    fact = fact_of("process_called_dead", scan_text(text))
    first = ask(text).diagnoses[0]

    assert (fact.rank, fact.host) == (5, "10.9.0.12")
    assert (first.slug, first.rank, first.host) == ("nccl-remote-error", 5, "10.9.0.12")
    assert "considers it dead" in " ".join(first.because)


def test_several_dead_processes_name_no_rank(scan_text: Scan) -> None:
    errors = (
        "DEAD\n  2 job processes are considered dead (unreachable via the RAS network)\n"
        "  Process 7305 on node 10.9.0.12 managing GPU 1\n"
        "  Process 7306 on node 10.9.0.12 managing GPU 2\n\n"
    )

    fact = fact_of("process_called_dead", scan_text(status(errors=errors)))

    assert (fact.rank, fact.host) == (None, "10.9.0.12")
    assert "2 processes in all" in fact.because


def test_a_process_that_gives_no_answer_is_not_called_dead(scan_text: Scan, ask: Ask) -> None:
    errors = (
        "INCOMPLETE\n  Missing communicator data from 1 job process\n"
        "  Process 7305 on node 10.9.0.12 managing GPU 1\n\n"
        "#0-0 (5a1c0dd2e87b3f41) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        "  Rank 5 -- GPU 1 managed by process 7305 on node 10.9.0.12\n\n"
    )
    text = status(errors=errors)
    evidence = scan_text(text)

    assert Facts([evidence]).get("process_called_dead") is None
    assert fact_of("process_gives_no_answer", evidence).rank == 5
    assert ask(text).diagnoses[0].confidence == "hint"


@pytest.mark.parametrize(
    ("error", "slug"),
    [
        ("Unhandled CUDA error", "nccl-cuda-error"),
        ("System error", "nccl-system-error"),
        ("Remote process error", "nccl-remote-error"),
    ],
)
def test_errors_of_a_communicator(error: str, slug: str, ask: Ask) -> None:
    errors = f"#0-0 (5a1c) ERROR\n  Asynchronous error on 1 rank\n  Rank 3 reported {error} {ON}\n"

    first = ask(status(errors=errors, rows=WORLD.format("ERROR"))).diagnoses[0]

    assert (first.slug, first.rank) == (slug, 3)


def _json(counts: dict[int, int], *, dead: int | None = None, communicators: int = 1) -> str:
    def place(rank: int) -> str:
        return (
            f'          "rank": {rank},\n          "host": "10.9.0.{rank // 4 + 11}",\n'
            f'          "pid": {7300 + rank},\n          "cuda_dev": {rank % 4},\n'
        )

    ranks = ",\n".join(
        "        {\n" + place(rank) + '          "collective_counts": {\n'
        f'            "Broadcast": 3,\n            "AllReduce": {count}\n'
        "          }\n        }"
        for rank, count in counts.items()
    )
    missing = ""
    if dead is not None:
        missing = (
            "        {\n" + place(dead) + '          "status": {\n'
            '            "unresponsive": true,\n            "considered_dead": true\n'
            "          }\n        }\n"
        )
    return (
        '{\n  "nccl_version": "2.28.3",\n'
        f'  "communicators_count": {communicators},\n  "communicators": [\n    {{\n'
        f'      "hash": "0x5a1c",\n      "size": 8,\n      "ranks": [\n{ranks}\n      ],\n'
        f'      "missing_ranks": [\n{missing}      ]\n    }}\n  ]\n}}\n'
    )


def test_counts_in_json(scan_text: Scan) -> None:
    counts = {rank: 90 - (rank == 6) for rank in range(8)}

    fact = fact_of("communicator_counts_differ", scan_text(_json(counts)))

    assert (fact.rank, fact.host) == (6, "10.9.0.12")
    assert "AllReduce 89" in fact.because
    assert "7 ranks: AllReduce 90" in fact.because


def test_json_of_several_communicators_names_no_rank_of_the_job(scan_text: Scan) -> None:
    evidence = scan_text(_json({0: 4, 1: 4, 2: 3}, communicators=4))

    assert fact_of("communicator_counts_differ", evidence).rank is None


def test_a_dead_process_in_json(ask: Ask) -> None:
    first = ask(_json(dict.fromkeys(range(7), 90), dead=7)).diagnoses[0]

    assert (first.slug, first.rank, first.host) == ("nccl-remote-error", 7, "10.9.0.12")


def test_equal_counts_in_json_are_clean(ask: Ask) -> None:
    assert ask(_json(dict.fromkeys(range(8), 90))).kind == "clean"


@pytest.mark.parametrize(
    "text",
    [
        "#0-0 (", "#0-0 (zz) MISMATCH", "Rank 5 has launched up to operation", "DEAD\n  Process x",
        "DEAD\n" * 50, '"nccl_version": "1"\n"rank": 99999999999999999999999,\n"AllReduce": 1,\n',
        '"nccl_version": "1"\n' + '"AllReduce": 123456789012345678901234567890\n' * 3,
    ],
)  # fmt: skip
def test_torn_output_yields_nothing_false(text: str, scan_text: Scan) -> None:
    evidence = scan_text(text)

    assert Facts([evidence]).get("communicator_counts_differ") is None
    assert Facts([evidence]).get("process_called_dead") is None
