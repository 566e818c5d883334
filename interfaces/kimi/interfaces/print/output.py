"""What print mode writes to stdout: events to bytes, pure (runtime spec 1.7).

An `Output` is given all that happens, in order, and gives the bytes to write for it, which may be none.
"""

from __future__ import annotations

from typing import Protocol

from kimi.application.codec.context_line import encode_message
from kimi.application.codec.envelope import encode_json
from kimi.domain.content.message import Message
from kimi.domain.content.parts import TextPart, UserInput
from kimi.domain.events.event import Event, StepBegin, StepInterrupted, StepRetry, TurnBegin
from kimi.interfaces.print.failure import RunFailure
from kimi.interfaces.process.terminal_escape import escape_line
from kimi.interfaces.rpc.framing import frame_message


class PrintOutput(Protocol):
    """One format of the output."""

    def render_prompt(self, user_input: UserInput) -> bytes:
        """A run begins with this input."""
        ...

    def render_event(self, event: Event) -> bytes:
        """Something has happened in it."""
        ...

    def render_end(self) -> bytes:
        """It is done."""
        ...

    def render_failure(self, failure: RunFailure) -> bytes:
        """It has failed; `end` does not follow."""
        ...


def encode_json_failure(failure: RunFailure) -> bytes:
    """The line of stream-json for a failure (R-32)."""
    shape = {"role": "meta", "type": "error", "message": failure.message, "retryable": failure.retryable}
    return frame_message(encode_json(shape))


def encode_text_failure(failure: RunFailure) -> bytes:
    """The line of text for a failure."""
    return encode_text(escape_line(failure.message, limit=2000) + "\n")


def encode_failure(failure: RunFailure, output_format: str) -> bytes:
    """The line for a failure in the format of the flags."""
    return encode_json_failure(failure) if output_format == "stream-json" else encode_text_failure(failure)


def encode_text(text: str) -> bytes:
    """UTF-8; what is no character, like a byte of the command line that was not UTF-8, is written out."""
    return text.encode("utf-8", "backslashreplace")


class FinalMessageOutput:
    """`--final-message-only`: the text of the last step, when a run has ended well and there is text."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._pieces: list[str] = []

    def render_prompt(self, user_input: UserInput) -> bytes:
        """Nothing is shown of it."""
        return b""

    def render_event(self, event: Event) -> bytes:
        """Keeps the text of the step."""
        match event:
            case TurnBegin() | StepBegin() | StepRetry() | StepInterrupted():
                self._pieces.clear()
            case TextPart(text):
                self._pieces.append(text)
            case _:
                pass
        return b""

    def render_end(self) -> bytes:
        """The text on lines of its own, or as one message."""
        text = "".join(self._pieces)
        self._pieces.clear()
        if not text:
            return b""
        if self._as_json:
            return frame_message(encode_message(Message("assistant", (TextPart(text),))))
        return encode_text(text if text.endswith("\n") else f"{text}\n")

    def render_failure(self, failure: RunFailure) -> bytes:
        """The failure alone: what was said until then is no answer."""
        self._pieces.clear()
        return encode_json_failure(failure) if self._as_json else encode_text_failure(failure)
