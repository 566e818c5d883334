"""Tool results as the model reads them."""

from __future__ import annotations

import pytest

from kimi.domain.content.parts import ContentPart, ImagePart, MediaUrl, TextPart, estimate_tokens
from kimi.domain.tools.tool import ToolReturnValue, tool_message

IMAGE = ImagePart(MediaUrl("data:image/png;base64,AA=="))


def parts(result: ToolReturnValue, *, broken: bool = False) -> tuple[ContentPart, ...]:
    """The content of the tool message."""
    message = tool_message("c1", result, has_crashed=broken)
    assert (message.role, message.tool_call_id) == ("tool", "c1")
    return message.content


@pytest.mark.spec("T-14", "R-99")
@pytest.mark.parametrize(
    ("result", "content"),
    [
        (ToolReturnValue(True, "", "went wrong"), (TextPart("<system>ERROR: went wrong</system>"),)),
        (
            ToolReturnValue(True, "so far", "went wrong"),
            (TextPart("<system>ERROR: went wrong</system>"), TextPart("so far")),
        ),
        (
            ToolReturnValue(True, (TextPart("a"), IMAGE), "went wrong"),
            (TextPart("<system>ERROR: went wrong</system>"), TextPart("a"), IMAGE),
        ),
        (ToolReturnValue(False, "", "done"), (TextPart("<system>done</system>"),)),
        (ToolReturnValue(False, "out", "done"), (TextPart("<system>done</system>"), TextPart("out"))),
        (ToolReturnValue(False, "out", ""), (TextPart("out"),)),
        (ToolReturnValue(False, "", ""), (TextPart("<system>Tool output is empty.</system>"),)),
        (ToolReturnValue(False, (), ""), (TextPart("<system>Tool output is empty.</system>"),)),
        (ToolReturnValue(False, (IMAGE,), ""), (TextPart("<system>Tool returned non-text content.</system>"), IMAGE)),
        (ToolReturnValue(False, (IMAGE,), "seen"), (TextPart("<system>seen</system>"), IMAGE)),
        (ToolReturnValue(False, (TextPart("a"), IMAGE), ""), (TextPart("a"), IMAGE)),
    ],
)
def test_result_is_converted_to_message_parts(result: ToolReturnValue, content: tuple[ContentPart, ...]) -> None:
    assert parts(result) == content


def test_a_broken_tool_gets_a_second_line() -> None:
    expected = "<system>ERROR: boom\nThis is an unexpected error and the tool is probably not working.</system>"
    assert parts(ToolReturnValue(True, "", "boom"), broken=True) == (TextPart(expected),)


@pytest.mark.spec("R-109")
def test_tokens_are_estimated_at_four_ascii_characters_each() -> None:
    assert estimate_tokens("abcdefgh") == 2
    assert estimate_tokens("你好世界") == 4
    assert estimate_tokens("abcd你好") == 3
    assert estimate_tokens("\U0001f600") == 1
    assert estimate_tokens("") == 0
