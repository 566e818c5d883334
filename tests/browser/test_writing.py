"""Writing on the page: queue and steer, completion, pictures, and the keys."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser.web_process import SETTLED_MS, new_session, say, wait_idle, web
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply
from tests.support.providers.scripted_calls import call

_PASTE = """async ([kind, data]) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], "picture.png", { type: "image/png" }));
  const target = document.getElementById("message");
  if (kind === "paste") target.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true }));
  else target.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true }));
}"""


def make_picture(width: int, height: int) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def fill(page: Page, text: str) -> None:
    page.locator("#message").fill(text)


@pytest.mark.spec("R-394")
def test_message_is_queued_or_steered_into_a_running_turn(place: Place, context: BrowserContext) -> None:
    slow = text_reply(*["word "] * 60, event_delay_s=0.03)
    with loopback(slow, text_reply("After the steer."), text_reply("After the queue.")) as provider:
        place.provider(provider.base_url)
        with web(place) as server:
            page = server.open(context)
            new_session(page)
            say(page, "begin")
            expect(page.locator(".md").first).to_contain_text("word")
            fill(page, "for later")
            page.keyboard.press("Enter")
            expect(page.locator(".queued")).to_have_count(1)
            fill(page, "right now")
            page.keyboard.press("Control+Enter")
            expect(page.locator(".user .said")).to_have_text(["begin", "right now", "for later"])
            expect(page.get_by_text("After the queue.")).to_be_visible()
            expect(page.locator(".queued")).to_have_count(0)


@pytest.mark.spec("R-394")
def test_stop_ends_the_turn_and_holds_the_queue(place: Place, context: BrowserContext) -> None:
    slow = text_reply(*["word "] * 400, event_delay_s=0.03)
    with loopback(slow, text_reply("Sent from the queue.")) as provider:
        place.provider(provider.base_url)
        with web(place) as server:
            page = server.open(context)
            new_session(page)
            say(page, "begin")
            expect(page.locator(".md").first).to_contain_text("word")
            fill(page, "for later")
            page.keyboard.press("Enter")
            page.keyboard.press("Escape")
            expect(page.locator(".note")).to_have_text("Stopped.")
            wait_idle(page)
            expect(page.locator(".queued")).to_have_count(1)
            page.reload()
            page.wait_for_selector('[data-ready="true"]')
            page.locator(".queued").get_by_role("button", name="Send now").click()
            expect(page.get_by_text("Sent from the queue.")).to_be_visible()


@pytest.mark.spec("R-395")
def test_commands_and_files_are_completed(place: Place, context: BrowserContext) -> None:
    place.script("text: Read.")
    (place.work / "src").mkdir()
    (place.work / "src" / "needle.py").write_text("x", encoding="utf-8")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        field = page.locator("#message")
        field.press_sequentially("/comp")
        expect(page.get_by_role("option")).to_contain_text(["/compact"])
        page.keyboard.press("Tab")
        expect(field).to_have_value("/compact ")
        fill(page, "")
        field.press_sequentially("look at @need")
        expect(page.get_by_role("option")).to_have_text(["@src/needle.py"])
        page.keyboard.press("Enter")
        expect(field).to_have_value("look at @src/needle.py ")
        page.keyboard.press("Enter")
        expect(page.get_by_text("Read.", exact=True)).to_be_visible()


@pytest.mark.spec("R-396")
@pytest.mark.parametrize("way", ["paste", "drop"])
def test_picture_is_pasted_or_dropped_and_sent(place: Place, context: BrowserContext, way: str) -> None:
    place.capabilities = ("image_in",)
    place.script("text: I see it.")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        page.evaluate(_PASTE, [way, make_picture(3000, 1500)])
        expect(page.locator(".thumb img")).to_be_visible()
        say(page, "what is it?")
        expect(page.get_by_text("I see it.")).to_be_visible()
        expect(page.locator(".user img")).to_be_visible()
        assert page.locator(".user img").evaluate("(image) => image.naturalWidth") == 2048
        expect(page.locator(".thumb")).to_have_count(0)


@pytest.mark.spec("R-397")
def test_everything_is_done_with_the_keyboard_alone(place: Place, context: BrowserContext) -> None:
    place.script(
        call("c1", "Shell", command="touch made"), call("c2", "Shell", command="touch other"), "text: The end."
    )
    with web(place) as server:
        page = server.open(context)
        page.keyboard.press("Alt+n")
        expect(page.get_by_role("button", name="Start here")).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_selector('[data-ready="true"]')
        expect(page.locator("#message")).to_be_focused()
        page.keyboard.type("go")
        page.keyboard.press("Enter")
        expect(page.locator(".asked-what")).to_have_text("touch made")
        page.wait_for_timeout(SETTLED_MS)
        page.keyboard.press("Alt+a")
        expect(page.locator(".asked-what")).to_have_text("touch other")
        page.keyboard.press("Alt+r")
        expect(page.get_by_label("What to do instead")).to_be_focused()
        page.wait_for_timeout(SETTLED_MS)
        page.keyboard.type("leave it")
        page.keyboard.press("Enter")
        expect(page.get_by_text("The end.")).to_be_visible()
        page.keyboard.press("Alt+k")
        expect(page.get_by_label("Search sessions")).to_be_focused()
        page.keyboard.press("Alt+i")
        expect(page.locator("#message")).to_be_focused()
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("second line")
        expect(page.locator("#message")).to_have_value("\nsecond line")
    assert (place.work / "made").exists()
    assert not (place.work / "other").exists()
