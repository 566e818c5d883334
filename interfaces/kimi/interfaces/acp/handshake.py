"""The `initialize` handshake, and the check for credentials (acp spec 1.3, 5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from kimi.application.settings.settings import ModelSettings, Settings
from kimi.domain.client import Client
from kimi.domain.content.message import JsonObject
from kimi.interfaces.acp.auth import build_auth_methods, explain_missing_model, is_model_usable
from kimi.interfaces.acp.client_capabilities import ClientCapabilities, parse_client_capabilities
from kimi.interfaces.acp.transport.errors import RpcError, auth_required, invalid_params
from kimi.interfaces.bootstrap.start import ReloadingSettings
from kimi.interfaces.rpc.messages import INVALID_REQUEST
from kimi.interfaces.version import __version__

PROTOCOL_VERSION: Final = 1
AGENT_NAME: Final = "Kimi Code CLI"

AGENT_CAPABILITIES: Final[JsonObject] = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {
        "list": {},
        "resume": {},
        "close": {},
        "delete": {},
        "fork": {},
        "additionalDirectories": {},
    },
    "_meta": {"kimi": {"promptQueueing": True}},
}

_WIRE_VERSION: Final = (1, 10)
"""The version of the wire protocol whose features the conversation offers: the newest."""


class Handshake:
    """The result of `initialize`. A later `initialize` replaces it for sessions that are opened after it."""

    def __init__(self, settings_source: ReloadingSettings, environ: Mapping[str, str]) -> None:
        self.settings_source = settings_source
        self._environ = environ
        self._is_initialized = False
        self.client_capabilities = ClientCapabilities()
        self.client = _parse_client(None, self.client_capabilities)

    def initialize(self, params: object) -> JsonObject:
        """Record the client's parameters and return the result, without loading anything.

        Raises RpcError if `params` is not an object.
        """
        if not isinstance(params, dict):
            raise invalid_params("params: must be an object")
        fields = cast("dict[str, Any]", params)
        self.client_capabilities = parse_client_capabilities(fields.get("clientCapabilities"))
        self.client = _parse_client(fields.get("clientInfo"), self.client_capabilities)
        self._is_initialized = True
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {"name": AGENT_NAME, "title": AGENT_NAME, "version": __version__},
            "agentCapabilities": AGENT_CAPABILITIES,
            "authMethods": self.auth_methods(),
            "_meta": {"steering": {"supported": True}},
        }

    def require_initialized(self) -> None:
        """Raise RpcError before the first `initialize`."""
        if not self._is_initialized:
            raise RpcError(INVALID_REQUEST, "Connection not initialized")

    def auth_methods(self) -> Sequence[JsonObject]:
        """Return the methods by which the client gets credentials."""
        return build_auth_methods(self.client_capabilities, self._environ)

    def current_settings(self) -> Settings:
        """Return the settings of the process as they are now."""
        return self.settings_source.get()

    def require_credentials(self, model: ModelSettings | None = None) -> None:
        """Raise RpcError unless `model`, by default that of the current settings, has credentials."""
        chosen = model if model is not None else self.current_settings().model
        if not is_model_usable(chosen):
            raise auth_required(self.auth_methods(), **explain_missing_model(chosen))


def _parse_client(info: object, capabilities: ClientCapabilities) -> Client:
    fields = cast("dict[str, Any]", info) if isinstance(info, dict) else {}
    name, version = (value if isinstance(value, str) else None for value in (fields.get("name"), fields.get("version")))
    return Client(
        name,
        version,
        _WIRE_VERSION,
        supports_question=True,
        supports_plan_mode=True,
        wants_model_command=True,
        wants_commands=capabilities.slash_commands,
    )
