"""Who may open a session: whoever has a model with credentials; and how a client gets them (acp spec 5.2)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import JsonObject
from kimi.interfaces.acp.client_capabilities import ClientCapabilities

LOGIN_METHOD_ID: Final = "login"
_METHOD_NAME: Final = "Set up a model provider"
_METHOD_DESCRIPTION: Final = "Run 'kimi setup' in a terminal: choose a provider and enter its API key."
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})


def is_model_usable(model: ModelSettings | None) -> bool:
    """Can this model be asked: is it configured, with a key or something in its place?"""
    return model is not None and model.is_usable and _has_credentials(model)


def _has_credentials(model: ModelSettings) -> bool:
    if model.api_key or model.oauth or model.type.startswith("_") or model.has_machine_credentials:
        return True
    headers = {name.lower() for name in model.custom_headers}
    if headers & {"authorization", "x-api-key"}:
        return True
    return (urlsplit(model.base_url).hostname or "") in _LOCAL_HOSTS  # servers of one's own need no key


def explain_missing_model(model: ModelSettings | None) -> Mapping[str, str]:
    """More for the error of somebody who has no model at all."""
    return {} if model is not None and model.is_usable else {"details": "no model configured"}


def build_auth_methods(
    capabilities: ClientCapabilities, environ: Mapping[str, str], command: Sequence[str] | None = None
) -> list[JsonObject]:
    """The one method there is: the setup in a terminal, of the typed kind where the client knows it.

    `command` starts this program; by default as it was started.
    """
    env = {name: environ[name] for name in ("KIMI_SHARE_DIR",) if environ.get(name)}
    program, *before = resolve_own_command(sys.argv[0], sys.executable) if command is None else command
    old = {"type": "terminal", "command": program, "args": [*before, "setup"], "label": "Kimi setup", "env": env}
    method: dict[str, Any] = {"id": LOGIN_METHOD_ID, "name": _METHOD_NAME, "description": _METHOD_DESCRIPTION}
    if capabilities.auth_terminal:
        method |= {"type": "terminal", "args": ["--setup"], "env": env}
    return [method | {"_meta": {"terminal-auth": old}}]


_MODULE_ARGS = ("-P", "-m", "kimi")
"""Not a `kimi` that lies in the directory where the editor starts it."""


def resolve_own_command(script: str, interpreter: str) -> list[str]:
    """How this program is started once more: `script` by itself if it can be, else with the interpreter."""
    if os.path.basename(script) == "__main__.py":
        return [interpreter, *_MODULE_ARGS]
    path = os.path.abspath(script)
    if os.path.isfile(path) and os.access(path, os.X_OK) and not path.endswith(".py"):
        return [path]
    return [interpreter, path] if os.path.isfile(path) else [interpreter, *_MODULE_ARGS]
