"""The knowledge base as pages: a list with search, one page a pitfall, and a few on a theme."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.module_loading import import_string
from django.views.decorators.http import require_GET

from kb.catalog import Catalog, Example, Pitfall, Proof
from kb.catalog.badges import badges_of
from kb.catalog.experience import Experience, order_fixes
from kb.catalog.model import GROUPS
from kb.search import matching_lines, search

MAX_QUERY_CHARACTERS = 4_000
#: Lines of one example on the page.
MAX_EXAMPLE_LINES = 120

GROUP_TITLES = {
    "data": "Loading data",
    "cuda": "CUDA and GPU memory",
    "hardware": "Hardware",
    "distributed": "Distributed training",
    "numerics": "Numbers: loss, precision, shapes",
    "autograd": "Autograd",
    "checkpoint": "Checkpoints",
    "host": "Host and scheduler",
    "compile": "torch.compile and Triton",
    "environment": "Installation and environment",
    "application": "The program itself",
}
ADVICE_WORDS = {
    "retry": "Retrying is fine",
    "retry-elsewhere": "Retry on other nodes",
    "do-not-retry": "Do not just retry",
}
STATUS_WORDS = {
    "draft": "draft: recognised, its guide is still being written",
    "reviewed": "reviewed",
    "verified": "verified",
    "retired": "retired: no longer named",
}
WHERE_WORDS = {
    "cpu": "possible on a CPU",
    "gpu1": "needs one GPU",
    "gpuN": "needs several GPUs",
    "hardware": "needs the faulty hardware",
    "environment": "needs that environment",
    "none": "not possible on purpose",
}


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain that a batch runs through; `fails` says how it breaks."""

    key: str
    name: str
    fails: str


CHAIN = (
    Link("worker", "Workers", "hang, crash, are killed"),
    Link("shm", "/dev/shm", "fills up: bus error"),  # noqa: S108 (a name on the page)
    Link("pinned", "Pinned memory", "thread dies, host runs short"),
    Link("gpu", "GPU", "out of memory, asserts, NaN"),
    Link("nccl", "NCCL", "ranks wait for each other"),
)
_PLACE_OF_GROUP = {
    "data": "worker",
    "host": "worker",
    "cuda": "gpu",
    "hardware": "gpu",
    "numerics": "gpu",
    "autograd": "gpu",
    "distributed": "nccl",
}


@dataclass(frozen=True, slots=True)
class ThemePage:
    """A page that belongs to no single pitfall; its text is pages/<slug>.md."""

    slug: str
    title: str
    lead: str

    def read_text(self) -> str:
        """The page's Markdown."""
        return (_PAGES / f"{self.slug}.md").read_text(encoding="utf-8")


_PAGES = Path(__file__).parent / "pages"
THEME_PAGES = (
    ThemePage(
        "dataloader-settings",
        "DataLoader settings",
        "What to start with, what each setting costs, and the evidence for it.",
    ),
    ThemePage(
        "folklore",
        "Folklore",
        "What is often said about PyTorch training and does not hold, with the evidence.",
    ),
)


@dataclass(frozen=True, slots=True)
class ExampleLine:
    """One line of an example, and whether a pattern of the entry matched it."""

    number: int
    text: str
    is_winning: bool


@dataclass(frozen=True, slots=True)
class ShownExample:
    """An example as the page shows it; `answer` is the pitfall it belongs to, if another."""

    name: str
    source: str
    torch: str
    rank: int | None
    answer: Pitfall | None
    lines: list[ExampleLine]
    lines_left_out: int


@login_required
@require_GET
def pitfall_list(request: HttpRequest) -> HttpResponse:
    """All pitfalls by group, or those that fit a search, which may be a pasted error."""
    catalog = _catalog()
    query = request.GET.get("q", "")[:MAX_QUERY_CHARACTERS]
    found = search(catalog, query)
    groups = [
        (group, GROUP_TITLES[group], [p for p in catalog.active if p.group == group])
        for group in GROUPS
    ]
    context = {
        "section": "pitfalls",
        "query": query,
        "found": found,
        "groups": [group for group in groups if group[2]],
        "count": len(catalog.active),
        "theme_pages": THEME_PAGES,
    }
    template = "kb/_pitfall_results.html" if request.htmx else "kb/pitfall_list.html"  # type: ignore[attr-defined]
    return render(request, template, context)


