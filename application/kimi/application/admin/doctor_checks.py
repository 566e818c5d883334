"""The checks of `kimi doctor`: each returns a finding of one line, with advice if something is wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from kimi.application.ports import ChatModel
from kimi.application.settings.settings import McpServer, ModelSettings, describe_missing_key
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

if TYPE_CHECKING:
    from kimi.domain.tools.plugin import InstalledPlugins

FindingStatus: TypeAlias = Literal["ok", "warning", "failed", "skipped"]

KeyVariables: TypeAlias = Mapping[str, str]
"""Maps the type of a provider to the environment variable whose key is used instead of the configured one."""

ENDPOINT_S: Final = 30.0
"""The timeout in seconds for the beginning of the endpoint's answer."""

MCP_S: Final = 15.0
"""The timeout in seconds for an MCP server to list its tools; a shorter configured timeout is used instead."""

RIPGREP_S: Final = 6.0
"""The timeout in seconds for finding ripgrep."""

SETUP: Final = "Run 'kimi setup'."


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `advice` says what the user can do about it."""

    name: str
    status: FindingStatus
    message: str
    advice: str = ""


# --- ports -----------------------------------------------------------------------------------------------------

TryWrite: TypeAlias = Callable[[str], None]
"""Creates the directory if it is missing, and writes and removes a file of some size in it. Raises OSError."""

IsReadableByOthers: TypeAlias = Callable[[str], bool]
"""Whether other users of this machine can read the file; False when that is unknown."""

ResolveProxy: TypeAlias = Callable[[str], str | None]
"""Returns the proxy for requests to a URL, without its password; None without one. Raises ConfigError when it cannot be
used or needs a library that is missing."""

OpenConfiguredModel: TypeAlias = Callable[[], AbstractAsyncContextManager[ChatModel | None]]
"""Opens the model that would answer a prompt, None when there is none. Raises ConfigError when it cannot be used."""

CountServerTools: TypeAlias = Callable[[McpServer], Awaitable[int]]
"""Connects to a server, counts its tools and disconnects. Raises McpUnauthorized, ConfigError, and any exception of the
library. A process that was started has ended when the call returns, raises or is cancelled."""

FindRipgrep: TypeAlias = Callable[[], Awaitable[str | None]]
"""Returns the ripgrep that searches would use; None when there is none that starts."""

FindSandbox: TypeAlias = Callable[[], "FoundSandbox"]
"""Tries out what confines commands here. Blocks until it is known."""

LoadPlugins: TypeAlias = Callable[[], "InstalledPlugins"]
"""Returns the plugins of the user, usable or not; blocks. There is none without a directory of plugins."""

FindTerminal: TypeAlias = Callable[[], "TerminalKind | None"]
"""Returns the terminal that the program runs on; None when input or output is not a terminal."""


@dataclass(frozen=True, slots=True)
class TerminalKind:
    """A terminal: the value of `TERM`, the name of its encoding, and whether it is a console of Windows."""

    name: str
    encoding: str
    is_windows: bool = False


@dataclass(frozen=True, slots=True)
class FoundSandbox:
    """What confines commands; the name is empty if nothing does, and `advice` then says what to do.

    `open_ends` says what it does not close.
    """

    name: str = ""
    open_ends: tuple[str, ...] = ()
    advice: str = ""


ListMissingLibraries: TypeAlias = Callable[[], Sequence[str]]
"""Returns the libraries that the installation should have and has not, each with what does not work without it."""


@dataclass(frozen=True, slots=True)
class DoctorProbes:
    """The functions that the checks call to try things out, bound to the settings that are checked."""

    try_write: TryWrite
    is_readable_by_others: IsReadableByOthers
    resolve_proxy: ResolveProxy
    open_model: OpenConfiguredModel
    count_tools: CountServerTools
    find_ripgrep: FindRipgrep
    find_sandbox: FindSandbox
    load_plugins: LoadPlugins | None = None
    list_missing_libraries: ListMissingLibraries = tuple


# --- checks ----------------------------------------------------------------------------------------------------


def report_broken_configuration(error: KimiError) -> Finding:
    """Return the finding that the configuration or the command line could not be read."""
    advice = "Correct it, or the command line; 'kimi setup' needs a file that can be read."
    return Finding("configuration", "failed", str(error), advice)


def check_files(path: str, share_dir: str, probes: DoctorProbes) -> Finding:
    """Check that only the user can read the configuration, which was read from `path`, and that sessions are stored."""
    try:
        probes.try_write(share_dir)
    except OSError as error:
        advice = "Make it writable, or set KIMI_SHARE_DIR to another directory."
        return Finding("configuration", "failed", f"{share_dir} cannot be written: {error.strerror}.", advice)
    if probes.is_readable_by_others(path):
        message = f"{path} is valid, but other users can read it, and the keys in it."
        return Finding("configuration", "warning", message, f"Run: chmod 600 {path}")
    return Finding("configuration", "ok", f"{path} is valid.")


def check_model(model: ModelSettings | None) -> Finding:
    """Check that there is a model that can answer a prompt."""
    if model is None or not model.is_configured:
        return Finding("model", "failed", "No model is configured.", SETUP)
    return Finding("model", "ok", f"{model.model} of provider '{model.provider_name}' ({model.type}).")


def check_key(model: ModelSettings | None, key_variables: KeyVariables, environ: Mapping[str, str]) -> Finding:
    """Check that there is an API key, and report where it comes from."""
    if model is None or not _has_endpoint(model):
        return Finding("key", "skipped", "No provider that could need one.")
    variable = key_variables.get(model.type)
    if model.api_key:
        source = f"the variable {variable}" if variable and environ.get(variable) == model.api_key else "the file"
        return Finding("key", "ok", f"Taken from {source}.")
    if not model.lacks_key and (model.has_credentials or _is_local_url(model.base_url)):
        return Finding("key", "ok", "None is configured, and none may be needed.")
    what, advice = describe_missing_key(model)
    return Finding("key", "failed", f"{what}.", f"R{advice[1:]}.")


def check_proxy(model: ModelSettings | None, resolve_proxy: ResolveProxy) -> Finding:
    """Check the proxy for requests to the provider."""
    url = model.base_url if model else ""
    if not _parse_host(url):
        return Finding("proxy", "skipped", "No provider to reach.")
    try:
        proxy = resolve_proxy(url)
    except ConfigError as error:
        return Finding("proxy", "failed", str(error))
    if proxy is None:
        return Finding("proxy", "ok", "None is used.")
    if _is_local_url(url):
        message = f"Requests to this machine go through {proxy}."
        return Finding("proxy", "warning", message, "Set NO_PROXY=localhost,127.0.0.1")
    return Finding("proxy", "ok", f"{proxy} is used.")


async def check_endpoint(
    model: ModelSettings | None, key_variables: KeyVariables, probes: DoctorProbes, limit_s: float = ENDPOINT_S
) -> Finding:
    """Ask the model one short question and wait for the beginning of an answer, at most `limit_s` seconds."""
    if model is None or not _has_endpoint(model):
        return Finding("endpoint", "skipped", "No provider to ask.")
    if model.lacks_key:
        return Finding("endpoint", "skipped", "Nothing is sent without a key.")
    host = _describe_host(model)
    try:
        with anyio.fail_after(limit_s):
            await _ask_model(probes.open_model)
    except TimeoutError:
        advice = "A server on this machine may still be loading the model: try again. Else check network and proxy."
        return Finding("endpoint", "failed", f"{host} gave no answer within {limit_s:g} s.", advice)
    except (ModelError, ConfigError) as error:
        advice = _advise_on_error(error, model, key_variables, probes.resolve_proxy)
        return Finding("endpoint", "failed", f"{host}: {error}", advice)
    return Finding("endpoint", "ok", f"{host} answers.")


async def check_mcp_server(server: McpServer, default_timeout_ms: int, count_tools: CountServerTools) -> Finding:
    """Connect to a server and count its tools."""
    name = f"mcp {server.name}"
    if not server.enabled:
        return Finding(name, "skipped", "It is switched off.")
    limit = min(MCP_S, (server.connect_timeout_ms or default_timeout_ms) / 1000)
    try:
        with anyio.fail_after(limit):
            count = await count_tools(server)
    except TimeoutError:
        return Finding(name, "failed", f"No answer within {limit:g} s.", _advise_on_mcp_server(server))
    except McpUnauthorized:
        return Finding(name, "failed", "It wants you to log in.", f"Run: kimi mcp auth {server.name}")
    except KimiError as error:
        return Finding(name, "failed", str(error), "Correct its entry in the MCP configuration.")
    except Exception as error:  # the library and the server may fail in any way
        return Finding(name, "failed", f"{type(error).__name__}: {error}", _advise_on_mcp_server(server))
    return Finding(name, "ok", f"Connected, {count} tool{'' if count == 1 else 's'}.")


async def check_plugins(load_plugins: LoadPlugins) -> Finding:
    """Check that the plugins of the user can be used."""
    installed = await anyio.to_thread.run_sync(load_plugins)
    if faults := installed.list_faults():
        return Finding("plugins", "warning", " ".join(faults), "Mend them, or run: kimi plugin remove NAME")
    count = sum(len(plugin.commands) for plugin in installed.plugins)
    return Finding("plugins", "ok", f"{len(installed.plugins)} installed, with {count} tools.")


def check_libraries(missing: Sequence[str]) -> Finding:
    """Report libraries that a plain installation has and this one has not."""
    return Finding(
        "libraries", "warning", f"Missing: {'; '.join(missing)}.", "Install kimi-wire again, or each of them."
    )


async def check_ripgrep(find_ripgrep: FindRipgrep) -> Finding:
    """Check that ripgrep, the fast search program, is available."""
    with anyio.move_on_after(RIPGREP_S):
        if (path := await find_ripgrep()) is not None:
            return Finding("ripgrep", "ok", f"{path} is used.")
    advice = "Install ripgrep, or set tools.ripgrep_path."
    return Finding("ripgrep", "warning", "Not found: Grep works, but slowly.", advice)


async def check_sandbox(mode: str, find_sandbox: FindSandbox) -> Finding:
    """Check what confines commands; it must work unless the configured mode is off."""
    found = await anyio.to_thread.run_sync(find_sandbox)
    if found.name:
        open_ends = f" It does not close everything: {'; '.join(found.open_ends)}." if found.open_ends else ""
        return Finding("sandbox", "ok", f"{found.name} works; the mode is {mode}.{open_ends}")
    if mode == "off":
        message = "None works here: plan mode and agents that only read run commands without."
        return Finding("sandbox", "skipped", message, found.advice)
    return Finding("sandbox", "failed", f"The mode is {mode}, but none works here.", found.advice)


def check_terminal(terminal: TerminalKind | None) -> Finding:
    """Check that the interactive shell can be used here. None means that there is no terminal."""
    if terminal is None:
        return Finding("terminal", "skipped", "Input and output are no terminal.")
    if terminal.name in ("", "dumb") and not terminal.is_windows:
        advice = "Use another terminal for the interactive shell."
        return Finding("terminal", "warning", f"TERM is '{terminal.name}'.", advice)
    if not terminal.encoding.startswith("utf"):
        advice = "Choose a UTF-8 locale, for example LANG=C.UTF-8"
        return Finding("terminal", "warning", f"It is used with the encoding {terminal.encoding}.", advice)
    return Finding("terminal", "ok", f"{terminal.name or 'Console'}, {terminal.encoding}.")


# --- shared by the checks --------------------------------------------------------------------------------------


async def _ask_model(open_model: OpenConfiguredModel) -> None:
    """Send the question, and close the connection after the first piece of the answer."""
    async with open_model() as model:
        assert model is not None  # the caller has checked that a model is configured
        async with model.stream("Answer in one word.", [user_message("Say: ok")], (), 0) as items:
            async for _ in items:
                return


def _has_endpoint(model: ModelSettings) -> bool:
    """Whether requests go to a provider; models for tests have types that begin with an underscore."""
    return model.is_configured and not model.type.startswith("_")


def _advise_on_error(
    error: KimiError, model: ModelSettings, key_variables: KeyVariables, resolve_proxy: ResolveProxy
) -> str:
    """Return advice for an error of the endpoint."""
    match error:
        case AuthExpired():
            return "Enter an API key with 'kimi setup'."
        case APIStatusError(status_code=401 | 403):
            variable = key_variables.get(model.type)
            return f"Enter another key with 'kimi setup'{f', or correct {variable}' if variable else ''}."
        case APIStatusError(status_code=404):
            return f"Check base_url '{model.base_url}' and the id of the model, '{model.model}'."
        case APIStatusError(status_code=402 | 429):
            return "Wait, or look at the limits of your account."
        case APIStatusError(status_code=code) if code >= 500:
            return "The provider has trouble: try again later."
        case APIConnectionError() | APITimeoutError():
            return _advise_on_connection(model.base_url, resolve_proxy)
        case APIEmptyResponseError():
            return "Try another model."
        case _:
            return "Check the provider and the model in the configuration."


def _advise_on_connection(url: str, resolve_proxy: ResolveProxy) -> str:
    if resolve_proxy(url) is not None:
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
    """Return the host that `url` names; empty when it is no URL."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_local_url(url: str) -> bool:
    host = _parse_host(url)
    return host in ("localhost", "::1") or host.startswith("127.")
