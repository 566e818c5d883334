"""What happens in `kimi demo`: the project, what the user says, and what the scripted model says (runtime spec 3.8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FILE: Final = "greeting.py"
BEFORE: Final = 'name = "world"\n\nprint(f"Helo, {name}!")\n'
AFTER: Final = BEFORE.replace("Helo", "Hello")

FIRST_PROMPT: Final = "The greeting has a typo. Please fix it, publish it, and check the build."
SECOND_PROMPT: Final = "Welcome back! What did we do, and what is left?"

REFUSAL: Final = "Not before a review, please."
"""What the user says to the command that the model wants to run."""

EXTERNAL_TOOL: Final[dict[str, Any]] = {
    "name": "build_status",
    "description": "State of the last build of a branch.",
    "parameters": {
        "type": "object",
        "properties": {"branch": {"type": "string"}},
        "required": ["branch"],
    },
}
"""The tool that the client brings along (wire spec 5.1)."""

EXTERNAL_RESULT: Final = "Build 128 of main is green: 214 tests passed."

PIECE: Final = 3
"""Words in each streamed piece of text."""


def write_place(root: Path) -> None:
    """Make the work dir and the share directory of the demo below `root`, with two sets of scripts."""
    for name in ("work", "share"):
        (root / name).mkdir()
    (root / "work" / FILE).write_text(BEFORE, encoding="utf-8", newline="\n")
    (root / "share" / "config.toml").write_text(_CONFIGURATION, encoding="utf-8", newline="\n")
    for number, scripts in enumerate((_first_scripts(), _second_scripts()), start=1):
        scripts_file(root, number).write_text(json.dumps(scripts), encoding="utf-8")


def scripts_file(root: Path, process: int) -> Path:
    """What the model says in the first or second process."""
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


def _first_scripts() -> list[str]:
    """One script per call of the model: it reads, edits, wants to push, asks the client's tool, and sums up."""
    return [
        _script(
            _streamed("think", "A typo in the greeting. I should look at the file before I touch it."),
            _streamed("text", "I will read the file first."),
            _call("read", "ReadFile", path=FILE),
            _usage(1210, 42),
        ),
        _script(
            _streamed("text", "Found it in line 3: one letter is missing."),
            _call("edit", "StrReplaceFile", path=FILE, edit={"old": "Helo", "new": "Hello"}),
            _usage(1304, 61),
        ),
        _script(
            _streamed("text", "Now I would publish the change."),
            _call("push", "Shell", command="git push --force origin main"),
            _usage(1420, 38),
        ),
        _script(
            _streamed("think", "The user wants a review first. I can still check the build."),
            _streamed("text", "Understood, nothing is pushed. I will ask for the state of the build."),
            _call("build", EXTERNAL_TOOL["name"], branch="main"),
            _usage(1533, 57),
        ),
        _script(
            _streamed("text", "The greeting is fixed, and the build is green. The change waits for your review."),
            _usage(1610, 24),
        ),
    ]


def _second_scripts() -> list[str]:
    return [
        _script(
            _streamed("text", "We corrected the greeting in greeting.py, and you stopped me before I pushed."),
            _streamed("text", " What is left is your review.", first_blank=True),
            _usage(1702, 31),
        )
    ]


def _script(*groups: list[str]) -> str:
    return "\n".join(line for group in groups for line in group)


def _streamed(kind: str, sentence: str, *, first_blank: bool = False) -> list[str]:
    """`sentence` as several parts; the language keeps a blank at the start of a part and drops one at its end."""
    words = sentence.split()
    pieces = [" ".join(words[start : start + PIECE]) for start in range(0, len(words), PIECE)]
    first, *rest = pieces
    return [f"{kind}: {' ' if first_blank else ''}{first}", *(f"{kind}:  {piece}" for piece in rest)]


def _call(call_id: str, name: str, **arguments: Any) -> list[str]:
    call = {"id": f"call-{call_id}", "name": name, "arguments": json.dumps(arguments)}
    return [f"tool_call: {json.dumps(call)}"]


def _usage(tokens_in: int, tokens_out: int) -> list[str]:
    return [f"usage: input_other={tokens_in} output={tokens_out}"]
