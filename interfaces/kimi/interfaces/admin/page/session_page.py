"""A session as one page of HTML that loads nothing: no script, no link out, pictures inside (runtime spec 1.6).

All text of people, models and tools passes `_text`, the only way into the page: it masks secrets, escapes what controls
or reorders text, and then escapes markup. The policy in the page's head forbids everything but the page's own style.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

from kimi.application.codec.envelope import replace_surrogates
from kimi.domain.content.parts import ContentPart, TextPart
from kimi.domain.tools.tool import (
    BackgroundTaskBlock,
    BriefBlock,
    DiffBlock,
    DisplayBlock,
    ShellBlock,
    TodoBlock,
    ToolReturnValue,
)
from kimi.interfaces.admin.page.session_story import (
    Called,
    Entry,
    Figures,
    Noted,
    Said,
    Scope,
    Shown,
    SubagentStory,
    Turn,
    find_url,
)
from kimi.interfaces.process.terminal_escape import escape_line, escape_text

MAX_COMPARED_LINES: Final = 2000
"""A longer hunk is shown as its old and its new lines, without being compared."""

_PICTURE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_KNOWN_KEYS: Final = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}"
    r"|xox[abeprs]-[\w-]{10,}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,})"
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[\s\S]{0,8000}?-----END [A-Z ]{0,20}PRIVATE KEY-----"
)
_MASKED: Final = "***"

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8885;--soft:#8882;--good:#2a7d3f;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--good:#7fd492;--bad:#ff8a80}}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
pre{font:13px/1.45 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}
.said pre,.prompt pre{font:inherit}
section{border-top:1px solid var(--line);padding-top:.5rem;margin-top:1.5rem;content-visibility:auto;
contain-intrinsic-size:auto 20rem}
h2{font-size:1rem;margin:.2rem 0}
small,.quiet{opacity:.75}
.prompt{background:var(--soft);border-left:4px solid var(--line);padding:.3rem .8rem}
details{border:1px solid var(--line);border-radius:.4rem;padding:.2rem .7rem;margin:.5rem 0}
summary{cursor:pointer;overflow-wrap:anywhere}
.failed>summary{color:var(--bad)}
.inner{border-left:3px solid var(--line);padding-left:.8rem;margin:.4rem 0}
ins,del{text-decoration:none;display:block}
ins{color:var(--good)}ins::before{content:"+ "}
del{color:var(--bad)}del::before{content:"- "}
span.same{display:block}span.same::before{content:"  "}
img{max-width:100%;height:auto}
table{border-collapse:collapse}td,th{border:1px solid var(--line);padding:.1rem .6rem;text-align:left}
nav li{overflow-wrap:anywhere}
@media print{details{break-inside:avoid}}
"""


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What the head of the page says; `facts` are names and values of a table."""

    title: str
    facts: Sequence[tuple[str, str]]


Mask = Callable[[str], str]
"""Replaces the secrets that are known in a text."""


class SessionPage:
    """Writes the page of a session piece by piece."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask

    def write(self, facts: PageFacts, turns: Iterable[Turn]) -> Iterator[str]:
        """Yield the page. Turns are taken one after the other; their list and their figures stand at the end."""
        yield from self._open(facts)
        prompts: list[tuple[int, str]] = []
        whole = Figures()
        for turn in turns:
            yield from self._write_turn(turn)
            prompts.append((turn.number, self._text(escape_line(self._mask(_first_line(turn)), 100))))
            whole.add(turn.figures)
        figures = _format_figures(whole) or "No figures."
        yield f'<section id="turns"><h2>Turns</h2><p class="quiet">{figures}</p><nav><ol>'
        yield from (f'<li value="{number}"><a href="#turn-{number}">{text}</a></li>\n' for number, text in prompts)
        yield "</ol></nav></section>\n</body></html>\n"

    def _open(self, facts: PageFacts) -> Iterator[str]:
        digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
        title = self._text(escape_line(self._mask(facts.title)))
        yield (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f'<meta name="referrer" content="no-referrer"><meta name="viewport" content="width=device-width">\n'
            f"<title>{title}</title>\n<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n<table>"
        )
        yield from (f"<tr><th>{self._text(name)}</th><td>{self._text(value)}</td></tr>" for name, value in facts.facts)
        yield '</table>\n<p><a href="#turns">All turns</a></p>\n'

    def _write_turn(self, turn: Turn) -> Iterator[str]:
        title = f"Turn {turn.number}" if turn.number else "Before the first turn"
        yield f'<section id="turn-{turn.number}"><h2>{title} <small>{_format_turn(turn)}</small></h2>\n'
        if turn.number:
            parts = (TextPart(turn.prompt),) if isinstance(turn.prompt, str) else turn.prompt
            yield f'<div class="prompt">{self._parts(parts)}</div>\n'
        yield from self._write_scope(turn.scope)
        yield "</section>\n"

    def _write_scope(self, scope: Scope) -> Iterator[str]:
        for entry in scope.entries:
            yield from self._write_entry(entry)

    def _write_entry(self, entry: Entry) -> Iterator[str]:
        match entry:
            case Said("think", text):
                yield f"<details><summary>Thinking</summary>{self._pre(text)}</details>\n"
            case Said("text", text):
                yield f'<div class="said">{self._pre(text)}</div>\n'
            case Said(kind, text):
                label = "Said into the running turn" if kind == "steer" else "Task"
                yield f'<div class="prompt"><small>{label}</small>{self._pre(text)}</div>\n'
            case Shown(url):
                yield self._medium(url)
            case Noted(title, text):
                yield f'<p class="quiet">{self._text(title)}</p>{self._pre(text) if text else ""}\n'
            case Called():
                yield from self._write_call(entry)
            case SubagentStory():
                yield from self._write_subagent(entry)

    def _write_subagent(self, story: SubagentStory) -> Iterator[str]:
        name = " ".join(filter(None, ("Subagent", story.subagent_type, story.agent_id)))
        yield f'<details class="inner"><summary>{self._text(name)}</summary>\n'
        yield from self._write_scope(story.scope)
        yield "</details>\n"

    def _write_call(self, called: Called) -> Iterator[str]:
        result = called.result
        state = "failed" if result is not None and result.is_error else "done"
        brief = next((block.text for block in result.display if isinstance(block, BriefBlock)), "") if result else ""
        if result is None:
            brief = "no result"
        title = escape_line(self._mask(f"{called.call.function.name} {_key_argument(called.arguments)}"), 160)
        yield f'<details class="call {state}"><summary><b>{self._text(title)}</b> '
        yield f"<small>{self._text(escape_line(self._mask(brief), 200))}</small></summary>\n"
        yield f"<small>Arguments</small>{self._pre(_indent_json(called.arguments))}\n"
        yield from (f'<p class="quiet">{self._text(answer)}</p>' for answer in called.asked)
        for story in called.inner:
            yield from self._write_subagent(story)
        if result is not None:
            yield from self._write_result(result)
        yield "</details>\n"

    def _write_result(self, result: ToolReturnValue) -> Iterator[str]:
        for block in result.display:
            yield self._block(block)
        parts = (TextPart(result.output),) if isinstance(result.output, str) else result.output
        if result.output:
            yield f"<small>Result</small>{self._parts(parts)}\n"
        if result.message:
            yield f'<p class="quiet">{self._text(result.message)}</p>\n'

    def _block(self, block: DisplayBlock) -> str:
        match block:
            case DiffBlock(is_summary=True):
                return f'<p class="quiet">{self._text(block.path)}: {self._text(block.new_text)}</p>'
            case DiffBlock():
                head = f"{self._text(block.path)}, line {int(block.new_start)}"
                return f"<small>{head}</small><pre>{self._diff(block)}</pre>\n"
            case ShellBlock():
                return self._pre(block.command)
            case TodoBlock():
                return self._pre("\n".join(f"[{item.status}] {item.title}" for item in block.items))
            case BackgroundTaskBlock():
                return f'<p class="quiet">{self._text(f"{block.task_id}: {block.status}, {block.description}")}</p>'
            case _:
                return ""

    def _diff(self, block: DiffBlock) -> str:
        # Masked as a whole: a secret may span lines.
        old, new = (self._mask_all(text).splitlines() for text in (block.old_text, block.new_text))
        if len(old) + len(new) > MAX_COMPARED_LINES:
            return "".join([_tag("del", line) for line in old] + [_tag("ins", line) for line in new])
        shown: list[str] = []
        for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind == "equal":
                shown += [_tag("span", line) for line in old[a:b]]
            else:
                shown += [_tag("del", line) for line in old[a:b]] + [_tag("ins", line) for line in new[c:d]]
        return "".join(shown)

    def _parts(self, parts: Iterable[ContentPart]) -> str:
        return "".join(
            self._pre(part.text) if isinstance(part, TextPart) else self._medium(find_url(part)) for part in parts
        )

    def _medium(self, url: str) -> str:
        if _PICTURE.fullmatch(url):
            return f'<p><img alt="A picture" src="{url}"></p>'
        shown = url.partition(",")[0] if url.startswith("data:") else url
        return f'<p class="quiet">[medium: {self._text(escape_line(self._mask(shown), 200))}]</p>'

    def _pre(self, text: str) -> str:
        # The first line feed in <pre> would be swallowed.
        return f"<pre>\n{self._text(text)}</pre>"

    def _text(self, text: str) -> str:
        """Return a text as it may stand in the page: between tags, or in a quoted attribute."""
        return _escape(self._mask_all(text))

    def _mask_all(self, text: str) -> str:
        return _KNOWN_KEYS.sub(_MASKED, self._mask(text))


