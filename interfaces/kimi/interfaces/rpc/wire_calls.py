"""The calls of the wire's methods: their parameters decoded, their results and failures encoded (wire spec 3).

The functions that decode raise ValueError for a wrong shape.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from kimi.application.codec.payloads import decode_user_input, read_member, read_optional_text, require_object
from kimi.application.sessions.negotiate_initialize import ExternalToolOffer, InitializeOutcome
from kimi.domain.client import Client, parse_version
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import UserInput
from kimi.domain.errors import AuthExpired, CapabilityMissing, ChatProviderError, ModelNotSet, StateError
from kimi.domain.hook import HOOK_EVENTS, Hook, HookSubscription, count_hooks_by_event
from kimi.domain.turn import TurnStatus
from kimi.interfaces.rpc.messages import INTERNAL_ERROR
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.interfaces.rpc.wire_shapes import InitializeResult, PromptResult

logger = logging.getLogger(__name__)

PROTOCOL_VERSION: Final = "1.10"
SERVER_NAME: Final = "Kimi Code CLI"

Negotiate: TypeAlias = Callable[[Client, Sequence[ExternalToolOffer]], InitializeOutcome]
"""The use-case `negotiate_initialize` with its ports bound."""

_ERROR_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (StateError, -32000),
    (ModelNotSet, -32001),
    (CapabilityMissing, -32002),
    (AuthExpired, -32004),
    (ChatProviderError, -32003),
)
"""Error classes and their wire codes; the first match counts, any other error is -32603."""


@dataclass(frozen=True, slots=True)
class InitializeParams:
    """The parameters of `initialize`.

    None for `capabilities`, `hooks` or `slash_commands` keeps what an earlier handshake said.
    """

    protocol_version: str
    name: str | None
    version: str | None
    external_tools: tuple[ExternalToolOffer, ...]
    capabilities: tuple[bool, bool, bool] | None
    hooks: tuple[HookSubscription, ...] | None
    slash_commands: bool | None

    @property
    def looks_strict(self) -> bool:
        """Whether this client stops at unknown events: version 1.4 or later, without client name and capabilities."""
        modern = parse_version(self.protocol_version) >= (1, 4)
        return modern and self.name is None and self.capabilities is None

    def merge_client(self, previous: Client) -> Client:
        """Return the client; what this handshake does not say is taken from `previous`."""
        before = (previous.supports_question, previous.supports_plan_mode, previous.supports_usage)
        commands = previous.wants_commands if self.slash_commands is None else self.slash_commands
        version = parse_version(self.protocol_version)
        return Client(self.name, self.version, version, *(self.capabilities or before), wants_commands=commands)


def decode_initialize_params(params: object) -> InitializeParams:
    """Decode the parameters of `initialize` (wire spec 3.1)."""
    source = require_object(params, "params")
    client = _get_optional_object(source, "client")
    return InitializeParams(
        protocol_version=read_member(source, "protocol_version", str),
        name=read_member(client, "name", str) if client is not None else None,
        version=read_optional_text(client, "version") if client is not None else None,
        external_tools=tuple(
            _decode_external_tool(item) for item in _get_optional_list(source, "external_tools") or ()
        ),
        capabilities=_decode_capabilities(_get_optional_object(source, "capabilities")),
        hooks=_decode_hooks(_get_optional_list(source, "hooks")),
        slash_commands=None if source.get("slash_commands") is None else read_member(source, "slash_commands", bool),
    )


def decode_prompt_params(params: object) -> UserInput:
    """Decode the `user_input` of `prompt` (wire spec 3.2)."""
    source = require_object(params, "params")
    return decode_user_input(source.get("user_input"))


def decode_plan_mode_params(params: object) -> bool:
    """Decode the `enabled` of `set_plan_mode` (wire spec 3.5)."""
    return read_member(require_object(params, "params"), "enabled", bool)


def _decode_external_tool(value: object) -> ExternalToolOffer:
    source = require_object(value, "an external tool")
    parameters = require_object(source.get("parameters"), "`parameters`")
    return ExternalToolOffer(read_member(source, "name", str), read_member(source, "description", str), parameters)


def _decode_capabilities(source: JsonObject | None) -> tuple[bool, bool, bool] | None:
    if source is None:
        return None
    return (
        read_member(source, "supports_question", bool, False),
        read_member(source, "supports_plan_mode", bool, False),
        read_member(source, "supports_usage", bool, False),
    )


def _decode_hooks(values: Sequence[object] | None) -> tuple[HookSubscription, ...] | None:
    if values is None:
        return None
    return tuple(_decode_hook(value) for value in values)


def _decode_hook(value: object) -> HookSubscription:
    source = require_object(value, "a hook subscription")
    return HookSubscription(
        id=read_member(source, "id", str),
        event=read_member(source, "event", str),
        matcher=read_member(source, "matcher", str, ""),
        timeout_s=read_member(source, "timeout", int, 30),
    )


def _get_optional_object(source: JsonObject, key: str) -> JsonObject | None:
    return None if source.get(key) is None else require_object(source[key], f"`{key}`")


def _get_optional_list(source: JsonObject, key: str) -> list[object] | None:
    value: Any = source.get(key)
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"`{key}` must be a list")
    return cast("list[object]", value)


def build_prompt_result(status: TurnStatus) -> PromptResult:
    """Return the result of `prompt`; `steps` is present only if the limit was reached."""
    result: PromptResult = {"status": status.status}
    if status.steps is not None:
        result["steps"] = status.steps
    return result


def build_initialize_result(outcome: InitializeOutcome, hooks: Sequence[Hook]) -> InitializeResult:
    """Return the result of `initialize`: without nulls and members that old clients do not expect."""
    result: InitializeResult = {
        "protocol_version": PROTOCOL_VERSION,
        "server": {"name": SERVER_NAME, "version": __version__},
        "slash_commands": outcome.commands,
        "external_tools": {"accepted": outcome.accepted, "rejected": outcome.rejected},
        "hooks": {"supported_events": HOOK_EVENTS, "configured": count_hooks_by_event(hooks)},
        "capabilities": {"supports_question": True},
    }
    if not (outcome.accepted or outcome.rejected):
        del result["external_tools"]
    return result


def describe_failure(error: Exception) -> tuple[int, str]:
    """Return the code and message of the error response for an error that a method raised."""
    for kind, code in _ERROR_CODES:
        if isinstance(error, kind):
            return code, str(error)
    logger.error("a method failed", exc_info=error)
    return INTERNAL_ERROR, f"{type(error).__name__}: {error}"
