"""`${VAR}` and `${VAR:-default}` in the configuration of an MCP server (tools spec 4.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kimi.application.settings.settings import McpServer
from kimi.domain.errors import ConfigError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand_server(server: McpServer, environ: Mapping[str, str]) -> McpServer:
    """Replace every variable of `server`: in command, arguments, env, cwd, URL, headers and token.

    `${VAR:-default}` becomes the default if the variable is missing or empty, as in a shell.

    Raises:
        ConfigError: a variable is missing; the message names it and the server.
    """

    def put_in(text: str) -> str:
        missing = _find_missing_variable(text, environ)
        if missing is not None:
            raise ConfigError(f"MCP server '{server.name}' needs the environment variable {missing}, which is not set.")
        return expand_text(text, environ) or ""

    def put_into_all(texts: Mapping[str, str]) -> dict[str, str]:
        return {key: put_in(value) for key, value in texts.items()}

    changes = {
        **{
            key: put_in(text) for key in ("command", "cwd", "url", "auth") if (text := getattr(server, key)) is not None
        },
        "args": tuple(put_in(argument) for argument in server.args),
        "env": put_into_all(server.env),
        "headers": put_into_all(server.headers),
    }
    return server.model_copy(update=changes)


def expand_text(text: str, environ: Mapping[str, str]) -> str | None:
    """Return `text` with its variables replaced, or None if one without a default is missing."""
    if _find_missing_variable(text, environ) is not None:
        return None
    return _VARIABLE.sub(lambda match: _lookup_variable(match, environ) or "", text)


def find_named_variables(server: McpServer) -> frozenset[str]:
    """Return the variables that the arguments, the environment, the headers, the URL or the token of a server name."""
    texts = (*server.args, *server.env.values(), *server.headers.values(), server.url or "", server.auth or "")
    return frozenset(match[1] for text in texts for match in _VARIABLE.finditer(text))


def is_reference(text: str) -> bool:
    """Return whether `text` is only the name of a variable, and so reveals nothing."""
    match = _VARIABLE.fullmatch(text)
    return match is not None and not match[2]


def _find_missing_variable(text: str, environ: Mapping[str, str]) -> str | None:
    return next((match[1] for match in _VARIABLE.finditer(text) if _lookup_variable(match, environ) is None), None)


def _lookup_variable(match: re.Match[str], environ: Mapping[str, str]) -> str | None:
    name, default = match[1], match[2]
    return environ.get(name) or default if default is not None else environ.get(name)
