"""From a bus error to a badge, in a browser: the failure, the fix, and what verify saw of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.factories import BUS_ERROR
from triage.reproduction import interpreter, why_unlikely

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_missing = why_unlikely(interpreter())
pytestmark = [
    pytest.mark.up,
    pytest.mark.browser,
    pytest.mark.repro,
    pytest.mark.skipif(bool(_missing), reason=f"no reproductions here: {_missing}"),
]

# Two runs and a verification of two more, on a machine that does other things besides.
_RUN_TIMEOUT_MS = 180_000


@pytest.fixture(scope="module")
def own_house(start_house: Callable[..., Any]) -> Iterator[Any]:
    """A house of its own: its worker takes the cores that other tests measure on."""
    house = start_house()
    house.wait_until_ready()
    yield house
    house.stop()


def _diagnose(page: Page) -> None:
    page.goto("/")
    page.fill("#text", f"torch 2.1.0+cu121\n{BUS_ERROR}")
    page.click("text=Diagnose")
    page.wait_for_selector(".verdict.named")


def test_a_bus_error_is_reproduced_fixed_and_verified(browser: Browser, own_house: Any) -> None:
    context = browser.new_context(base_url=own_house.address)
    page = context.new_page()
    page.set_default_timeout(_RUN_TIMEOUT_MS)
    page.goto(own_house.sign_in_link)
    _diagnose(page)
    page.fill("#option-shm-mb", "3")
    page.click("#reproduce button:text-is('Reproduce')")
    # The script's first line is there before the run has ended.
    page.wait_for_selector(".run.running .run-output >> text=has 3 MiB")
    page.wait_for_selector(".run.done .mark:text-is('same failure')")
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


def test_a_run_is_cancelled_without_scripts(browser: Browser, own_house: Any) -> None:
    context = browser.new_context(base_url=own_house.address)
    page = context.new_page()
    page.set_default_timeout(_RUN_TIMEOUT_MS)
    page.goto(f"{own_house.address}/login/")
    page.fill("#id_username", "admin")
    page.fill("#id_password", own_house.password)
    page.click("main button")
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
