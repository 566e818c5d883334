"""Texts of models, tools, files and people that try to become markup: on the page they stay text."""

from __future__ import annotations

import json
from typing import Final

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser.web_process import new_session, press, say, session_id, wait_idle, web
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply
from tests.support.providers.scripted_calls import call

ATTACKS: Final = (
    "<script>window.pwned = 1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg onload=window.pwned=1><script>window.pwned=1</script></svg>",
    "<svg><animate onbegin=window.pwned=1 attributeName=x dur=1s>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<a href='javascript:window.pwned=1'>x</a>",
    "<details open ontoggle=window.pwned=1>",
    "<style>*{background:url(https://evil.example/leak)}</style>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action=https://evil.example/><button formaction=javascript:pwned=1>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=window.pwned=1&gt;'>",
    "</textarea></title></script><script>window.pwned=1</script>",
    "\"'><script>window.pwned=1</script>",
    "${window.pwned=1}{{constructor.constructor('window.pwned=1')()}}",
    "[x](javascript:window.pwned=1)",
    "[x](JaVaScRiPt:window.pwned=1)",
    "[x]( java\tscript:window.pwned=1)",
    "[x](<javascript:window.pwned=1>)",
    "[x](data:text/html,<script>opener.pwned=1</script>)",
    "[x](vbscript:x)",
    "[x](file:///etc/passwd)",
    "[x](blob:https://evil.example/1)",
    "<javascript:window.pwned=1>",
    "![x](https://evil.example/leak.png)",
    "![x](javascript:window.pwned=1)",
    "![x](data:image/svg+xml,<svg/onload=window.pwned=1>)",
    "![x](data:image/svg+xml;base64,PHN2Zy9vbmxvYWQ9cHduZWQ9MT4=)",
    '[x](https://a.example/"onmouseover="window.pwned=1)',
    'https://a.example/"onmouseover=window.pwned=1',
    '```"><script>window.pwned=1</script>\n<img src=x onerror=window.pwned=1>\n```',
    "| <img src=x onerror=window.pwned=1> | b |\n|---|---|\n| <script>window.pwned=1</script> | c |",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "__proto__ constructor hasOwnProperty toString",
    "\u202egnp.exe \u2066hidden\u2069 \x1b[31mred\x1b[0m \x1b]0;title\x07",
)
CORPUS: Final = "\n\n".join(ATTACKS)

_FINDINGS: Final = """() => {
  const found = [];
  if (window.pwned !== undefined) found.push("a script ran");
  const ownStyle = document.head.querySelector("style");
  for (const node of document.querySelectorAll("*")) {
    const name = node.localName;
    if (node === ownStyle) continue;
    if (["iframe", "object", "embed", "form", "base", "style", "math", "frame"].includes(name)) found.push(name);
    if (name === "script" && !node.src.startsWith(location.origin + "/page/")) found.push("script");
    if (name === "meta" && node.closest("body")) found.push("meta");
    if (name === "svg" && node.getAttribute("class") !== "icon") found.push("svg");
    for (const { name: own } of node.attributes) if (own.startsWith("on")) found.push(name + " " + own);
    if (name === "a" && node.target === "_blank") {
      if (!/^(https?|mailto):/.test(node.href)) found.push("link " + node.href);
      if (node.rel !== "noopener noreferrer") found.push("rel " + node.rel);
    } else if (name === "a" && !node.getAttribute("href").startsWith("#")) found.push("link " + node.href);
    const contained = /^(data:image.(png|jpeg|gif|webp);base64,|blob:)/;
    if (name === "img" && !contained.test(node.src)) found.push("picture " + node.src);
  }
  return found;
}"""


def check(page: Page) -> None:
    """Nothing on the page is what a text wanted it to be."""
    page.locator("details.tool, details.think").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    assert page.evaluate(_FINDINGS) == []


