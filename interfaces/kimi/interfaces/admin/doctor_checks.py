"""The checks of `kimi doctor`: each says in one line what it found, and how to mend what is wrong."""

from __future__ import annotations

import codecs
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import anyio

from kimi.application.settings.settings import McpServer, ModelSettings, Settings
from kimi.domain.content.message import user_message
from kimi.domain.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APITimeoutError,
    AuthExpired,
    ConfigError,
    KimiError,
    McpUnauthorized,
    ModelError,
)
from kimi.interfaces.admin.provider_presets import API_KEY_VARIABLES
from kimi.interfaces.bootstrap.doctor import count_mcp_tools, find_ripgrep, open_configured_model, resolve_proxy

FindingStatus: TypeAlias = Literal["ok", "warning", "failed", "skipped"]

ENDPOINT_S: Final = 30.0
"""How long the endpoint may take to begin its answer, in seconds."""

MCP_S: Final = 15.0
"""How long an MCP server may take to list its tools, in seconds; less when its configuration says so."""

RIPGREP_S: Final = 6.0

SETUP: Final = "Run 'kimi setup'."


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check came to; `advice` says what to do about it."""

    name: str
    status: FindingStatus
    message: str
    advice: str = ""


def check_files(path: str, settings: Settings) -> Finding:
    """The configuration was read from `path`; may others read it, too, and can sessions be stored?"""
    share = settings.share_dir
    try:
        os.makedirs(share, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=share, buffering=0) as file:
            file.write(b"sessions need some room" * 1000)  # an empty file can be made on a full disk, too
    except OSError as error:
        advice = "Make it writable, or set KIMI_SHARE_DIR to another directory."
        return Finding("configuration", "failed", f"{share} cannot be written: {error.strerror}.", advice)
    if _is_readable_by_others(path):
        message = f"{path} is valid, but other users can read it, and the keys in it."
        return Finding("configuration", "warning", message, f"Run: chmod 600 {path}")
    return Finding("configuration", "ok", f"{path} is valid.")


def check_model(settings: Settings) -> Finding:
    """Is there a model that a prompt could go to?"""
    model = settings.model
    if model is None or not model.is_usable:
        return Finding("model", "failed", "No model is configured.", SETUP)
    return Finding("model", "ok", f"{model.model} of provider '{model.provider_name}' ({model.type}).")


def check_key(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Is there a key, and where from?"""
    model = settings.model
    if model is None or not model.is_usable or model.type.startswith("_"):
        return Finding("key", "skipped", "No provider that could need one.")
    variable = API_KEY_VARIABLES.get(model.type)
    if model.api_key:
        source = f"the variable {variable}" if variable and environ.get(variable) == model.api_key else "the file"
        return Finding("key", "ok", f"Taken from {source}.")
    if model.oauth:
        message = f"Provider '{model.provider_name}' uses an account login, which this program does not have."
        return Finding("key", "failed", message, "Enter an API key with 'kimi setup'.")
    if _needs_no_key(model):
        return Finding("key", "ok", "None is configured, and none may be needed.")
    also = f", or set {variable}" if variable else ""
    return Finding("key", "failed", f"Provider '{model.provider_name}' has no API key.", f"Run 'kimi setup'{also}.")


