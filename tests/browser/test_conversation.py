"""The page of `kimi web`, with a real server and a real browser: what a conversation looks like."""

from __future__ import annotations

import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, expect

from tests.support.browser.web_process import SETTLED_MS, new_session, press, say, session_id, wait_idle, web
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import error_reply, text_reply
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


@pytest.mark.spec("R-380")
def test_work_of_a_subagent_is_nested_below_its_call(place: Place, context: BrowserContext) -> None:
    place.script(
        call("c1", "Agent", description="Look around", prompt="Look around", subagent_type="explore"),
        step("text: I look.", call("d1", "Shell", command="touch by-subagent")),
        "text: " + "The subagent has found this. " * 10,
        "text: The end.",
    )
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "go")
        expect(page.locator(".card.asked header")).to_contain_text("asked by subagent explore")
        expect(page.locator(".progress")).to_contain_text("Run touch by-subagent")
        press(page, "Approve")
        expect(page.get_by_text("The end.")).to_be_visible()
        wait_idle(page)
        page.locator(".items .tool > summary").first.click()
        nested = page.locator(".children")
        expect(nested.locator(".tool .title").first).to_have_text("touch by-subagent")
        expect(nested).to_contain_text("The subagent has found this.")


@pytest.mark.spec("R-380")
def test_plan_is_shown_before_it_is_approved(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "/plan on")
        expect(page.locator(".mode")).to_have_text("Plan")
        wait_idle(page)
        path = page.locator(".md").inner_text().rpartition(" ")[2]
        session = session_id(page)
        page.close()
    write = call("c1", "WriteFile", path=path, content="# My plan\n\n1. look\n2. change")
    place.script(write, call("c2", "ExitPlanMode"), "text: Carried out.")
    with web(place) as server:
        page = server.open(context, f"#/s/{session}")
        page.wait_for_selector('[data-ready="true"]')
        say(page, "go on")
        expect(page.locator(".plan li")).to_have_text(["look", "change"])
        page.get_by_role("radio", name="Approve").check()
        page.wait_for_timeout(SETTLED_MS)
        page.get_by_role("button", name="Answer").click()
        expect(page.get_by_text("Carried out.")).to_be_visible()
        expect(page.locator(".mode")).to_have_text("Ask")


@pytest.mark.spec("R-396")
def test_picture_that_a_tool_has_read_is_shown(place: Place, context: BrowserContext) -> None:
    place.capabilities = ("image_in",)
    Image.new("RGB", (60, 40), "teal").save(place.work / "a.png")
    place.script(call("c1", "ReadMediaFile", path="a.png"), "text: The end.")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "go")
        expect(page.get_by_text("The end.")).to_be_visible()
        page.locator(".tool > summary").click()
        expect(page.locator(".tool img.picture")).to_be_visible()


@pytest.mark.spec("R-393")
def test_background_task_is_listed_with_its_output_and_stopped(place: Place, context: BrowserContext) -> None:
    begin = call("c1", "Shell", command="echo begun; sleep 60", run_in_background=True, description="Wait a while")
    place.script(begin, "text: It runs.")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "go")
        expect(page.locator(".card.asked h2")).to_have_text("Run this in the background?")
        press(page, "Approve")
        expect(page.get_by_text("It runs.")).to_be_visible()
        page.get_by_role("button", name="Background tasks").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Wait a while")
        dialog.get_by_role("button", name="Stop").click()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        page.wait_for_timeout(1000)
        page.get_by_role("button", name="Background tasks").click()
        expect(dialog).to_contain_text("killed")


@pytest.mark.spec("R-380")
def test_failed_turn_says_why_and_the_next_one_works(place: Place, context: BrowserContext) -> None:
    failing = error_reply(400, "the provider says no")
    with loopback(failing, text_reply("Better now.")) as provider:
        place.provider(provider.base_url)
        with web(place) as server:
            page = server.open(context)
            new_session(page)
            say(page, "go")
            expect(page.locator(".note.error")).to_contain_text("the provider says no")
            wait_idle(page)
            say(page, "again")
            expect(page.get_by_text("Better now.")).to_be_visible()