def _escape(text: str) -> str:
    return html.escape(escape_text(str(replace_surrogates(text))), quote=True)


def _tag(name: str, line: str) -> str:
    opening = '<span class="same">' if name == "span" else f"<{name}>"
    return f"{opening}{_escape(line)}</{name}>"


def _first_line(turn: Turn) -> str:
    if not turn.number:
        return "Before the first turn"
    parts = (TextPart(turn.prompt),) if isinstance(turn.prompt, str) else turn.prompt
    return next((part.text for part in parts if isinstance(part, TextPart)), "[a medium]")


def _key_argument(arguments: str) -> str:
    """Return the first text among the arguments, which titles a call."""
    try:
        parsed: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    values = cast("dict[str, object]", parsed).values() if isinstance(parsed, dict) else ()
    return next((value for value in values if isinstance(value, str)), "")


def _indent_json(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def _format_turn(turn: Turn) -> str:
    pieces: list[str] = []
    if turn.began_at:
        pieces.append(format_time(turn.began_at))
        pieces.append(f"{max(0.0, turn.ended_at - turn.began_at):.0f} s")
    return ", ".join(filter(None, (*pieces, _format_figures(turn.figures))))


def _format_figures(figures: Figures) -> str:
    if not figures.input and not figures.output:
        return ""
    return f"{figures.input:,} tokens in ({figures.cached:,} from the cache), {figures.output:,} out"


def format_time(at: float) -> str:
    """Return a time for people, in UTC; empty for a number that is no time."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return ""
