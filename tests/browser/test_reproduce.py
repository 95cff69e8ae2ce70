"""From a bus error to a badge, in a browser: the failure, the fix, and what verify saw of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from kb.catalog.loader import builtin_folder
from tests.factories import BUS_ERROR
from triage.reproduction import interpreter, why_unlikely

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

_missing = why_unlikely(interpreter())
pytestmark = [
    pytest.mark.up,
    pytest.mark.browser,
    pytest.mark.repro,
    pytest.mark.skipif(bool(_missing), reason=f"no reproductions here: {_missing}"),
]

_SLOW_RANK = builtin_folder() / "collective-slow-rank" / "examples" / "tokenizer_bar.log"
# Two runs and a verification of two more, on a machine that does other things besides.
_RUN_TIMEOUT_MS = 180_000


@pytest.fixture(scope="module")
def own_house(start_house: Callable[..., Any]) -> Iterator[Any]:
    """A house of its own: its worker takes the cores that other tests measure on."""
    house = start_house()
    house.wait_until_ready()
    yield house
    house.stop()


def _diagnose(page: Page, text: str = f"torch 2.1.0+cu121\n{BUS_ERROR}") -> None:
    page.goto("/")
    page.fill("#text", text)
    page.click("text=Diagnose")
    page.wait_for_selector(".verdict.named")


def _signed_in(browser: Browser, own_house: Any) -> BrowserContext:
    """A context whose user has signed in by the password of the first start."""
    context = browser.new_context(base_url=own_house.address)
    page = context.new_page()
    page.goto("/login/")
    page.fill("#id_username", "admin")
    page.fill("#id_password", own_house.password)
    page.click("main button")
    page.wait_for_url(f"{own_house.address}/")
    page.close()
    return context


def _wait_for_a_worker(page: Page) -> None:
    """A worker tries its sandbox before it says what it can do; a request before that waits."""
    deadline_s = monotonic() + _RUN_TIMEOUT_MS / 1000
    while page.get_by_text("Nothing can run it at the moment").count():
        assert monotonic() < deadline_s, page.inner_text("#reproduce")
        page.wait_for_timeout(500)
        page.reload()


def test_a_bus_error_is_reproduced_fixed_and_verified(browser: Browser, own_house: Any) -> None:
    context = browser.new_context(base_url=own_house.address)
    page = context.new_page()
    page.set_default_timeout(_RUN_TIMEOUT_MS)
    page.goto(own_house.sign_in_link)
    _diagnose(page)
    _wait_for_a_worker(page)
    page.fill("#option-shm-mb", "3")
    page.click("#reproduce button:text-is('Reproduce')")
    page.wait_for_selector(".run.done .mark:text-is('same failure')")
    assert "/dev/shm has 3 MiB" in page.inner_text(".run.done .run-output")
    assert "Shared memory exhausted" in page.inner_text(".run.done .compare")
    assert "killed by signal: Bus error" in page.inner_text(".run.done .run-output")
    page.click("text=Run with the fix")
    page.wait_for_selector(".run.done .mark:text-is('clean: it ran to its end')")
    # What held here is worth a proof, which `verify` writes.
    page.wait_for_selector("#reproduce .badge.verified b:text-is('fix verified')")
    assert "another torch than the incident's 2.1.0" in page.inner_text(
        "#reproduce .badge.verified"
    )
    page.wait_for_selector("#fix-badge >> text=fix verified")
    page.goto("/pitfalls/dataloader-shm-bus-error/")
    assert page.inner_text(".badges").count(" · cpu · ") == 2
    # Both at the head, and one beside the fix that was run.
    assert page.locator(".badge.good").count() == 3
    context.close()


def test_output_streams_while_the_script_runs(browser: Browser, own_house: Any) -> None:
    context = _signed_in(browser, own_house)
    page = context.new_page()
    page.set_default_timeout(_RUN_TIMEOUT_MS)
    _diagnose(page, _SLOW_RANK.read_text())
    _wait_for_a_worker(page)
    page.click("#reproduce button:text-is('Reproduce')")
    # Rank 0 works for eleven seconds and prints a line four times in each.
    page.wait_for_selector(".run.running .run-output >> text= 5/44")
    page.wait_for_selector(".run.running .run-output >> text= 20/44")
    page.wait_for_selector(".run.done .mark:text-is('same failure')")
    context.close()


def test_a_run_is_cancelled_without_scripts(browser: Browser, own_house: Any) -> None:
    context = _signed_in(browser, own_house)
    page = context.new_page()
    page.set_default_timeout(_RUN_TIMEOUT_MS)
    _diagnose(page)
    address = page.url
    state = context.storage_state()
    context.close()
    context = browser.new_context(
        base_url=own_house.address, storage_state=state, java_script_enabled=False
    )
    page = context.new_page()
    page.set_default_timeout(_RUN_TIMEOUT_MS)
    page.goto(address)
    page.click("#reproduce button:text-is('Reproduce')")
    page.click(".run button:text-is('Cancel')")
    # The page reloads itself for as long as something is to come.
    page.wait_for_selector(".run.cancelled")
    context.close()
