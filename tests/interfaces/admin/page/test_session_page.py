"""The page of a session: nothing becomes markup, nothing is loaded, everything that happened is there."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart, ThinkPart
from kimi.domain.events.event import (
    ApprovalResponse,
    Event,
    Notification,
    StatusUpdate,
    SubagentEvent,
    ToolResult,
    TurnBegin,
    TurnEnd,
)
from kimi.domain.events.request import ApprovalRequest
from kimi.domain.tools.tool import BriefBlock, DiffBlock, ShellBlock, TodoBlock, TodoItem, ToolReturnValue
from kimi.domain.turn import TokenUsage
from kimi.interfaces.admin.page.session_page import PageFacts, SessionPage
from kimi.interfaces.admin.page.session_story import TimedEvent, tell_turns
from tests.support.shown.attacks import HOST_TAGS

ATTACKS = (
    "<script>alert(1)</script>",
    "</pre><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "--><script>alert(1)</script><!--",
    "]]><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href='javascript:alert(1)'>x</a>",
    "<meta http-equiv=refresh content='0;url=//evil'>",
    "<base href=//evil>",
    "<link rel=stylesheet href=//evil>",
    "<style>@import '//evil'</style>",
    "<form action=//evil><input name=q autofocus onfocus=alert(1)>",
    "<object data=//evil>",
    "<embed src=//evil>",
    "<math><mtext></p><img src onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<template><script>alert(1)</script></template>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    "` onmouseover=`alert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;",
    "&amp;lt;script&amp;gt;",
    "<\x00script>alert(1)</script>",
    "<scr\x00ipt>alert(1)</scr\x00ipt>",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
    "\u202e<script>\u202c",
    "\ud800<script>",
    "%3Cscript%3E",
    "\x1b]8;;http://evil\x07x",
    "<details open ontoggle=alert(1)>",
    "</details></section></body></html><script>alert(1)</script>",
    "data:text/html,<script>alert(1)</script>",
    *HOST_TAGS,
)
URLS = (
    "javascript:alert(1)",
    "https://evil.example/pixel.png",
    "//evil.example/x",
    "data:image/svg+xml;base64,PHN2Zz4=",
    "data:text/html;base64,PHNjcmlwdD4=",
    'data:image/png;base64,AAAA" onerror="alert(1)',
    "data:image/png;base64,AAAA\n<script>",
    "file:///etc/passwd",
)
ALLOWED = {
    "html": {"lang"},
    "meta": {"charset", "http-equiv", "content", "name"},
    "section": {"id"},
    "div": {"class"},
    "p": {"class"},
    "span": {"class"},
    "details": {"class"},
    "li": {"value"},
    "a": {"href"},
    "img": {"alt", "src"},
} | {
    tag: set[str]()
    for tag in "head title style body h1 h2 small table tr th td pre summary b ins del nav ol".split()  # noqa: SIM905
}


@dataclass
class Found(HTMLParser):
    """The tags, attributes and texts of a page as a parser sees them."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list[tuple[str, dict[str, "str | None"]]])
    texts: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page_of(events: Iterable[Event | TimedEvent], title: str = "A session", secrets: tuple[str, ...] = ()) -> str:
    def mask(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    timed = (one if isinstance(one, tuple) else (0.0, one) for one in events)
    facts = PageFacts(title, [("Session", title)])
    return "".join(SessionPage(mask).write(facts, tell_turns(timed)))


def parse(page: str) -> Found:
    found = Found()
    found.feed(page)
    found.close()
    return found


def call(name: str, arguments: str, call_id: str = "c1") -> ToolCall:
    return ToolCall(id=call_id, function=Function(name, arguments))


def everywhere(text: str) -> Iterator[Event]:
    """Put a text into every place that others can write to."""
    yield TurnBegin(text)
    yield ThinkPart(think=text)
    yield TextPart(text)
    yield call(text, json.dumps({text: text}))
    yield ApprovalRequest("a1", "c1", text, text, text)
    yield ApprovalResponse("a1", "reject", text)
    yield SubagentEvent("c1", text, text, TurnBegin(text))
    yield SubagentEvent("c1", text, text, TextPart(text))
    yield SubagentEvent("other", text, text, call(text, text, text))
    blocks = (
        BriefBlock(text),
        DiffBlock(path=text, old_text=text, new_text=f"{text}\n{text}"),
        ShellBlock(language=text, command=text),
        TodoBlock(items=(TodoItem(text),)),
    )
    yield ToolResult("c1", ToolReturnValue(True, (TextPart(text), ImagePart(MediaUrl(text))), text, blocks))
    yield ToolResult(text, ToolReturnValue(False, text, text))
    yield Notification(text, "task", text, text, text, text, text, "info", 1.0, {text: text})
    yield ImagePart(MediaUrl(text))
    yield TurnEnd()


@pytest.mark.spec("R-314")
@pytest.mark.parametrize("attack", [*ATTACKS, *URLS])
def test_no_text_of_others_becomes_markup(attack: str) -> None:
    found = parse(page_of(everywhere(attack), attack))
    for tag, attributes in found.tags:
        assert tag in ALLOWED, tag
        assert attributes.keys() <= ALLOWED[tag], (tag, attributes)
        if tag == "a":
            assert re.fullmatch(r"#turn(s|-\d+)", attributes["href"] or "")
        if tag == "img":
            assert re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+", attributes["src"] or "")
    plain = parse(page_of(everywhere("plain")))
    # The number of these depends on the lines of the text, and on whether it is a medium.
    loose = ("p", "ins", "del", "span")
    assert [tag for tag, _ in found.tags if tag not in loose] == [tag for tag, _ in plain.tags if tag not in loose]


@pytest.mark.spec("R-314")
def test_the_policy_allows_the_pages_own_style_only() -> None:
    page = page_of(everywhere("text"))
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(tag[1]["content"] for tag in parse(page).tags if "http-equiv" in tag[1])
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert "style=" not in page
    assert "<script" not in page
    assert "prefers-color-scheme:dark" in style
    assert not re.search(r"url\(|@import|https?:", style)


@pytest.mark.spec("R-314")
def test_secrets_are_masked_wherever_they_stand() -> None:
    known = "correct-horse-battery"
    shapes = (
        "sk-abcdefghijklmnop1234",
        "ghp_abcdefghijklmnopqrst1234",
        "AKIAABCDEFGHIJKLMNOP",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    )
    for secret in (known, *shapes):
        page = page_of(everywhere(f"before {secret} after"), secret, (known,))
        assert secret not in page
        assert "before *** after" in page
    assert "MIIE" not in page_of(everywhere(shapes[-1]))


@pytest.mark.spec("R-313")
def test_everything_that_happened_is_on_the_page_in_its_place() -> None:
    diff = DiffBlock(path="/w/a.py", old_text="same\nold", new_text="same\nnew", new_start=7)
    picture = "data:image/png;base64,iVBORw0KGgo="
    events: list[Event | TimedEvent] = [
        (1_760_000_000.0, TurnBegin((TextPart("Look at this"), ImagePart(MediaUrl(picture))))),
        ThinkPart(think="hmm "),
        ThinkPart(think="so"),
        TextPart("I will "),
        TextPart("edit."),
        call("StrReplaceFile", '{"path":"a.py"}'),
        ApprovalRequest("r1", "c1", "StrReplaceFile", "edit file", "Edit file `/w/a.py`"),
        ApprovalResponse("r1", "reject", "not so"),
        ToolResult("c1", ToolReturnValue(True, "out", "Rejected.", (BriefBlock("Rejected"), diff))),
        call("Agent", '{"prompt":"find it"}', "c2"),
        SubagentEvent("c2", "a1", "explore", TurnBegin("find it")),
        SubagentEvent("c2", "a1", "explore", call("Grep", '{"pattern":"x"}', "s1")),
        SubagentEvent("c2", "a1", "explore", ToolResult("s1", ToolReturnValue(False, "a.py:1", ""))),
        ToolResult("c2", ToolReturnValue(False, "found", "")),
        StatusUpdate(token_usage=TokenUsage(1000, 20, 500, 0)),
        StatusUpdate(token_usage=TokenUsage(10, 3, 0, 0)),
        (1_760_000_042.0, TurnEnd()),
        TurnBegin("and now?"),
        TextPart("Done."),
    ]
    page = page_of(events)
    assert f'<img alt="A picture" src="{picture}">' in page
    assert "<summary>Thinking</summary><pre>\nhmm so</pre>" in page
    assert "I will edit." in page
    assert "Rejected: not so" in page
    assert '<span class="same">same</span><del>old</del><ins>new</ins>' in page
    assert "2025-10-09 08:53:20 UTC, 42 s, 1,510 tokens in (500 from the cache), 23 out" in page
    agent = page.index("Agent find it")
    assert agent < page.index("Subagent explore a1") < page.index("Grep x") < page.index("found</pre>")
    assert '<a href="#turn-1">Look at this</a>' in page
    assert '<a href="#turn-2">and now?</a>' in page
    assert page.index('id="turn-1"') < page.index('id="turn-2"') < page.index('id="turns"')


@pytest.mark.spec("R-315")
def test_a_session_of_ten_thousand_messages_needs_the_memory_of_a_turn() -> None:
    def events() -> Iterator[TimedEvent]:
        for number in range(5000):
            yield 1.0, TurnBegin(f"prompt {number}")
            yield 1.0, TextPart("an answer " * 100)

    size = 0
    turns = tell_turns(events())
    tracemalloc.start()
    for piece in SessionPage(str).write(PageFacts("long", []), turns):
        size += len(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 5_000_000
    assert peak < 3_000_000


def test_a_huge_hunk_is_shown_without_being_compared() -> None:
    old, new = ("\n".join(f"{word} {number}" for number in range(4000)) for word in ("old", "new"))
    page = page_of(
        [
            TurnBegin("go"),
            call("WriteFile", "{}"),
            ToolResult("c1", ToolReturnValue(False, "", "", (DiffBlock(path="/a", old_text=old, new_text=new),))),
        ]
    )
    assert page.count("<del>") == page.count("<ins>") == 4000
