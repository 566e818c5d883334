"""The content of `kimi demo`: the project, the prompts, and the scripts of the model (runtime spec 3.8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FILE_NAME: Final = "greeting.py"
TEXT_BEFORE: Final = 'name = "world"\n\nprint(f"Helo, {name}!")\n'
TEXT_AFTER: Final = TEXT_BEFORE.replace("Helo", "Hello")

FIRST_PROMPT: Final = "The greeting has a typo. Please fix it, publish it, and check the build."
SECOND_PROMPT: Final = "Welcome back! What did we do, and what is left?"

REFUSAL: Final = "Not before a review, please."
"""The answer of the user to the command that the model wants to run."""

EXTERNAL_TOOL: Final[dict[str, Any]] = {
    "name": "build_status",
    "description": "State of the last build of a branch.",
    "parameters": {
        "type": "object",
        "properties": {"branch": {"type": "string"}},
        "required": ["branch"],
    },
}
"""The external tool of the client (wire spec 5.1)."""

EXTERNAL_RESULT: Final = "Build 128 of main is green: 214 tests passed."

WORDS_PER_PIECE: Final = 3
"""Words in each streamed piece of text."""


def write_demo_files(root: Path) -> None:
    """Create the work directory and the share directory of the demo below `root`, with two sets of scripts."""
    for name in ("work", "share"):
        (root / name).mkdir()
    (root / "work" / FILE_NAME).write_text(TEXT_BEFORE, encoding="utf-8", newline="\n")
    (root / "share" / "config.toml").write_text(_CONFIGURATION, encoding="utf-8", newline="\n")
    for number, scripts in enumerate((_build_first_scripts(), _build_second_scripts()), start=1):
        scripts_path(root, number).write_text(json.dumps(scripts), encoding="utf-8")


def scripts_path(root: Path, process: int) -> Path:
    """Return the file with the scripts of the model in the first or second process."""
    return root / f"scripts-{process}.json"


_CONFIGURATION = """\
default_model = "scripted"

[providers.demo]
type = "_scripted_echo"
base_url = ""
api_key = ""

[models.scripted]
provider = "demo"
model = "scripted"
max_context_size = 100000
capabilities = ["thinking"]
"""


def _build_first_scripts() -> list[str]:
    """Return one script per call of the model: it reads, edits, wants to push, calls the client's tool, and sums up."""
    return [
        _join_script(
            _format_streamed("think", "A typo in the greeting. I should look at the file before I touch it."),
            _format_streamed("text", "I will read the file first."),
            _format_tool_call("read", "ReadFile", path=FILE_NAME),
            _format_usage(1210, 42),
        ),
        _join_script(
            _format_streamed("text", "Found it in line 3: one letter is missing."),
            _format_tool_call("edit", "StrReplaceFile", path=FILE_NAME, edit={"old": "Helo", "new": "Hello"}),
            _format_usage(1304, 61),
        ),
        _join_script(
            _format_streamed("text", "Now I would publish the change."),
            _format_tool_call("push", "Shell", command="git push --force origin main"),
            _format_usage(1420, 38),
        ),
        _join_script(
            _format_streamed("think", "The user wants a review first. I can still check the build."),
            _format_streamed("text", "Understood, nothing is pushed. I will ask for the state of the build."),
            _format_tool_call("build", EXTERNAL_TOOL["name"], branch="main"),
            _format_usage(1533, 57),
        ),
        _join_script(
            _format_streamed(
                "text", "The greeting is fixed, and the build is green. The change waits for your review."
            ),
            _format_usage(1610, 24),
        ),
    ]


def _build_second_scripts() -> list[str]:
    return [
        _join_script(
            _format_streamed("text", "We corrected the greeting in greeting.py, and you stopped me before I pushed."),
            _format_streamed("text", " What is left is your review.", first_blank=True),
            _format_usage(1702, 31),
        )
    ]


def _join_script(*groups: list[str]) -> str:
    return "\n".join(line for group in groups for line in group)


def _format_streamed(kind: str, sentence: str, *, first_blank: bool = False) -> list[str]:
    """Return `sentence` as several parts; scripts keep a blank at the start of a part and drop one at its end."""
    words = sentence.split()
    pieces = [" ".join(words[start : start + WORDS_PER_PIECE]) for start in range(0, len(words), WORDS_PER_PIECE)]
    first, *rest = pieces
    return [f"{kind}: {' ' if first_blank else ''}{first}", *(f"{kind}:  {piece}" for piece in rest)]


def _format_tool_call(call_id: str, name: str, **arguments: Any) -> list[str]:
    call = {"id": f"call-{call_id}", "name": name, "arguments": json.dumps(arguments)}
    return [f"tool_call: {json.dumps(call)}"]


def _format_usage(tokens_in: int, tokens_out: int) -> list[str]:
    return [f"usage: input_other={tokens_in} output={tokens_out}"]