@pytest.mark.spec("R-390")
def test_texts_of_the_model_and_its_tools_stay_text(place: Place, context: BrowserContext) -> None:
    place.capabilities = ("thinking",)
    (place.work / "evil.txt").write_text(CORPUS, encoding="utf-8")
    (place.work / "<img src=x onerror=pwned=1>.txt").write_text("x", encoding="utf-8")
    text = [f"text: {line}" for line in CORPUS.replace("\x1b", "").split("\n") if line.strip()]
    options = [{"label": one, "description": ATTACKS[1]} for one in ATTACKS[:2]]
    place.script(
        "\n".join(
            [
                f"think: {ATTACKS[0]} {ATTACKS[1]}",
                *text,
                call("c1", "Shell", command="cat evil.txt; echo '<script>window.pwned=1</script>'"),
            ]
        ),
        call("c2", "Glob", pattern="*.txt"),
        call("c3", "SetTodoList", todos=[{"title": one, "status": "pending"} for one in ATTACKS[:4]]),
        call("c4", "WriteFile", path="<img src=x onerror=window.pwned=1>.html", content=CORPUS),
        call("c5", "<img src=x onerror=window.pwned=1>", **{ATTACKS[1]: ATTACKS[0]}),
        call("c6", "AskUserQuestion", questions=[{"question": ATTACKS[0], "header": "<b>x</b>", "options": options}]),
        "text: The end.",
    )
    with web(place) as server:
        page = server.open(context)
        new_session(page)
        say(page, CORPUS)
        page.wait_for_selector(".card.asked")
        check(page)
        press(page, "Approve")
        expect(page.locator(".asked-what")).to_contain_text("onerror=window.pwned=1>.html")
        check(page)
        press(page, "Approve")
        page.wait_for_selector(".question")
        check(page)
        page.wait_for_timeout(500)
        page.get_by_role("button", name="Dismiss").click()
        expect(page.get_by_text("The end.")).to_be_visible()
        wait_idle(page)
        check(page)
        shown = page.locator(".items").inner_text()
        assert "<script>window.pwned = 1</script>" in shown
        assert "\\u202egnp.exe" in shown
        page.reload()
        expect(page.get_by_text("The end.")).to_be_visible()
        check(page)


@pytest.mark.spec("R-390")
def test_titles_and_errors_stay_text(place: Place, context: BrowserContext) -> None:
    body = json.dumps({"error": {"message": CORPUS[:3000]}}).encode()
    with loopback(Reply(status=400, body=body)) as provider:
        place.provider(provider.base_url)
        with web(place) as server:
            page = server.open(context)
            new_session(page)
            say(page, "go")
            expect(page.locator(".note.error")).to_contain_text("<script>")
            for title in ATTACKS[:4]:
                page.evaluate(
                    """([id, title]) => fetch(`/api/sessions/${id}`, {method: "PATCH", body: JSON.stringify({title}),
                    headers: {"Content-Type": "application/json"}})""",
                    [session_id(page), title],
                )
                page.reload()
                expect(page.locator(".session-title").first).to_contain_text(title[:20])
                expect(page.locator(".heading h1")).to_contain_text(title[:20])
                page.locator(".session .button").first.click()
                page.get_by_role("menuitem", name="Delete").click()
                page.wait_for_selector("dialog[open]")
                check(page)


@pytest.mark.spec("R-391")
def test_page_asks_nothing_of_anybody_else(place: Place, context: BrowserContext) -> None:
    place.script("text: ![x](https://evil.example/a.png) <img src=https://evil.example/b.png> https://evil.example/c")
    asked: list[str] = []
    with web(place) as server:
        context.on("request", lambda request: asked.append(request.url))
        page = server.open(context)
        new_session(page)
        say(page, "go")
        wait_idle(page)
        page.get_by_role("button", name="Settings").click()
        page.wait_for_timeout(300)
        assert [url for url in asked if not url.startswith((server.address, "data:", "blob:"))] == []
