"""Compose what the commands without a conversation need.

A factory returns the type of a port and imports its adapter inside.

`kimi mcp list` needs neither the container nor anyio, so modules that need them are imported where they are used.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from kimi.application.settings.settings import McpServer, Settings
from kimi.domain.errors import ConfigError
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.application.admin.configuration import ConfigurationFile
    from kimi.application.admin.doctor_checks import DoctorProbes, FoundSandbox
    from kimi.application.admin.mcp_configuration import McpConfiguration, McpLogins
    from kimi.application.admin.plugins import PluginStore
    from kimi.application.ports import ChatModel

logger = logging.getLogger(__name__)

_LIBRARIES = (
    ("trafilatura", "trafilatura", "the text of HTML pages"),
    ("PIL", "pillow", "scaling and converting pictures"),
    ("aiohttp_socks", "aiohttp-socks", "SOCKS proxies"),
    ("charset_normalizer", "charset-normalizer", "text that is not UTF-8"),
)

OfferedTools: TypeAlias = list[tuple[str, str]]
"""Name and description of each tool of a server."""


def build_configuration_file(share_dir: str, named_path: str | None = None) -> ConfigurationFile:
    """Return the configuration file to read and change: the named one, else the default one."""
    from kimi.infrastructure.config.configuration_file import UserConfigurationFile

    return UserConfigurationFile(share_dir, named_path)


# --- MCP servers -----------------------------------------------------------------------------------------------


def build_mcp_configuration(share_dir: str) -> McpConfiguration:
    """Return the file with the MCP servers of the user."""
    from kimi.infrastructure.mcp.config.config_document import UserMcpConfiguration

    return UserMcpConfiguration(share_dir)


def build_mcp_logins(share_dir: str, environ: Mapping[str, str]) -> McpLogins:
    """Return the stored logins at MCP servers."""
    from kimi.infrastructure.mcp.oauth.login_store import StoredMcpLogins

    return StoredMcpLogins(share_dir, environ)


def find_server_secrets(server: McpServer, environ: Mapping[str, str], share_dir: str | None = None) -> Iterable[str]:
    """Yield the secrets of a server, which are never shown; with `share_dir` also those of its stored login."""
    from kimi.infrastructure.mcp.config import server_secrets

    return server_secrets.find_server_secrets(server, environ, share_dir)


def is_variable_reference(text: str) -> bool:
    """Whether `text` only names a variable and so does not contain its value."""
    from kimi.infrastructure.mcp.config.variables import is_reference

    return is_reference(text)


async def list_server_tools(
    server: McpServer,
    share_dir: str,
    work_dir: str,
    environ: Mapping[str, str],
    show_address: Callable[[str], None] | None = None,
) -> OfferedTools:
    """Connect to a server, list its tools, and disconnect; a process that it started has ended on return.

    With `show_address` the user logs in; it is called with the address that the browser opens.

    Raises:
        ConfigError: its entry cannot be used. McpUnauthorized: the user has to log in.
        Exception: any other error of the library when it cannot connect.
    """
    from kimi.infrastructure.json_schema import check_schema
    from kimi.infrastructure.mcp.config.variables import expand_server
    from kimi.infrastructure.mcp.host_context import McpHostContext
    from kimi.infrastructure.mcp.oauth.logins import create_browser_login
    from kimi.infrastructure.mcp.probe import list_offered_tools
    from kimi.interfaces.process.log import hide_secrets

    login = None
    if show_address is not None:
        login = create_browser_login(share_dir, expand_server(server, environ).url or "", show_address)
    host = McpHostContext(work_dir, share_dir, environ, __version__, check_schema, lambda: [work_dir], hide_secrets)
    return await list_offered_tools(server, host, login)


# --- plugins ---------------------------------------------------------------------------------------------------


def build_plugin_store(share_dir: str) -> PluginStore:
    """Return the directory with the user's plugins."""
    from kimi.infrastructure.plugins.installation import UserPluginStore

    return UserPluginStore(share_dir)


