"""The SendDMail tool (tools spec 3.14)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Annotated

from pydantic import BaseModel, Field

from kimi.application.ports import PreparedCall, ToolCallContext
from kimi.domain.agents.dmail import DMAIL_TOOL_NAME, UNKNOWN_CHECKPOINT
from kimi.domain.content.message import JsonObject
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.params import build_schema, prepare_call

NOT_SENT_MESSAGE = (
    "If you see this message, the D-Mail was NOT sent successfully. "
    "This may be because some other tool that needs approval was rejected."
)


class SendDMailParams(BaseModel):
    """Arguments of SendDMail. A negative id has an error text of its own, so the schema does not refuse it."""

    message: Annotated[str, Field(description="What your earlier self must know.")]
    checkpoint_id: Annotated[
        int,
        Field(
            description="The checkpoint to go back to: the number in a `<system>CHECKPOINT n</system>` message.",
            json_schema_extra={"minimum": 0},
        ),
    ]


class SendDMailTool:
    """Sends a message to an earlier point of the conversation; implements the port `Tool`.

    `send` takes the message and the checkpoint, and returns the reason if it is refused.
    """

    def __init__(self, send: Callable[[str, int], str | None]) -> None:
        self._send = send

    @property
    def spec(self) -> ToolSpec:
        """See `Tool`."""
        return dmail_spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """See `Tool`. Needs no approval: only the context changes. A subagent has no named checkpoints."""
        of_root = context.agent_id is None
        yield prepare_call(SendDMailParams, arguments, lambda params: PreparedCall(partial(self._run, params, of_root)))

    async def _run(self, params: SendDMailParams, is_root_agent: bool) -> ToolReturnValue:
        reason = self._send(params.message, params.checkpoint_id) if is_root_agent else UNKNOWN_CHECKPOINT
        if reason is not None:
            return tool_error(f"Failed to send D-Mail. Error: {reason}", "Failed to send D-Mail")
        return tool_ok("", NOT_SENT_MESSAGE, brief="El Psy Kongroo")


@lru_cache(maxsize=1)
def dmail_spec() -> ToolSpec:
    """Return the spec of SendDMail."""
    return ToolSpec(
        name=DMAIL_TOOL_NAME,
        description="""\
Send a message to yourself at an earlier checkpoint of this conversation and go on from there.

Everything that came after the checkpoint is forgotten; only your message remains. Files and other effects of your \
work stay as they are. Checkpoints are shown as `<system>CHECKPOINT n</system>`.

Use it when much of what you have read turned out to be of no use (a large file, a long search, attempts that failed) \
and little of it matters. Write down everything that your earlier self needs: what you found out, what you changed, \
what to do next. The person does not see the message. Only one can be sent at a time.
""",
        parameters=build_schema(SendDMailParams),
    )
