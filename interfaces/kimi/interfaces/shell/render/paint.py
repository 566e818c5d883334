"""Blocks as coloured terminal text, by rich. Nothing of what others wrote reaches the terminal unneutralised.

The only control sequences in the result are colours and styles (SGR) of ours.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from functools import cache
from typing import ClassVar, Final, Literal, TypeAlias

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.panel import Panel
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from kimi.domain.tools.tool import BackgroundTaskBlock, BriefBlock, DiffBlock, DisplayBlock, ShellBlock, TodoBlock
from kimi.interfaces.shell.render.blocks import (
    Block,
    Called,
    CodeSaid,
    Level,
    Note,
    Output,
    PlanShown,
    Preview,
    Said,
    Thinking,
    Thought,
    UserSaid,
    Welcome,
)
from kimi.interfaces.shell.render.diff_lines import diff_lines
from kimi.interfaces.shell.render.sanitize import neutral, tool_text

ThemeName: TypeAlias = Literal["dark", "light"]
ColorSystem: TypeAlias = Literal["standard", "256", "truecolor"]

OUTPUT_LINES: Final = 6
USER_LINES: Final = 12
USER_CHARACTERS: Final = 2000
DIFF_LINES: Final = 40
LINE_CHARACTERS: Final = 400
"""Of a line of a change, once it is made."""
BRIEF_CHARACTERS: Final = 2000
_SHARED: Final[Mapping[str, str]] = {
    "faint": "bright_black",
    "markdown.code": "cyan",
    "markdown.link_url": "cyan underline",
    "markdown.hr": "bright_black",
    "markdown.block_quote": "italic",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold",
    "markdown.item.number": "cyan",
    "markdown.item.bullet": "cyan",
}
_THEMES: Final[Mapping[ThemeName, Mapping[str, str]]] = {
    "dark": {
        "user": "bold cyan",
        "tool": "bold",
        "ok": "green",
        "bad": "red",
        "warn": "yellow",
        "add": "green",
        "del": "red",
        "accent": "cyan",
    },
    "light": {
        "user": "bold blue",
        "tool": "bold",
        "ok": "green",
        "bad": "red",
        "warn": "dark_orange3",
        "add": "green",
        "del": "red",
        "accent": "blue",
    },
}
_CODE: Final[Mapping[ThemeName, str]] = {"dark": "ansi_dark", "light": "ansi_light"}
_LEVELS: Final[Mapping[Level, tuple[str, str]]] = {
    "info": ("•", "faint"),
    "success": ("✓", "ok"),
    "warning": ("!", "warn"),
    "error": ("✗", "bad"),
}
_TRAILING = re.compile(r" +$", re.MULTILINE)
_EMPTY_EDGES = re.compile(r"\A(?:(?: |\x1b\[[0-9;]*m)*\n)+|(?:\n(?: |\x1b\[[0-9;]*m)*)+\Z")
_MARKS: Final = {"pending": ("☐", ""), "in_progress": ("▸", "accent"), "done": ("☑", "faint")}


class Painter:
    """Draws blocks for a terminal of `width` columns; `colour` None leaves bold and italics only."""

    def __init__(self, width: int, colour: ColorSystem | None = "256", theme: ThemeName = "dark") -> None:
        self._theme: ThemeName = theme
        self._colour: ColorSystem | None = colour
        self._console = self._new_console(width)

    @property
    def width(self) -> int:
        """Columns."""
        return self._console.width

    @width.setter
    def width(self, columns: int) -> None:
        self._console.width = max(10, columns)

    def set_theme(self, theme: ThemeName) -> None:
        """Use other colours from now on."""
        self._theme = theme
        self._console = self._new_console(self._console.width)

    def paint(self, *blocks: Block) -> str:
        """The blocks as text with SGR sequences; each ends with a line feed."""
        return "".join(map(self._paint, blocks))

    def _paint(self, block: Block) -> str:
        text = self.render(renderable(block, self._theme))
        if isinstance(block, Said | UserSaid) or (isinstance(block, CodeSaid) and not block.goes_on):
            return "\n" + _EMPTY_EDGES.sub("", text) + "\n"  # rich surrounds some paragraphs with empty lines itself
        return text

    def render(self, *renderables: RenderableType) -> str:
        """Anything that rich can draw, as text."""
        with self._console.capture() as captured:
            for one in renderables:
                self._console.print(one)
        return _TRAILING.sub("", captured.get())

    def _new_console(self, width: int) -> Console:
        return Console(
            file=io.StringIO(),
            width=max(10, width),
            force_terminal=True,
            color_system=self._colour or "standard",
            no_color=self._colour is None,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
            theme=Theme({**_SHARED, **_THEMES[self._theme]}),
        )


class _LeftHeading(Heading):
    """Headings at the left edge, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Prose(Markdown):
    """Markdown in which HTML is text like any other, and links show where they lead."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}

    def __init__(self, text: str, code_theme: str) -> None:
        super().__init__("", code_theme=code_theme, hyperlinks=False)
        self.parsed = _parser().parse(text)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["strikethrough", "table"]).disable(["html_block", "html_inline"])


def renderable(block: Block, theme: ThemeName) -> RenderableType:
    """The block as something that rich can draw."""
    match block:
        case UserSaid(text=text, media=media, steer=steer):
            return _hanging(Text("»" if steer else "›", "user"), Text(_folded(text, media), "user"))
        case Said(text=text):
            return _Prose(neutral(text), _CODE[theme])
        case CodeSaid(language=language, text=text):
            return _code(neutral(text), neutral(language), theme)
        case Thought(seconds=seconds, text=text):
            took = f"✻ Thought for {duration(seconds)}  "
            return _Line(Text.assemble((took, "faint"), (neutral(text), "faint italic")))
        case Thinking(text=text):
            tail = " ".join(neutral(text)[-240:].split())
            return Text.assemble(("✻ Thinking  ", "faint"), (tail, "faint italic"), overflow="fold")
        case Called():
            return _called(block)
        case Preview(display=display, text=text):
            parts: list[RenderableType] = [Text(neutral(text))] if text else []
            return Group(*parts, *display_renderables(display, limit=None))
        case PlanShown(text=text, path=path):
            title = Text(f"Plan {neutral(path)}")
            return Panel(_Prose(neutral(text), _CODE[theme]), title=title, border_style="accent")
        case Note(text=text, level=level):
            sign, style = _LEVELS[level]
            return _hanging(Text(sign, style), Text(neutral(text), "" if level == "info" else style))
        case Output(text=text):
            return Text(tool_text(text).rstrip("\n"))
        case Welcome():
            return _welcome(block)


def _folded(text: str, media: int) -> str:
    """What the person sent; of much, the beginning."""
    lines = neutral(text).split("\n")
    rest = len(lines) - USER_LINES
    shown = lines if rest <= 1 else [*lines[:USER_LINES], f"… {rest} more lines"]
    return "\n".join(line[:USER_CHARACTERS] for line in shown) + (f" [{media} attached]" if media else "")


def _shortened(text: str, characters: int = LINE_CHARACTERS) -> str:
    return text if len(text) <= characters else text[:characters] + "…"


def duration(seconds: float) -> str:
    """Seconds for a reader: `3s`, `1m 05s`, `2h 01m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


class _Line:
    """One line, cut at the right edge."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self._text.copy()
        text.truncate(options.max_width, overflow="ellipsis")
        yield text


def _hanging(sign: Text, body: RenderableType) -> RenderableType:
    """`body` with `sign` before its first line, the others indented by the same."""
    return _Hanging(sign, body)


class _Hanging:
    def __init__(self, sign: Text, body: RenderableType) -> None:
        self._sign, self._body = sign, body

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = self._sign.cell_len + 1
        inner = options.update_width(max(4, options.max_width - width))
        lead: RenderableType = Text.assemble(self._sign, " ", end="")
        for line in console.render_lines(self._body, inner, pad=False):
            yield lead
            yield from line
            yield Segment.line()
            lead = Text(" " * width, end="")


def _code(text: str, language: str, theme: ThemeName) -> RenderableType:
    syntax = Syntax(text, language or "text", theme=_CODE[theme], word_wrap=True, background_color="default")
    return Padding(syntax, (0, 0, 0, 2))


def _called(block: Called) -> RenderableType:
    sign, style = {"running": ("◌", "accent"), "ok": ("✓", "ok"), "error": ("✗", "bad")}[block.state]
    title = Text.assemble((neutral(block.name), "tool"), " ", (neutral(block.title), "accent"))
    if block.seconds >= 1:
        title.append(f"  {duration(block.seconds)}", "faint")
    if block.nested_total:
        title.append(f"  {block.nested_total} calls", "faint")
    rows: list[RenderableType] = [_Line(title)]
    rows += [_Line(Text(f"└ {neutral(line)}", "faint")) for line in block.nested]
    if block.state != "running":
        rows += _outcome(block)
    return _hanging(Text(sign, style), Group(*rows))


def _outcome(block: Called) -> list[RenderableType]:
    rows: list[RenderableType] = []
    if block.brief:
        brief = _shortened(neutral(block.brief), BRIEF_CHARACTERS)
        rows.append(Text(brief, "bad" if block.state == "error" else "faint"))
    rows += display_renderables(block.display, limit=DIFF_LINES)
    if not block.display:
        rows += _head(tool_text(block.output[:20_000]).strip("\n"), block.output)
    return rows


def _head(text: str, whole: str) -> list[RenderableType]:
    """The first lines of an output, each on one line, and how many more there are."""
    lines = text.split("\n") if text else []
    rest = whole.count("\n") + 1 - OUTPUT_LINES if len(lines) > OUTPUT_LINES else 0
    shown: list[RenderableType] = [_Line(Text(line, "faint")) for line in lines[:OUTPUT_LINES]]
    return shown + ([Text(f"… {rest} more lines", "faint")] if rest > 0 else [])


def _welcome(block: Welcome) -> RenderableType:
    rows = Text.assemble(
        ("kimi ", "bold"), (f"{block.version}\n", "faint"),
        ("directory  ", "faint"), f"{neutral(block.directory)}\n",
        ("session    ", "faint"), f"{neutral(block.session)}\n",
        ("model      ", "faint"), neutral(block.model),
        overflow="fold",
    )  # fmt: skip
    panel = Panel(rows, border_style="accent", expand=False)
    return Group(panel, *(renderable(note, "dark") for note in block.notes))


# --- display blocks ---------------------------------------------------------------------------------------------


def display_renderables(display: tuple[DisplayBlock, ...], *, limit: int | None) -> list[RenderableType]:
    """Display blocks; of a diff at most `limit` lines, and then of each line only the beginning."""
    found: list[RenderableType] = []
    for block in display:
        match block:
            case DiffBlock():
                found += _diff(block, limit)
            case ShellBlock(command=command):
                found.append(_hanging(Text("$", "accent"), Text(neutral(command), overflow="fold")))
            case TodoBlock(items=items):
                found += [_todo(item.status, item.title) for item in items]
            case BackgroundTaskBlock(task_id=task_id, status=status, description=description):
                found.append(Text(f"{neutral(task_id)} {neutral(status)}  {neutral(description)}", "faint"))
            case BriefBlock(text=text):
                found.append(Text(neutral(text), "faint"))
            case _:
                pass
    return found


def _todo(status: Literal["pending", "in_progress", "done"], title: str) -> RenderableType:
    sign, style = _MARKS[status]
    return _hanging(Text(sign, style), Text(neutral(title), "faint strike" if status == "done" else style))


def _diff(block: DiffBlock, limit: int | None) -> list[RenderableType]:
    lines = diff_lines(block)
    added = sum(line.sign == "+" for line in lines)
    removed = sum(line.sign == "-" for line in lines)
    head = Text.assemble((f"+{added}", "add"), (f" -{removed}  ", "del"), (neutral(block.path), "underline"))
    width = len(str(max((line.number for line in lines), default=1)))
    styles = {" ": "faint", "+": "add", "-": "del"}
    shown = lines if limit is None else [line._replace(text=_shortened(line.text)) for line in lines[:limit]]
    rows: list[RenderableType] = [
        _hanging(Text(f"{line.number:>{width}} {line.sign}", styles[line.sign]), Text(line.text, styles[line.sign]))
        for line in shown
    ]
    rest = len(lines) - len(rows)
    return [_Line(head), *rows, *([Text(f"… {rest} more lines", "faint")] if rest > 0 else [])]
