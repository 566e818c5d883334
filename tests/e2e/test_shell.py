"""The interactive shell on a real terminal: prompt, answer, approval, interrupt, leaving."""

import json

from tests.e2e.process import Place
from tests.e2e.terminal import CTRL_D, ENTER, terminal


def call(call_id: str, name: str, **arguments: object) -> str:
    """A line of the script: the model calls a tool."""
    return "tool_call: " + json.dumps({"id": call_id, "name": name, "arguments": json.dumps(arguments)})


def test_a_prompt_is_answered(place: Place) -> None:
    place.script("text: Hello **there**, reader.\nusage: input_other=4200 output=5")
    with terminal(place) as shown:
        shown.until("context: 0.0%")
        shown.type("hi", ENTER)
        shown.until("Hello there, reader.")
        text = shown.until("context: 4.2% (4.2k/100.0k)")
        assert "› hi" in text
        shown.type(CTRL_D)
        assert shown.wait() == 0
        assert "To resume this session: kimi -r" in shown.text
