"""Bars of a few named numbers: SVG that pygal lays out and the stylesheet colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import pygal
from django.utils.safestring import SafeString, mark_safe

from triage.pages.charts import kept

_WIDTH, _ROW_HEIGHT = 560, 26
_MAX_NAME = 34


@dataclass(frozen=True, slots=True)
class Bar:
    """One number and its name."""

    name: str
    value: float


def build_bars(title: str, bars: Sequence[Bar], unit: str) -> SafeString:
    """The SVG, the first bar on top; empty without a number above nought. `unit` follows each."""
    if not any(bar.value for bar in bars):
        return SafeString("")
    shown = list(reversed(bars))
    chart = pygal.HorizontalBar(
        width=_WIDTH, height=40 + _ROW_HEIGHT * len(shown), margin=4, spacing=4,
        show_legend=False, explicit_size=False, no_prefix=True, js=(), css=(), print_values=True,
        print_values_position="top", margin_right=56, margin_left=24,
        classes=("bars",), show_x_labels=False, show_y_guides=False,
        value_formatter=lambda value: f"{value:,.1f}".removesuffix(".0") + unit,
    )  # fmt: skip
    chart.x_labels = [
        bar.name if len(bar.name) <= _MAX_NAME else f"{bar.name[: _MAX_NAME - 1]}…" for bar in shown
    ]
    chart.add("", [bar.value for bar in shown])
    root = kept(chart.render_tree(), ["bar"])
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": title}
    return mark_safe(ET.tostring(root, encoding="unicode"))  # noqa: S308 (built from a list)
