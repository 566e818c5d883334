"""The page on a phone: one hand, one column, what is asked in reach of the thumb."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.support.browser.web_process import PHONE, SETTLED_MS, new_session, say, wait_idle, web
from tests.support.program.wire_process import Place
from tests.support.providers.scripted_calls import call

THUMB_PX = 44
"""The least height of what a thumb is to hit."""


@pytest.fixture
def phone(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(
        viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2, locale="en-US", reduced_motion="reduce"
    )
    context.set_default_timeout(15_000)
    yield context
    context.close()


@pytest.mark.spec("R-398")
def test_approval_after_coming_back_takes_one_tap(place: Place, phone: BrowserContext) -> None:
    place.script(call("c1", "Shell", command="touch made"), "text: The end.")
    with web(place) as server:
        page = server.open(phone)
        new_session(page)
        say(page, "go")
        approve = page.locator(".card.asked").get_by_role("button", name="Approve", exact=True)
        expect(approve).to_be_in_viewport()
        for name in ("Reject", "For this session", "Approve"):
            box = page.locator(".card.asked").get_by_role("button", name=name, exact=True).bounding_box()
            assert box is not None
            assert box["height"] >= THUMB_PX
            assert box["y"] > PHONE["height"] / 2
        page.reload()
        expect(approve).to_be_in_viewport()
        page.wait_for_timeout(SETTLED_MS)
        approve.tap()
        expect(page.get_by_text("The end.")).to_be_visible()
    assert (place.work / "made").exists()


@pytest.mark.spec("R-398")
def test_nothing_is_wider_than_the_phone_and_a_long_answer_fits(place: Place, phone: BrowserContext) -> None:
    wide = "word" * 200
    place.script("\n".join([f"text: {wide} `{wide}` | a | b |", call("c1", "Glob", pattern=wide)]), f"text: {wide}")
    with web(place) as server:
        page = server.open(phone)
        new_session(page)
        say(page, wide)
        wait_idle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        assert page.locator("#conversation").evaluate("(node) => node.scrollWidth <= node.clientWidth")


@pytest.mark.spec("R-398")
def test_keyboard_of_the_phone_leaves_the_message_visible(place: Place, phone: BrowserContext) -> None:
    place.script("text: " + "word " * 50)
    with web(place) as server:
        page = server.open(phone)
        new_session(page)
        say(page, "go")
        wait_idle(page)
        page.set_viewport_size({"width": PHONE["width"], "height": 420})  # what is left above a keyboard
        expect(page.locator("#message")).to_be_in_viewport(ratio=1)
        expect(page.locator(".composer .primary")).to_be_in_viewport(ratio=1)
        font = page.locator("#message").evaluate("(node) => parseFloat(getComputedStyle(node).fontSize)")
        assert font >= 16  # phones zoom into smaller fields


@pytest.mark.spec("R-398")
def test_sessions_slide_over_the_conversation_and_away(place: Place, phone: BrowserContext) -> None:
    place.script("text: One.", "text: Two.")
    with web(place) as server:
        page = server.open(phone)
        new_session(page)
        say(page, "first words")
        wait_idle(page)
        opener = page.locator(".composer").get_by_role("button", name="Show sessions")
        opener.tap()
        row = page.locator(".session-link", has_text="first words")
        expect(row).to_be_in_viewport()
        box = row.bounding_box()
        assert box is not None
        assert box["height"] >= THUMB_PX
        row.tap()
        expect(row).not_to_be_in_viewport()
        expect(page.get_by_text("One.")).to_be_visible()
