"""Translates events to the bytes that print mode writes to stdout, without I/O (runtime spec 1.7).

A `PrintOutput` gets everything that happens, in order, and returns the bytes to write for it, which may be none.
"""

from __future__ import annotations

from typing import Protocol

from kimi.application.codec.context_line import encode_message
from kimi.application.codec.envelope import encode_json
from kimi.domain.content.message import Message
from kimi.domain.content.parts import TextPart, UserInput
from kimi.domain.events.event import Event, StepBegin, StepInterrupted, StepRetry, TurnBegin
from kimi.interfaces.print.failure import RunFailure
from kimi.interfaces.process.terminal_escape import escape_json, escape_line, escape_text
from kimi.interfaces.rpc.framing import frame_message


class PrintOutput(Protocol):
    """One output format."""

    def render_prompt(self, user_input: UserInput) -> bytes:
        """Render the input that begins a turn."""
        ...

    def render_event(self, event: Event) -> bytes:
        """Render an event of the turn."""
        ...

    def render_end(self) -> bytes:
        """Render the end of a turn that succeeded."""
        ...

    def render_failure(self, failure: RunFailure) -> bytes:
        """Render the failure of a turn; `render_end` is not called after it."""
        ...

    def render_session(self, session_id: str) -> bytes:
        """Render the end of the output: the session that can be resumed."""
        ...


def encode_json_failure(failure: RunFailure) -> bytes:
    """Return the stream-json line for a failure (R-32)."""
    shape = {"role": "meta", "type": "error", "message": failure.message, "retryable": failure.retryable}
    return frame_message(encode_json(shape))


def encode_session(session_id: str) -> bytes:
    """Return the stream-json line that names the session (R-288)."""
    return frame_message(encode_json({"role": "meta", "type": "session", "session_id": session_id}))


def encode_text_failure(failure: RunFailure) -> bytes:
    """Return the text line for a failure."""
    return encode_text(escape_line(failure.message, limit=2000) + "\n")


def encode_failure(failure: RunFailure, output_format: str) -> bytes:
    """Return the line for a failure in this output format."""
    return encode_json_failure(failure) if output_format == "stream-json" else encode_text_failure(failure)


def encode_text(text: str) -> bytes:
    """Encode text as UTF-8. What is not a character, such as a non-UTF-8 byte of the command line, is escaped."""
    return text.encode("utf-8", "backslashreplace")


def escape_json_lines(lines: bytes) -> bytes:
    """Escape what JSON leaves as it is and a terminal obeys; the lines mean the same."""
    return escape_json(lines.decode()).encode()


class FinalMessageOutput:
    """`--final-message-only`: the text of the last step, if the turn succeeded and the step has text.

    On a terminal, control characters in it are escaped.
    """

    def __init__(self, *, as_json: bool, stdout_is_terminal: bool) -> None:
        self._as_json = as_json
        self._stdout_is_terminal = stdout_is_terminal
        self._pieces: list[str] = []

    def render_prompt(self, user_input: UserInput) -> bytes:
        """Return nothing: the prompt is not shown."""
        return b""

    def render_event(self, event: Event) -> bytes:
        """Keep the text of the step; return nothing."""
        match event:
            case TurnBegin() | StepBegin() | StepRetry() | StepInterrupted():
                self._pieces.clear()
            case TextPart(text):
                self._pieces.append(text)
            case _:
                pass
        return b""

    def render_end(self) -> bytes:
        """Return the text on its own lines, or as one JSON message."""
        text = "".join(self._pieces)
        self._pieces.clear()
        if not text:
            return b""
        if self._as_json:
            return self._finish_json(frame_message(encode_message(Message("assistant", (TextPart(text),)))))
        text = escape_text(text) if self._stdout_is_terminal else text
        return encode_text(text if text.endswith("\n") else f"{text}\n")

    def render_failure(self, failure: RunFailure) -> bytes:
        """Return only the failure: the text so far is not an answer."""
        self._pieces.clear()
        return self._finish_json(encode_json_failure(failure)) if self._as_json else encode_text_failure(failure)

    def render_session(self, session_id: str) -> bytes:
        """Return nothing: the output is one message."""
        return b""

    def _finish_json(self, lines: bytes) -> bytes:
        return escape_json_lines(lines) if self._stdout_is_terminal else lines
