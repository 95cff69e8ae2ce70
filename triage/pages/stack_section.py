"""The stack tree as the page shows it: places, who stands there, and frames folded to the point."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from triage.engine.evidence import Frame
from triage.pages.highlighting import visible
from triage.pages.wording import count_in_words

#: Places shown before the rest is folded away.
MAX_PLACES_OPEN = 8
#: A run of library frames shorter than this is shown as it is.
MIN_FRAMES_FOLDED = 3
#: Numbers listed for one place: ranks and process ids beyond them are counted.
MAX_RANGES = 12

_FRAME = re.compile(r"(?P<function>.*) \((?P<path>[^()]*?)(?::(?P<line>\d{1,9}))?\)\Z", re.DOTALL)
# Compiled code: whatever a native dump shows is nobody's own training script.
_NATIVE = re.compile(r"\.(?:so(?:\.[\d.]{1,20})?|c|cc|cpp|cu|cuh|h|hpp|S|pyx)\Z")

# What stands between a training script and its torch most often.
_PACKAGES = frozenset(
    {
        "accelerate", "datasets", "deepspeed", "ignite", "lightning", "megatron", "mmcv",
        "mmengine", "numpy", "pytorch_lightning", "ray", "timm", "torch", "torchaudio",
        "torchvision", "transformers", "ultralytics",
    }
)  # fmt: skip

#: (text_index, line) → (the words of a link to that line, its address).
LineLink = Callable[[int, int], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FrameRow:
    """One frame: function, and path:line where the dump has them."""

    function: str
    place: str
    is_own: bool


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Frames of one kind in a row; a folded run shows its number until it is opened."""

    frames: Sequence[FrameRow]
    is_folded: bool

    @property
    def summary(self) -> str:
        """`7 library frames`."""
        return count_in_words(len(self.frames), "library frame")


@dataclass(frozen=True, slots=True)
class Place:
    """Processes or threads that stand at the same place, and what is below them."""

    label: str
    count: int
    ranks: str
    pids: str
    where: str
    address: str
    runs: Sequence[FrameRun]
    more_frames: int
    children: Sequence[Place]
    left_out: int
    is_odd: bool
    is_open: bool

    @property
    def has_inside(self) -> bool:
        """Whether there is anything to unfold."""
        return bool(self.runs or self.children or self.pids)


@dataclass(frozen=True, slots=True)
class StackSection:
    """Who waits where; `folded` are places after the first ones, `left_out` those not kept."""

    sentence: str
    is_working: bool
    places: Sequence[Place]
    folded: Sequence[Place]
    left_out: int

    @property
    def folded_in_words(self) -> str:
        """`12 more places`."""
        return count_in_words(len(self.folded), "more place")


def build_stacks(
    tree: dict[str, Any] | None, link: LineLink, *, said: str = ""
) -> StackSection | None:
    """The section for a stored stack tree; None where there is none.

    Its sentence is left out where the page's heading has `said` it already.
    """
    if not tree or not tree["groups"]:
        return None
    groups = tree["groups"]
    # Apart from most: of two halves neither is odd, nor is anyone where each stands alone.
    odd = any(group["count"] * 2 > tree["processes"] for group in groups[1:])
    places = [
        _place(group, link, is_odd=odd and number == 0, is_open=number == 0)
        for number, group in enumerate(groups)
    ]
    return StackSection(
        sentence="" if tree["sentence"] == said else visible(tree["sentence"])[0],
        is_working=tree["is_working"],
        places=places[:MAX_PLACES_OPEN],
        folded=places[MAX_PLACES_OPEN:],
        left_out=tree["left_out"],
    )


def ranges_in_words(numbers: Sequence[int], most: int = MAX_RANGES) -> str:
    """`0-6, 8`: runs of three and more as a range, in order; `…` for what is beyond `most`."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    words: list[str] = []
    for first, last in ((found[0], found[-1]) for found in ranges):
        words += (
            [f"{first}-{last}"] if last - first > 1 else [str(n) for n in range(first, last + 1)]
        )
    return ", ".join(words[:most] + ["…"] * (len(words) > most))


def _place(
    group: dict[str, Any], link: LineLink, *, is_odd: bool = False, is_open: bool = False
) -> Place:
    where, address = link(group["text_index"], group["line"])
    frames = [_frame(text) for text in group["frames"]]
    ranks, pids = group["ranks"], group["pids"]
    return Place(
        label=visible(group["label"])[0],
        count=group["count"],
        # A label that says which ranks says it better.
        ranks="" if group["label"].startswith("Rank") else ranges_in_words(ranks),
        pids=ranges_in_words(pids),
        where=where,
        address=address,
        runs=list(_runs(frames)),
        more_frames=max(0, group["end_line"] - group["line"] - len(frames)),
        children=[_place(child, link) for child in group["children"]],
        left_out=group.get("left_out", 0),
        is_odd=is_odd,
        is_open=is_open,
    )


def _frame(text: str) -> FrameRow:
    text = visible(text)[0]
    found = _FRAME.match(text)
    if found is None:
        return FrameRow(text, "", is_own=False)
    path, line = found["path"], found["line"]
    frame = Frame(path, int(line) if line else None, found["function"])
    return FrameRow(
        function=frame.function,
        place=f"{path}:{line}" if line else path,
        is_own=not (frame.is_library or _NATIVE.search(path) or _is_installed(path)),
    )


def _is_installed(path: str) -> bool:
    """Whether a path that py-spy shortened to `logging/__init__.py` is Python's or a package's."""
    head = path.split("/", maxsplit=1)[0].removesuffix(".py")
    return head in sys.stdlib_module_names or head in _PACKAGES


def _runs(frames: Sequence[FrameRow]) -> Iterator[FrameRun]:
    """Innermost first. The innermost frame is always seen: it is what the thread waits in."""
    if frames and not frames[0].is_own:
        yield FrameRun(frames[:1], is_folded=False)
        frames = frames[1:]
    for is_own, run in groupby(frames, key=lambda frame: frame.is_own):
        rows = list(run)
        yield FrameRun(rows, is_folded=not is_own and len(rows) >= MIN_FRAMES_FOLDED)
