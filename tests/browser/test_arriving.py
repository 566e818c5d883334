"""Coming to the page: soon, small, complete, and told of what happens elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import BrowserContext, Response, Route, expect

from tests.support.browser.web_process import new_session, web
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Place
from tests.support.providers.scripted_calls import call

PAGE: Final = Path(__file__).parent.parent.parent / "interfaces" / "kimi" / "interfaces" / "web" / "page"
PAGE_BYTES: Final = 200 * 1024
PAINT_MS: Final = 500

_PAINT: Final = """() => performance.getEntriesByName("first-contentful-paint")[0].startTime"""
_WAIT_FOR_PAINT: Final = """() => new Promise((resolve) => {
  new PerformanceObserver((list) => list.getEntriesByName("first-contentful-paint").length && resolve())
    .observe({ type: "paint", buffered: true });
})"""
_SHOWN: Final = """async () => {
  const worker = await navigator.serviceWorker.getRegistration("/page/");
  return worker ? (await worker.getNotifications()).map(({ title, body }) => `${title}: ${body}`) : [];
}"""

_SEND: Final = """() => {
  const field = document.getElementById("message");
  field.value = "go";
  field.dispatchEvent(new Event("input"));
  document.querySelector(".composer .primary").click();
}"""


@pytest.mark.spec("R-391")
def test_page_is_small_and_paints_soon(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < PAGE_BYTES
    with web(place) as server:
        paints: list[float] = []
        for _ in range(2):
            page = server.open(context)
            paints.append(page.evaluate(_PAINT))
            expect(page.get_by_text("What shall we work on?")).to_be_visible()
            page.close()
        assert min(paints) < PAINT_MS * slowdown()


@pytest.mark.spec("R-391")
def test_first_paint_waits_for_no_file_and_has_the_chosen_colours(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    with web(place) as server:
        page = server.open(context)
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("Colours").select_option("dark")
        page.close()
        page = context.new_page()
        held: list[Route] = []
        page.route("**/page/**", lambda route: held.append(route))  # noqa: PLW0108 - a builtin has no signature
        page.goto(server.address, wait_until="commit")
        page.evaluate(_WAIT_FOR_PAINT)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(24, 25, 27)"
        assert page.evaluate("document.styleSheets.length") == 1
        assert held


@pytest.mark.spec("R-391")
def test_every_file_of_the_page_is_used_and_found(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    asked: dict[str, int] = {}

    def note(answer: Response) -> None:
        asked[answer.url.removeprefix(server.address)] = answer.status

    with web(place) as server:
        context.on("response", note)
        server.open(context)
        modules = {
            f"/page/{path.relative_to(PAGE).as_posix()}" for path in PAGE.rglob("*") if path.suffix in (".js", ".css")
        }
        assert modules - set(asked) == {"/page/sw.js"}  # it is loaded with the first notification
        assert [path for path, status in asked.items() if path.startswith("/page/") and status != 200] == []


@pytest.mark.spec("R-396")
def test_who_looks_elsewhere_is_notified_of_what_is_asked(place: Place, context: BrowserContext) -> None:
    place.script(call("c1", "Shell", command="touch made"), "text: The end.")
    with web(place) as server:
        context.grant_permissions(["notifications"], origin=server.address)
        page = server.open(context)
        page.get_by_role("button", name="Settings").click()
        page.get_by_role("checkbox").check()
        expect(page.get_by_role("checkbox")).to_be_checked()
        page.keyboard.press("Escape")
        new_session(page)
        tools: Any = context.new_cdp_session(page)
        tools.send("Emulation.setFocusEmulationEnabled", {"enabled": False})
        context.new_page().bring_to_front()
        page.evaluate(_SEND)
        page.wait_for_selector(".card.asked")
        expect(page).to_have_title("? go · Kimi")
        until = time.monotonic() + 15
        while not (told := list[str](page.evaluate(_SHOWN))) and time.monotonic() < until:
            time.sleep(0.1)
        assert len(told) == 1
        assert told[0].startswith("Something is asked: ")
        assert told[0].endswith("Run command `touch made`")
