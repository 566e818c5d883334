"""The model of the demo: a fixed conversation with the real program, for users without an account."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from uuid import uuid4

import anyio

from kimi.application.ports import ModelItem, ResponseEnd
from kimi.domain.content.message import Function, Message, ToolCall, message_text
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.tools.tool import ToolSpec
from kimi.domain.turn import TokenUsage

PAUSE_S = 0.03
"""The pause between two words, in seconds, as of a fast model."""

_COMMAND = "echo Hello from the demo"
_OPENING = "You said: *{said}*. A real model would think about that now. I will show you what it may do instead: "
_ASKING = "run a command. You are asked before it happens.\n"
_CLOSING = """\
That was a tool call. Its output came back to me, and I can go on:

- **Enter** sends, **Ctrl-C** interrupts, `/help` lists the rest
- `@` names a file, `/` a command, **Ctrl-X** runs commands of your own
- everything said here is stored: `kimi --continue` takes it up again

```python
print("code is coloured")
```

When you are ready for a real model: `/login`.
"""


class DemoModel:
    """A `ChatModel` that greets, asks to run `echo`, and sums up, whatever the user says."""

    name = "demo"
    capabilities = frozenset({"thinking"})
    context_size = 100_000

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        async with aclosing(_pace_items(list(_make_answer(history)), tokens_used)) as items:
            yield items


async def _pace_items(items: Sequence[ModelItem], tokens_used: int) -> AsyncGenerator[ModelItem]:
    for item in items:
        await anyio.sleep(PAUSE_S)
        yield item
    yield ResponseEnd(str(uuid4()), TokenUsage(tokens_used + 120, 80), "end")


def _make_answer(history: Sequence[Message]) -> Iterator[ModelItem]:
    last = history[-1]
    if last.role == "tool":
        yield from _split_words(_CLOSING)
        return
    yield ThinkPart("Somebody wants to see what I can do. ")
    yield ThinkPart("A tool call is worth more than words.")
    prompt_text = " ".join(message_text(last).split())[:60]
    yield from _split_words(_OPENING.format(said=prompt_text.replace("*", "")) + _ASKING)
    yield ToolCall(f"demo-{uuid4().hex[:8]}", Function("Shell", json.dumps({"command": _COMMAND})))


def _split_words(text: str) -> Iterator[TextPart]:
    for line in text.splitlines(keepends=True):
        words = line.split(" ")
        yield from (TextPart(word + " ") for word in words[:-1])
        yield TextPart(words[-1])
