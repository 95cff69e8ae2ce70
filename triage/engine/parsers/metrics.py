"""Numbers per step: progress, loss, norms, memory, times; of plain prints and common trainers."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from math import nan

from triage.engine.evidence import Point, Progress
from triage.engine.limits import Limits
from triage.engine.lines import Line
from triage.engine.parsers.sampling import PointSample
from triage.engine.regex import regex


def _any_of(*words: str) -> str:
    """A pattern of these words where they begin one.

    Each is led by its letter, not by a word boundary: `re` skips to a letter of a set far faster.
    """
    return "(?:" + "|".join(rf"{word[0]}(?<!\w{word[0]}){word[1:]}" for word in words) + ")"


# Half of the lines of a training log carry numbers. Patterns read them in lower case, because
# `(?i)` takes three times as long; only bars, and what is printed in one case alone, are read as
# they stand. Some begin at a word that they need, less their reach before that word.

# A counter: `step 12/90`, `iteration     12/    90`, `"step": 12`, `Epoch(train)  [1][12/90]`.
_STEP = regex(
    r"(?P<name>"
    + _any_of(
        "epoch",
        "it(?:er(?:ation)?)?",
        "global[_ ]step",
        "step",
        "batch",
        "update",
        "num_updates",
        r"train(?=: \[?\d{1,6}(?:/\d{1,6}\])? ?\[)",
    )
    + r")s?\b(?:\([a-z]{2,10}\))?"
    r"['\"]?\s{0,12}[=:#]{0,2}\s{0,12}[\[(]{0,2}\s{0,4}['\"]?(?P<done>\d{1,12})(?!\.?\d)"
    r"(?:\s?(?:/|of)\s{0,12}(?P<total>\d{1,12}))?"
    r"(?:\]?\s{0,2}\[\s*(?P<inner>\d{1,12})/(?P<inner_total>\d{1,12})(?:\]|\s\())?"
)
_BATCHES_OF_EPOCH = regex(r"\b(?P<epoch>\d{1,6})epoch:train:\d{1,9}-(?P<done>\d{1,9})batch:")
_LOSS_VALUE = (
    r"['\"]?\s?[=:\uff1a (]{1,8}\s?"
    r"(?:tensor\(|['\"])?(?P<value>[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf(?:inity)?))\b"
)
_LOSS_SUFFIX = r"(?:_\w{1,20}|/train/total| value)?"
_LOSS = regex(
    r"(?:(?P<prefix>\b(?:val|valid|validation|eval|test|dev)(?:[ _/.]|(?=loss)))|\b)"
    r"(?:(?:\w{0,30}[_ /.])?loss"
    + _LOSS_SUFFIX
    + r"|(?P<cjk>\w{0,12}(?:损失|損失|손실)))"
    + _LOSS_VALUE
)
_LOSS_REACH = len("validation ") + 31
# The same from the word on, without what may stand before it.
_LOSS_ALONE = regex(r"(?:loss" + _LOSS_SUFFIX + "|损失|損失|손실)" + _LOSS_VALUE)
# A line of a loop without training: its loss is another series, and its times are none.
_HELD_OUT_LINE = regex(
    r"[\s*>=#-]{0,8}(?:val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?|dev)(?:[\s:(\[|]|$)"
)
_HELD_OUT_WORDS = ("(val)", "(test)", "valid on '")
# Of several losses on a line the sum of all, under one of these names, and no setting.
_WHOLE_LOSS = regex(r"(?:train(?:ing)?[_ /.])?(?:avg[_ ]|total[_ ]|lm )?loss['\"]?\s?[=:\uff1a (]")
_NO_LOSS = regex(r"scale|loss_(?:weight|coef|ratio|fn|type|lambda|func)")
_OPENS_NAME = frozenset("\"'|,;:([{<>=\t")
_MAX_LOSSES = 12
_NUMBER = r"(?P<value>nan|inf(?:inity)?|\d{1,18}\.?\d{0,18}(?:e[-+]?\d{1,3})?)"
# These two begin with a letter, which is found faster than the start of a word.
_GRADIENT_NORM = regex(
    r"g(?:(?<!\wg)|(?<=\btotal_g))(?:rad(?:ient)?s?[-_ /]?(?:l2[-_])?norm|rad/global|norm)\b"
    r"['\"]?\s?[=:(]{0,2}\s{0,6}(?:tensor\(|['\"])?" + _NUMBER + r"\b"
)
# A norm that is not said to be of the gradients is theirs where a loss stands on the line.
_BARE_NORM = regex(r"(?:[|,] ?norm|\btotal_norm)[:=]? {0,2}" + _NUMBER + r"\b")
_LEARNING_RATE = regex(
    r"l(?:(?<!\wl)|(?<=\btrain_l)|(?<=\boptim0_l))"
    r"(?:r(?:0|/group0|-\w{1,40}/group0)?|earning[_ ]rate)['\"]?\s?[=:]?\s?['\"]?\[?"
    + _NUMBER
    + r"\b"
)
_STEP_TIME = regex(
    "(?:"
    + _any_of(
        "elapsed time per (?:iteration|step)", "step[_ ]time", "iter(?:ation)?[_ ]time",
        "batch[_ ]time", "time[_ /]per[_ ](?:step|iter(?:ation)?)", "time/(?:step|iter)",
        "train_step_timing in s", "sec(?:onds)?[_/ ](?:per[_ ])?(?:step|iter(?:ation)?)",
    )
    + "|(?P<bare>" + _any_of("time", "dt") + "))"
    r"\s?(?:\((?P<in>ms|s)\))?['\"]?\s?[=:]?\s{0,3}(?P<value>\d{1,9}\.?\d{0,9}(?:e[-+]\d\d)?)"
    r"\s?(?P<unit>ms|s)?\b"
)  # fmt: skip
# A bare `time` is that of a step where its line has one of these beside it.
_BESIDE_TIME = (
    "data_time", "data:", "\tdata", "\ttime", "mfu", "max mem", "data time", "tok/s",
)  # fmt: skip
_MILLISECONDS = regex(r"\| \(?(?P<value>\d{1,9}\.\d{1,9}) ms \|")
# The time of a step of a trainer whose `iter_time` is that of its data.
_WHOLE_TIME = regex(r"\btrain_time=(?P<value>\d{1,9}\.\d{1,9})\b")
_EPOCH_TIME = regex(r"\bepoch (?:time['\"]?\s?[=:]|took)\s?(?P<value>\d{1,9}\.?\d{0,9})\s?s\b")
_TIMERS = regex(
    r"\b(?:fwd|forward|bwd|backward|step)(?:_microstep)?: (?P<value>\d{1,9}\.\d{1,9})(?= ?\||$)"
)
_SKIPPED_TOTAL = regex(r"\bstep=(?P<step>\d{1,12}), skipped=(?P<value>\d{1,12})\b")
_BAR_RATE = regex(r"(?P<value>\d{1,6}\.\d{1,4})\s?(?P<unit>it/s|s/it)\b")
_BAR_RATE_REACH = 12
_TRAINING_BAR = regex(r"(?i)epoch|train|step|iter")
# Keras prints a bar of its own; the numbers behind it are those of another framework's run.
_KERAS = regex(r"\s{0,8}\d{1,9}/\d{1,9} (?:\[[=>.]{5,80}\]|[━─╸]{5,80}) ")
_OF_STEPS = ("epoch", "batch", "train")
_CJK_LOSS_WORDS = ("损失", "損失", "손실")
_CJK_HELD_OUT = regex(r"验证|測試|测试|検証|驗證|검증|평가")
_SCALE = regex(
    r"(?:reducing (?:loss scale )?to|setting loss scale to"
    r"|reducing dynamic loss scale from \S{1,20} to"
    r"|loss[_ ]scale(?:r)?['\"]?\s?[=:]?\s?(?:\d+ reducing loss scale to)?"
    r"|decreas(?:ing|ed) (?:loss )?scale(?: from \S+)? to|"
    + _any_of("amp[_ ]scale", "grad[_ ]scale", "scale")
    + r"['\"]?\s?[=:]|[|,] (?:amp[_ ]|grad[_ ])?scale(?= \d))"
    r"\s?[|:=]?\s?['\"]?(?P<value>\d{1,18}\.?\d*(?:e[-+]?\d+)?)"
)
_SCALE_REACH = len("decreasing loss ")
_OVERFLOW = regex(r"grad(?:ient)? overflow|overflow!|overflow detected")
_OVERFLOW_RANK = regex(r"overflow! rank (?P<rank>\d{1,6}) skipping")
_NAN_ITERATIONS = regex(r"number of nan iterations: {1,12}[1-9]")
_SKIPPED_ITERATIONS = regex(r"number of skipped iterations: {1,12}[1-9]")
# The ultralytics table: epoch of all, memory, then the mean of each loss.
_LOSS_ROW = regex(r"^\s*\d{1,6}/\d{1,6}\s+[\d.]{1,8}[KMG]B?\s+(?P<value>nan|inf|\d{1,9}\.?\d*)\s")
_BAR_LOSS = regex(
    r"[\s,\[(](?P<key>[\w/.]{0,40}loss[\w/.]{0,20})=\s?"
    r"(?P<value>nan|inf|-?\d{1,9}(?:\.\d{1,12})?(?:e[-+]?\d{1,3})?)"
)
_HELD_OUT = regex(r"val|eval|test|dev")
_CELLS = regex(r"\s{0,8}[|\t│]\s{0,8}|\s{2,16}")
_TRAIN_LOSS_CELL = regex(r"(?i)(?:train(?:ing)?[_ /])?loss|loss[_/]train(?:ing)?")
_LOSS_ENDS_CELL = regex(r"loss(?:[_/]train(?:ing)?)?\s*(?:[|\t│]|\s\s|$)")
_NUMBER_CELL = regex(r"(?i)nan|[-+]?(?:inf|\d{1,18}(?:\.\d{0,18})?(?:e[-+]?\d{1,3})?)")
_GPU_MEMORY = regex(
    r"(?:memory[_ ]allocated|allocated|max[_ ]mem(?:ory)?|gpu[_ ]mem(?:ory)?|mem(?:ory)?|vram|"
    + _any_of("alloc")
    + r")(?:[_ ](?:alloc(?:ated)?|used|usage|in use))?(?:\(\))?['\"]?"
    r"\s?[=: ]{1,3}\s?"
    r"(?P<value>\d{1,18}\.?\d*)\s?(?P<unit>[kmgt](?:i?b)?\b)?"
)
_GPU_MEMORY_REACH = len("max_")
# The stages of a start (after the model, after the optimizer) rise in every run: no series.
_STAGE = regex(r"\W{0,4}(?:after|before)[ _-](?![^=:]{0,60}\d)")
_MEMORY_ALLOCATED = regex(r"\bma (?P<value>\d{1,9}\.?\d{0,4}) (?P<unit>gb)\s+max_ma ")
# A row of a table of epochs (epoch/epochs, GPU memory, losses), and a step with a size alone.
_TABLE_ROW = regex(r"^\s*\d{1,6}/\d{1,6}\s+(?P<value>\d{1,6}(?:\.\d{1,6})?)(?P<unit>G)\s+[\dn]")
_BARE_SIZE = regex(
    r"^\W{0,4}(?:step|iter|iteration|epoch|batch)?\W{0,4}\d{1,9}(?:/\d{1,9})?\W{1,4}"
    r"(?P<value>\d{1,12}(?:\.\d{1,6})?)\s?(?P<unit>[mg]i?b)\s*$"
)
_HOST_MEMORY = regex(
    _any_of(
        "rss", "host[_ ]mem(?:ory)?", "cpu[_ ]mem(?:ory)?", "system[_ ]mem(?:ory)?",
        "ram(?:[_ ]usage| used)?", "uss", "pss", "virtual_memory", "virtual memory:  used",
        "current memory use", "maxresident",
    )
    + r"\b['\"]?\s?[=: ]{1,3}\s?(?P<value>\d{1,18}\.?\d*)\s?(?P<unit>[kmgt]i?b?)?"
)  # fmt: skip
_HOST_MEMORY_WORDS = (
    "host", "cpu", "system", "ram", "rss", "uss", "pss", "virtual", "current mem", "maxres",
)  # fmt: skip
_GRAPH_NODES = regex(
    r"autograd\.function\.(?P<node>\w{1,80}Backward\w*)[^|]*\|\s*(?P<value>\d{1,12})\s*\|"
)
_BATCH_PRINT = regex(
    r"\b(?:finished|done|processed|completed|consumed|got|saw)\b[^\d]{0,30}"
    r"(?P<value>\d{1,9})\s+(?:batches|steps|iterations|samples)\b"
)
_BATCH_WORDS = ("batches", "steps", "iterations", "samples")
_BATCHES = regex(r"\d\s+(?:batches|steps|iterations|samples)\b")
_UNIT = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}


class MetricsParser:
    """Feed it lines in order; `progress` and `points` are bounded samples, in text order."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.progress: list[Progress] = []
        self._sample = PointSample(limits.max_points)
        self._at: int | None = None
        self.batches: dict[str, int] = {}
        self._loss_column: tuple[int, int] | None = None

    @property
    def points(self) -> list[Point]:
        """The bounded sample of all series."""
        return self._sample.points

    @property
    def point_counts(self) -> dict[str, int]:
        """How many points there were of each series."""
        return self._sample.counts()

    def feed(self, line: Line) -> None:
        """Takes the next line."""
        if line.is_code:
            return
        text = line.text
        self._at = None
        if line.bar is not None:
            self._bar(line, line.bar, text)
            return
        if len(text) > 3_000:
            text = text[:3_000]
        begins_with_digit = text.lstrip()[:1].isdigit()
        if begins_with_digit and "/" in text and _KERAS.match(text):
            return
        lowered = text.lower()
        if (
            "step" in lowered
            or "epoch" in lowered
            or "iter" in lowered
            or "batch" in lowered
            or "update" in lowered
            or "train: " in lowered
        ):
            self._step(line, text, lowered)
        is_of_loss = "loss" in lowered or (
            not lowered.isascii() and _has_any(lowered, _CJK_LOSS_WORDS)
        )
        if is_of_loss or "scale" in lowered:
            if is_of_loss:
                self._losses(line, lowered)
            if "scale" in lowered:
                self._scale(line, lowered)
            elif "overflow" in lowered and _is_skip(lowered):
                self._point("skipped_step", line, 1.0)
            if (
                "nan iter" in lowered
                and "lm loss" not in lowered
                and _NAN_ITERATIONS.search(lowered)
            ):
                self._point("loss", line, nan)
            self._table_header(text, lowered)
        elif self._loss_column is not None:
            self._table_row(line, text, *self._loss_column)
        if (
            "mem" in lowered
            or "alloc" in lowered
            or "ram" in lowered
            or "rss" in lowered
            or "max_ma" in lowered
        ):
            self._memory(line, text, lowered)
        elif (begins_with_digit and (found := _TABLE_ROW.match(text))) or (
            text.rstrip()[-1:] in ("B", "b") and (found := _BARE_SIZE.match(lowered))
        ):
            self._point("gpu_memory", line, _mebibytes(found))
        if begins_with_digit and "/" in text[:14] and (row := _LOSS_ROW.match(text)):
            self._point("loss", line, float(row["value"]))
        self._norm_and_rate(line, lowered, is_of_loss)
        if (
            "tim" in lowered
            or "dt" in lowered
            or "sec" in lowered
            or "took" in lowered
            or " ms" in lowered
        ):
            self._time(line, text, lowered)
        if "Backward" in text and (found := _GRAPH_NODES.search(text)):
            self._point("graph_nodes:" + found["node"], line, float(found["value"]))

    def _bar(self, line: Line, bar: Progress, text: str) -> None:
        self._at = bar.done
        if bar.done or bar.total:
            self._keep(bar)
        if bar.done == bar.total and (found := _TABLE_ROW.match(bar.text)):
            self._point("gpu_memory", line, _mebibytes(found))
        lowered = text.lower()
        if not _is_held_out(bar.name):
            self._bar_loss(line, text, lowered)
            self._norm_and_rate(line, lowered, has_loss="loss" in lowered)
            if "scale" in lowered:
                self._scale(line, lowered)
            if bar.done >= 2 and ("loss" in lowered or _is_training_bar(bar.name)):
                self._bar_time(line, text, lowered)

    def _bar_time(self, line: Line, text: str, lowered: str) -> None:
        at = text.find("it/s")
        if at < 0:
            at = text.find("s/it")
        if at < 0:
            if "step_timing" in lowered:
                self._time(line, text, lowered)
            return
        found = _BAR_RATE.search(text, max(at - _BAR_RATE_REACH, 0))
        if found and (rate := float(found["value"])) > 0:
            self._point("step_time", line, rate if found["unit"] == "s/it" else 1 / rate)

    def _norm_and_rate(self, line: Line, lowered: str, has_loss: bool) -> None:
        """The norm of the gradients and the learning rate."""
        if "norm" in lowered:
            found = _GRADIENT_NORM.search(lowered)
            if found is None and has_loss:
                found = _BARE_NORM.search(lowered)
            if found:
                self._point("grad_norm", line, float(found["value"]))
        if ("lr" in lowered or "learning" in lowered) and (found := _LEARNING_RATE.search(lowered)):
            self._point("learning_rate", line, float(found["value"]))

    def _time(self, line: Line, text: str, lowered: str) -> None:
        """The time of a step or an epoch, in seconds."""
        if line.level in ("E", "W") or _is_held_out_line(lowered):
            return
        if "epoch t" in lowered and (found := _EPOCH_TIME.search(lowered)):
            self._point("epoch_time", line, float(found["value"]))
        elif "iter_time=" in lowered and (found := _WHOLE_TIME.search(lowered)):
            self._point("step_time", line, float(found["value"]))
        elif " ms |" in lowered and (found := _MILLISECONDS.search(lowered)):
            self._point("step_time", line, float(found["value"]) / 1_000)
        elif "time (ms) |" in text:
            times = [float(found["value"]) for found in _TIMERS.finditer(text)]
            if times:
                self._point("step_time", line, sum(times) / 1_000)
        else:
            found = _STEP_TIME.search(lowered, max(lowered.find("elapsed time per"), 0))
            if found and (not found["bare"] or _has_any(lowered, _BESIDE_TIME)):
                unit = found["unit"] or found["in"]
                self._point(
                    "step_time", line, float(found["value"]) / (1_000 if unit == "ms" else 1)
                )

    def _step(self, line: Line, text: str, lowered: str) -> None:
        if line.level in ("E", "W") or "Error" in text:
            return
        if _has_any(lowered, _BATCH_WORDS) and _BATCHES.search(lowered):
            found = _BATCH_PRINT.search(lowered)
            if found:
                self.batches[str(line.rank)] = int(found["value"])
        if "skipped=" in text and (found := _SKIPPED_TOTAL.search(text)):
            self._at = int(found["step"])
            self._point("skipped_total", line, float(found["value"]))
        if "epoch:train:" in lowered and (found := _BATCHES_OF_EPOCH.search(lowered)):
            done = int(found["epoch"]) * 10_000_000 + int(found["done"])
            self._keep_progress(line, "epoch", done, None, text)
            return
        found = _STEP.search(lowered)
        if found is None:
            return
        name, digits, total, inner, _ = found.groups()
        done = int(digits)
        if inner:
            done = done * 10_000_000 + int(inner)
            total = None
        elif name == "epoch" and (second := _STEP.search(lowered, found.end())):
            self._at = int(second["done"]) if second["name"] not in _OF_STEPS else None
            done = done * 10_000_000 + int(second["done"])
            total = None
        elif name not in _OF_STEPS:
            self._at = done
        self._keep_progress(line, name, done, int(total) if total else None, text)

    def _keep_progress(
        self, line: Line, name: str, done: int, total: int | None, text: str
    ) -> None:
        shown = text.strip()[:200]
        self._keep(Progress(line.number, name, done, total, None, line.rank, shown))

    def _keep(self, progress: Progress) -> None:
        self.progress.append(progress)
        if len(self.progress) > self._limits.max_progress:
            # Keep both ends: the start names the bars, the end says what still moved.
            half = self._limits.max_progress // 2
            del self.progress[half // 2 : half]

    def _scale(self, line: Line, lowered: str) -> None:
        start = 0 if "reducing" in lowered else lowered.find("scale") - _SCALE_REACH
        found = _SCALE.search(lowered, max(start, 0))
        if found:
            if line.rank is None and (member := _OVERFLOW_RANK.search(lowered)):
                line = replace(line, rank=int(member["rank"]))
            self._point("loss_scale", line, float(found["value"]))
            if _is_skip(lowered):
                self._point("skipped_step", line, float(found["value"]))
        elif "overflow" in lowered and _is_skip(lowered):
            self._point("skipped_step", line, 1.0)

    def _losses(self, line: Line, lowered: str) -> None:
        """The loss of training and that of validation, each once a line."""
        loss: float | None = None
        held_out: float | None = None
        loss_key = ""
        is_ascii = lowered.isascii()
        end = 0
        for _ in range(_MAX_LOSSES):
            if end and is_ascii and "loss" not in lowered[end:]:
                break
            found = _LOSS_ALONE.search(lowered, end)
            if found is None:
                break
            at = found.start()
            if lowered[at] == "l" and _stands_alone(lowered, at):
                prefix, cjk, number = None, None, found["value"]
            else:
                start = max(lowered.rfind("|", 0, at), lowered.rfind(",", 0, at), end)
                found = _LOSS.search(lowered, max(start, at - _LOSS_REACH))
                if found is None:
                    break
                prefix, cjk, number = found.groups()
            end = found.end()
            key = found[0]
            if ("scale" in key or "loss_" in key) and _NO_LOSS.search(key):
                continue
            if prefix or (cjk and _CJK_HELD_OUT.search(cjk)):
                if held_out is None:
                    held_out = float(number)
            elif loss is None or (_WHOLE_LOSS.match(key) and not _WHOLE_LOSS.match(loss_key)):
                loss, loss_key = float(number), key
        if loss is not None and _is_held_out_line(lowered):
            loss, held_out = None, loss if held_out is None else held_out
        if loss is not None:
            self._point("loss", line, loss)
        if held_out is not None:
            self._point("val_loss", line, held_out)

    def _bar_loss(self, line: Line, text: str, lowered: str) -> None:
        if "/" in text[:14] and (row := _LOSS_ROW.match(text)):
            self._point("loss", line, float(row["value"]))
            return
        if "loss" not in lowered:
            return
        at = max(text.find("loss"), 0)
        for found in _BAR_LOSS.finditer(text, max(text.rfind(" ", 0, at), at - 41, 0)):
            if not _HELD_OUT.search(found["key"]):
                self._point("loss", line, float(found["value"]))
                return
        self._losses(line, lowered)

    def _table_header(self, text: str, lowered: str) -> None:
        """A line of column names, as fastai, skorch and the Trainer in a notebook print it."""
        if "epoch" not in lowered and "step" not in lowered:
            return
        if not _LOSS_ENDS_CELL.search(lowered):
            return
        cells = _CELLS.split(text.strip(" |│\t"))
        if len(cells) > 2 and not any(_NUMBER_CELL.fullmatch(cell) for cell in cells):
            for index, cell in enumerate(cells):
                if _TRAIN_LOSS_CELL.fullmatch(cell):
                    self._loss_column = (index, len(cells))
                    return

    def _table_row(self, line: Line, text: str, index: int, width: int) -> None:
        row = text.strip(" |│\t")
        if not row[:1].isdigit():
            return
        cells = _CELLS.split(row)
        if len(cells) == width and cells[0].isdigit() and _NUMBER_CELL.fullmatch(cells[index]):
            self._point("loss", line, float(cells[index]))

    def _memory(self, line: Line, text: str, lowered: str) -> None:
        # A loop of validation may keep its graphs; that of mmengine prints its own peak.
        if "out of memory" in text or "(val)" in lowered or line.level in ("E", "W"):
            return
        if ("after" in lowered or "before" in lowered) and _STAGE.match(lowered):
            return
        if _has_any(lowered, _HOST_MEMORY_WORDS) and (found := _HOST_MEMORY.search(lowered)):
            self._point("host_memory", line, _mebibytes(found))
            return
        if "max_ma" in lowered and (found := _MEMORY_ALLOCATED.search(lowered)):
            self._point("gpu_memory", line, _mebibytes(found))
            return
        at = max(lowered.find("mem"), 0)
        start = at - _GPU_MEMORY_REACH if "alloc" not in lowered[:at] else 0
        if found := _GPU_MEMORY.search(lowered, max(start, 0)):
            self._point("gpu_memory", line, _mebibytes(found))

    def _point(self, series: str, line: Line, value: float) -> None:
        self._sample.add(series, line.number, value, line.rank, self._at)


def _has_any(text: str, words: tuple[str, ...]) -> bool:
    for word in words:  # noqa: SIM110 (a generator would take twice as long)
        if word in text:
            return True
    return False


def _stands_alone(text: str, at: int) -> bool:
    """Whether what stands before `at` cannot be the first part of a name, as in `val_loss`."""
    if text[at - 1 : at] != " ":
        return at == 0 or text[at - 1] in _OPENS_NAME
    return at == 1 or text[at - 2] in _OPENS_NAME


def _is_skip(lowered: str) -> bool:
    """Whether the line says that the step was skipped for an overflow."""
    return (
        ("overflow" in lowered and _OVERFLOW.search(lowered) is not None)
        or "skipping step" in lowered
        or "reducing dynamic loss scale" in lowered
        or ("skipped iter" in lowered and _SKIPPED_ITERATIONS.search(lowered) is not None)
    )


@functools.lru_cache(maxsize=256)
def _is_held_out(bar: str) -> bool:
    """Whether the bar of this name is that of a validation or test."""
    return _HELD_OUT.search(bar.lower()) is not None


@functools.lru_cache(maxsize=256)
def _is_training_bar(bar: str) -> bool:
    return not bar or _TRAINING_BAR.search(bar) is not None


def _is_held_out_line(lowered: str) -> bool:
    if "val" not in lowered and "test" not in lowered and "dev" not in lowered:
        return False
    return _HELD_OUT_LINE.match(lowered) is not None or _has_any(lowered, _HELD_OUT_WORDS)


def _mebibytes(found: re.Match[str]) -> float:
    unit = found["unit"] or "m"
    return float(found["value"]) * _UNIT.get(unit[0].lower(), 1.0)
