"""What people need who do not see the page, see it badly, or use no mouse; and its languages."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.browser.web_process import Web, new_session, press, say, wait_idle, web
from tests.support.program.wire_process import Place
from tests.support.providers.scripted_calls import call

LEAST_CONTRAST: Final = 4.5

_UNNAMED: Final = """() => [
  ...document.querySelectorAll("button, a, input, textarea, select, summary, img, [role=img]")]
  .filter((node) => node.checkVisibility({ visibilityProperty: true }))
  .filter((node) => !node.closest("[aria-hidden=true]") && !node.classList.contains("closed"))
  .filter((node) => {
    const label = node.labels?.length ? node.labels[0].textContent : "";
    const text = ["BUTTON", "A", "SUMMARY"].includes(node.tagName) ? node.textContent : "";
    return !(node.getAttribute("aria-label") || node.alt || label || text || "").trim();
  }).map((node) => node.outerHTML.slice(0, 120))"""

_PAIRS: Final = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const mix = (value, below, part) => (value * part + below * (255 - part)) / 255;
  const over = (top, below) => [...[0, 1, 2].map((at) => mix(top[at], below[at], top[3])), 255];
  const back = (node) => {
    const own = parse(getComputedStyle(node).backgroundColor);
    return own[3] === 255 || !node.parentElement ? own : over(own, back(node.parentElement));
  };
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || !node.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (node.closest(".unseen, .skip, [disabled]")) continue;
    const below = back(node);
    const above = over(parse(getComputedStyle(node).color), below);
    const [high, low] = [light(above), light(below)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const key = `${node.localName}.${node.className} ${above} ${below}`;
    found.set(key, { key, ratio });
  }
  return [...found.values()];
}"""


def show_much(server: Web, context: BrowserContext, place: Place) -> Page:
    """Open a session that shows about everything, with an approval waiting."""
    page = server.open(context)
    new_session(page)
    say(page, "go")
    press(page, "Approve")
    expect(page.locator(".asked-what")).to_contain_text("touch two")
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    return page


def script_much(place: Place) -> None:
    place.capabilities = ("thinking",)
    (place.work / "a.py").write_text("# old\nx = 'a' + str(1)\n", encoding="utf-8")
    todos = [{"title": "One", "status": "done"}, {"title": "Two", "status": "in_progress"}]
    edit = {"old": "x = 'a' + str(1)", "new": "def f() -> Foo:\n    return 2  # why"}
    place.script(
        "\n".join(
            [
                "think: Hm.",
                "text: A **bold** `code` [link](https://example.com) ~~gone~~",
                call("c1", "ReadFile", path="missing.py"),
                call("c2", "SetTodoList", todos=todos),
                call("c3", "StrReplaceFile", path="a.py", edit=edit),
                "usage: input_other=1000 output=5",
            ]
        ),
        call("c4", "Shell", command="touch two  # comment"),
        "text: The end.",
    )


def check_names_and_contrasts(page: Page) -> None:
    """Every control has a name, and every text is seen, light and dark."""
    assert page.evaluate(_UNNAMED) == []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        pairs: list[dict[str, Any]] = page.evaluate(_PAIRS)
        assert len(pairs) > 20
        assert [pair for pair in pairs if pair["ratio"] < LEAST_CONTRAST] == [], scheme


@pytest.mark.spec("R-399")
def test_every_control_has_a_name_and_every_text_contrast(place: Place, context: BrowserContext) -> None:
    script_much(place)
    with web(place) as server:
        page = show_much(server, context, place)
        check_names_and_contrasts(page)
        press(page, "Approve")
        wait_idle(page)
        page.locator(".context").click()
        expect(page.get_by_role("dialog")).to_contain_text("This session")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Settings").click()
        expect(page.locator("kbd").first).to_have_text("Enter")
        check_names_and_contrasts(page)


@pytest.mark.spec("R-399")
def test_focus_goes_through_the_page_in_reading_order(place: Place, context: BrowserContext) -> None:
    place.script("text: One.")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "go")
        wait_idle(page)
        page.evaluate("document.activeElement.blur()")
        order: list[str] = []
        for _ in range(16):
            page.keyboard.press("Tab")
            order.append(
                page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")
            )
        names = ["Message", "New session", "Search sessions", "Show sessions", "Settings", "Message"]
        found = [next((at for at, name in enumerate(order) if re.fullmatch(wanted, name)), -1) for wanted in names]
        assert found[0] == 0
        assert -1 not in found
        assert found[1:-1] == sorted(found[1:-1])
        assert order.index("Message", 1) > found[-2]


@pytest.mark.spec("R-399")
def test_screen_reader_is_told_what_is_asked_and_when_it_is_done(place: Place, context: BrowserContext) -> None:
    place.script(call("c1", "Shell", command="touch made"), "text: The end.")
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, "go")
        expect(page.get_by_role("status").last).to_contain_text("Run command `touch made`")
        expect(page.get_by_role("alertdialog", name="Run this command?")).to_be_visible()
        press(page, "Approve")
        expect(page.get_by_role("status").last).to_have_text("The answer is complete.")
        expect(page.get_by_role("main", name="Conversation")).to_contain_text("The end.")


@pytest.mark.spec("R-399")
def test_page_speaks_chinese_to_a_chinese_browser(place: Place, browser: Browser) -> None:
    place.script(call("c1", "Shell", command="touch made"), "text: The end.")
    with web(place) as server:
        context = browser.new_context(locale="zh-CN")
        page = context.new_page()
        page.goto(server.link)
        expect(page.get_by_text("今天做什么？")).to_be_visible()
        assert page.evaluate("document.documentElement.lang") == "zh-Hans"
        assert (
            page.evaluate(
                """async () => {
              const { ENGLISH } = await import("/page/texts_en.js");
              const { CHINESE } = await import("/page/texts_zh.js");
              return Object.keys(ENGLISH).filter((key) => !(key in CHINESE));
            }"""
            )
            == []
        )
        context.close()