# --- doctor and setup ------------------------------------------------------------------------------------------


def build_doctor_probes(settings: Settings, environ: Mapping[str, str]) -> DoctorProbes:
    """Return the probes that `kimi doctor` runs with these settings."""
    from functools import partial

    from kimi.application.admin.doctor_checks import DoctorProbes
    from kimi.infrastructure.config.file_access import is_readable_by_others, try_write
    from kimi.interfaces.bootstrap.tools.toolset import find_plugin_directory

    async def count_tools(server: McpServer) -> int:
        return len(await list_server_tools(server, settings.share_dir, settings.work_dir, environ))

    return DoctorProbes(
        try_write,
        is_readable_by_others,
        partial(_resolve_proxy, environ=environ),
        partial(_open_configured_model, settings, environ),
        count_tools,
        partial(_find_ripgrep, settings, environ),
        _find_sandbox,
        build_plugin_store(settings.share_dir).load if find_plugin_directory(settings) else None,
        list_missing_libraries,
    )


def list_missing_libraries() -> list[str]:
    """Return the libraries of a plain installation that are missing, with what does not work without them."""
    from importlib.util import find_spec

    return [f"{library} ({use})" for module, library, use in _LIBRARIES if find_spec(module) is None]


def _find_sandbox() -> FoundSandbox:
    from kimi.application.admin.doctor_checks import FoundSandbox
    from kimi.infrastructure.sandbox.mechanisms import explain_missing, find_mechanism

    mechanism = find_mechanism()
    return FoundSandbox(mechanism.name, mechanism.open_ends) if mechanism else FoundSandbox(advice=explain_missing())


@asynccontextmanager
async def _open_configured_model(
    settings: Settings, environ: Mapping[str, str]
) -> AsyncGenerator[ChatModel | None, None]:
    """Open the model that would answer a prompt, without recording; close its connections on leaving."""
    from kimi.infrastructure.http.client import HttpClient
    from kimi.infrastructure.models.provider_types import make_model_opener

    quiet = {name: value for name, value in environ.items() if name != "KIMI_RECORD"}
    http = HttpClient(quiet)
    try:
        yield make_model_opener(settings.model, http, __version__, quiet)(str(uuid.uuid4()), lambda: "")
    finally:
        await http.close()


def _resolve_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy for requests to `url`, as `scheme://host:port` without its password; None without one."""
    from urllib.parse import urlsplit

    from kimi.infrastructure.http.client import import_socks_library
    from kimi.infrastructure.http.proxy import find_proxy, is_socks

    proxy = find_proxy(url, environ)
    if proxy is None:
        return None
    if is_socks(proxy):
        import_socks_library()
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.hostname}:{parts.port}"


async def _find_ripgrep(settings: Settings, environ: Mapping[str, str]) -> str | None:
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep
    from kimi.infrastructure.workspace.local import LocalWorkspace

    workspace = LocalWorkspace(settings.work_dir, settings.shell, settings.secret_variables, environ)
    command = await Ripgrep(settings.tools.ripgrep_path, environ).find_command(workspace)
    return command[0] if command[0] != sys.executable else None


async def list_offered_models(base_url: str, api_key: str, environ: Mapping[str, str], timeout_s: float) -> list[str]:
    """Return the models that a server with OpenAI's interface lists; none when it fails or takes too long."""
    import anyio

    from kimi.infrastructure.http.client import HttpClient, HttpError
    from kimi.infrastructure.models.model_listing import list_model_ids

    http = HttpClient(environ)
    try:
        with anyio.move_on_after(timeout_s):
            return await list_model_ids(base_url, api_key, http)
    except (HttpError, ConfigError, ValueError) as error:
        logger.info("the models of %s are not known: %s", base_url, error)
    finally:
        await http.close()
    return []
