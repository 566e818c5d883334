"""Long streams and long sessions: the page stays usable, and keeps no more nodes than the screen needs."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.browser.frames import traced
from tests.support.browser.web_process import Web, new_session, say, wait_idle, web
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Json, Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply
from tests.support.stored_sessions import event, register, write_session

ID: Final = "0b5ce6f2-2d1d-4c5e-9f7a-3c1f0e9d8b7a"
PIECES: Final = 50_000
MESSAGES: Final = 10_000
FRAME_MS: Final = 100
OPEN_MS: Final = 1000
MOST_NODES: Final = 12_000
GROWTH: Final = 24 * 1024 * 1024
"""How much more memory the page may use after the stream: the text itself, and what is on the screen."""

_MEMORY: Final = "() => { gc(); return performance.memory.usedJSHeapSize; }"
_NODES: Final = "() => document.querySelectorAll('*').length"

_SHOWN: Final = """() => {
  const section = document.elementFromPoint(700, 300).closest(".section");
  return Number(/\\d+/.exec(section?.innerText ?? "")?.[0] ?? -1);
}"""


def count_nodes(page: Page) -> int:
    return page.evaluate(_NODES)


def make_pieces() -> list[str]:
    """Paragraphs, lists and code, a few characters at a time."""
    code = "\n```python\n" + "".join(f"value_{n} = {n}\n" for n in range(40)) + "```\n\n"
    prose = "Some words of *an answer* with `code`, a [link](https://example.com).\n\n- one\n- two\n\n"
    text = ((prose * 12 + code) * 400)[: PIECES * 4]
    return [text[at : at + 4] for at in range(0, PIECES * 4, 4)]


@pytest.mark.spec("R-382")
def test_fifty_thousand_pieces_keep_frames_and_memory(place: Place, browser: Browser, context: BrowserContext) -> None:
    with loopback(text_reply("Short."), text_reply(*make_pieces(), "The end.")) as provider:
        place.provider(provider.base_url)
        with web(place) as server:
            page = server.open(context)
            new_session(page)
            say(page, "warm up")
            wait_idle(page)
            before: int = page.evaluate(_MEMORY)
            with traced(browser, page) as trace:
                say(page, "go")
                page.get_by_text("The end.").wait_for(timeout=50_000)
                wait_idle(page)
            assert trace.frames > 20
            assert trace.longest_ms <= FRAME_MS
            assert count_nodes(page) < MOST_NODES
            assert page.evaluate(_MEMORY) - before < GROWTH


def write_long_session(place: Place) -> None:
    """Write a session of 10,000 messages: prompts, answers, and calls with their results."""
    directory = write_session(place, ID, context=[{"role": "user", "content": "hi"}])
    register(place, None)
    lines: list[Json] = []
    for n in range(MESSAGES // 4):
        call = {
            "type": "function",
            "id": f"c{n}",
            "function": {"name": "ReadFile", "arguments": json.dumps({"path": f"src/{n}.py"})},
        }
        output = "1\tx = 1\n" * 20
        value: Json = {"is_error": False, "output": output, "message": "Read.", "display": [], "extras": None}
        lines += [
            event("TurnBegin", {"user_input": f"prompt {n}"}),
            event("StepBegin", {"n": 1}),
            event("ToolCall", call),
            event("ToolResult", {"tool_call_id": f"c{n}", "return_value": value}),
            event("ContentPart", {"type": "text", "text": f"Answer {n} with **bold** words and `code`. " * 6}),
            event("TurnEnd", {}),
        ]
    with (directory / "wire.jsonl").open("w", encoding="utf-8") as file:
        file.write('{"type": "metadata", "protocol_version": "1.10"}\n')
        file.writelines(json.dumps(line) + "\n" for line in lines)


def open_long(server: Web, context: BrowserContext) -> tuple[Page, float]:
    page = server.open(context, f"#/s/{ID}")
    page.wait_for_selector('[data-ready="true"]')
    return page, page.evaluate("performance.getEntriesByName('kimi:opened')[0].duration")


@pytest.mark.spec("R-383")
def test_session_of_ten_thousand_messages_opens_and_scrolls(
    place: Place, browser: Browser, context: BrowserContext
) -> None:
    place.script("text: x")
    write_long_session(place)
    with web(place) as server:
        page, took = open_long(server, context)
        expect(page.get_by_text(f"Answer {MESSAGES // 4 - 1} with").first).to_be_visible()
        assert took <= OPEN_MS * slowdown()
        assert count_nodes(page) < MOST_NODES
        scroller = page.locator("#conversation")
        with traced(browser, page) as trace:
            for part in (0.8, 0.5, 0.25):
                scroller.evaluate("(node, part) => { node.scrollTop = node.scrollHeight * part; }", part)
                expect(page.locator(".items")).to_contain_text(re.compile(rf"prompt {round(part * 24)}\d\d"))
            scroller.evaluate("(node) => { node.scrollTop = 0; }")
            expect(page.locator(".said").first).to_have_text("prompt 0")
        assert trace.longest_ms <= FRAME_MS
        assert count_nodes(page) < MOST_NODES


@pytest.mark.spec("R-383")
def test_scrolling_up_step_by_step_does_not_jump(place: Place, context: BrowserContext) -> None:
    place.script("text: x")
    write_long_session(place)
    with web(place) as server:
        page, _ = open_long(server, context)
        page.mouse.move(800, 400)
        seen: list[int] = []
        for _ in range(30):
            page.mouse.wheel(0, -700)
            page.wait_for_timeout(60)
            shown: int = page.evaluate(_SHOWN)
            if shown >= 0:
                seen.append(shown)
        assert len(seen) > 20
        assert seen == sorted(seen, reverse=True)
