"""External tools, which the client runs on a ToolCallRequest (wire spec 5, tools spec 3.17)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from kimi.application.ports import CheckArguments, PreparedCall, ToolCallContext
from kimi.application.toolset.foreign_schema import find_argument_fault
from kimi.application.toolset.result_limits import fit_result_to_budget
from kimi.domain.content.message import JsonObject
from kimi.domain.events.request import ToolCallAnswer, ToolCallRequest
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error


class ExternalTool:
    """A tool of the connected client. A `timeout_s` of 0 means no timeout.

    Outside plan mode it runs without approval, because the client is responsible for its own tools.
    """

    def __init__(self, spec: ToolSpec, check: CheckArguments, timeout_s: float) -> None:
        self.spec = spec
        self._check_arguments = check
        self._timeout_s = timeout_s or None

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """Validate the arguments against the client's schema; the client gets the raw text of the arguments."""
        reason = await find_argument_fault(
            self._check_arguments, self.spec.parameters, arguments, context.raw_arguments
        )

        async def run() -> ToolReturnValue:
            if reason is not None:
                return tool_error(f"Error validating JSON arguments: {reason}", "Invalid arguments")
            return await self._call_client(context)

        yield PreparedCall(run, None if reason else self._propose_action())

    def _propose_action(self) -> ProposedAction:
        name = self.spec.name
        return ProposedAction(
            "external tool", f"Call external tool `{name}`.", kind="external", remember_as=f"external:{name}"
        )

    async def _call_client(self, context: ToolCallContext) -> ToolReturnValue:
        request = ToolCallRequest(context.call_id, self.spec.name, context.raw_arguments or "{}")
        try:
            with anyio.fail_after(self._timeout_s):
                answer = await context.ask(request)
        except TimeoutError:
            return tool_error("External tool call failed: timed out", "External tool error")
        if not isinstance(answer, ToolCallAnswer):
            return tool_error("Invalid tool result payload from client.", "Invalid tool result")
        return fit_result_to_budget(_with_message(answer.return_value))


def _with_message(result: ToolReturnValue) -> ToolReturnValue:
    if result.is_error and not result.message:
        return replace(result, message="The external tool reported an error.")
    return result
