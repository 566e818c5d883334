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


def test_a_session_goes_on_where_it_was(place: Place) -> None:
    place.script(*[f"text: answer {number}" for number in range(9)])
    with terminal(place, "--session", "mine") as shown:
        shown.until("context:")
        for number in range(7):
            shown.type(f"question {number}", ENTER)
            shown.until(f"answer {number}")
            shown.idle()
        shown.type(CTRL_D)
        assert shown.wait() == 0
    with terminal(place, "-r", "mine", rows=50) as shown:
        text = shown.until("answer 6")
        assert "question 2" in text
        assert "question 1" not in text
