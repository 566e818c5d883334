"""What must not go wrong on the page: malformed results, cuts at bad moments, one session's things in another."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.test_reconnection import behind, port_of
from tests.support.browser.cuttable import cuttable
from tests.support.browser.web_process import new_session, press, say, session_id, wait_idle, web
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply
from tests.support.providers.scripted_calls import call

_MALFORMED: Final = """async () => {
  const { Transcript } = await import("/page/model/transcript.js");
  const { drawItem } = await import("/page/view/items.js");
  const odd = { type: "todo", items: [{ title: 1, status: "toString" }] };
  const displays = [[{ type: "todo" }], [odd], [{ type: "diff", old_text: 5 }], 7];
  return displays.map((display, at) => {
    const transcript = new Transcript(() => {});
    const view = [];
    transcript.handle("ToolCall", { id: "c", function: { name: "constructor", arguments: "{}" } });
    view.push(drawItem(transcript.items[0]));
    try {
      const value = { is_error: false, output: "o", message: "", display };
      transcript.handle("ToolResult", { tool_call_id: "c", return_value: value });
    } catch { /* the session goes on with the next message */ }
    view[0].node.open = true;
    view[0].update();
    return view[0].node.textContent !== "" && !transcript.status.todos?.some?.((one) => one.nothing);
  });
}"""

_AWAY: Final = """async () => {
  const { Flow } = await import("/page/view/flow.js");
  const { el } = await import("/page/view/dom.js");
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const host = el("div");
  const scroller = el("main", {}, host);
  document.body.replaceChildren(scroller);
  Object.assign(scroller.style, { height: "500px", overflow: "auto", display: "block" });
  const draw = () => {
    const node = el("p", {}, "x");
    node.style.height = "150px";
    return { node, update() {} };
  };
  const flow = new Flow(scroller, host, draw, () => 150);
  flow.ready();
  for (let n = 0; n < 800; n += 1) {
    flow.add({ n });
    if (n === 100) {
      await frame();
      scroller.scrollTop = 0;
    }
    if (n % 5 === 0) await frame();
  }
  await frame();
  return [flow.follow, host.querySelectorAll("p").length];
}"""


@pytest.mark.spec("R-390")
def test_results_of_any_shape_are_drawn_or_said_to_be_wrong(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    with web(place) as server:
        assert server.open(context).evaluate(_MALFORMED) == [True] * 4


@pytest.mark.spec("R-382")
def test_stream_below_the_screen_keeps_no_nodes(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    with web(place) as server:
        follows, nodes = server.open(context).evaluate(_AWAY)
        assert not follows
        assert nodes < 200


@pytest.mark.spec("R-399")
def test_skip_link_leads_to_the_message_and_leaves_the_session_open(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        opened = session_id(page)
        page.get_by_role("heading", level=1).focus()
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#message")).to_be_focused()
        assert session_id(page) == opened
        expect(page.locator(".conversation")).to_have_attribute("data-ready", "true")


@pytest.mark.spec("R-399")
def test_focus_stays_where_a_session_can_be_begun(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    with web(place) as server:
        page = server.open(context)
        page.locator(".starts .primary").focus()
        with page.expect_response("**/api/sessions?*"):
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_timeout(100)
        expect(page.locator(".starts .primary")).to_be_focused()


@pytest.mark.spec("R-397")
def test_escape_that_clears_the_search_stops_no_turn(place: Place, context: BrowserContext) -> None:
    with loopback(text_reply(*["word "] * 400, event_delay_s=0.03)) as provider:
        place.provider(provider.base_url)
        with web(place) as server:
            page = server.open(context)
            new_session(page)
            say(page, "go")
            expect(page.locator(".md").first).to_contain_text("word")
            page.get_by_label("Search sessions").fill("x")
            page.keyboard.press("Escape")
            expect(page.get_by_label("Search sessions")).to_have_value("")
            page.wait_for_timeout(200)
            assert page.locator(".note").count() == 0
            page.keyboard.press("Escape")
            expect(page.locator(".note")).to_have_text("Stopped.")


@pytest.mark.spec("R-396")
def test_picture_stays_with_the_session_it_was_pasted_into(place: Place, context: BrowserContext) -> None:
    place.capabilities = ("image_in",)
    place.script("text: x")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        first = session_id(page)
        page.locator("input[type=file]").set_input_files(str(PICTURE))
        expect(page.locator(".thumb img")).to_be_visible()
        new_session(page)
        expect(page.locator(".thumb")).to_have_count(0)
        page.evaluate("(id) => { location.hash = `#/s/${id}`; }", first)
        expect(page.locator(".thumb")).to_have_count(1)
        page.locator("input[type=file]").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"})
        expect(page.locator("#toasts")).to_contain_text("a.txt is not a picture")


PICTURE: Final = (
    Path(__file__).parent.parent.parent / "interfaces" / "kimi" / "interfaces" / "web" / "page" / "icon-180.png"
)


@pytest.mark.spec("R-389")
def test_message_sent_into_a_cut_is_not_lost_with_its_session(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    with web(place) as server, cuttable(port_of(server)) as network:
        page = behind(server, network).open(context)
        new_session(page)
        first = session_id(page)
        network.cut()
        expect(page.locator(".banner")).to_be_visible()
        say(page, "do not lose me")
        expect(page.locator("#message")).to_have_value("")
        page.evaluate("location.hash = ''")
        network.mend()
        page.evaluate("(id) => { location.hash = `#/s/${id}`; }", first)
        expect(page.locator("#message")).to_have_value("do not lose me")


@pytest.mark.spec("R-388")
def test_answer_that_was_lost_in_a_cut_can_be_given_again(place: Place, context: BrowserContext) -> None:
    place.script(call("c1", "Shell", command="touch made"), "text: The end.")
    with web(place) as server, cuttable(port_of(server)) as network:
        page = behind(server, network).open(context)
        new_session(page)
        say(page, "go")
        page.wait_for_selector(".card.asked")
        network.stall()
        press(page, "Approve")
        expect(page.locator(".card.asked").get_by_role("button", name="Approve", exact=True)).to_be_disabled()
        network.cut()
        expect(page.locator(".banner")).to_be_visible()
        network.mend()
        press(page, "Approve")
        expect(page.get_by_text("The end.")).to_be_visible()
        wait_idle(page)
        assert (place.work / "made").exists()


@pytest.mark.spec("R-384")
def test_card_of_one_session_is_not_shown_in_another(place: Place, context: BrowserContext) -> None:
    place.script(call("c1", "Shell", command="touch made"), "text: The end.")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        first = session_id(page)
        say(page, "go")
        page.wait_for_selector(".card.asked")
        page.evaluate(
            """() => new Promise((resolve) => {
              window.cards = [];
              const place = document.querySelector(".asked-place");
              addEventListener("hashchange", () => resolve(cards.push(place.checkVisibility())));
              location.hash = "#/s/00000000-0000-4000-8000-000000000000";
            })"""
        )
        assert page.evaluate("window.cards") == [False]
        page.evaluate("(id) => { location.hash = `#/s/${id}`; }", first)
        press(page, "Approve")
        expect(page.get_by_text("The end.")).to_be_visible()


@pytest.mark.spec("R-394")
def test_words_steered_into_one_session_never_reach_another(place: Place, context: BrowserContext) -> None:
    with loopback(text_reply(*["word "] * 200, event_delay_s=0.03)) as provider:
        place.provider(provider.base_url)
        with web(place) as server, cuttable(port_of(server)) as network:
            page = behind(server, network).open(context)
            new_session(page)
            other = session_id(page)
            new_session(page)
            say(page, "go")
            expect(page.locator(".md").first).to_contain_text("word")
            network.stall()
            page.locator("#message").fill("turn left")
            page.keyboard.press("Control+Enter")
            expect(page.locator("#message")).to_have_value("")
            page.evaluate("(id) => { location.hash = `#/s/${id}`; }", other)
            network.mend()
            page.wait_for_selector('[data-ready="true"]')
            assert session_id(page) == other
            expect(page.locator("#message")).to_have_value("")


@pytest.mark.spec("R-394")
def test_stop_without_a_connection_says_that_it_was_not_sent(place: Place, context: BrowserContext) -> None:
    with loopback(text_reply(*["word "] * 200, event_delay_s=0.03)) as provider:
        place.provider(provider.base_url)
        with web(place) as server, cuttable(port_of(server)) as network:
            page = behind(server, network).open(context)
            new_session(page)
            say(page, "go")
            expect(page.locator(".md").first).to_contain_text("word")
            network.cut()
            expect(page.locator(".banner")).to_be_visible()
            page.get_by_role("button", name="Stop", exact=True).click()
            expect(page.locator("#toasts")).to_contain_text("there is no connection")
