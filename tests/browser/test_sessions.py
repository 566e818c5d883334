"""The list of sessions on the page, and what is done to one."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser.web_process import Web, new_session, say, session_id, wait_idle, web
from tests.support.mcp.entries import config, raw_entry
from tests.support.program.wire_process import Place


def titles(page: Page) -> list[str]:
    return page.locator(".session-title").all_inner_texts()


def open_menu(page: Page, title: str) -> None:
    page.locator(".session", has_text=title).get_by_role("button").click()


def make_sessions(server: Web, context: BrowserContext, *prompts: str) -> Page:
    """Make a session for each prompt; the last one is open."""
    page = server.open(context)
    for prompt in prompts:
        before = session_id(page)
        new_session(page)
        expect(page.locator(".heading h1")).to_have_text("New session")
        assert session_id(page) != before
        say(page, prompt)
        wait_idle(page)
        expect(page.locator(".session-title", has_text=prompt)).to_be_visible()
    return page


@pytest.mark.spec("R-392")
def test_sessions_are_listed_searched_and_opened_again(place: Place, context: BrowserContext) -> None:
    place.script("text: About fruit.")
    with web(place) as server:
        page = make_sessions(server, context, "apples please", "pears please")
        assert titles(page) == ["pears please", "apples please"]
        page.get_by_label("Search sessions").fill("apple")
        expect(page.locator(".session-title")).to_have_count(1)
        page.locator(".session-link").click()
        expect(page.locator(".said")).to_have_text("apples please")
        page.get_by_label("Search sessions").fill("nothing like it")
        expect(page.get_by_text("Nothing found.")).to_be_visible()


@pytest.mark.spec("R-392")
def test_session_is_renamed_forked_archived_and_deleted(place: Place, context: BrowserContext) -> None:
    place.script("text: About apples.")
    with web(place) as server:
        page = make_sessions(server, context, "apples please")
        first = session_id(page)
        open_menu(page, "apples please")
        page.get_by_role("menuitem", name="Rename").click()
        page.get_by_label("New title").last.fill("Fruit")
        page.keyboard.press("Enter")
        expect(page.locator(".session-title")).to_have_text("Fruit")
        expect(page.locator(".heading h1")).to_have_text("Fruit")
        open_menu(page, "Fruit")
        page.get_by_role("menuitem", name="Fork").click()
        expect(page.locator(".session")).to_have_count(2)
        page.wait_for_selector('[data-ready="true"]')
        assert session_id(page) != first
        expect(page.get_by_text("About apples.")).to_be_visible()
        page.locator(f'.session-link[href$="{first}"]').click()
        page.locator(".session.current").get_by_role("button").click()
        page.get_by_role("menuitem", name="Archive").click()
        expect(page.locator(".session")).to_have_count(1)
        page.get_by_role("button", name="Archived").click()
        expect(page.locator(f'.session-link[href$="{first}"]')).to_be_visible()
        page.locator(".session").get_by_role("button").click()
        page.get_by_role("menuitem", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        expect(page.locator(".session")).to_have_count(1)
        page.locator(".session").get_by_role("button").click()
        page.get_by_role("menuitem", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.locator(".session")).to_have_count(0)
    assert [path for path in place.session_dirs() if path.name == first] == []


@pytest.mark.spec("R-392")
def test_new_session_begins_in_the_directory_that_was_chosen(place: Place, context: BrowserContext) -> None:
    place.script("text: Here.")
    (place.work / "inner" / "deep").mkdir(parents=True)
    with web(place) as server:
        page = server.open(context)
        page.locator("#new-session").click()
        expect(page.locator(".recent button")).to_have_text(["work"])
        page.get_by_role("button", name="inner").click()
        expect(page.locator(".here")).to_contain_text("inner")
        page.get_by_role("button", name="deep").click()
        expect(page.locator(".here")).to_contain_text("deep")
        page.get_by_role("button", name="Start here").click()
        page.wait_for_selector('[data-ready="true"]')
        expect(page.locator(".heading .path")).to_have_text("deep")
        expect(page.locator(".heading .path")).to_have_attribute("title", str(place.work / "inner" / "deep"))


@pytest.mark.spec("R-393")
def test_mode_and_model_are_shown_and_changed(place: Place, context: BrowserContext) -> None:
    place.config = '[models.other]\nprovider = "p"\nmodel = "other-model"\nmax_context_size = 1000\n'
    place.script("text: Here.\nusage: input_other=50000 output=5")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        expect(page.locator(".mode")).to_have_text("Ask")
        page.locator(".mode").click()
        page.get_by_role("menuitemradio", name="Plan").click()
        expect(page.locator(".mode")).to_have_text("Plan")
        page.locator(".mode").click()
        page.get_by_role("menuitemradio", name="Ask", exact=False).first.click()
        expect(page.locator(".mode")).to_have_text("Ask")
        other = server.open(context, f"#/s/{session_id(page)}")
        other.wait_for_selector('[data-ready="true"]')
        other.locator(".mode").click()
        other.get_by_role("menuitemradio", name="Edits").first.click()
        expect(page.locator(".mode")).to_have_text("Edits")
        page.bring_to_front()  # a page behind another draws seldom, and is slow to click on
        say(page, "go")
        wait_idle(page)
        expect(page.locator(".context")).to_contain_text("50%")
        page.locator(".model").click()
        page.get_by_role("menuitemradio", name="other").click()
        expect(page.locator(".model")).to_contain_text("other")


@pytest.mark.spec("R-393")
def test_mcp_servers_are_shown_with_their_state_and_tools(place: Place, context: BrowserContext) -> None:
    text = config(
        good=raw_entry(tools=[{"name": "look", "inputSchema": {"type": "object"}}]), bad={"command": "missing-program"}
    )
    (place.share / "mcp.json").write_text(text, encoding="utf-8")
    place.script("text: Done.")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "go")
        expect(page.get_by_text("Done.")).to_be_visible()
        page.get_by_role("button", name="MCP servers").click()
        rows = page.get_by_role("dialog").locator("li")
        expect(rows.filter(has_text="good")).to_contain_text("connected")
        expect(rows.filter(has_text="bad")).to_contain_text("failed")
