"""Numbers per step as small charts: SVG that pygal lays out and the stylesheet colours."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree as ET

import pygal
from django.utils.safestring import SafeString, mark_safe

from triage.pages.highlighting import visible

MAX_CHARTS = 4
#: Lines in one chart: more cannot be told apart at this size.
MAX_LINES = 3
WIDTH, HEIGHT = 360, 136
#: Beyond this a number is drawn as a gap: no axis holds it beside others.
MAX_DRAWN = 1e30
#: From this ratio of most to least on, equal steps of the axis are equal factors.
MIN_LOG_RATIO = 1_000

# pygal takes part in every later import of the process, for map plugins that nobody has here, and
# by a protocol that Python 3.12 dropped and 3.11 warns of.
sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, pygal.PluginImportFixer)]

_TITLES = {
    "loss": "Loss",
    "val_loss": "Validation loss",
    "grad_norm": "Gradient norm",
    "loss_scale": "Loss scale",
    "gpu_memory": "GPU memory",
    "host_memory": "Host memory",
    "step_time": "Time of a step",
}
_ORDER = tuple(_TITLES)
# Of pygal's tree this is kept. Its style and script elements and style attributes are not: the
# content security policy refuses them, and the page's stylesheet and links take their place.
_TAGS = frozenset({"svg", "g", "path", "rect", "circle", "text", "a"})
_ATTRIBUTES = frozenset(
    {"class", "d", "x", "y", "width", "height", "cx", "cy", "r", "transform", "viewBox"}
)
_XLINK = "{http://www.w3.org/1999/xlink}href"

#: (text_index, line) → (the words of a link to that line, its address).
LineLink = Callable[[int, int], tuple[str, str]]
Point = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of the table, and the line that prints it."""

    value: str
    where: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class ValuesRow:
    """One series of the table: first, last, least, most; `onset` is where it stopped being one."""

    name: str
    cells: Sequence[Cell]
    onset: Cell | None


@dataclass(frozen=True, slots=True)
class Chart:
    """One small chart with the table of what it shows."""

    title: str
    unit: str
    note: str
    drawing: SafeString
    rows: Sequence[ValuesRow]
    has_names: bool

    @property
    def has_legend(self) -> bool:
        """Whether lines must be told apart."""
        return len(self.rows) > 1


@dataclass(frozen=True, slots=True)
class _Mark:
    """A point that links to its line."""

    point: Point
    label: str
    address: str


