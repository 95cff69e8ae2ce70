"""A month's figures as JSON, CSV and Markdown; the page has its own template."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping

from triage.reports.figures import DEFINITIONS, Figures

CSV_COLUMNS = (
    "incident", "pitfall", "title", "created_at", "of_month", "verdict", "status", "minutes",
    "gpu_minutes",
)  # fmt: skip
#: A spreadsheet takes a cell that begins so for a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def in_a_cell(text: str) -> str:
    """The text, so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def hours(minutes: int) -> str:
    """`34.5`: hours to a tenth, as tables want them."""
    return f"{minutes / 60:,.1f}"


def as_json(month: Figures) -> str:
    """One object."""
    return json.dumps(month.to_json(), indent=2) + "\n"


def as_csv(month: Figures) -> str:
    """A line an incident; the minutes add up to the month's."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for row in month.rows:
        writer.writerow(
            [
                row.reference,
                row.pitfall,
                in_a_cell(row.title),
                row.created_at.isoformat(),
                "yes" if row.is_of_month else "no",
                row.verdict,
                row.status,
                row.minutes,
                row.gpu_minutes,
            ]
        )
    return out.getvalue()


def as_markdown(month: Figures) -> str:
    """Headings and tables, for a mail or a wiki."""
    lines = [
        f"# Incidents in {month.month.words}",
        "",
        f"{month.incidents} incidents took {hours(month.minutes)} hours of people and "
        f"{hours(month.gpu_minutes)} GPU hours."
        + (" The month is not over." if month.is_partial else ""),
        "",
        "| pitfall | incidents | hours | GPU hours | month before |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {_cell(row.title)} | {row.incidents} | {hours(row.minutes)} | "
        f"{hours(row.gpu_minutes)} | {row.incidents_before} in {hours(row.minutes_before)} h |"
        for row in month.pitfalls
    ]
    lines += [
        "",
        f"- named: {month.named}, not determined: {month.undetermined}, clean: {month.clean}",
        f"- corrected by people: {month.corrected}",
    ]
    lines += [f"- {fix.title}: worked {fix.worked} of {fix.tried}" for fix in month.fixes]
    if month.new:
        lines.append(f"- for the first time: {', '.join(month.new)}")
    lines += ["", *(f"*{name}*: {said}" for name, said in DEFINITIONS.items())]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


FORMS: Mapping[str, Callable[[Figures], str]] = {
    "json": as_json,
    "csv": as_csv,
    "md": as_markdown,
}
