"""Draws docs/shell-session.svg: a screen of the real program, on a pseudo terminal, with the scripted model.

python scripts/shell_picture.py [FILE]
"""

from __future__ import annotations

import io
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

from tests.support.program.terminal import ENTER, Cell, Terminal, terminal  # noqa: E402
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


def main(path: Path) -> None:
    """Play the session and write the picture."""
    with tempfile.TemporaryDirectory() as directory:
        place = Place(Path(directory).resolve(), capabilities=("thinking",))
        place.script(*_scripts())
        place.environ["HOME"] = directory  # the picture shows no directory of this machine
        (place.work / "greeting.py").write_text(BEFORE, encoding="utf-8")
        with terminal(place, "--session", "greeting", columns=COLUMNS, rows=ROWS) as shown:
            shown.until("context:")
            shown.type("The greeting has a typo. Please fix it and run it.", ENTER)
            shown.until("4. Reject")
            shown.type("1")
            shown.until("$ python greeting.py")
            shown.until("4. Reject")
            shown.until("▸ Run the program")  # its call runs beside the one that waits, and may end after the question
            picture = _picture(shown)
    path.write_text(picture, encoding="utf-8")


def _scripts() -> list[str]:
    edit = {"old": 'print(f"Helo, {name}!")', "new": 'print(f"Hello, {name}!")'}
    return [
        "\n".join(
            [
                "think: A typo in the greeting. I should look at the file before I touch it.",
                "text: I will read the file first.",
                call("c1", "ReadFile", path="greeting.py"),
                "usage: input_other=4100 output=60",
            ]
        ),
        "\n".join(
            [
                "text: Found it, in `greet()`:",
                call("c2", "StrReplaceFile", path="greeting.py", edit=edit),
                "usage: input_other=4400 output=60",
            ]
        ),
        "\n".join(
            [
                call(
                    "c3",
                    "SetTodoList",
                    todos=[
                        {"title": "Fix the typo", "status": "done"},
                        {"title": "Run the program", "status": "in_progress"},
                    ],
                ),
                "text: The file is **fixed**. Now I will run it:",
                call("c4", "Shell", command="python greeting.py"),
                "usage: input_other=4700 output=60",
            ]
        ),
    ]


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
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "shell-session.svg")