def build_charts(series: Sequence[dict[str, Any]], link: LineLink) -> tuple[list[Chart], int]:
    """(the charts of a diagnosis, number of series left out), the tell-tale series first."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for one in series:
        by_name.setdefault(one["name"], []).append(one)
    groups = sorted(by_name.items(), key=lambda item: (not _tells(item[1]), _order(item[0])))
    charts = []
    shown = 0
    for name, members in groups[:MAX_CHARTS]:
        members.sort(key=lambda one: (not _tells([one]), one["text_index"], _rank_key(one)))
        charts.append(_chart(name, members[:MAX_LINES], link))
        shown += min(len(members), MAX_LINES)
    return charts, len(series) - shown


def number_in_words(value: float) -> str:
    """`65,536`, `1,621`, `0.0213`, `1.2e+09`, `nan`: four digits that count."""
    if 1_000 <= abs(value) < 10_000_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _tells(members: Iterable[dict[str, Any]]) -> bool:
    return any(one["note"] for one in members)


def _order(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _rank_key(one: dict[str, Any]) -> int:
    return -1 if one["rank"] is None else int(one["rank"])


def _points(one: dict[str, Any]) -> list[Point]:
    # JSON has no word for what is no number: it is stored as null.
    return [
        (int(line), math.nan if value is None else float(value)) for line, value in one["points"]
    ]


def _chart(name: str, members: Sequence[dict[str, Any]], link: LineLink) -> Chart:
    title = _TITLES.get(name) or visible(name)[0].replace("_", " ").capitalize()
    lines = tuple(tuple(_points(one)) for one in members)
    first = members[0]
    unit = str(first["unit"])
    onset = _onset(lines[0])
    finite = [point for point in lines[0] if abs(point[1]) <= MAX_DRAWN]
    marked = {max(finite, key=_value): None, finite[-1]: None} if finite else {}
    marks = []
    for point in marked:
        where, address = link(first["text_index"], point[0])
        marks.append(_Mark(point, f"{number_in_words(point[1])} on {where}", address))
    notes = dict.fromkeys(str(one["note"]) for one in members if one["note"])
    return Chart(
        title=title,
        unit=unit,
        note=visible(" ".join(notes))[0],
        drawing=_draw(lines, onset[0] if onset else None, tuple(marks), title),
        rows=[_row(one, points, link) for one, points in zip(members, lines, strict=True)],
        has_names=len(members) > 1 or first["rank"] is not None,
    )


def _row(one: dict[str, Any], points: Sequence[Point], link: LineLink) -> ValuesRow:
    def cell(point: Point) -> Cell:
        return Cell(number_in_words(point[1]), *link(one["text_index"], point[0]))

    finite = [point for point in points if math.isfinite(point[1])]
    extremes = [min(finite, key=_value), max(finite, key=_value)] if finite else []
    chosen = [points[0], points[-1], *extremes]
    onset = _onset(points)
    where, _ = link(one["text_index"], points[0][0])
    text = where.split(" ", maxsplit=1)[0] if where.startswith("T") else ""
    rank = f"rank {one['rank']}" if one["rank"] is not None else ""
    return ValuesRow(
        name=" ".join(word for word in (text, rank) if word) or "all",
        cells=[cell(point) for point in chosen] + [Cell("–")] * (4 - len(chosen)),
        onset=cell(onset) if onset else None,
    )


def _value(point: Point) -> float:
    return point[1]


def _onset(points: Sequence[Point]) -> Point | None:
    return next((point for point in points if not math.isfinite(point[1])), None)


# -------------------------------------------------------------------------------------- drawing


@dataclass(frozen=True, slots=True)
class _Axis:
    """Numbers from `low` to `high` as positions from 0 to 1.

    pygal sees positions alone: its search for a scale does not end for numbers such as 1e16 + 2,
    and a log may hold any.
    """

    low: float
    high: float
    is_log: bool = False

    def position(self, value: float) -> float:
        """Where the value stands on the axis."""
        low, high, at = self.low, self.high, value
        if self.is_log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return (at - low) / (high - low) if high > low else 0.5

    def ticks(self) -> Iterator[float]:
        """Two to five round numbers within the axis."""
        if self.is_log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            yield from (
                10.0**power for power in range(first, last + 1, max(1, (last - first) // 3))
            )
        elif self.high > self.low:
            rough = (self.high - self.low) / 3
            unit = 10.0 ** math.floor(math.log10(rough))
            tick = next(unit * f for f in (1, 2, 5, 10, 20) if unit * f >= rough * 0.999)
            for index in range(math.ceil(self.low / tick), math.floor(self.high / tick) + 1):
                yield round(index * tick, 12)


def _value_axis(values: Sequence[float]) -> _Axis:
    """The axis of these values, a little beyond them."""
    low, high = min(values), max(values)
    if low > 1 / MAX_DRAWN and high / low >= MIN_LOG_RATIO:
        return _Axis(low / 1.5, high * 1.5, is_log=True)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return _Axis(low - room, high + room)


@lru_cache(maxsize=256)
def _draw(
    lines: tuple[tuple[Point, ...], ...], onset: int | None, marks: tuple[_Mark, ...], title: str
) -> SafeString:
    """The SVG; a pure function of what it shows, so a page that is read again costs nothing."""
    numbers = [number for line in lines for number, _ in line]
    first, last = min(numbers), max(numbers)
    lines = tuple(tuple(p for p in line if abs(p[1]) <= MAX_DRAWN) for line in lines)
    finite = [point for line in lines for point in line]
    y_axis = _value_axis([value for _, value in finite] or [0.0])
    x_axis = _Axis(first, max(last, first + 1))

    def place(point: Point) -> tuple[float, float]:
        return x_axis.position(point[0]), y_axis.position(point[1])

    ticks = [{"value": y_axis.position(t), "label": number_in_words(t)} for t in y_axis.ticks()]
    chart = pygal.XY(
        width=WIDTH, height=HEIGHT, margin=2, margin_right=10, spacing=4,
        range=(0, 1), xrange=(0, 1),
        y_labels=ticks if finite and ticks else [{"value": 0, "label": ""}],
        x_labels=[{"value": 0, "label": f"line {first}"}, {"value": 1, "label": f"line {last}"}],
        show_legend=False, show_dots=False, explicit_size=False, no_prefix=True, js=(), css=(),
        classes=("plot-area",), dots_size=3.5, include_x_axis=False,
    )  # fmt: skip
    for line in lines:
        chart.add("", [place(point) for point in line])
    if onset is not None:
        chart.add("", [(x_axis.position(onset), 0), (x_axis.position(onset), 1)])
    shown = [
        {"value": place(mark.point), "xlink": {"href": mark.address}, "label": mark.label}
        for mark in marks
    ]
    chart.add("", shown, stroke=False, show_dots=True)
    names = [f"line-{number}" for number in range(len(lines))]
    names += ["onset"] * (onset is not None) + ["marks"]
    root = kept(chart.render_tree(), names)
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "role": "group", "aria-label": title}
    return mark_safe(ET.tostring(root, encoding="unicode"))  # noqa: S308 (built from a list)


def kept(element: Any, names: Sequence[str]) -> ET.Element:
    """The element with its kept parts; `names` are the classes of the series, in order."""
    copy = ET.Element(_tag(element))
    copy.attrib |= {k: v for k, v in element.attrib.items() if k in _ATTRIBUTES}
    for number, name in enumerate(names):
        if f"serie-{number}" in copy.get("class", "").split():
            copy.set("class", f"series {name}")
    copy.text = element.text
    if _XLINK in element.attrib:
        copy.set("href", element.attrib[_XLINK])
        labels = [part.text for part in element if part.attrib.get("class") == "label"]
        ET.SubElement(copy, "title").text = labels[0] if labels else None
    for part in element:
        if _tag(part) in _TAGS and "tooltip-overlay" not in part.attrib.get("class", ""):
            copy.append(kept(part, names))
    return copy


def _tag(element: Any) -> str:
    """The name without its namespace; empty for comments."""
    return element.tag.rsplit("}", 1)[-1] if isinstance(element.tag, str) else ""
