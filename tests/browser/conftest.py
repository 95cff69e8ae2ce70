"""A headless Chromium in front of a running house."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The Chromium on PATH, or the one that playwright installed; without either, a skip."""
    playwright_api = pytest.importorskip("playwright.sync_api")
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    # The driver's event loop makes Django take this thread for an asynchronous one.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with playwright_api.sync_playwright() as playwright:
        try:
            # Chromium's own sandbox wants more rights than a build container gives.
            chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright_api.Error as error:
            pytest.skip(f"no Chromium here: {str(error).splitlines()[0]}")
        yield chromium
        chromium.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="session")
def signed_in(browser: Browser, house: Any) -> Any:
    """The cookies of somebody who followed the one-time link that the house printed."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(house.sign_in_link)
    assert page.title().startswith("Pitstop")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def page(browser: Browser, house: Any, signed_in: Any) -> Iterator[Page]:
    """A page of a signed-in person; what the console reports as an error fails the test."""
    context = browser.new_context(
        base_url=house.address,
        storage_state=signed_in,
        permissions=["clipboard-read", "clipboard-write"],
    )
    opened = context.new_page()
    opened.set_default_timeout(10_000)
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on(
        "console",
        lambda message: faults.append(message.text) if _is_fault(message) else None,
    )
    yield opened
    context.close()
    assert faults == []


def _is_fault(message: ConsoleMessage) -> bool:
    # A refused form is an answer, though Chromium lists every status from 400 on as an error.
    return message.type == "error" and "the server responded with a status of" not in message.text
