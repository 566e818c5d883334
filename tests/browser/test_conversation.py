"""The page of `kimi web`, with a real server and a real browser: what a conversation looks like."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.support.browser.web_process import new_session, press, say, wait_idle, web
from tests.support.program.wire_process import Place
from tests.support.providers.scripted_calls import call


def step(*lines: str) -> str:
    return "\n".join(lines)


@pytest.mark.spec("R-380")
def test_page_shows_text_thinking_calls_diffs_and_todos(place: Place, context: BrowserContext) -> None:
    place.capabilities = ("thinking",)
    (place.work / "a.py").write_text("x = 1\n", encoding="utf-8")
    place.script(
        step(
            "think: I should look first.",
            "text: A **bold** word and `code`.",
            call("c1", "ReadFile", path="a.py"),
            call(
                "c2", "SetTodoList", todos=[{"title": "Look", "status": "done"}, {"title": "Go", "status": "pending"}]
            ),
        ),
        step("text: Now.", call("c3", "StrReplaceFile", path="a.py", edit={"old": "x = 1", "new": "x = 2"})),
        "text: Done.",
    )
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "Please change it")
        expect(page.locator(".user .said")).to_have_text("Please change it")
        press(page, "Approve")
        wait_idle(page)
        expect(page.locator(".md strong")).to_have_text("bold")
        expect(page.locator(".think summary")).to_contain_text("I should look first.")
        expect(page.locator(".thoughts")).to_be_hidden()
        expect(page.locator(".tool .verb")).to_have_text(["Read", "Update the list", "Edit"])
        expect(page.locator(".tool .title").first).to_have_text("a.py")
        expect(page.locator(".diff-row.del .line")).to_have_text("x = 1")
        expect(page.locator(".diff-row.add .line")).to_have_text("x = 2")
        expect(page.locator(".todo-strip summary")).to_contain_text("1 of 2")
        assert (place.work / "a.py").read_text(encoding="utf-8") == "x = 2\n"


@pytest.mark.spec("R-381")
def test_page_that_is_opened_again_shows_the_same(place: Place, context: BrowserContext) -> None:
    place.script(step("text: One.", call("c1", "Glob", pattern="*.py")), "text: Two.", "text: Three.")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "first")
        wait_idle(page)
        say(page, "second")
        expect(page.get_by_text("Three.")).to_be_visible()
        wait_idle(page)
        before = page.locator(".items").inner_text()
        page.reload()
        page.wait_for_selector('[data-ready="true"]')
        expect(page.locator(".user")).to_have_count(2)
        assert page.locator(".items").inner_text() == before
