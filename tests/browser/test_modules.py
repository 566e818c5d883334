"""The modules of the page that know no page: Markdown, comparison, the transcript, what is hidden in texts."""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import watched_context
from tests.support.browser.web_process import web
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Place

GOLDEN: Final = Path(__file__).parent.parent / "e2e" / "golden"
PARSE_MS: Final = 150

_MARKDOWN: Final = """async ([text, fence]) => {
  const { drawMarkdown } = await import("/page/view/markdown_view.js");
  const box = document.createElement("div");
  box.append(...drawMarkdown(text, fence));
  return box.innerHTML;
}"""
_CHUNKS: Final = """async (pieces) => {
  const { addText, newChunk } = await import("/page/model/chunks.js");
  const chunks = [newChunk()];
  for (const piece of pieces) chunks.push(...addText(chunks.at(-1), piece));
  return chunks.map(({ text, fence }) => [text, fence !== null]);
}"""
_ROWS: Final = """async ([before, after]) => {
  const { diffRows } = await import("/page/model/diff.js");
  return diffRows(before, after).map(({ op, text, old, new: now }) => [op, text, old, now]);
}"""
_TIMES: Final = """async (texts) => {
  const { parseMarkdown } = await import("/page/model/markdown.js");
  return texts.map((text) => {
    const begun = performance.now();
    parseMarkdown(text);
    return performance.now() - begun;
  });
}"""
_PLAY: Final = """async (messages) => {
  const { Transcript } = await import("/page/model/transcript.js");
  const transcript = new Transcript(() => {});
  for (const { params } of messages) transcript.handle(params.type, params.payload);
  return [transcript.running, transcript.items.filter((item) => !item.dropped)
    .map(({ kind, state, title, chunk, text }) => [kind, title ?? chunk?.text ?? text, state ?? ""])];
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    place = Place(tmp_path_factory.mktemp("modules")).script("text: x")
    with web(place) as server, watched_context(browser) as context:
        yield server.open(context)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a *b* **c** ~~d~~ `e`", "a <em>b</em> <strong>c</strong> <del>d</del> <code>e</code>"),
        ("***both*** snake_case_word", "<em><strong>both</strong></em> snake_case_word"),
        ("2 * 3 * 4 and **open", "2 * 3 * 4 and **open"),
        ("`` a`b `` \\*kept\\*", "<code>a`b</code> *kept*"),
        ("<b>no</b> &amp; &lt;", "&lt;b&gt;no&lt;/b&gt; &amp; &lt;"),
        ("one  \ntwo<br>three", "one<br>two<br>three"),
    ],
)
def test_inline_markdown_becomes_nodes(page: Page, text: str, html: str) -> None:
    assert page.evaluate(_MARKDOWN, [text, None]) == f'<p dir="auto">{html}</p>'


def test_blocks_of_markdown_become_nodes(page: Page) -> None:
    text = "# T\n\n> q\n\n- a\n  1. b\n- [x] c\n\n|h|i|\n|-|-:|\n|1|2|\n\n---\n\n```py\nx = 1\n```\n"
    html = page.evaluate(_MARKDOWN, [text, None])
    for part in (
        '<h3 class="h1"',
        "<blockquote><p",
        "<ol><li",
        'class="task done"',
        '<td class="right">2</td>',
        "<hr>",
    ):
        assert part in html
    assert '<span class="hl-n">1</span>' in html


def test_link_tells_nothing_and_leads_to_the_web_only(page: Page) -> None:
    html = page.evaluate(_MARKDOWN, ["[a](https://x.example/) [b](javascript:x) <mailto:me@x.example>", None])
    assert html.count("<a ") == 2
    assert html.count('target="_blank" rel="noopener noreferrer"') == 2
    assert "javascript" not in html


@pytest.mark.spec("R-382")
def test_hostile_markdown_is_read_in_time_that_grows_with_it(page: Page) -> None:
    size = 8000
    parts = [
        "*",
        "*a ",
        "_a*",
        "[",
        "![](",
        '[a]("',
        "[a](<",
        "`a ",
        "> ",
        "- ",
        "<",
        "&",
        "http://",
        "|a",
        "#",
        "``` `",
        "~",
    ]
    texts = [(part * size)[:size] for part in parts] + ["*a " * 2000 + "a* " * 2000, "| a " * 1000 + "\n" + "|-" * 900]
    texts += ["h" * 100_000, "http://" + "." * 100_000, "~" * 30_000 + "x`", "```" + " " * 30_000 + "`", "a\n" * 50_000]
    page.evaluate(_TIMES, texts)
    assert max(page.evaluate(_TIMES, texts)) < PARSE_MS * slowdown()


def test_streamed_text_is_cut_into_chunks_that_lose_nothing(page: Page) -> None:
    chance = random.Random(7)
    words = ["word ", "\n", "\n\n", "```py\n", "x = 1\n", "```\n", "- item\n", "1. one\n", "x" * 9000, "*a* "]
    pieces = [chance.choice(words) for _ in range(3000)]
    chunks = page.evaluate(_CHUNKS, pieces)
    assert "".join(text for text, _ in chunks) == "".join(pieces)
    assert max(len(text) for text, _ in chunks) < 20_000
    assert any(in_fence for _, in_fence in chunks)


def test_comparison_tells_both_texts_and_no_more_than_it_must(page: Page) -> None:
    chance = random.Random(3)
    for _ in range(60):
        before = [chance.choice("abcd") for _ in range(chance.randint(1, 14))]
        after = [chance.choice("abcd") for _ in range(chance.randint(1, 14))]
        rows: list[list[Any]] = page.evaluate(_ROWS, ["\n".join(before), "\n".join(after)])
        assert [text for op, text, *_ in rows if op != "+"] == before
        assert [text for op, text, *_ in rows if op != "-"] == after
        assert [old for op, _, old, _ in rows if op != "+"] == list(range(1, len(before) + 1))
        blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
        assert sum(op == " " for op, *_ in rows) >= sum(block.size for block in blocks)


@pytest.mark.spec("R-380")
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_recorded_turns_end_with_nothing_open(page: Page, path: Path) -> None:
    messages = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    events = [message for message in messages if message.get("method") == "event"]
    running, items = page.evaluate(_PLAY, events)
    assert not running
    assert items[0][:2] == ["user", "go"]
    assert [item for item in items if item[2] == "running"] == []
    said = [event["params"]["payload"]["text"] for event in events if event["params"]["type"] == "ContentPart"]
    shown = "".join(text for kind, text, _ in items if kind == "text")
    assert shown == "".join(said) or path.stem == "retry"