@login_required
@require_GET
def pitfall(request: HttpRequest, slug: str) -> HttpResponse:
    """One pitfall: how it shows, why, how to confirm, mend and prevent it."""
    catalog = _catalog()
    entry = catalog.get(slug)
    if entry is None:
        raise Http404(f"no pitfall {slug}")
    place = _place(entry)
    proofs = _proofs(entry)
    experience = _experience(entry)
    context = {
        "section": "pitfalls",
        "pitfall": entry,
        "group": GROUP_TITLES[entry.group],
        "advice": ADVICE_WORDS[entry.advice],
        "status": STATUS_WORDS[entry.status],
        "where": WHERE_WORDS[entry.reproduction.where] if entry.reproduction else "",
        "fixes": order_fixes(entry.fixes, experience),
        "experience": experience,
        "instead": [(p, times) for s, times in experience.instead if (p := catalog.get(s))],
        "chain": [(link, link.key == place) for link in CHAIN] if place else [],
        "explains": _known(catalog, entry.explains),
        "explained_by": [p for p in catalog.active if slug in p.explains],
        "positives": [_shown(example, entry, catalog) for example in entry.positives],
        "near_misses": [_shown(example, entry, catalog) for example in entry.near_misses],
        "badges": badges_of(entry, proofs, today=timezone.now().date()),
        "proofs": [proof for proof in proofs if proof.broken_lines],
        "script": _script(entry),
        "printed_by": list(dict.fromkeys(s.printed_by for s in entry.signatures if s.printed_by)),
    }
    return render(request, "kb/pitfall_detail.html", context)


@login_required
@require_GET
def theme_page(request: HttpRequest, page: ThemePage) -> HttpResponse:
    """A page of the knowledge base on a theme of several pitfalls."""
    context = {"section": "pitfalls", "page": page, "text": page.read_text()}
    return render(request, "kb/theme_page.html", context)


def _catalog() -> Catalog:
    """The catalog that diagnoses are made with: the setting KB_CATALOG names its function."""
    return cast("Callable[[], Catalog]", import_string(settings.KB_CATALOG))()


def _proofs(entry: Pitfall) -> Sequence[Proof]:
    """What verifications saw of the entry: the setting KB_PROOFS names the function."""
    find = cast("Callable[[Pitfall], Sequence[Proof]]", import_string(settings.KB_PROOFS))
    return find(entry)


def _experience(entry: Pitfall) -> Experience:
    """What people said of the entry: the setting KB_EXPERIENCE names the function."""
    find = cast("Callable[[Pitfall], Experience]", import_string(settings.KB_EXPERIENCE))
    return find(entry)


def _script(entry: Pitfall) -> str:
    """The code of its reproduction; empty where there is none to run."""
    if entry.reproduction is None or not entry.reproduction.is_runnable:
        return ""
    return entry.script.read_text(encoding="utf-8")


def _known(catalog: Catalog, slugs: Iterable[str]) -> list[Pitfall]:
    return [entry for slug in slugs if (entry := catalog.get(slug)) is not None]


def _place(entry: Pitfall) -> str:
    """The link of the chain where this pitfall strikes; empty if it is none of them."""
    if "shm" in entry.slug:
        return "shm"
    if "pin-memory" in entry.slug or "pinned" in entry.slug:
        return "pinned"
    return _PLACE_OF_GROUP.get(entry.group, "")


def _shown(example: Example, entry: Pitfall, catalog: Catalog) -> ShownExample:
    lines = example.read_text().split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    # A near miss shows the lines that look like this entry; a positive those that decide it.
    winning = matching_lines(entry, lines)
    return ShownExample(
        name=example.path.name,
        source=example.source,
        torch=example.torch,
        rank=example.rank,
        answer=catalog.get(example.expect) if example.expect != entry.slug else None,
        lines=[
            ExampleLine(number, text, number - 1 in winning)
            for number, text in enumerate(lines[:MAX_EXAMPLE_LINES], start=1)
        ],
        lines_left_out=max(0, len(lines) - MAX_EXAMPLE_LINES),
    )
