"""Blocks as plain lines: for screen readers, dumb terminals and pipes. No colour, no cursor movement."""

from __future__ import annotations

from kimi.domain.tools.tool import BackgroundTaskBlock, BriefBlock, DiffBlock, DisplayBlock, ShellBlock, TodoBlock
from kimi.interfaces.shell.render.blocks import (
    Block,
    Called,
    CodeSaid,
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

OUTPUT_LINES = 20
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


def plain_text(block: Block) -> str:
    """The block as text that ends with a line feed."""
    return "\n".join(_lines(block)) + "\n"


def _lines(block: Block) -> list[str]:
    match block:
        case UserSaid(text=text, media=media, steer=steer):
            extra = f" [{media} attached]" if media else ""
            return [f"{'You, meanwhile' if steer else 'You'}: {neutral(text)}{extra}"]
        case Said(text=text) | Output(text=text):
            return neutral(text).split("\n")
        case CodeSaid(language=language, text=text):
            return [f"Code{f' ({neutral(language)})' if language else ''}:", *neutral(text).split("\n")]
        case Thought(seconds=seconds):
            return [f"Thought for {seconds:.0f} s."]
        case Thinking():
            return ["Thinking."]
        case Called():
            return _called(block)
        case Preview(display=display, text=text):
            return [*(neutral(text).split("\n") if text else []), *display_lines(display)]
        case PlanShown(text=text, path=path):
            return [f"Plan ({neutral(path)}):", *neutral(text).split("\n")]
        case Note(text=text, level=level):
            return [f"{'' if level in ('info', 'success') else level.capitalize() + ': '}{neutral(text)}"]
        case Welcome():
            return _welcome(block)


def _called(block: Called) -> list[str]:
    title = neutral(f"{block.name} {block.title}").strip()
    if block.state == "running":
        return [f"Running {title}."]
    state = "failed" if block.state == "error" else "done"
    lines = [f"Tool {title}: {state}{f' - {neutral(block.brief)}' if block.brief else ''}"]
    if block.display:
        return lines + display_lines(block.display)
    output = tool_text(block.output).rstrip("\n")
    shown = output.split("\n") if output else []
    rest = len(shown) - OUTPUT_LINES
    return lines + ["  " + line for line in shown[:OUTPUT_LINES]] + ([f"  ({rest} more lines)"] if rest > 0 else [])


def _welcome(block: Welcome) -> list[str]:
    return [
        f"kimi {block.version}",
        f"Directory: {neutral(block.directory)}",
        f"Session: {neutral(block.session)}",
        f"Model: {neutral(block.model)}",
        *(line for note in block.notes for line in _lines(note)),
    ]


def display_lines(display: tuple[DisplayBlock, ...]) -> list[str]:
    """Display blocks as lines."""
    lines: list[str] = []
    for block in display:
        match block:
            case DiffBlock():
                lines += [f"Change of {neutral(block.path)}:", *("  " + line.plain for line in diff_lines(block))]
            case ShellBlock(command=command):
                lines += ["  $ " + line for line in neutral(command).split("\n")]
            case TodoBlock(items=items):
                lines += [f"  {_MARKS[item.status]} {neutral(item.title)}" for item in items]
            case BackgroundTaskBlock(task_id=task_id, status=status, description=description):
                lines.append(f"  Background task {neutral(task_id)} ({neutral(status)}): {neutral(description)}")
            case BriefBlock(text=text):
                lines += neutral(text).split("\n")
            case _:
                pass
    return lines
