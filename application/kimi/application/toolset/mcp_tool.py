"""Tools of MCP servers: their proposed actions, calls and results (tools spec 4.6, 4.7)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kimi.application.ports import (
    CheckArguments,
    NewId,
    PreparedCall,
    SourceAnswerRefused,
    SourceDisconnected,
    SourceTimedOut,
    SourceTool,
    SourceUnavailable,
    ToolCallContext,
    ToolSource,
)
from kimi.application.toolset.foreign_schema import find_argument_fault
from kimi.application.toolset.result_limits import fit_result_to_budget
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import TextPart
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.mcp_tool_names import ToolOrigin, show_name
from kimi.domain.tools.tool import BriefBlock, ToolReturnValue, ToolSpec, escape_host_tags, tool_error

if TYPE_CHECKING:
    from kimi.application.settings.settings import McpServer

MAX_DESCRIPTION: Final = 4096
MAX_SHOWN_ARGUMENTS: Final = 50_000
NO_DESCRIPTION: Final = "No description provided."
FINGERPRINT_PREFIX: Final = "described "
FINGERPRINT_DIGITS: Final = 16
TOOL_ERROR: Final = "Tool returned an error. The output may be error message or incomplete output"

SpillText: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Writes a text to a new file of the session and returns its path; None when there is no place for files."""


@dataclass(frozen=True, slots=True)
class ServerToolDeps:
    """The dependencies of all server tools of a conversation. `may_ask` returns whether the user can be asked now."""

    source: ToolSource
    check_arguments: CheckArguments
    new_id: NewId
    may_ask: Callable[[], bool]
    spill_text: SpillText
    max_chars: int


class ServerTool:
    """A tool of a server. `spec.name` is its name for the model; everything else uses the server's name for it."""

    def __init__(self, name: str, tool: SourceTool, server: McpServer, deps: ServerToolDeps) -> None:
        self.spec = _build_spec(name, tool, server)
        self.tool = tool
        self._server = server
        self._deps = deps

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """Validate the arguments against the server's schema; every call needs approval unless configured otherwise."""
        fault = await find_argument_fault(
            self._deps.check_arguments, self.tool.parameters, arguments, context.raw_arguments
        )
        if fault is not None:
            error = tool_error(f"Error validating JSON arguments: {fault}", "Invalid arguments")

            async def refuse() -> ToolReturnValue:
                return error

            yield PreparedCall(refuse)
        else:
            yield PreparedCall(partial(self._call_server, arguments, context), self._propose_action(arguments))

    def _propose_action(self, arguments: JsonObject) -> ProposedAction:
        origin = ToolOrigin(self.tool.server, self.tool.name)
        name = show_name(origin.tool)
        return ProposedAction(
            f"mcp:{name}",
            f"Call MCP tool `{name}`.",
            (BriefBlock(f"{show_name(origin.server)}: {format_arguments(arguments)}"),),
            kind="mcp",
            subject=origin.subject,
            remember_as=origin.approval_key,
            allowed_by_config=_is_allowed_by_config(self.tool, self._server),
        )

    async def _call_server(self, arguments: JsonObject, context: ToolCallContext) -> ToolReturnValue:
        """Call the server and return the result.

        Raises SourceCallFailed, which `run_call` turns into an error result (tools spec 4.6).
        """
        from kimi.application.toolset.elicitation import answer_elicitation  # start-up time

        server, name = self.tool.server, self.tool.name
        shown_server, shown_name = show_name(server), show_name(name)
        may_ask, new_id = self._deps.may_ask, self._deps.new_id
        elicit = partial(answer_elicitation, shown_server, context.ask, context.call_id, new_id, may_ask)
        try:
            result = await self._deps.source.call(server, name, arguments, elicit)
        except SourceTimedOut:
            text = f"Timeout while calling MCP tool `{shown_name}`. You may explain to the user that the timeout config"
            return tool_error(f"{text} is set too low.", "Timeout")
        except SourceAnswerRefused as refusal:
            text = (
                f"The answer of the MCP server `{shown_server}` to `{shown_name}` was refused: {refusal} "
                "The call may or may not have taken effect. Ask it for less at a time."
            )
            return tool_error(text, "MCP answer refused")
        except SourceDisconnected:
            lost = f"The MCP server `{shown_server}` disconnected while running `{shown_name}`"
            return tool_error(f"{lost}; it may or may not have taken effect.", "MCP server disconnected")
        except SourceUnavailable:
            return tool_error(f"The MCP server `{shown_server}` is not connected.", "MCP unavailable")
        return await self._limit_result(replace(result, message=TOOL_ERROR if result.is_error else ""))

    async def _limit_result(self, result: ToolReturnValue) -> ToolReturnValue:
        """Return `result` within its size budget; the full text of a truncated one is kept in a file of the session."""
        cut = fit_result_to_budget(result, self._deps.max_chars)
        text = _result_text(result)
        if len(text) <= self._deps.max_chars or isinstance(cut.output, str):
            return cut
        path = await self._deps.spill_text(text)
        note = f"\n\n[The full text of the result is in {path}]"
        return replace(cut, output=(*cut.output, TextPart(note))) if path else cut


