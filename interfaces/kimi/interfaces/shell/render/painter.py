"""Draws blocks as coloured terminal text with rich. All text from outside is neutralized.

The only control sequences in the result are the painter's own colours and styles (SGR).
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
    ApprovalPreview,
    Block,
    MarkdownBlock,
    MarkdownCodeBlock,
    Note,
    NoteLevel,
    OutputBlock,
    PlanBlock,
    ThinkingBlock,
    ThinkingSummaryBlock,
    ToolCallBlock,
    UserMessageBlock,
    Welcome,
)
from kimi.interfaces.shell.render.diff_lines import build_diff_lines
from kimi.interfaces.shell.render.sanitize import clean_tool_output, neutralize

ThemeName: TypeAlias = Literal["dark", "light"]
ColorSystem: TypeAlias = Literal["standard", "256", "truecolor"]

OUTPUT_LINES: Final = 6
USER_LINES: Final = 12
USER_CHARACTERS: Final = 2000
DIFF_LINES: Final = 40
LINE_CHARACTERS: Final = 400
"""Characters of a line of a completed change that are shown."""
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
_LEVELS: Final[Mapping[NoteLevel, tuple[str, str]]] = {
    "info": ("•", "faint"),
    "success": ("✓", "ok"),
    "warning": ("!", "warn"),
    "error": ("✗", "bad"),
}
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_MARKS: Final = {"pending": ("☐", ""), "in_progress": ("▸", "accent"), "done": ("☑", "faint")}


def _drop_empty_edges(text: str) -> str:
    """Return `text` without the lines at its edges that show nothing."""
    lines = text.split("\n")
    first, last = 0, len(lines)
    while last > first and not _STYLE.sub("", lines[last - 1]).strip(" "):
        last -= 1
    while first < last and not _STYLE.sub("", lines[first]).strip(" "):
        first += 1
    return "\n".join(lines[first:last])


class Painter:
    """Draws blocks for a terminal of `width` columns; `colour` None leaves bold and italics only."""

    def __init__(self, width: int, colour: ColorSystem | None = "256", theme: ThemeName = "dark") -> None:
        self._theme: ThemeName = theme
        self._colour: ColorSystem | None = colour
        self._console = self._new_console(width)

    @property
    def width(self) -> int:
        """The width of the terminal in columns."""
        return self._console.width

    @width.setter
    def width(self, columns: int) -> None:
        self._console.width = max(10, columns)

    def set_theme(self, theme: ThemeName) -> None:
        """Use other colours from now on."""
        self._theme = theme
        self._console = self._new_console(self._console.width)

    def paint(self, *blocks: Block) -> str:
        """Return the blocks as text with SGR sequences; each ends with a line feed."""
        return "".join(map(self._paint_block, blocks))

    def _paint_block(self, block: Block) -> str:
        text = self.render(render_block(block, self._theme))
        if isinstance(block, MarkdownBlock | UserMessageBlock) or (
            isinstance(block, MarkdownCodeBlock) and not block.is_continuation
        ):
            return "\n" + _drop_empty_edges(text) + "\n"  # rich surrounds some paragraphs with empty lines itself
        return text

    def render(self, *renderables: RenderableType) -> str:
        """Return as text what rich draws."""
        with self._console.capture() as captured:
            for one in renderables:
                self._console.print(one)
        return "\n".join(line.rstrip(" ") for line in captured.get().split("\n"))

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


class _SafeMarkdown(Markdown):
    """Markdown that shows HTML as plain text and links with their targets."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}

    def __init__(self, text: str, code_theme: str) -> None:
        super().__init__("", code_theme=code_theme, hyperlinks=False)
        self.parsed = _markdown_parser().parse(text)


@cache
def _markdown_parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["strikethrough", "table"]).disable(["html_block", "html_inline"])


