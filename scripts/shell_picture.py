"""Draws the pictures of docs/shell.md: screens of the real program, on a pseudo terminal, with the scripted model.

python scripts/shell_picture.py [DIRECTORY]
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / name) for name in ("domain", "application", "infrastructure", "interfaces"))]

from rich.console import Console  # noqa: E402
from rich.style import Style  # noqa: E402
from rich.terminal_theme import MONOKAI  # noqa: E402
from rich.text import Text  # noqa: E402

from tests.support.program.terminal import CTRL_D, CTRL_S, ENTER, Cell, Terminal, terminal  # noqa: E402
from tests.support.program.wire_process import Place  # noqa: E402
from tests.support.providers.scripted_calls import call  # noqa: E402

COLUMNS, ROWS = 84, 52
BEFORE: Final = 'name = "world"\n\n\ndef greet():\n    print(f"Helo, {name}!")\n\n\ngreet()\n'

_SVG: Final = """\
<svg class="{unique_id}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""
"""The picture of rich without fonts of the network."""

_COLOURS: Final = {"brown": "yellow", "brightbrown": "bright_yellow"}


def main(directory: Path) -> None:
    """Play each session and write its picture."""
    for name, play in _SCENES.items():
        root = Path(tempfile.gettempdir()).resolve() / "kimi-picture"  # not a random one, which the picture would show
        root.mkdir()
        try:
            place = Place(root, capabilities=("thinking",))
            place.environ["HOME"] = str(root)  # the picture shows no directory of this machine
            (place.work / "greeting.py").write_text(BEFORE, encoding="utf-8")
            (directory / name).write_text(play(place), encoding="utf-8")
        finally:
            shutil.rmtree(root)


def _approve(place: Place) -> str:
    edit = {"old": 'print(f"Helo, {name}!")', "new": 'print(f"Hello, {name}!")'}
    todos = [{"title": "Fix the typo", "status": "done"}, {"title": "Run the program", "status": "in_progress"}]
    place.script(
        _step(
            "think: A typo in the greeting. I should look at the file before I touch it.",
            "text: I will read the file first.",
            call("c1", "ReadFile", path="greeting.py"),
        ),
        _step("text: Found it, in `greet()`:", call("c2", "StrReplaceFile", path="greeting.py", edit=edit)),
        _step(
            call("c3", "SetTodoList", todos=todos),
            "text: The file is **fixed**. Now I will run it:",
            call("c4", "Shell", command="python greeting.py"),
        ),
    )
    with terminal(place, "--session", "greeting", columns=COLUMNS, rows=ROWS) as shown:
        _enter(shown, "The greeting has a typo. Please fix it and run it.")
        shown.until("4. Reject")
        shown.type("1")
        shown.until("$ python greeting.py")
        shown.until("4. Reject")
        shown.until("▸ Run the program")  # its call runs beside the one that waits, and may end after the question
        return _picture(shown)


def _plan(place: Place) -> str:
    plan = "# Greet in two languages\n\n1. Add a parameter `language`.\n2. Keep English as the default.\n3. Run it."
    place.script(_step("text: -"))
    with terminal(place, "--session", "greeting") as shown:
        _enter(shown, "/plan on")
        shown.until("Plan mode ON.")
        shown.idle()
        shown.type(CTRL_D)
        shown.wait()
    place.script(
        _step("text: I look first, and write down what I would do.", call("c1", "ReadFile", path="greeting.py")),
        _step(call("c2", "WriteFile", path=_find_plan_file(place), content=plan)),
        _step(call("c3", "ExitPlanMode")),
    )
    with terminal(place, "--session", "greeting", columns=COLUMNS, rows=40) as shown:
        _enter(shown, "How would you make it greet in German, too?")
        shown.until("1. Approve")
        return _picture(shown)


def _find_plan_file(place: Place) -> str:
    """Return where the session's plan belongs, which is decided when plan mode is switched on."""
    (state,) = place.share.glob("sessions/*/*/state.json")
    return str(place.share / "plans" / f"{json.loads(state.read_text(encoding='utf-8'))['plan_slug']}.md")


def _steer(place: Place) -> str:
    place.script(
        _step("text: I run it a few times to be sure.", call("c1", "Shell", command="sleep 3; python greeting.py")),
        _step("text: Understood: once is enough, and I leave the file as it is."),
    )
    with terminal(place, "--session", "greeting", "--yolo", columns=COLUMNS, rows=30) as shown:
        _enter(shown, "Check that the greeting works.")
        shown.until("Shell sleep 3")
        shown.type("Once is enough, and change nothing.", CTRL_S)
        shown.until("I leave the file as it is")
        shown.idle()
        return _picture(shown)


def _go_on(place: Place) -> str:
    background = {"run_in_background": True, "description": "the slow tests"}
    place.script(
        _step("text: They take a while.", call("c1", "Shell", command="sleep 2; echo 12 passed", **background)),
        _step("text: The tests run in the background. I will look at them when they are done."),
        _step("text: All **12 tests** have passed, so nothing is left to do."),
    )
    with terminal(place, "--session", "greeting", "--yolo", columns=COLUMNS, rows=30) as shown:
        _enter(shown, "Run the slow tests, and tell me how they went.")
        shown.until("so nothing is left to do")
        shown.idle()
        return _picture(shown)


_SCENES: Final = {
    "shell-session.svg": _approve,
    "shell-plan.svg": _plan,
    "shell-steer.svg": _steer,
    "shell-background.svg": _go_on,
}


def _enter(shown: Terminal, text: str) -> None:
    shown.until("context:")
    shown.type(text, ENTER)


def _step(*lines: str) -> str:
    return "\n".join([*lines, "usage: input_other=4400 output=60"])


def _picture(shown: Terminal) -> str:
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, legacy_windows=False, color_system="truecolor")
    rows = shown.cells
    while rows and not "".join(cell.text for cell in rows[-1]).strip():
        rows.pop()
    for row in rows:
        line = Text(no_wrap=True, end="")
        for style, cells in groupby(row, _style):
            line.append("".join(cell.text for cell in cells), style)
        line.rstrip()
        console.print(line, soft_wrap=True)
    return console.export_svg(title="kimi", theme=MONOKAI, code_format=_SVG, unique_id="kimi")


def _style(cell: Cell) -> Style:
    return Style(
        color=_colour(cell.colour), bold=cell.bold, italic=cell.italic, underline=cell.underlined, strike=cell.struck
    )


def _colour(name: str) -> str | None:
    if name == "default":
        return None
    if len(name) == 6 and all(char in "0123456789abcdef" for char in name):
        return f"#{name}"
    name = _COLOURS.get(name, name)
    return f"bright_{name[6:]}" if name.startswith("bright") and "_" not in name else name


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs")
