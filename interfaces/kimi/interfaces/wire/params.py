"""Parameters of the wire's methods, checked (wire spec 3). Every function raises ValueError on a wrong shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from kimi.application.codec.payloads import decode_user_input, json_object, member, optional_text
from kimi.application.sessions.negotiate_initialize import ExternalToolOffer
from kimi.domain.client import Client, parse_version
from kimi.domain.content.message import JsonObject
from kimi.domain.content.parts import UserInput
from kimi.domain.hook import HookSubscription


@dataclass(frozen=True, slots=True)
class InitializeParams:
    """What a client says of itself. None for `capabilities` and `hooks` keeps what an earlier handshake said."""

    protocol_version: str
    name: str | None
    version: str | None
    external_tools: tuple[ExternalToolOffer, ...]
    capabilities: tuple[bool, bool] | None
    hooks: tuple[HookSubscription, ...] | None

    @property
    def looks_strict(self) -> bool:
        """Is this a reader that stops at unknown events: version 1.4 or later, neither client nor capabilities?"""
        modern = parse_version(self.protocol_version) >= (1, 4)
        return modern and self.name is None and self.capabilities is None

    def client(self, before: Client) -> Client:
        """The client as it is now known."""
        question, plan = self.capabilities or (before.supports_question, before.supports_plan_mode)
        return Client(self.name, self.version, parse_version(self.protocol_version), question, plan)


def initialize_params(params: object) -> InitializeParams:
    """The parameters of `initialize` (wire spec 3.1)."""
    source = json_object(params, "params")
    client = _optional_object(source, "client")
    return InitializeParams(
        protocol_version=member(source, "protocol_version", str),
        name=member(client, "name", str) if client is not None else None,
        version=optional_text(client, "version") if client is not None else None,
        external_tools=tuple(_offer(item) for item in _list(source, "external_tools") or ()),
        capabilities=_capabilities(_optional_object(source, "capabilities")),
        hooks=_hooks(_list(source, "hooks")),
    )


def prompt_params(params: object) -> UserInput:
    """The `user_input` of `prompt` (wire spec 3.2)."""
    source = json_object(params, "params")
    return decode_user_input(source.get("user_input"))


def plan_mode_params(params: object) -> bool:
    """The `enabled` of `set_plan_mode` (wire spec 3.5)."""
    return member(json_object(params, "params"), "enabled", bool)


def _offer(value: object) -> ExternalToolOffer:
    source = json_object(value, "an external tool")
    parameters = json_object(source.get("parameters"), "`parameters`")
    return ExternalToolOffer(member(source, "name", str), member(source, "description", str), parameters)


def _capabilities(source: JsonObject | None) -> tuple[bool, bool] | None:
    if source is None:
        return None
    return (
        member(source, "supports_question", bool, False),
        member(source, "supports_plan_mode", bool, False),
    )


def _hooks(values: Sequence[object] | None) -> tuple[HookSubscription, ...] | None:
    if values is None:
        return None
    return tuple(_hook(value) for value in values)


def _hook(value: object) -> HookSubscription:
    source = json_object(value, "a hook subscription")
    return HookSubscription(
        id=member(source, "id", str),
        event=member(source, "event", str),
        matcher=member(source, "matcher", str, ""),
        timeout_s=member(source, "timeout", int, 30),
    )


def _optional_object(source: JsonObject, key: str) -> JsonObject | None:
    return None if source.get(key) is None else json_object(source[key], f"`{key}`")


def _list(source: JsonObject, key: str) -> list[object] | None:
    value: Any = source.get(key)
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"`{key}` must be a list")
    return cast("list[object]", value)
