"""The main job in a real browser: paste a log, read the cause, walk its evidence, copy the fix."""

from __future__ import annotations

import re
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.up]

#: Pressing the button to reading the verdict, on a machine that does other things as well.
ANSWER_TIMEOUT_MS = 15_000


FAILURE = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/workspace/train.py", line 88, in main
[rank3]:     for step, batch in enumerate(loader):
[rank3]: RuntimeError: DataLoader worker (pid 2211) is killed by signal: Bus error. It is possible \
that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.
[rank0]:[E1104 03:21:42.510 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=9811, OpType=ALLREDUCE, NumelIn=2049000, NumelOut=2049000, \
Timeout(ms)=600000) ran for 600021 milliseconds before timing out.
[rank0]: <script>document.title = 'owned'</script>
"""


def bus_error_log(lines_before: int = 4_000) -> str:
    """A log of four ranks of its own in each test; rank 3 dies in the line after the given ones."""
    run = uuid.uuid4().hex
    before = [
        f"[rank{n % 4}]: run {run} step {n // 4} loss {2.3 - n * 1e-4:.4f} 3.35 it/s"
        for n in range(lines_before)
    ]
    return "\n".join(before) + "\n" + FAILURE


def paste(page: Page, text: str) -> None:
    """Puts the text into the box by the clipboard, as people do; typing it would take minutes."""
    page.evaluate("text => navigator.clipboard.writeText(text)", text)
    page.focus("#text")
    page.keyboard.press("Control+v")
    page.wait_for_selector("[data-kind]:not(:empty)")


def diagnose(page: Page, text: str) -> None:
    """Pastes the text, presses the button and waits for the verdict."""
    page.goto("/")
    paste(page, text)
    page.click("text=Diagnose")
    page.wait_for_selector(".verdict.named", timeout=ANSWER_TIMEOUT_MS)


def test_a_pasted_log_is_answered_in_place(page: Page) -> None:
    page.goto("/")
    paste(page, bus_error_log())
    page.wait_for_selector("[data-kind] >> text=4 ranks")
    assert "4,006 lines" in page.inner_text("[data-kind]")
    started = time.monotonic()
    page.press("#text", "Control+Enter")
    page.wait_for_selector(".verdict.named", timeout=ANSWER_TIMEOUT_MS)
    print(f"verdict {time.monotonic() - started:.2f} s after Ctrl-Enter")
    assert re.search(r"/i/INC-\d+$", page.url)
    verdict = page.inner_text(".verdict")
    assert "/dev/shm" in verdict
    assert "Conclusive" in verdict
    assert "rank 3" in verdict
    assert "NCCL collective timed out" in verdict.split("Consequences of it")[1]
    # The log moved to the evidence, and holds a page of it.
    page.wait_for_selector("#T1-L4004.evidence-line.root")
    assert page.locator("#log .lines li").count() <= 200
    assert page.title() != "owned"


def test_keys_walk_the_evidence_and_lines_have_links(page: Page) -> None:
    diagnose(page, bus_error_log())
    page.keyboard.press("n")
    page.wait_for_selector("#T1-L4004.target")
    assert page.url.endswith("#T1-L4004")
    page.keyboard.press("n")
    page.wait_for_selector("#T1-L4005.target")
    page.keyboard.press("p")
    page.wait_for_selector("#T1-L4004.target")
    # A line that is not in the page is fetched, and its link survives a reload.
    page.keyboard.press("g")
    page.keyboard.type("17")
    page.keyboard.press("Enter")
    page.wait_for_selector("#T1-L17.target")
    page.click("#T1-L20 .line-no")
    assert page.url.endswith("#T1-L20")
    page.reload()
    page.wait_for_selector("#T1-L20.target")
    assert page.locator("#T1-L4004").count() == 0
    page.keyboard.press("/")
    page.keyboard.type("step 500 ")
    page.keyboard.press("Enter")
    page.wait_for_selector("#T1-L2001.target")
    page.keyboard.press("Escape")
    page.keyboard.press("w")
    assert "wrap" in (page.get_attribute("#log .lines", "class") or "")
    page.keyboard.press("?")
    assert page.is_visible("#keys")


def test_the_fix_is_copied(page: Page) -> None:
    diagnose(page, bus_error_log(10))
    page.click(".fixes [data-copy=fix-1]")
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.text_content("#fix-1")
    assert "shm" in copied


def test_the_raw_text_is_downloaded(page: Page) -> None:
    text = bus_error_log(10)
    diagnose(page, text)
    with page.expect_download() as download:
        page.click("text=Raw")
    assert Path(download.value.path()).read_text() == text


def test_files_are_chosen_listed_and_read_together(page: Page, tmp_path: Path) -> None:
    lines = bus_error_log(400).splitlines()
    paths = []
    for rank in range(4):
        path = tmp_path / f"rank{rank}.log"
        path.write_text("\n".join(line for line in lines if line.startswith(f"[rank{rank}]")))
        paths.append(path)
    page.goto("/")
    page.set_input_files("#files", [*paths, paths[0]])
    page.wait_for_selector(".chosen li:nth-child(5)")
    page.click(".chosen li:nth-child(5) button")
    page.wait_for_selector(".chosen:not(:has(li:nth-child(5)))")
    page.click("text=Diagnose")
    page.wait_for_selector(".verdict.named", timeout=ANSWER_TIMEOUT_MS)
    assert page.locator(".tabs a").count() == 4
    assert page.inner_text(".tabs [aria-current]").startswith("T4 rank3.log")
    page.click(".tabs a >> text=rank1.log")
    page.wait_for_selector("#T2-L1")


def test_a_refusal_keeps_what_was_typed(page: Page) -> None:
    page.goto("/")
    page.fill("#text", "   ")
    with page.expect_response(lambda response: response.status == 422):
        page.click("text=Diagnose")
    page.wait_for_selector("#form-problem >> text=There is no text in it")
    assert page.input_value("#text") == "   "
    assert page.is_enabled("button.primary")


def test_more_text_settles_an_undetermined_incident(page: Page) -> None:
    lines = bus_error_log(40).splitlines()
    page.goto("/")
    page.fill("#text", "\n".join(line for line in lines if line.startswith("[rank0]")))
    page.click("text=Diagnose")
    page.wait_for_selector(".verdict.undetermined", timeout=ANSWER_TIMEOUT_MS)
    address = page.url
    page.fill("#more-text", "\n".join(line for line in lines if line.startswith("[rank3]")))
    page.click("text=/Add to INC-/")
    page.wait_for_selector(".verdict.named", timeout=ANSWER_TIMEOUT_MS)
    assert page.url.split("#")[0] == address.split("#")[0]


def test_the_colours_are_switched_and_kept(page: Page) -> None:
    page.goto("/")
    page.click(".theme button")
    assert page.get_attribute("html", "data-theme") == "dark"
    page.reload()
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"


#: The page's width if it scrolls sideways, and what sticks out of the window by itself.
_TOO_WIDE = """
(() => {
  const width = document.documentElement.scrollWidth;
  if (width <= innerWidth) return [];
  const right = (element) => element.getBoundingClientRect().right;
  return [`page ${width}`, ...[...document.querySelectorAll("body *")]
    .filter((element) => right(element) > innerWidth + 1 && !element.closest("pre, .lines *"))
    .map((element) => `${element.tagName}.${element.className} ${right(element)}`)];
})()
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_scrolls_sideways_but_the_log(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    diagnose(page, bus_error_log(300))
    here = page.url
    for address in (here, "/", "/incidents/", "/pitfalls/", "/pitfalls/dataloader-shm-bus-error/"):
        page.goto(address)
        assert page.evaluate(_TOO_WIDE) == [], address


def test_the_main_path_works_without_scripts(
    browser: Browser, house: Any, signed_in: Any, tmp_path: Path
) -> None:
    context = browser.new_context(
        base_url=house.address, storage_state=signed_in, java_script_enabled=False
    )
    page = context.new_page()
    page.goto("/")
    log = tmp_path / "train.log"
    log.write_text(bus_error_log())
    page.set_input_files("#files", log)
    page.click("text=Diagnose")
    # The page reloads itself until the verdict is there.
    page.wait_for_selector(".verdict.named", timeout=ANSWER_TIMEOUT_MS)
    page.click(".evidence a >> nth=0")
    page.wait_for_selector("#T1-L4004.target")
    page.click("a:text-is('First')")
    page.wait_for_selector("#T1-L1")
    page.fill("#log input[name=q]", "step 500 ")
    page.click("#log button:text-is('Find')")
    page.wait_for_selector("#T1-L2001.target")
    context.close()


def test_a_stranger_meets_the_sign_in_page(browser: Browser, house: Any) -> None:
    context = browser.new_context(base_url=house.address)
    page = context.new_page()
    page.goto("/i/INC-1")
    assert "/login/?next=/i/INC-1" in page.url
    page.fill("#id_username", "admin")
    page.fill("#id_password", "not the password")
    page.click("main button")
    page.wait_for_selector(".notice.error")
    page.goto(house.sign_in_link)
    assert "/login/" in page.url
    page.wait_for_selector("text=was used already")
    context.close()
