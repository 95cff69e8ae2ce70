"""Stack tree and charts in a real browser: folding, links into the log, no refused style."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.up]

ANSWER_TIMEOUT_MS = 15_000
_COLLECTIVE = """\
    all_reduce (torch/distributed/distributed_c10d.py:2806)
    wrapper (torch/distributed/c10d_logger.py:83)
    _call_impl (torch/nn/modules/module.py:1553)
    wrapped (torch/nn/modules/module.py:1747)
    reduce_loss (metrics.py:22)
"""
_SAVE = """\
    save (torch/serialization.py:849)
    save_checkpoint (checkpoint.py:41)
"""


def send(page: Page, text: str) -> None:
    """Sends the text by the form and waits for its verdict."""
    page.goto("/")
    page.fill("#text", f"run {uuid.uuid4().hex}\n{text}")
    page.click("text=Diagnose")
    page.wait_for_selector(".verdict:not(.working)", timeout=ANSWER_TIMEOUT_MS)


def test_a_hang_shows_who_waits_where(page: Page) -> None:
    send(
        page,
        "".join(
            f'Process {4100 + rank}: python train.py\n\nThread {4100 + rank} (idle): "MainThread"\n'
            f"{_SAVE if rank == 5 else _COLLECTIVE}    main (train.py:151)\n\n"
            for rank in range(8)
        ),
    )
    page.wait_for_selector("text=Who waits where")
    # The odd one is open, the rest folded; so are library frames.
    assert page.is_visible(".place.odd >> text=checkpoint.py:41 >> nth=0")
    rest = page.locator(".place:not(.odd)").first
    assert not rest.get_by_text("metrics.py:22", exact=True).is_visible()
    rest.locator("summary").first.click()
    assert rest.get_by_text("metrics.py:22", exact=True).is_visible()
    assert not rest.get_by_text("c10d_logger.py").is_visible()
    rest.get_by_text("3 library frames").click()
    assert rest.get_by_text("c10d_logger.py").is_visible()
    rest.locator("a.where").first.click()
    page.wait_for_selector("#T1-L4.target")


def test_a_diverging_run_is_drawn(page: Page) -> None:
    send(
        page,
        "".join(
            f"step {n * 10} loss {'nan' if n >= 350 else f'{2.5 - n * 0.005:.4f}'}\n"
            for n in range(400)
        )
        + "FloatingPointError: loss is nan\n",
    )
    chart = page.locator(".chart").first
    assert "not a number from line 352" in chart.inner_text()
    box = chart.locator("svg").bounding_box()
    assert box is not None
    assert box["width"] > 200
    # The stylesheet reaches into the drawing, in both themes.
    line = chart.locator(".line-0 path").first
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours.append(line.evaluate("element => getComputedStyle(element).stroke"))
    assert colours == ["rgb(11, 87, 194)", "rgb(130, 180, 255)"]
    chart.locator("summary").click()
    chart.locator("text=from line 352").last.click()
    page.wait_for_selector("#T1-L352.target")
    # A point of the drawing is a link as well, to a line that is fetched without a reload.
    page.evaluate("window.stayed = true")
    chart.locator("svg a").first.click()
    page.wait_for_selector("#T1-L2.target")
    assert page.evaluate("window.stayed")
