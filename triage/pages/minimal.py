"""From five hundred lines to thirty: what to keep of a script that fails, and what to leave out.

Nothing of this is done for the reader: submitted code is never run here.
"""

from __future__ import annotations

from dataclasses import dataclass

from kb.catalog import Pitfall
from triage.pages.reproduce_section import OPTION_WORDS
from triage.services.reproductions import Suggestion

_KEEP = {
    "data": (
        "The Dataset's __getitem__ down to the line that fails, and the collate_fn",
        "Every argument of the DataLoader",
        "One loop over the loader that does nothing with the batch",
    ),
    "distributed": (
        "init_process_group with its backend and timeout, and the branch that ranks take apart",
        "The collectives in their order, with tensors of one element",
    ),
    "cuda": (
        "The shapes and dtypes that are alive together; random tensors of that size do",
        "What is kept from one step to the next: lists, caches, hooks, graphs",
    ),
    "numerics": (
        "The loss function, the optimizer's settings, autocast and scaler",
        "The batch that did it, as a tensor in the script, or the seed that makes it",
    ),
    "autograd": ("The tensors from the leaf to backward(), and every in-place write between",),
    "checkpoint": (
        "The save and the load, with the smallest state dict that still fails",
        "How the file gets there: the same file system, the same rename",
    ),
    "compile": (
        "The one function or module that is compiled, with its arguments' shapes and dtypes",
        "The flags of torch.compile, and the environment variables that it reads",
    ),
    "host": ("The numbers that fill the resource: processes, open files, bytes, sockets",),
    "environment": ("The import that fails, and the versions of what it imports",),
}
_KEEP_ELSE = ("The call that raises, with arguments made in the script",)
_DROP = {
    "data": "Model, loss, optimizer and every rank but one",
    "distributed": "The model and the data: gloo on the CPU and tensors of ones usually do",
    "cuda": "The data loader and all ranks but one",
    "numerics": "Data loading, logging, distribution",
    "checkpoint": "Training: a state dict of zeros does",
    "compile": "Data, optimizer, distribution",
}
_DROP_ELSE = "Everything that runs after the line that fails"
_ALWAYS_DROPPED = (
    "Configuration files, command lines, trainers, loggers, progress bars, checkpoints"
)


@dataclass(frozen=True, slots=True)
class Minimal:
    """What the page shows beside the nearest reproduction's code."""

    pitfall: Pitfall
    code: str
    lines: int
    keep: tuple[str, ...]
    drop: tuple[str, ...]
    numbers: tuple[str, ...]


def build_minimal(pitfall: Pitfall, suggestions: list[Suggestion]) -> Minimal:
    """The page's content for this entry, which has a script."""
    code = pitfall.script.read_text(encoding="utf-8")
    numbers = tuple(
        f"{OPTION_WORDS[s.option.name]}: {s.seen}"
        + ("" if s.seen == s.value else f" (the script takes {s.value})")
        for s in suggestions
        if s.seen is not None
    )
    return Minimal(
        pitfall=pitfall,
        code=code,
        lines=sum(bool(line.strip()) for line in code.splitlines()),
        keep=_KEEP.get(pitfall.group, _KEEP_ELSE),
        drop=(_DROP.get(pitfall.group, _DROP_ELSE), _ALWAYS_DROPPED),
        numbers=numbers,
    )
