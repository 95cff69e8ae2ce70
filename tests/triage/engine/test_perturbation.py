"""The catalog's examples and the corpus as a real job would garble them: the verdict stays.

For each kind of change at least 97 % of the texts keep their verdict. Left out are texts for
which the change itself makes another verdict right; each rule says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kb.catalog import Catalog, Pitfall
from triage.engine import Evidence, Verdict, diagnose

KEPT = 0.97
WATCHDOG_SLUG = "nccl-watchdog-timeout"


@dataclass(frozen=True)
class Case:
    """An example that the engine answers, and what it answered."""

    pitfall: Pitfall
    name: str
    text: str
    verdict: Verdict

    @property
    def is_named(self) -> bool:
        return self.verdict.kind == "named" and not self.pitfall.is_advisory

    def free_ranks(self, count: int) -> list[int]:
        """Ranks that the text does not speak of."""
        known = {int(n) for n in re.findall(r"\d{1,4}", self.text)}
        return [rank for rank in range(1, 9_999) if rank not in known][:count]


@pytest.fixture(scope="module")
def cases(catalog: Catalog, corpus: list[Any], scan_text: Callable[..., Evidence]) -> list[Case]:
    """Every positive text of the catalog and of the corpus that is answered rightly."""
    texts = [(e.path.name, (p.slug,), e.path.read_bytes()) for p in catalog for e in p.positives]
    texts += [(t.name, (t.label["root"], *t.label["acceptable"]), t.raw) for t in corpus]
    found = []
    for name, right, raw in texts:
        text = raw.decode("utf-8", "surrogateescape")
        verdict = diagnose([scan_text(text)], catalog)
        slug = verdict.diagnoses[0].slug if verdict.diagnoses else "none"
        pitfall = catalog.get(slug)
        if pitfall is not None and slug in right:
            found.append(Case(pitfall, name, text, verdict))
    assert len(found) > 200
    return found


@pytest.fixture
def keeps(
    cases: list[Case], ask: Callable[..., Verdict]
) -> Callable[[Callable[[Case], str | None]], None]:
    """`keeps(change)` changes every case, None leaves one out, and counts the verdicts kept."""

    def check(change: Callable[[Case], str | None]) -> None:
        lost, count = [], 0
        for case in cases:
            text = change(case)
            if text is None:
                continue
            count += 1
            verdict = ask(text)
            slug = verdict.diagnoses[0].slug if verdict.diagnoses else "nothing"
            if slug != case.pitfall.slug:
                lost.append(f"{case.pitfall.slug}/{case.name} became {slug}")
        assert count > 100
        assert len(lost) <= (1 - KEPT) * count, f"{len(lost)} of {count}:\n" + "\n".join(lost)

    return check


Keeps = Callable[[Callable[[Case], str | None]], None]


def each_line(text: str, change: Callable[[int, str], str]) -> str:
    lines = text.rstrip("\n").split("\n")
    return "\n".join(change(number, line) for number, line in enumerate(lines)) + "\n"


def victims(ranks: list[int]) -> Iterator[str]:
    for second, rank in enumerate(ranks):
        yield (
            f"[rank{rank}]:[E1130 04:12:0{second}.123456789 ProcessGroupNCCL.cpp:616] "
            f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4411, "
            "OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for "
            "600012 milliseconds before timing out.\n"
        )
        yield (
            f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, "
            "remote process exited or there was a network error, NCCL version 2.21.5\n"
        )


TAIL = """\
E1130 04:13:00.000000 139 torch/distributed/elastic/multiprocessing/api.py:869] failed \
(exitcode: 1) local_rank: 0 (pid: 4242) of binary: /usr/bin/python
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_04:13:00
  host      : node-1
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4242)
  error_file: <N/A>
============================================================
"""


def test_seven_victims_and_the_launchers_report_behind_it(keeps: Keeps, catalog: Catalog) -> None:
    watchdog = catalog.get(WATCHDOG_SLUG)
    assert watchdog is not None

    def change(case: Case) -> str | None:
        # A symptom, a hint or a warning gives way to a timeout that is really there; so does what
        # the timeout may itself have caused.
        pitfall = case.pitfall
        if not case.is_named or pitfall.role == "symptom" or pitfall.slug in watchdog.explains:
            return None
        return case.text.rstrip("\n") + "\n" + "".join(victims(case.free_ranks(7))) + TAIL

    keeps(change)


def test_a_handled_shortage_of_memory_before_it(keeps: Keeps) -> None:
    start = (
        "WARNING: CUDA out of memory. Tried to allocate 2.00 GiB; retrying with a smaller batch\n"
    )
    start += "".join(f"step {n}/1000 loss {2 - n / 100:.3f}\n" for n in range(1, 9))
    keeps(lambda case: start + case.text)


def test_a_handled_import_error_behind_it(keeps: Keeps) -> None:
    end = "WARNING: ImportError: cannot import name 'fused_adam' from 'apex'; falling back\n"
    keeps(lambda case: case.text.rstrip("\n") + "\n" + end)


SURVIVED = """\
Traceback (most recent call last):
  File "/workspace/data/images.py", line 40, in load
    return decode(path)
  File "/workspace/data/images.py", line 52, in decode
    raise OSError(f"image file is truncated ({left} bytes not processed)")
OSError: image file is truncated (31 bytes not processed)
sample 9112 is broken, taking another
"""


def test_a_traceback_that_was_survived_before_it(keeps: Keeps) -> None:
    keeps(lambda case: SURVIVED + case.text)


def test_a_traceback_while_the_interpreter_shuts_down_behind_it(keeps: Keeps) -> None:
    end = "Exception ignored in: <function Loader.__del__ at 0x7f7d8a1f3d30>\n" + SURVIVED
    keeps(lambda case: case.text.rstrip("\n") + "\n" + end)


def test_a_rank_before_every_line(keeps: Keeps) -> None:
    keeps(lambda case: each_line(case.text, lambda _, line: f"[rank3]: {line}"))


def test_a_time_before_every_line(keeps: Keeps) -> None:
    def stamp(number: int, line: str) -> str:
        return f"2026-11-30 04:{number // 60 % 60:02d}:{number % 60:02d},123 {line}"

    keeps(lambda case: each_line(case.text, stamp))


def test_colours_in_every_line(keeps: Keeps) -> None:
    keeps(
        lambda case: each_line(
            case.text, lambda _, line: f"\x1b[31m{line[:9]}\x1b[0m{line[9:]}\x1b[K"
        )
    )


def test_a_healthy_ranks_lines_between(keeps: Keeps) -> None:
    def change(case: Case) -> str:
        (rank,) = case.free_ranks(1)
        return each_line(
            case.text,
            lambda number, line: f"{line}\n[rank{rank}]: step {number + 1} loss {2.1:.3f} lr 1e-4",
        )

    keeps(change)


def test_only_the_last_forty_lines(keeps: Keeps) -> None:
    def change(case: Case) -> str | None:
        lines = case.text.split("\n")
        first_kept = len(lines) - 39
        if any(line.line < first_kept for line in case.verdict.diagnoses[0].evidence):
            return None
        return "\n".join(lines[-40:])

    keeps(change)
