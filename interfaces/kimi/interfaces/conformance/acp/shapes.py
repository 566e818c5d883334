"""The shapes of what an agent sends, from the models of the protocol's library (acp spec 1.12, 1.13)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import acp.schema as models
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from kimi.interfaces.conformance.peer import Json, dig

_UPDATES: Final[dict[str, Any]] = {
    "user_message_chunk": models.UserMessageChunk,
    "agent_message_chunk": models.AgentMessageChunk,
    "agent_thought_chunk": models.AgentThoughtChunk,
    "tool_call": models.ToolCallStart,
    "tool_call_update": models.ToolCallProgress,
    "plan": models.AgentPlanUpdate,
    "available_commands_update": models.AvailableCommandsUpdate,
    "current_mode_update": models.CurrentModeUpdate,
    "config_option_update": models.ConfigOptionUpdate,
    "session_info_update": models.SessionInfoUpdate,
    "usage_update": models.UsageUpdate,
}
_REQUESTS: Final[dict[str, Any]] = {
    "session/request_permission": models.RequestPermissionRequest,
    "fs/read_text_file": models.ReadTextFileRequest,
    "fs/write_text_file": models.WriteTextFileRequest,
    "terminal/create": models.CreateTerminalRequest,
    "terminal/output": models.TerminalOutputRequest,
    "terminal/wait_for_exit": models.WaitForTerminalExitRequest,
    "terminal/kill": models.KillTerminalRequest,
    "terminal/release": models.ReleaseTerminalRequest,
    "elicitation/create": models.CreateElicitationRequest,
}
_RESULTS: Final[dict[str, Any]] = {
    "initialize": models.InitializeResponse,
    "session/new": models.NewSessionResponse,
    "session/load": models.LoadSessionResponse,
    "session/list": models.ListSessionsResponse,
    "session/prompt": models.PromptResponse,
    "session/set_config_option": models.SetSessionConfigOptionResponse,
}


def find_problem(message: Json, answered: str | None) -> str | None:
    """Say what is wrong with a message; `answered` is the method of the call that it answers."""
    if "method" not in message:
        if "error" in message:
            shape = isinstance(dig(message, "error", "code"), int) and isinstance(dig(message, "error", "message"), str)
            return None if shape else "an error has no code or message"
        return _check(_RESULTS.get(answered or ""), message.get("result"), f"the result of {answered}")
    params = message.get("params")
    if not isinstance(message["method"], str):
        return "a method is no string"
    if message["method"] == "session/update":
        kind = dig(params, "update", "sessionUpdate")
        if kind is None or not isinstance(dig(params, "sessionId"), str):
            return "an update has no session or no content"
        return _check(_UPDATES.get(str(kind)), dig(params, "update"), str(kind))
    return _check(_REQUESTS.get(message["method"]), params, message["method"])


def _check(model: Any, value: object, what: str) -> str | None:
    if model is None:
        return None  # unstable, or newer than the library
    problems = [one.message for one in _validator(model).iter_errors(value)]  # pyright: ignore
    return f"{what}: {'; '.join(map(str, problems))}" if problems else None


@cache
def _validator(model: Any) -> Draft202012Validator:
    return Draft202012Validator(TypeAdapter[Any](model).json_schema(by_alias=True))