def check_proxy(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Which way do requests to the provider take?"""
    url = settings.model.base_url if settings.model else ""
    if not _parse_host(url):
        return Finding("proxy", "skipped", "No provider to reach.")
    try:
        proxy = resolve_proxy(url, environ)
    except ConfigError as error:
        return Finding("proxy", "failed", str(error))
    if proxy is None:
        return Finding("proxy", "ok", "None is used.")
    if _is_local_url(url):
        message = f"Requests to this machine go through {proxy}."
        return Finding("proxy", "warning", message, "Set NO_PROXY=localhost,127.0.0.1")
    return Finding("proxy", "ok", f"{proxy} is used.")


async def check_endpoint(settings: Settings, environ: Mapping[str, str], limit_s: float = ENDPOINT_S) -> Finding:
    """Ask the model one short question and wait for the beginning of an answer, at most `limit_s` seconds."""
    model = settings.model
    if model is None or not model.is_usable or model.type.startswith("_"):
        return Finding("endpoint", "skipped", "No provider to ask.")
    try:
        with anyio.fail_after(limit_s):
            await _ask_model(settings, environ)
    except TimeoutError:
        advice = "A server on this machine may still be loading the model: try again. Else check network and proxy."
        return Finding("endpoint", "failed", f"{_describe_host(model)} gave no answer within {limit_s:g} s.", advice)
    except (ModelError, ConfigError) as error:
        return Finding(
            "endpoint", "failed", f"{_describe_host(model)}: {error}", _advise_on_error(error, model, environ)
        )
    return Finding("endpoint", "ok", f"{_describe_host(model)} answers.")


async def check_mcp_server(server: McpServer, settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Connect to a server and see what it offers."""
    name = f"mcp {server.name}"
    if not server.enabled:
        return Finding(name, "skipped", "It is switched off.")
    limit = min(MCP_S, (server.connect_timeout_ms or settings.mcp.connect_timeout_ms) / 1000)
    try:
        with anyio.fail_after(limit):
            count = await count_mcp_tools(server, settings, environ)
    except TimeoutError:
        return Finding(name, "failed", f"No answer within {limit:g} s.", _advise_on_mcp_server(server))
    except McpUnauthorized:
        return Finding(name, "failed", "It wants you to log in.", f"Run: kimi mcp auth {server.name}")
    except KimiError as error:
        return Finding(name, "failed", str(error), "Correct its entry in the MCP configuration.")
    except Exception as error:  # the library and the server may fail in any way
        return Finding(name, "failed", f"{type(error).__name__}: {error}", _advise_on_mcp_server(server))
    return Finding(name, "ok", f"Connected, {count} tool{'' if count == 1 else 's'}.")


async def check_ripgrep(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Is the fast searcher there?"""
    with anyio.move_on_after(RIPGREP_S):
        if (path := await find_ripgrep(settings, environ)) is not None:
            return Finding("ripgrep", "ok", f"{path} is used.")
    advice = "Install ripgrep, or kimi-wire[search], or set tools.ripgrep_path."
    return Finding("ripgrep", "warning", "Not found: Grep works, but slowly.", advice)


def check_terminal(environ: Mapping[str, str]) -> Finding:
    """Could the interactive shell be used here?"""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Finding("terminal", "skipped", "Input and output are no terminal.")
    kind, encoding = environ.get("TERM", ""), codecs.lookup(sys.stdout.encoding or "ascii").name
    if kind in ("", "dumb") and os.name != "nt":
        return Finding("terminal", "warning", f"TERM is '{kind}'.", "Use another terminal for the interactive shell.")
    if not encoding.startswith("utf"):
        advice = "Choose a UTF-8 locale, for example LANG=C.UTF-8"
        return Finding("terminal", "warning", f"It is used with the encoding {encoding}.", advice)
    return Finding("terminal", "ok", f"{kind or 'Console'}, {encoding}.")


# --- what they have in common ----------------------------------------------------------------------------------


async def _ask_model(settings: Settings, environ: Mapping[str, str]) -> None:
    """Send the question; the connection is closed with the first piece of the answer."""
    async with open_configured_model(settings, environ) as model:
        assert model is not None  # it is usable
        async with model.stream("Answer in one word.", [user_message("Say: ok")], (), 0) as items:
            async for _ in items:
                return


def _advise_on_error(error: KimiError, model: ModelSettings, environ: Mapping[str, str]) -> str:
    """How to mend what the endpoint complained of."""
    match error:
        case AuthExpired():
            return "Enter an API key with 'kimi setup'."
        case APIStatusError(status_code=401 | 403):
            variable = API_KEY_VARIABLES.get(model.type)
            return f"Enter another key with 'kimi setup'{f', or correct {variable}' if variable else ''}."
        case APIStatusError(status_code=404):
            return f"Check base_url '{model.base_url}' and the id of the model, '{model.model}'."
        case APIStatusError(status_code=402 | 429):
            return "Wait, or look at the limits of your account."
        case APIStatusError(status_code=code) if code >= 500:
            return "The provider has trouble: try again later."
        case APIConnectionError() | APITimeoutError():
            return _advise_on_connection(model.base_url, environ)
        case APIEmptyResponseError():
            return "Try another model."
        case _:
            return "Check the provider and the model in the configuration."


def _advise_on_connection(url: str, environ: Mapping[str, str]) -> str:
    if resolve_proxy(url, environ) is not None:
        return "Check the proxy that the environment names, or except the host from it with NO_PROXY."
    return "Start the server." if _is_local_url(url) else "Check base_url and the network."


def _advise_on_mcp_server(server: McpServer) -> str:
    if server.command is None:
        return "Check its url in the MCP configuration, and the network."
    return "Check its command in the MCP configuration; what it wrote is below logs/mcp."


def _describe_host(model: ModelSettings) -> str:
    where = urlsplit(model.base_url).netloc if _parse_host(model.base_url) else ""
    return where.rpartition("@")[2] or f"provider '{model.provider_name}'"


def _parse_host(url: str) -> str:
    """The host that `url` names; empty when it is no URL."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_local_url(url: str) -> bool:
    host = _parse_host(url)
    return host in ("localhost", "::1") or host.startswith("127.")


def _needs_no_key(model: ModelSettings) -> bool:
    """A server on this machine, Google Cloud's own credentials, or a header that stands for the key."""
    headers = {name.lower() for name in model.custom_headers}
    return _is_local_url(model.base_url) or model.type == "vertexai" or bool(headers & {"authorization", "x-api-key"})


def _is_readable_by_others(path: str) -> bool:
    try:
        return os.name != "nt" and bool(stat.S_IMODE(os.stat(path).st_mode) & 0o077)
    except OSError:
        return False
