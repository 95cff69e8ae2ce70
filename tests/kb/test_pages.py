"""The knowledge base as pages: list, search, one page a pitfall, guide to safe HTML."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from kb.catalog import Catalog
from kb.search import search
from kb.templatetags.kb import guide, snippet
from kb.views import THEME_PAGES, ThemePage

_THEMES = {theme.slug for theme in THEME_PAGES}


@pytest.fixture
def reader(db: None) -> Client:
    """A client of somebody who is signed in."""
    client = Client()
    client.force_login(get_user_model().objects.create_user("reader"))
    return client


def page_of(response: Any) -> str:
    assert response.status_code == 200
    return response.content.decode()


def test_the_list_has_every_active_entry(reader: Client, catalog: Catalog) -> None:
    page = page_of(reader.get("/pitfalls/"))
    linked = set(re.findall(r'href="/pitfalls/([a-z0-9-]+)/"', page))
    assert linked == {entry.slug for entry in catalog.active} | {
        theme.slug for theme in THEME_PAGES
    }


def test_every_entry_has_a_page(reader: Client, catalog: Catalog) -> None:
    for pitfall in catalog:
        page = page_of(reader.get(f"/pitfalls/{pitfall.slug}/"))
        assert pitfall.slug in page
        assert "<script>" not in page


def test_an_entry_shows_its_parts(reader: Client) -> None:
    page = page_of(reader.get("/pitfalls/dataloader-shm-bus-error/"))
    for heading in ("What you see", "Why", "Confirm", "Fix", "Prevent"):
        assert f"<h2>{heading}</h2>" in page
    assert 'data-copy="fix-1"' in page
    assert "Near misses" in page
    assert 'class="evidence-line root"' in page
    assert re.search(r'class="here" aria-current="true"><b>/dev/shm</b>', page)
    assert 'href="/incidents/?pitfall=dataloader-shm-bus-error"' in page


@pytest.mark.parametrize(
    ("slug", "place"),
    [("dataloader-fork-deadlock", "Workers"), ("dataloader-pin-memory-failure", "Pinned memory"),
     ("cuda-out-of-memory", "GPU"), ("nccl-watchdog-timeout", "NCCL"), ("missing-module", None)],
)  # fmt: skip
def test_the_chain_shows_where_it_strikes(reader: Client, slug: str, place: str | None) -> None:
    page = page_of(reader.get(f"/pitfalls/{slug}/"))
    here = re.findall(r'aria-current="true"><b>([^<]+)</b>', page)
    assert here == ([place] if place else [])


@pytest.mark.parametrize("theme", THEME_PAGES, ids=lambda theme: theme.slug)
def test_a_theme_page_hides_no_entry_and_links_to_known_ones(
    reader: Client, catalog: Catalog, theme: ThemePage
) -> None:
    page = page_of(reader.get(f"/pitfalls/{theme.slug}/"))
    linked = set(re.findall(r'href="/pitfalls/([a-z0-9-]+)/"', page))
    assert f"<h1>{theme.title}</h1>" in page
    assert "<td>" in page
    assert theme.slug not in {entry.slug for entry in catalog}
    assert linked <= {entry.slug for entry in catalog.active} | {
        theme.slug for theme in THEME_PAGES
    }
    assert len(linked) >= 3


def test_theme_pages_are_for_those_who_signed_in(db: None) -> None:
    for theme in THEME_PAGES:
        assert Client().get(f"/pitfalls/{theme.slug}/").status_code == 302


def test_an_unknown_entry_is_not_found(reader: Client) -> None:
    assert reader.get("/pitfalls/no-such-pitfall/").status_code == 404


@pytest.mark.parametrize(
    ("query", "slug"),
    [
        (
            "RuntimeError: DataLoader worker (pid 4) is killed by signal: Bus error. It is",
            "dataloader-shm-bus-error",
        ),
        ("RuntimeError: CUDA error: device-side assert triggered", "cuda-device-side-assert"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "cuda-out-of-memory",
        ),
        ("shared memory workers", "dataloader-shm-bus-error"),
        ("dataloader-fork-deadlock", "dataloader-fork-deadlock"),
    ],
)
def test_words_and_error_lines_find_their_pitfall(catalog: Catalog, query: str, slug: str) -> None:
    assert slug in [found.pitfall.slug for found in search(catalog, query)][:3]


def test_a_search_shows_the_line_that_matched(reader: Client) -> None:
    query = "x\nRuntimeError: DataLoader worker (pid 4) is killed by signal: <b>Bus error\n"
    page = page_of(reader.get("/pitfalls/", {"q": query.replace("<b>", "")}))
    assert '<span class="matched"><code>RuntimeError: DataLoader worker' in page
    assert "<b>Bus" not in page_of(reader.get("/pitfalls/", {"q": query}))


def test_a_search_without_a_result_says_what_else_to_try(reader: Client) -> None:
    page = page_of(reader.get("/pitfalls/?q=qwertyuiop"))
    assert "No pitfall fits" in page


def test_a_search_by_htmx_gets_the_results_alone(reader: Client) -> None:
    page = page_of(reader.get("/pitfalls/?q=nccl", headers={"HX-Request": "true"}))
    assert "<html" not in page
    assert "/pitfalls/nccl-watchdog-timeout/" in page


@pytest.mark.parametrize(
    "unit", ["Watchdog timeout ", "CUDA error ", "a", "rank 0 [", "(", "No space left on device "]
)
def test_a_hostile_search_is_answered_in_time(catalog: Catalog, unit: str) -> None:
    search(catalog, "warm up")
    started = time.process_time()
    search(catalog, "\n".join([(unit * 4000)[:4000]] * 100))
    assert time.process_time() - started < 5


def test_a_guide_is_safe_html() -> None:
    html = guide(
        "## Why\n\n<script>alert(1)</script> [x](javascript:alert(1)) "
        "[y](https://pytorch.org/docs)\n\n```python\nimport os  # <b>\n```\n"
    )
    assert "<script" not in html
    assert "javascript:" not in html.replace("(javascript:", "")
    assert '<a href="https://pytorch.org/docs" rel="noopener noreferrer">y</a>' in html
    assert '<span class="kn">import</span>' in html
    assert "<b>" not in html


def test_a_fence_without_a_language_stays_plain() -> None:
    assert "<code>a &lt; b" in guide("```\na < b\n```")


def test_snippets_are_coloured_and_escaped() -> None:
    assert '<span class="k">if</span>' in snippet("if a < b: pass", "python")
    assert "&lt;script&gt;" in snippet("<script>", "no-such-language")
