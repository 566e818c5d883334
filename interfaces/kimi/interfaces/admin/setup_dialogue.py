"""Questions on a plain terminal or a pipe: one line each, an empty answer takes the default."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from typing import Protocol

from kimi.interfaces.process.terminal_escape import escape_text


class SetupDialogue(Protocol):
    """Asks the questions of a setup and shows lines. Questions raise EOFError when there are no more answers."""

    def say(self, text: str) -> None:
        """Show a line."""
        ...

    def ask(self, question: str, default: str = "") -> str:
        """Return one line of an answer without blanks around it, `default` for an empty one."""
        ...

    def ask_secret(self, question: str) -> str:
        """Return one line of an answer; what is typed is not shown."""
        ...


class PlainSetupDialogue:
    """A dialogue on stdin and stdout: a terminal, a pipe or a file."""

    def say(self, text: str) -> None:
        """Show a line."""
        print(escape_text(text), flush=True)

    def ask(self, question: str, default: str = "") -> str:
        """Ask on a line of its own; return the answer, `default` for an empty one."""
        shown = f"{question} [{default}]: " if default else f"{question}: "
        print(escape_text(shown), end="", flush=True)
        return _parse_answer(sys.stdin.readline() if sys.stdin else "") or default

    def ask_secret(self, question: str) -> str:
        """Ask without showing the answer on a terminal; a pipe shows nothing anyway."""
        if sys.stdin and sys.stdin.isatty():
            return getpass.getpass(f"{question}: ").strip()
        return self.ask(question)


def _parse_answer(line: str) -> str:
    if not line:
        raise EOFError
    return line.strip()


def choose(dialogue: SetupDialogue, question: str, titles: Sequence[str]) -> int:
    """Return the position of one of the titles, which are numbered from 1; ask again until the answer is a number."""
    for number, title in enumerate(titles, start=1):
        dialogue.say(f"{number:>3}  {title}")
    while True:
        answer = dialogue.ask(question, "1")
        if answer.isdecimal() and len(answer) < 4 and 1 <= int(answer) <= len(titles):
            return int(answer) - 1
        dialogue.say(f"Please answer with a number from 1 to {len(titles)}.")
