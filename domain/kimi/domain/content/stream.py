"""Merge streamed parts into whole ones (runtime spec 3.1).

Text merges with text that follows, thinking with thinking that follows until it is signed, and a tool call with the
argument pieces that follow it. Other parts do not merge. An argument piece without a call is dropped.
"""

from __future__ import annotations

from typing import TypeAlias

from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, TextPart, ThinkPart, VideoPart

MergedPart: TypeAlias = ContentPart | ToolCall
StreamPart: TypeAlias = MergedPart | ToolCallPart

PART_TYPES = (TextPart, ThinkPart, ToolCall, ToolCallPart, ImagePart, AudioPart, VideoPart)
"""The classes of `StreamPart`."""


_BLOCK_PIECES = 1024

_MIN_LONG_BLOCK = _BLOCK_PIECES * 256
"""From how many characters on a block of pieces is kept as it is: joined it would take no less, and be a copy of text
that others hold too, such as another merger of the same stream."""


class PartMerger:
    """Merges streamed parts, in time linear in the number of characters.

    Merging is associative: the merged parts are the same however a text was cut into parts.
    """

    __slots__ = ("_blocks", "_open", "_pieces")

    def __init__(self) -> None:
        self._open: TextPart | ThinkPart | ToolCall | None = None
        self._pieces: list[str] = []
        self._blocks: list[str] = []
        """What came before: joined where pieces are short, which take ten times the memory of their text."""

    @property
    def is_empty(self) -> bool:
        """Whether no part is open."""
        return self._open is None

    @property
    def is_growing_call(self) -> bool:
        """Whether the open part is a tool call, so that an argument piece would continue it."""
        return isinstance(self._open, ToolCall)

    def push(self, part: StreamPart) -> list[MergedPart]:
        """Take the next part; return the parts that are complete now, oldest first (none while one is open)."""
        opened = self._open
        if isinstance(part, TextPart):
            if isinstance(opened, TextPart):
                self._append(part.text)
                return []
            return self._reopen(part, part.text)
        if isinstance(part, ToolCallPart):
            if isinstance(opened, ToolCall) and part.arguments_part:
                self._append(part.arguments_part)
            return []
        if isinstance(part, ThinkPart):
            return self._push_thinking(part)
        if isinstance(part, ToolCall):
            return self._reopen(part, part.function.arguments or "")
        return [*self.flush(), part]

    def flush(self) -> list[MergedPart]:
        """Return the part that was still open, if any, and start afresh; called at the end of the stream."""
        opened, text = self._open, "".join((*self._blocks, *self._pieces))
        self._open, self._pieces, self._blocks = None, [], []
        match opened:
            case None:
                return []
            case TextPart():
                return [TextPart(text)]
            case ThinkPart():
                return [ThinkPart(text, opened.encrypted)]
            case ToolCall():
                whole = text if text or opened.function.arguments is not None else None
                return [ToolCall(opened.id, Function(opened.function.name, whole), opened.extras)]

    def _append(self, text: str) -> None:
        self._pieces.append(text)
        if len(self._pieces) >= _BLOCK_PIECES:
            is_long = sum(map(len, self._pieces)) >= _MIN_LONG_BLOCK
            self._blocks += self._pieces if is_long else ["".join(self._pieces)]
            self._pieces = []

    def _push_thinking(self, part: ThinkPart) -> list[MergedPart]:
        if isinstance(self._open, ThinkPart):
            self._append(part.think)
            done: list[MergedPart] = []
        else:
            done = self._reopen(part, part.think)
        if part.encrypted is not None:
            self._open = part
            done += self.flush()
        return done

    def _reopen(self, part: TextPart | ThinkPart | ToolCall, text: str) -> list[MergedPart]:
        done = self.flush()
        self._open = part
        self._pieces.append(text)
        return done
