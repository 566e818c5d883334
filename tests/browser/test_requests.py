"""What is asked on the page: approvals and questions, shown whole, answered by whoever is first."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import watched_context
from tests.support.browser.other_client import other_client
from tests.support.browser.web_process import PHONE, SETTLED_MS, new_session, press, say, session_id, wait_idle, web
from tests.support.program.wire_process import Place
from tests.support.providers.scripted_calls import call


@contextmanager
def asking(place: Place, context: BrowserContext, *replies: str) -> Generator[Page, None, None]:
    """Run a session that has been told to go and plays these replies; the page shows what is asked."""
    place.script(*replies, "text: The end.")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "go")
        page.wait_for_selector(".card.asked")
        yield page


def touches(*names: str) -> list[str]:
    """Return a reply for each name that runs a command."""
    return [call(f"c{at}", "Shell", command=f"touch {name}") for at, name in enumerate(names)]


@pytest.mark.spec("R-384")
def test_command_runs_only_after_it_was_approved_once(place: Place, context: BrowserContext) -> None:
    with asking(place, context, *touches("one", "two")) as page:
        expect(page.locator(".card.asked h2")).to_have_text("Run this command?")
        expect(page.locator(".asked-what")).to_have_text("touch one")
        assert not (place.work / "one").exists()
        press(page, "Approve")
        expect(page.locator(".asked-what")).to_have_text("touch two")
        assert (place.work / "one").exists()
        assert not (place.work / "two").exists()
        press(page, "Reject")
        press(page, "Reject")
        wait_idle(page)
        expect(page.locator(".tool.error")).to_have_count(1)
        assert not (place.work / "two").exists()


@pytest.mark.spec("R-384")
def test_letters_that_option_types_on_a_mac_approve_nothing(place: Place, context: BrowserContext) -> None:
    context.add_init_script("Object.defineProperty(navigator, 'platform', { get: () => 'MacIntel' })")
    with asking(place, context, *touches("one")) as page:
        page.wait_for_timeout(SETTLED_MS)
        page.locator("#message").focus()
        page.keyboard.press("Alt+a")
        page.keyboard.press("Alt+s")
        page.wait_for_timeout(SETTLED_MS)
        expect(page.locator(".asked-what")).to_have_text("touch one")
        page.keyboard.press("Control+Alt+a")
        expect(page.get_by_text("The end.")).to_be_visible()
    assert (place.work / "one").exists()


@pytest.mark.spec("R-384")
def test_approval_for_the_session_asks_no_second_time(place: Place, context: BrowserContext) -> None:
    with asking(place, context, *touches("one", "two")) as page:
        expect(page.locator(".scope")).to_contain_text("run command")
        press(page, "For this session")
        expect(page.get_by_text("The end.")).to_be_visible()
        assert (place.work / "two").exists()


@pytest.mark.spec("R-384")
def test_words_of_a_rejection_reach_the_model(place: Place, context: BrowserContext) -> None:
    with asking(place, context, *touches("one")) as page:
        press(page, "Reject")
        page.get_by_label("What to do instead").fill("use a directory")
        page.keyboard.press("Enter")
        expect(page.get_by_text("The end.")).to_be_visible()
        expect(page.locator(".tool .outcome")).to_contain_text("Rejected: use a directory")
    assert any("use a directory" in str(record) for record in place.context())


@pytest.mark.spec("R-384")
def test_long_change_is_shown_whole_before_it_is_approved(place: Place, context: BrowserContext) -> None:
    text = "".join(f"line {n}\n" for n in range(900))
    with asking(place, context, call("c1", "WriteFile", path="long.txt", content=text)) as page:
        expect(page.locator(".asked-what .diff-row.add")).to_have_count(900)
        expect(page.locator(".scroll-hint")).to_be_visible()
        page.locator(".asked-what").evaluate("(node) => { node.scrollTop = node.scrollHeight; }")
        expect(page.locator(".asked-what .line").last).to_have_text("line 899")
        expect(page.locator(".scroll-hint")).to_be_hidden()
        press(page, "Approve")
        expect(page.get_by_text("The end.")).to_be_visible()
    assert (place.work / "long.txt").read_text(encoding="utf-8") == text


@pytest.mark.spec("R-384")
def test_what_only_the_description_says_is_shown_too(place: Place, context: BrowserContext) -> None:
    (place.work / "old.txt").write_bytes("编码是一个老问题，这里的文字足够长。\n".encode("gbk") * 20)
    with asking(place, context, call("c1", "WriteFile", path="old.txt", content="新的 \U0001f389\n")) as page:
        expect(page.locator(".asked-what")).to_contain_text("its encoding becomes UTF-8")


@pytest.mark.spec("R-385")
def test_click_meant_for_one_approval_does_not_reach_the_next(place: Place, context: BrowserContext) -> None:
    with asking(place, context, *touches("one", "two")) as page:
        press(page, "Approve")
        expect(page.locator(".asked-what")).to_have_text("touch two")
        page.locator(".card.asked").get_by_role("button", name="Approve", exact=True).click(no_wait_after=True)
        page.wait_for_timeout(300)
        expect(page.locator(".card.asked")).to_be_visible()
        assert not (place.work / "two").exists()


@pytest.mark.spec("R-386")
def test_question_is_answered_with_choices_and_own_words(place: Place, context: BrowserContext) -> None:
    options = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
    questions = [
        {"question": "Which colour?", "header": "Colour", "options": options},
        {"question": "Which shapes?", "header": "Shapes", "options": options, "multi_select": True},
    ]
    with asking(place, context, call("c1", "AskUserQuestion", questions=questions)) as page:
        send = page.get_by_role("button", name="Answer")
        expect(send).to_be_disabled()
        page.get_by_role("radio", name="Blue").check()
        page.get_by_role("checkbox", name="Red").check()
        page.get_by_role("textbox", name="Something else").last.fill("round")
        expect(send).to_be_enabled()
        page.wait_for_timeout(500)
        send.click()
        expect(page.get_by_text("The end.")).to_be_visible()
    told = str(place.context())
    assert "Blue" in told
    assert "Red, round" in told


@pytest.mark.spec("R-387")
def test_one_approval_settles_two_pages_and_a_wire_client(
    place: Place, browser: Browser, context: BrowserContext
) -> None:
    place.script(*touches("one", "two", "three"), "text: The end.")
    with web(place) as server, watched_context(browser, PHONE) as phone:
        first = server.open(context)
        new_session(first)
        second = server.open(phone, f"#/s/{session_id(first)}")
        second.wait_for_selector('[data-ready="true"]')
        with other_client(server, session_id(first)) as client:
            say(first, "go")
            client.wait("ApprovalRequest")
            expect(second.locator(".asked-what")).to_have_text("touch one")
            press(second, "Approve")
            assert client.wait("ApprovalResponse")["response"] == "approve"
            expect(first.locator(".asked-what")).to_have_text("touch two")
            request = client.wait("ApprovalRequest")
            client.send({"id": request["id"], "result": {"request_id": request["id"], "response": "approve"}})
            for page in (first, second):
                expect(page.locator(".asked-what")).to_have_text("touch three")
            press(first, "Approve")
            client.wait("TurnEnd")
            for page in (first, second):
                expect(page.get_by_text("The end.")).to_be_visible()
                expect(page.locator(".card.asked")).to_have_count(0)
            assert [name for name in ("one", "two", "three") if not (place.work / name).exists()] == []
            assert first.locator(".items").inner_text() == second.locator(".items").inner_text()


@pytest.mark.spec("R-388")
def test_page_that_comes_back_shows_what_still_waits(place: Place, context: BrowserContext) -> None:
    with asking(place, context, *touches("one")) as page:
        expect(page.locator(".asked-what")).to_have_text("touch one")
        page.reload()
        expect(page.locator(".asked-what")).to_have_text("touch one")
        press(page, "Approve")
        expect(page.get_by_text("The end.")).to_be_visible()
        assert (place.work / "one").exists()
