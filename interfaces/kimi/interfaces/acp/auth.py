"""Whether a model has credentials, and the method by which a client gets them (acp spec 5.2)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from kimi.application.settings.settings import ModelSettings, explain_missing_key
from kimi.domain.content.message import JsonObject
from kimi.interfaces.acp.client_capabilities import ClientCapabilities
from kimi.interfaces.acp.transport.errors import NO_MODEL_DETAILS

LOGIN_METHOD_ID: Final = "login"
_METHOD_NAME: Final = "Set up a model provider"
_METHOD_DESCRIPTION: Final = "Run 'kimi setup' in a terminal: choose a provider and enter its API key."
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})


def is_model_usable(model: ModelSettings | None) -> bool:
    """Whether this model can be called: it is configured, with a key or other credentials."""
    if model is None or not model.is_usable:
        return False
    return model.has_credentials or (urlsplit(model.base_url).hostname or "") in _LOCAL_HOSTS  # which need no key


def explain_missing_model(model: ModelSettings | None) -> Mapping[str, str]:
    """Return the details for a client without a usable model: what is missing, and what to run."""
    if model is None or not model.is_configured:
        return {"details": NO_MODEL_DETAILS}
    return {"details": explain_missing_key(model)}


def build_auth_methods(
    capabilities: ClientCapabilities, environ: Mapping[str, str], command: Sequence[str] | None = None
) -> list[JsonObject]:
    """Return the only auth method: the setup in a terminal, with `type` if the client supports that.

    `command` starts this program; by default it is the command that started this process.
    """
    env = {name: environ[name] for name in ("KIMI_SHARE_DIR",) if environ.get(name)}
    program, *before = resolve_own_command(sys.argv[0], sys.executable) if command is None else command
    old = {"type": "terminal", "command": program, "args": [*before, "setup"], "label": "Kimi setup", "env": env}
    method: dict[str, Any] = {"id": LOGIN_METHOD_ID, "name": _METHOD_NAME, "description": _METHOD_DESCRIPTION}
    if capabilities.auth_terminal:
        method |= {"type": "terminal", "args": ["--setup"], "env": env}
    return [method | {"_meta": {"terminal-auth": old}}]


_MODULE_ARGS = ("-P", "-m", "kimi")
"""`-P` keeps Python from importing a `kimi` in the directory where the editor starts the program."""


def resolve_own_command(script: str, interpreter: str) -> list[str]:
    """Return the command that starts this program again: `script` if it is executable, else the interpreter with it."""
    if os.path.basename(script) == "__main__.py":
        return [interpreter, *_MODULE_ARGS]
    path = os.path.abspath(script)
    if os.path.isfile(path) and os.access(path, os.X_OK) and not path.endswith(".py"):
        return [path]
    return [interpreter, path] if os.path.isfile(path) else [interpreter, *_MODULE_ARGS]
