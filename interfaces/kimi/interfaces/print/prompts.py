"""The prompts of print mode: the option, stdin as one prompt, or stdin as messages (runtime spec 1.7)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any, cast

from kimi.application.codec.payloads import decode_content
from kimi.application.settings.flags import Flags
from kimi.domain.content.parts import TextPart, UserInput, join_text
from kimi.interfaces.rpc.framing import LineReader, ReadBlock
from kimi.interfaces.rpc.messages import parse_json

_log = logging.getLogger("kimi.print")


async def read_prompts(
    flags: Flags, read_block: ReadBlock, *, stdin_is_terminal: bool, max_line_bytes: int
) -> AsyncGenerator[UserInput, None]:
    """Yield the prompts in order. `read_block` returns blocks of stdin, and an empty one at its end."""
    if flags.prompt is not None:
        yield flags.prompt
    if flags.input_format == "stream-json":
        async for line in LineReader(read_block, max_line_bytes):
            if (user_input := parse_prompt_line(line)) is not None:
                yield user_input
    elif flags.prompt is None and not stdin_is_terminal and (text := await _read_all_text(read_block)):
        yield text


def parse_prompt_line(line: bytes | None) -> UserInput | None:
    """Return the prompt in a line of stream-json; None for a line without one, which is logged and skipped.

    Text parts alone are joined by line feeds; with other parts among them all parts are kept (R-29). `line` is None
    when it was too long.
    """
    try:
        if line is None:
            raise ValueError("it is too long")
        content = _extract_user_content(parse_json(line))
        if not (content.strip() if isinstance(content, str) else content):
            raise ValueError("it is empty")
    except ValueError as error:
        _log.warning("a line of the input is skipped: %s", error)
        return None
    return content


def _extract_user_content(message: Any) -> UserInput:
    if not isinstance(message, dict):
        raise ValueError("it is no message")
    fields = cast("dict[str, Any]", message)
    if fields.get("role") != "user":
        raise ValueError("its role is not `user`")
    content = decode_content(fields.get("content"))
    if isinstance(content, str) or any(not isinstance(part, TextPart) for part in content):
        return content
    return join_text(content, "\n")


async def _read_all_text(read_block: ReadBlock) -> str:
    blocks: list[bytes] = []
    while block := await read_block():
        blocks.append(block)
    return b"".join(blocks).decode("utf-8-sig", "replace").strip()
