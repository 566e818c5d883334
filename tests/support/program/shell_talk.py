"""Types prompts into the shell and waits for what it shows."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.support.program.terminal import CTRL_D, ENTER, Terminal


def say(shown: Terminal, text: str, answer: str | Callable[[str], bool]) -> str:
    """Enter `text` and wait until the screen shows the answer; return the screen."""
    shown.type(text, ENTER)
    return shown.until(answer)


def ask(shown: Terminal, *pairs: tuple[str, str]) -> None:
    """Send each prompt and wait for the end of its turn."""
    shown.until("context:")
    for prompt, answer in pairs:
        say(shown, prompt, answer)
        shown.idle()


def leave(shown: Terminal, *how: str) -> str:
    """Leave by Ctrl-D, or by these keys; return the id of the session that can be resumed."""
    shown.type(*(how or (CTRL_D,)))
    assert shown.wait() == 0
    found = re.findall(r"To resume this session: kimi -r (\S+)", shown.text)
    return found[-1] if found else ""