def render_block(block: Block, theme: ThemeName) -> RenderableType:
    """Return the block as a rich renderable."""
    match block:
        case UserMessageBlock(text=text, media=media, steer=steer):
            return _indent_under_sign(Text("»" if steer else "›", "user"), Text(_fold_user_text(text, media), "user"))
        case MarkdownBlock(text=text):
            return _SafeMarkdown(neutralize(text), _CODE[theme])
        case MarkdownCodeBlock(language=language, text=text):
            return _render_code(neutralize(text), neutralize(language), theme)
        case ThinkingSummaryBlock(seconds=seconds, text=text):
            took = f"✻ Thought for {format_duration(seconds)}  "
            return _TruncatedLine(Text.assemble((took, "faint"), (neutralize(text), "faint italic")))
        case ThinkingBlock(text=text):
            tail = " ".join(neutralize(text)[-240:].split())
            return Text.assemble(("✻ Thinking  ", "faint"), (tail, "faint italic"), overflow="fold")
        case ToolCallBlock():
            return _render_tool_call(block)
        case ApprovalPreview(display=display, text=text):
            parts: list[RenderableType] = [Text(neutralize(text))] if text else []
            return Group(*parts, *render_display_blocks(display, limit=None))
        case PlanBlock(text=text, path=path):
            title = Text(f"Plan {neutralize(path)}")
            return Panel(_SafeMarkdown(neutralize(text), _CODE[theme]), title=title, border_style="accent")
        case Note(text=text, level=level):
            sign, style = _LEVELS[level]
            return _indent_under_sign(Text(sign, style), Text(neutralize(text), "" if level == "info" else style))
        case OutputBlock(text=text):
            return Text(clean_tool_output(text).rstrip("\n"))
        case Welcome():
            return _render_welcome(block)


def _fold_user_text(text: str, media: int) -> str:
    """Return the user's text; of a long one only the beginning."""
    lines = neutralize(text).split("\n")
    rest = len(lines) - USER_LINES
    shown = lines if rest <= 1 else [*lines[:USER_LINES], f"… {rest} more lines"]
    return "\n".join(line[:USER_CHARACTERS] for line in shown) + (f" [{media} attached]" if media else "")


def _shorten(text: str, characters: int = LINE_CHARACTERS) -> str:
    return text if len(text) <= characters else text[:characters] + "…"


def format_duration(seconds: float) -> str:
    """Format seconds: `3s`, `1m 05s`, `2h 01m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


class _TruncatedLine:
    """One line, truncated at the right edge."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self._text.copy()
        text.truncate(options.max_width, overflow="ellipsis")
        yield text


def _indent_under_sign(sign: Text, body: RenderableType) -> RenderableType:
    """Return `body` with `sign` before its first line and the other lines indented by the width of `sign`."""
    return _SignIndented(sign, body)


class _SignIndented:
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


def _render_code(text: str, language: str, theme: ThemeName) -> RenderableType:
    syntax = Syntax(text, language or "text", theme=_CODE[theme], word_wrap=True, background_color="default")
    return Padding(syntax, (0, 0, 0, 2))


def _render_tool_call(block: ToolCallBlock) -> RenderableType:
    sign, style = {"running": ("◌", "accent"), "ok": ("✓", "ok"), "error": ("✗", "bad")}[block.state]
    title = Text.assemble((neutralize(block.name), "tool"), " ", (neutralize(block.title), "accent"))
    if block.seconds >= 1:
        title.append(f"  {format_duration(block.seconds)}", "faint")
    if block.nested_total:
        title.append(f"  {block.nested_total} calls", "faint")
    rows: list[RenderableType] = [_TruncatedLine(title)]
    rows += [_TruncatedLine(Text(f"└ {neutralize(line)}", "faint")) for line in block.nested]
    if block.state != "running":
        rows += _render_call_outcome(block)
    return _indent_under_sign(Text(sign, style), Group(*rows))