def approval_key(tool: SourceTool) -> str:
    """Return the key under which approval of a tool for the session is stored (tools spec 5.6)."""
    return ToolOrigin(tool.server, tool.name).approval_key


def description_fingerprint(tool: SourceTool) -> str:
    """Return the entry that is stored with an approval: a hash of the tool's description. It equals no action's key."""
    described = json.dumps([tool.description, tool.parameters, tool.read_only], sort_keys=True)
    return f"{FINGERPRINT_PREFIX}{sha256(described.encode()).hexdigest()[:FINGERPRINT_DIGITS]} {approval_key(tool)}"


def fingerprinted_approval(entry: str) -> str | None:
    """Return the key of the approval that a fingerprint entry belongs to; None for other entries."""
    return entry[len(FINGERPRINT_PREFIX) + FINGERPRINT_DIGITS + 1 :] if entry.startswith(FINGERPRINT_PREFIX) else None


def _is_allowed_by_config(tool: SourceTool, server: McpServer) -> bool:
    """Return whether the configuration allows the call. Annotations of a server count only if they are trusted."""
    if server.approval == "read_only_allow":
        return server.trust_annotations and tool.read_only
    return server.approval == "allow"


def _build_spec(name: str, tool: SourceTool, server: McpServer) -> ToolSpec:
    """Build the spec for the model, whose texts cannot imitate messages of this program (tools spec 1.8)."""
    description = tool.description.strip()[:MAX_DESCRIPTION] or NO_DESCRIPTION
    head = f"This is an MCP (Model Context Protocol) tool from MCP server `{show_name(tool.server)}`."
    kind = "read" if server.trust_annotations and tool.read_only else "other"
    parameters = cast("JsonObject", escape_texts(tool.parameters))
    return ToolSpec(name, escape_host_tags(f"{head}\n\n{description}"), parameters, kind=kind)


def escape_texts(schema: object) -> object:
    """Return a schema with the host tags in all its texts escaped, names of members included."""
    if isinstance(schema, str):
        return escape_host_tags(schema)
    if isinstance(schema, list):
        return [escape_texts(part) for part in cast("list[object]", schema)]
    if isinstance(schema, dict):
        members = cast("dict[str, object]", schema)
        return {escape_host_tags(key): escape_texts(value) for key, value in members.items()}
    return schema


def format_arguments(arguments: JsonObject) -> str:
    """Return the arguments as JSON in one line; what a screen hides is escaped, and what is left out is said."""
    text = json.dumps(arguments, ensure_ascii=False)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
    left_out = len(text) - MAX_SHOWN_ARGUMENTS
    return text if left_out <= 0 else f"{text[:MAX_SHOWN_ARGUMENTS]} [{left_out} more characters are not shown]"


def _result_text(result: ToolReturnValue) -> str:
    if isinstance(result.output, str):
        return result.output
    return "\n".join(part.text for part in result.output if isinstance(part, TextPart))
