"""An incident's life in a real browser, by keys: take, note, resolve, undo; and the list."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.up]

ANSWER_TIMEOUT_MS = 15_000


def open_incident(page: Page) -> str:
    """The address of an incident of its own, diagnosed."""
    page.goto("/")
    page.fill("#text", f"run {uuid.uuid4().hex}\nRuntimeError: CUDA error: out of memory\n")
    page.click("text=Diagnose")
    page.wait_for_selector(".verdict:not(.working)", timeout=ANSWER_TIMEOUT_MS)
    return page.url.split("?")[0]


def test_an_incident_is_worked_on_by_keys_alone(page: Page) -> None:
    address = open_incident(page)
    page.keyboard.press("t")
    page.wait_for_selector(".status.investigating")
    assert "You took it and started to investigate." in page.inner_text(".notice.success")

    page.keyboard.press("m")
    page.keyboard.type("keys are t and m here, not commands")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".note-text:has-text('not commands')")

    page.keyboard.press("s")
    page.keyboard.type("bigger nodes")
    page.keyboard.press("Escape")
    assert page.is_hidden("#remark")
    page.keyboard.press("s")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".status.resolved")
    assert "resolved it: bigger nodes" in page.inner_text("#story-rows")

    page.click(".notice.success >> text=Undo")
    page.wait_for_selector(".status.investigating")
    assert page.url.split("?")[0].split("#")[0] == address


def test_a_second_tab_is_told_what_the_first_one_did(page: Page) -> None:
    address = open_incident(page)
    other = page.context.new_page()
    other.goto(address)
    page.keyboard.press("t")
    page.wait_for_selector(".status.investigating")
    page.click("[data-key=s]")
    page.click(".sheet >> text=Mitigated")
    page.wait_for_selector(".status.mitigated")

    other.click("[data-key=s]")
    other.click(".sheet >> text=Investigate")
    notice = other.inner_text(".notice.error")
    assert "changed since you opened it" in notice
    assert "set the status to mitigated" in notice
    assert other.is_visible(".status.mitigated")
    other.close()


def test_the_list_is_walked_and_picked_by_keys(page: Page) -> None:
    for _ in range(2):
        open_incident(page)
    page.goto("/incidents/?status=open")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert page.inner_text("[data-picked]") == "2 picked"
    page.keyboard.press("k")
    page.keyboard.press("x")
    assert page.inner_text("[data-picked]") == "1 picked"
    page.keyboard.press("r")
    page.wait_for_selector(".notice.success:has-text('1 incident changed: you resolved it.')")
    assert page.url.endswith("/incidents/?status=open")
    page.select_option("#f-owner", "none")
    page.click("text=Show")
    page.wait_for_url("**/incidents/?status=open&owner=none")