def _render_call_outcome(block: ToolCallBlock) -> list[RenderableType]:
    rows: list[RenderableType] = []
    if block.brief:
        brief = _shorten(neutralize(block.brief), BRIEF_CHARACTERS)
        rows.append(Text(brief, "bad" if block.state == "error" else "faint"))
    rows += render_display_blocks(block.display, limit=DIFF_LINES)
    if not block.display:
        rows += _render_output_head(clean_tool_output(block.output[:20_000]).strip("\n"), block.output)
    return rows


def _render_output_head(text: str, whole: str) -> list[RenderableType]:
    """Return the first lines of an output, each on one row, and the number of lines that are left out."""
    lines = text.split("\n") if text else []
    rest = whole.count("\n") + 1 - OUTPUT_LINES if len(lines) > OUTPUT_LINES else 0
    shown: list[RenderableType] = [_TruncatedLine(Text(line, "faint")) for line in lines[:OUTPUT_LINES]]
    return shown + ([Text(f"… {rest} more lines", "faint")] if rest > 0 else [])


def _render_welcome(block: Welcome) -> RenderableType:
    rows = Text.assemble(
        ("kimi ", "bold"), (f"{block.version}\n", "faint"),
        ("directory  ", "faint"), f"{neutralize(block.directory)}\n",
        ("session    ", "faint"), f"{neutralize(block.session)}\n",
        ("model      ", "faint"), neutralize(block.model),
        overflow="fold",
    )  # fmt: skip
    panel = Panel(rows, border_style="accent", expand=False)
    return Group(panel, *(render_block(note, "dark") for note in block.notes))


# --- display blocks ---------------------------------------------------------------------------------------------


def render_display_blocks(display: tuple[DisplayBlock, ...], *, limit: int | None) -> list[RenderableType]:
    """Return display blocks as renderables. With `limit` a diff has at most that many lines, each one truncated."""
    found: list[RenderableType] = []
    for block in display:
        match block:
            case DiffBlock():
                found += _render_diff(block, limit)
            case ShellBlock(command=command):
                found.append(_indent_under_sign(Text("$", "accent"), Text(neutralize(command), overflow="fold")))
            case TodoBlock(items=items):
                found += [_render_todo(item.status, item.title) for item in items]
            case BackgroundTaskBlock(task_id=task_id, status=status, description=description):
                found.append(Text(f"{neutralize(task_id)} {neutralize(status)}  {neutralize(description)}", "faint"))
            case BriefBlock(text=text):
                found.append(Text(neutralize(text), "faint"))
            case _:
                pass
    return found


def _render_todo(status: Literal["pending", "in_progress", "done"], title: str) -> RenderableType:
    sign, style = _MARKS[status]
    return _indent_under_sign(Text(sign, style), Text(neutralize(title), "faint strike" if status == "done" else style))


def _render_diff(block: DiffBlock, limit: int | None) -> list[RenderableType]:
    lines = build_diff_lines(block)
    added = sum(line.sign == "+" for line in lines)
    removed = sum(line.sign == "-" for line in lines)
    head = Text.assemble(
        (f"+{added}", "add"), (f" -{removed}  ", "del"), (neutralize(block.path), "underline"), overflow="fold"
    )
    width = len(str(max((line.number for line in lines), default=1)))
    styles = {" ": "faint", "+": "add", "-": "del"}
    shown = lines if limit is None else [line._replace(text=_shorten(line.text)) for line in lines[:limit]]
    rows: list[RenderableType] = [
        _indent_under_sign(
            Text(f"{line.number:>{width}} {line.sign}", styles[line.sign]), Text(line.text, styles[line.sign])
        )
        for line in shown
    ]
    rest = len(lines) - len(rows)
    # In full where it is asked about: the end of a path may be what matters.
    title = head if limit is None else _TruncatedLine(head)
    return [title, *rows, *([Text(f"… {rest} more lines", "faint")] if rest > 0 else [])]
