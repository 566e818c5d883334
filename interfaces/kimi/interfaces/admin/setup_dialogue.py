"""Questions on a plain terminal or a pipe: one line each, an empty answer takes the default."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from typing import Protocol


class SetupDialogue(Protocol):
    """Who answers the questions of a setup. What cannot be answered any more raises EOFError."""

    def say(self, text: str) -> None:
        """Show a line."""
        ...

    def ask(self, question: str, default: str = "") -> str:
        """One line of an answer, without blanks around it."""
        ...

    def ask_secret(self, question: str) -> str:
        """The same; what is typed is not shown."""
        ...


class PlainSetupDialogue:
    """On stdin and stdout, whatever they are."""

    def say(self, text: str) -> None:
        """Show a line."""
        print(text, flush=True)

    def ask(self, question: str, default: str = "") -> str:
        """Ask on a line of its own."""
        shown = f"{question} [{default}]: " if default else f"{question}: "
        print(shown, end="", flush=True)
        return _parse_answer(sys.stdin.readline() if sys.stdin else "") or default

    def ask_secret(self, question: str) -> str:
        """Hidden on a terminal; a pipe has nothing to hide."""
        if sys.stdin and sys.stdin.isatty():
            return getpass.getpass(f"{question}: ").strip()
        return self.ask(question)


def _parse_answer(line: str) -> str:
    if not line:
        raise EOFError
    return line.strip()


def choose(dialogue: SetupDialogue, question: str, titles: Sequence[str]) -> int:
    """The position of one of the titles, which are numbered from 1; asks again until it gets one."""
    for number, title in enumerate(titles, start=1):
        dialogue.say(f"{number:>3}  {title}")
    while True:
        answer = dialogue.ask(question, "1")
        if answer.isdecimal() and len(answer) < 4 and 1 <= int(answer) <= len(titles):
            return int(answer) - 1
        dialogue.say(f"Please answer with a number from 1 to {len(titles)}.")
