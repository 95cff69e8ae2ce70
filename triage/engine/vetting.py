"""Compiles patterns of unknown origin in a child process first, with bounds on time and memory.

A short pattern can stand for an automaton of gigabytes: what takes more than a pattern may is
refused by name, and the process that scans never meets it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from triage.engine import store

SECONDS_A_PATTERN = 1.0
MEMORY_BYTES = 256 << 20
# So many patterns may fail in one catalog; then all that were not reached are refused.
_MAX_FAILURES = 8
_MAX_SECONDS = 60.0

_refused: dict[str, str] = {}
_accepted: set[str] = set()


def refused(texts: Sequence[str]) -> dict[str, str]:
    """Of these patterns, those that cost too much to compile, each with the reason.

    Compiles nothing in this process; asks once for each text, in a child or in the store.
    """
    unknown = sorted({text for text in texts if text not in _refused and text not in _accepted})
    if unknown:
        key = store.key_of("vetted", "", unknown)
        known = store.load(key)
        if known is not None:
            problems = {str(text): str(problem) for text, problem in known[0].items()}
        else:
            problems = _ask(unknown)
            store.save(key, problems)
        _refused.update(problems)
        _accepted.update(text for text in unknown if text not in problems)
    return {text: _refused[text] for text in texts if text in _refused}


def is_refused(text: str) -> bool:
    """Whether the pattern was refused in this process; one that nobody asked about was not."""
    return text in _refused


def _ask(texts: Sequence[str]) -> dict[str, str]:
    problems: dict[str, str] = {}
    left = list(texts)
    while left:
        if len(problems) >= _MAX_FAILURES:
            problems.update((text, "was not tried: too many others failed") for text in left)
            break
        done = _run_child(left)
        if done >= len(left):
            break
        problems[left[done]] = "takes too much time or memory to compile; make its repeats smaller"
        left = left[done + 1 :]
    return problems


def _run_child(texts: Sequence[str]) -> int:
    """How many of the texts a child compiled before it ended."""
    import subprocess  # noqa: PLC0415 (most starts know their patterns)

    try:
        child = subprocess.run(
            [sys.executable, "-m", "triage.engine.vetting"],
            input=json.dumps(list(texts)).encode(),
            capture_output=True,
            timeout=_MAX_SECONDS,
            check=False,
            cwd=_root(),
        )
        return child.stdout.count(b"\n")
    except subprocess.TimeoutExpired as expired:
        return (expired.stdout or b"").count(b"\n")


def _root() -> str:
    from pathlib import Path  # noqa: PLC0415 (a child's start needs no path)

    return str(Path(__file__).resolve().parent.parent.parent)


def _main() -> None:
    """The child: compiles the texts of its input in turn and says so after each."""
    import resource  # noqa: PLC0415 (not on every platform; the child alone needs it)
    import signal  # noqa: PLC0415

    from triage.engine.patterns import Pattern  # noqa: PLC0415

    texts = json.load(sys.stdin)
    from triage.engine import multipattern  # noqa: PLC0415

    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        in_use = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for text in texts:
        signal.setitimer(signal.ITIMER_PROF, SECONDS_A_PATTERN)
        pattern = Pattern(text)
        multipattern.ReMatcher([pattern])
        multipattern.build_matcher([pattern])
        pattern.may_occur_in("")
        print(flush=True)


if __name__ == "__main__":
    _main()
