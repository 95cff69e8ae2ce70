"""Numbers per step: progress, loss, norms, memory, times; of plain prints and common trainers."""

from __future__ import annotations

import itertools
import re

from triage.engine.evidence import Point, Progress
from triage.engine.limits import Limits
from triage.engine.lines import Line
from triage.engine.parsers.sampling import PointSample

_STEP = re.compile(
    r"(?i)\b(?P<name>epoch|iter(?:ation)?|(?:global[_ ])?step|batch|it|update"
    r"|num_updates)s?\b\s?[=:#\[(]{0,2}\s?"
    r"(?P<done>\d{1,12})(?:\s?(?:/|of)\s?(?P<total>\d{1,12}))?(?:\]?\[\s*(?P<inner>\d{1,12})/(?P<inner_total>\d{1,12})\])?"
)
_LOSS = re.compile(
    r"(?i)(?:(?P<prefix>\b(?:val|valid|validation|eval|test|dev)(?:[ _/.]|(?=loss)))|\b)"
    r"(?:(?:\w{0,30}[_ /.])?loss(?:_\w{1,20})?|(?P<cjk>\w{0,12}(?:损失|損失|손실)))"
    r"['\"]?\s?[=:\uff1a (]{1,3}\s?"
    r"(?:tensor\(|['\"])?(?P<value>[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))\b"
)
# Of several losses on a line the sum of all, under one of these names, and no setting.
_WHOLE_LOSS = re.compile(
    r"(?i)(?:train(?:ing)?[_ /.])?(?:avg[_ ]|total[_ ]|lm )?loss['\"]?\s?[=:\uff1a (]"
)
_NO_LOSS = re.compile(r"(?i)scale|loss_(?:weight|coef|ratio|fn|type|lambda|func)")
_MAX_LOSSES = 12
_NUMBER = r"(?P<value>nan|inf|\d{1,18}\.?\d{0,18}(?:e[-+]?\d{1,3})?)"
_GRADIENT_NORM = re.compile(
    r"(?i)\b(?:total[_ ])?(?:grad(?:ient)?s?[_ ]?norm|gnorm)\b['\"]?\s?[=:(]{0,2}\s?"
    r"(?:tensor\(|['\"])?" + _NUMBER + r"\b"
)
_LEARNING_RATE = re.compile(
    r"(?i)\b(?:lr|(?:current )?learning[_ ]rate)['\"]?\s?[=:]?\s?['\"]?\[?" + _NUMBER + r"\b"
)
_STEP_TIME = re.compile(
    r"(?i)\b(?:elapsed time per (?:iteration|step)|(?:step|iter(?:ation)?|batch)[_ ]time"
    r"|time[_ /]per[_ ](?:step|iter(?:ation)?)|time/(?:step|iter)"
    r"|sec(?:onds)?[_/ ](?:per[_ ])?(?:step|iter(?:ation)?)|(?P<bare>time|dt))"
    r"\s?(?:\((?P<in>ms|s)\))?['\"]?\s?[=:]?\s{0,3}(?P<value>\d{1,9}\.?\d{0,9})\s?(?P<unit>ms|s)?\b"
)
# A bare `time` is that of a step where its line has one of these beside it.
_BESIDE_TIME = ("data_time", "data:", "mfu", "max mem", "data time")
_EPOCH_TIME = re.compile(r"(?i)\bepoch time['\"]?\s?[=:]\s?(?P<value>\d{1,9}\.?\d{0,9})\s?s\b")
_TIMERS = re.compile(
    r"\b(?:fwd|forward|bwd|backward|step)(?:_microstep)?: (?P<value>\d{1,9}\.\d{1,9})(?= ?\||$)"
)
_SKIPPED_TOTAL = re.compile(r"\bstep=(?P<step>\d{1,12}), skipped=(?P<value>\d{1,12})\b")
_BAR_RATE = re.compile(r"(?P<value>\d{1,6}\.\d{1,4})\s?(?P<unit>it/s|s/it)\b")
_TRAINING_BAR = re.compile(r"(?i)epoch|train|step|iter")
_MEGATRON_STEP = re.compile(r"\biteration {1,12}(?P<done>\d{1,12})/ {0,12}(?P<total>\d{1,12})")
# Keras prints a bar of its own; the numbers behind it are those of another framework's run.
_KERAS = re.compile(r"\s{0,8}\d{1,9}/\d{1,9} (?:\[[=>.]{5,80}\]|[━─╸]{5,80}) ")
_OF_STEPS = ("epoch", "batch")
_LOSS_WORDS = ("loss", "损失", "損失", "손실")
_SERIES_WORDS = (*_LOSS_WORDS, "scale")
_CJK_HELD_OUT = re.compile(r"验证|測試|测试|検証|驗證|검증|평가")
_SCALE = re.compile(
    r"(?i)(?:reducing (?:loss scale )?to|setting loss scale to"
    r"|reducing dynamic loss scale from \S{1,20} to"
    r"|loss[_ ]scale(?:r)?['\"]?\s?[=:]?\s?(?:\d+ reducing loss scale to)?"
    r"|\b(?:amp[_ ]|grad[_ ])?scale['\"]?\s?[=:]"
    r"|decreas(?:ing|ed) (?:loss )?scale(?: from \S+)? to)\s?["
    r"|:=]?\s?(?P<value>\d{1,18}\.?\d*(?:e[-+]?\d+)?)"
)
_SKIPPED = re.compile(
    r"(?i)(?:grad(?:ient)? overflow|OVERFLOW!|skipping step|overflow detected"
    r"|reducing dynamic loss scale|number of skipped iterations: {1,12}[1-9])"
)
# The ultralytics table: epoch of all, memory, then the mean of each loss.
_LOSS_ROW = re.compile(
    r"^\s*\d{1,6}/\d{1,6}\s+[\d.]{1,8}[KMG]B?\s+(?P<value>nan|inf|\d{1,9}\.?\d*)\s"
)
_BAR_LOSS = re.compile(
    r"[\s,\[(](?P<key>[\w/.]{0,40}loss[\w/.]{0,20})=\s?"
    r"(?P<value>nan|inf|-?\d{1,9}(?:\.\d{1,12})?(?:e[-+]?\d{1,3})?)"
)
_HELD_OUT = re.compile(r"val|eval|test|dev")
_CELLS = re.compile(r"\s{0,8}[|\t│]\s{0,8}|\s{2,16}")
_TRAIN_LOSS_CELL = re.compile(r"(?i)(?:train(?:ing)?[_ /])?loss|loss[_/]train(?:ing)?")
_NUMBER_CELL = re.compile(r"(?i)nan|[-+]?(?:inf|\d{1,18}(?:\.\d{0,18})?(?:e[-+]?\d{1,3})?)")
_GPU_MEMORY = re.compile(
    r"(?i)(?:memory[_ ]allocated|allocated|max[_ ]mem(?:ory)?|gpu[_ ]mem(?:ory)?"
    r"|mem(?:ory)?|vram)(?:[_ ](?:alloc(?:ated)?|used|usage|in use))?(?:\(\))?['\"]?"
    r"\s?[=: ]{1,3}\s?"
    r"(?P<value>\d{1,18}\.?\d*)\s?(?P<unit>[KMGT]i?B|MB|GB)?"
)
# A row of a table of epochs (epoch/epochs, GPU memory, losses), and a step with a size alone.
_TABLE_ROW = re.compile(r"^\s*\d{1,6}/\d{1,6}\s+(?P<value>\d{1,6}(?:\.\d{1,6})?)(?P<unit>G)\s+\d")
_BARE_SIZE = re.compile(
    r"(?i)^\W{0,4}(?:step|iter|iteration|epoch|batch)?\W{0,4}\d{1,9}(?:/\d{1,9})?\W{1,4}"
    r"(?P<value>\d{1,12}(?:\.\d{1,6})?)\s?(?P<unit>[MG]i?B)\s*$"
)
_HOST_MEMORY = re.compile(
    r"(?i)\b(?:rss|(?:host|cpu|system)[_ ]mem(?:ory)?|ram(?:[_ ]usage| used)?|uss|pss"
    r"|virtual_memory|current memory use|maxresident)\b['\"]?\s?[=: ]{1,3}\s?"
    r"(?P<value>\d{1,18}\.?\d*)\s?(?P<unit>[KMGT]i?B?)?"
)
_GRAPH_NODES = re.compile(
    r"autograd\.function\.(?P<node>\w{1,80}Backward\w*)[^|]*\|\s*(?P<value>\d{1,12})\s*\|"
)
_BATCH_PRINT = re.compile(
    r"(?i)\b(?:finished|done|processed|completed|consumed|got|saw)\b[^\d]{0,30}(?P<value>\d{1,9})\s+(?:batches|steps|iterations|samples)\b"
)
_UNIT = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}


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
        lowered = text.lower()
        if "/" in text and _KERAS.match(text):
            return
        if any(word in lowered for word in ("epoch", "step", "iter", "batch", "update")):
            self._step(line, text)
        if any(word in lowered for word in _SERIES_WORDS):
            self._numbers(line, text, lowered)
            self._table_header(text, lowered)
        elif self._loss_column is not None:
            self._table_row(line, text, *self._loss_column)
        if any(word in lowered for word in ("mem", "rss", "ram", "alloc")):
            self._memory(line, text)
        elif found := _TABLE_ROW.match(text) or _BARE_SIZE.match(text):
            self._point("gpu_memory", line, _mebibytes(found))
        if "/" in text[:14] and (row := _LOSS_ROW.match(text)):
            self._point("loss", line, float(row["value"]))
        if "norm" in lowered and (found := _GRADIENT_NORM.search(text)):
            self._point("grad_norm", line, float(found["value"]))
        if ("lr" in lowered or "learning" in lowered) and (found := _LEARNING_RATE.search(text)):
            self._point("learning_rate", line, float(found["value"]))
        if "time" in lowered or "dt" in lowered or "sec" in lowered:
            self._time(line, text, lowered)
        if "backward" in lowered and (found := _GRAPH_NODES.search(text)):
            self._point("graph_nodes:" + found["node"], line, float(found["value"]))

    def _bar(self, line: Line, bar: Progress, text: str) -> None:
        self._at = bar.done
        if bar.done or bar.total:
            self._keep_progress(bar)
        if bar.done == bar.total and (found := _TABLE_ROW.match(bar.text)):
            self._point("gpu_memory", line, _mebibytes(found))
        self._bar_loss(line, text)
        is_training = "loss" in text or not bar.name or _TRAINING_BAR.search(bar.name)
        if not is_training or _HELD_OUT.search(bar.name.lower()) or bar.done < 2:
            return
        if (found := _BAR_RATE.search(text)) and (rate := float(found["value"])) > 0:
            self._point("step_time", line, rate if found["unit"] == "s/it" else 1 / rate)

    def _time(self, line: Line, text: str, lowered: str) -> None:
        """The time of a step or an epoch, in seconds."""
        if line.level in ("E", "W"):
            return
        if found := _EPOCH_TIME.search(text):
            self._point("epoch_time", line, float(found["value"]))
        elif "time (ms) |" in text:
            times = [float(found["value"]) for found in _TIMERS.finditer(text)]
            if times:
                self._point("step_time", line, sum(times) / 1_000)
        elif found := _STEP_TIME.search(text):
            is_step = not found["bare"] or any(word in lowered for word in _BESIDE_TIME)
            if is_step:
                unit = found["unit"] or found["in"]
                self._point(
                    "step_time", line, float(found["value"]) / (1_000 if unit == "ms" else 1)
                )

    def _step(self, line: Line, text: str) -> None:
        if line.level in ("E", "W") or "Error" in text:
            return
        if found := _BATCH_PRINT.search(text):
            self.batches[str(line.rank)] = int(found["value"])
        if found := _SKIPPED_TOTAL.search(text):
            self._at = int(found["step"])
            self._point("skipped_total", line, float(found["value"]))
        found = _STEP.search(text)
        if found is None:
            found = _MEGATRON_STEP.search(text)
            if found is not None:
                self._at = int(found["done"])
                self._keep_progress(
                    Progress(
                        line.number, "iteration", self._at, int(found["total"]), None, line.rank,
                        text.strip()[:200],
                    )
                )  # fmt: skip
            return
        done, total = int(found["done"]), found["total"]
        if found["inner"]:
            done = done * 10_000_000 + int(found["inner"])
            total = None
        elif found["name"].lower() == "epoch" and (second := _STEP.search(text, found.end())):
            self._at = int(second["done"]) if second["name"].lower() not in _OF_STEPS else None
            done = done * 10_000_000 + int(second["done"])
            total = None
        elif found["name"].lower() not in _OF_STEPS:
            self._at = done
        self._keep_progress(
            Progress(
                line.number, found["name"].lower(), done, int(total) if total else None,
                None, line.rank, text.strip()[:200],
            )
        )  # fmt: skip

    def _keep_progress(self, progress: Progress) -> None:
        self.progress.append(progress)
        if len(self.progress) > self._limits.max_progress:
            # Keep both ends: the start names the bars, the end says what still moved.
            half = self._limits.max_progress // 2
            del self.progress[half // 2 : half]

    def _numbers(self, line: Line, text: str, lowered: str) -> None:
        if any(word in lowered for word in _LOSS_WORDS):
            self._losses(line, text)
        if "scale" in lowered and (found := _SCALE.search(text)):
            self._point("loss_scale", line, float(found["value"]))
            if _SKIPPED.search(text):
                self._point("skipped_step", line, float(found["value"]))
        elif "overflow" in lowered and _SKIPPED.search(text):
            self._point("skipped_step", line, 1.0)

    def _losses(self, line: Line, text: str) -> None:
        """The loss of training and that of validation, each once a line."""
        values: dict[str, float] = {}
        is_whole = False
        for found in itertools.islice(_LOSS.finditer(text), _MAX_LOSSES):
            if _NO_LOSS.search(found[0]):
                continue
            if found["prefix"] or _CJK_HELD_OUT.search(found["cjk"] or ""):
                values.setdefault("val_loss", float(found["value"]))
            elif "loss" not in values or (not is_whole and _WHOLE_LOSS.match(found[0])):
                values["loss"] = float(found["value"])
                is_whole = bool(_WHOLE_LOSS.match(found[0]))
        for series, value in values.items():
            self._point(series, line, value)

    def _bar_loss(self, line: Line, text: str) -> None:
        if row := _LOSS_ROW.match(text):
            self._point("loss", line, float(row["value"]))
        elif "loss" in text:
            for found in _BAR_LOSS.finditer(text):
                if not _HELD_OUT.search(found["key"]):
                    self._point("loss", line, float(found["value"]))
                    break

    def _table_header(self, text: str, lowered: str) -> None:
        """A line of column names, as fastai, skorch and the Trainer in a notebook print it."""
        if "epoch" not in lowered and "step" not in lowered:
            return
        cells = _CELLS.split(text.strip(" |│\t"))
        if len(cells) > 2 and not any(_NUMBER_CELL.fullmatch(cell) for cell in cells):
            for index, cell in enumerate(cells):
                if _TRAIN_LOSS_CELL.fullmatch(cell):
                    self._loss_column = (index, len(cells))
                    return

    def _table_row(self, line: Line, text: str, index: int, width: int) -> None:
        cells = _CELLS.split(text.strip(" |│\t"))
        if len(cells) == width and cells[0].isdigit() and _NUMBER_CELL.fullmatch(cells[index]):
            self._point("loss", line, float(cells[index]))

    def _memory(self, line: Line, text: str) -> None:
        if "out of memory" in text or line.level in ("E", "W"):
            return
        if found := _HOST_MEMORY.search(text):
            self._point("host_memory", line, _mebibytes(found))
        elif found := _GPU_MEMORY.search(text):
            self._point("gpu_memory", line, _mebibytes(found))

    def _point(self, series: str, line: Line, value: float) -> None:
        self._sample.add(Point(series, line.number, value, line.rank, self._at))


def _mebibytes(found: re.Match[str]) -> float:
    unit = found["unit"] or "M"
    return float(found["value"]) * _UNIT.get(unit[0].upper(), 1.0)
