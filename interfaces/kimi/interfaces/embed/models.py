"""What the author of a model adapter needs beside the port: what a model reads, what it yields, what it raises.

The promises of a model are in `kimi.application.ports` (`ChatModel`); the suite `tests/contracts/test_chat_model.py`
checks them. `examples/custom_model.py` is an adapter.
"""

from __future__ import annotations

from kimi.application.ports import ChatModel, ModelItem, OpenModel, ResponseEnd
from kimi.domain.content.message import Function, Message, ToolCall, ToolCallPart, message_text
from kimi.domain.content.parts import ContentPart, ImagePart, TextPart, ThinkPart
from kimi.domain.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APITimeoutError,
    ChatProviderError,
)
from kimi.domain.tools.tool import ToolSpec
from kimi.domain.turn import Cost, StopReason, TokenUsage

__all__ = [
    "APIConnectionError",
    "APIEmptyResponseError",
    "APIStatusError",
    "APITimeoutError",
    "ChatModel",
    "ChatProviderError",
    "ContentPart",
    "Cost",
    "Function",
    "ImagePart",
    "Message",
    "ModelItem",
    "OpenModel",
    "ResponseEnd",
    "StopReason",
    "TextPart",
    "ThinkPart",
    "TokenUsage",
    "ToolCall",
    "ToolCallPart",
    "ToolSpec",
    "message_text",
]
