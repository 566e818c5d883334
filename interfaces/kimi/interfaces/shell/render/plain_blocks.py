"""Formats blocks as plain lines for screen readers, dumb terminals and pipes: no colour, no cursor movement."""

from __future__ import annotations

from kimi.domain.tools.tool import BackgroundTaskBlock, BriefBlock, DiffBlock, DisplayBlock, ShellBlock, TodoBlock
from kimi.interfaces.shell.render.blocks import (
    ApprovalPreview,
    Block,
    MarkdownBlock,
    MarkdownCodeBlock,
    Note,
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

OUTPUT_LINES = 20
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


def format_block(block: Block) -> str:
    """Return the block as text that ends with a line feed."""
    return "\n".join(_format_block_lines(block)) + "\n"


def _format_block_lines(block: Block) -> list[str]:
    match block:
        case UserMessageBlock(text=text, media=media, steer=steer):
            extra = f" [{media} attached]" if media else ""
            return [f"{'You, meanwhile' if steer else 'You'}: {neutralize(text)}{extra}"]
        case MarkdownBlock(text=text) | OutputBlock(text=text):
            return neutralize(text).split("\n")
        case MarkdownCodeBlock(language=language, text=text):
            return [f"Code{f' ({neutralize(language)})' if language else ''}:", *neutralize(text).split("\n")]
        case ThinkingSummaryBlock(seconds=seconds):
            return [f"Thought for {seconds:.0f} s."]
        case ThinkingBlock():
            return ["Thinking."]
        case ToolCallBlock():
            return _format_tool_call(block)
        case ApprovalPreview(display=display, text=text):
            return [*(neutralize(text).split("\n") if text else []), *format_display_blocks(display)]
        case PlanBlock(text=text, path=path):
            return [f"Plan ({neutralize(path)}):", *neutralize(text).split("\n")]
        case Note(text=text, level=level):
            return [f"{'' if level in ('info', 'success') else level.capitalize() + ': '}{neutralize(text)}"]
        case Welcome():
            return _format_welcome(block)


def _format_tool_call(block: ToolCallBlock) -> list[str]:
    title = neutralize(f"{block.name} {block.title}").strip()
    if block.state == "running":
        return [f"Running {title}."]
    state = "failed" if block.state == "error" else "done"
    lines = [f"Tool {title}: {state}{f' - {neutralize(block.brief)}' if block.brief else ''}"]
    if block.display:
        return lines + format_display_blocks(block.display)
    output = clean_tool_output(block.output).rstrip("\n")
    shown = output.split("\n") if output else []
    rest = len(shown) - OUTPUT_LINES
    return lines + ["  " + line for line in shown[:OUTPUT_LINES]] + ([f"  ({rest} more lines)"] if rest > 0 else [])


def _format_welcome(block: Welcome) -> list[str]:
    return [
        f"kimi {block.version}",
        f"Directory: {neutralize(block.directory)}",
        f"Session: {neutralize(block.session)}",
        f"Model: {neutralize(block.model)}",
        *(line for note in block.notes for line in _format_block_lines(note)),
    ]


def format_display_blocks(display: tuple[DisplayBlock, ...]) -> list[str]:
    """Return display blocks as lines."""
    lines: list[str] = []
    for block in display:
        match block:
            case DiffBlock():
                lines += [
                    f"Change of {neutralize(block.path)}:",
                    *("  " + line.plain for line in build_diff_lines(block)),
                ]
            case ShellBlock(command=command):
                lines += ["  $ " + line for line in neutralize(command).split("\n")]
            case TodoBlock(items=items):
                lines += [f"  {_MARKS[item.status]} {neutralize(item.title)}" for item in items]
            case BackgroundTaskBlock(task_id=task_id, status=status, description=description):
                lines.append(
                    f"  Background task {neutralize(task_id)} ({neutralize(status)}): {neutralize(description)}"
                )
            case BriefBlock(text=text):
                lines += neutralize(text).split("\n")
            case _:
                pass
    return lines
