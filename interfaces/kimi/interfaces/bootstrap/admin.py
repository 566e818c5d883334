"""Compose what needs no conversation: the start of a process, and the commands without one.

A factory returns the type of a port and imports its adapter inside.

`kimi mcp list` needs neither the container nor anyio, so modules that need them are imported where they are used.
"""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import McpServer, Settings
from kimi.domain.errors import ConfigError
from kimi.interfaces.process.log import hide_secrets
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.application.admin.configuration import ConfigurationFile
    from kimi.application.admin.doctor_checks import DoctorProbes, FoundSandbox
    from kimi.application.admin.mcp_configuration import McpConfiguration, McpLogins
    from kimi.application.admin.plugins import PluginStore
    from kimi.application.batch.ports import BatchWorktrees, WorkerPool
    from kimi.application.ports import ChatModel
    from kimi.infrastructure.batch.journal import JournalFile

logger = logging.getLogger(__name__)

LoadSettings: TypeAlias = Callable[[Flags, Mapping[str, str]], Settings]
_FileStamps: TypeAlias = tuple[tuple[str, int, int] | None, ...]

_LIBRARIES = (
    ("trafilatura", "trafilatura", "the text of HTML pages"),
    ("PIL", "pillow", "scaling and converting pictures"),
    ("aiohttp_socks", "aiohttp-socks", "SOCKS proxies"),
    ("charset_normalizer", "charset-normalizer", "text that is not UTF-8"),
)

OfferedTools: TypeAlias = list[tuple[str, str]]
"""Name and description of each tool of a server."""


# --- the start of a process ---------------------------------------------------------------------------------------


def load_settings(flags: Flags, environ: Mapping[str, str]) -> Settings:
    """Return the settings of the process. Raises UsageError or ConfigError, which say what to correct.

    A session that is to be resumed by a user or a script must exist. Hosts that speak a protocol make up ids, and may
    give them to either option.
    """
    from kimi.infrastructure.config.settings_files import load_settings as load

    settings = load(flags, environ)
    if flags.session is None or not flags.must_exist or flags.ui not in ("shell", "print"):
        return settings
    from kimi.application.sessions.find_sessions import locate_resumed_session
    from kimi.interfaces.bootstrap.store import build_session_catalog

    catalog = build_session_catalog(settings.share_dir)
    owner = locate_resumed_session(catalog, flags.session, settings.work_dir, here=flags.here)
    adopted = () if owner is None else ((flags.session, owner),)
    return settings.model_copy(update={"adopted_sessions": adopted})


def claim_process() -> None:
    """Say that this process is the program's own: its memory is closed to the programs that it starts.

    A program that embeds the agent is not ours to close.
    """
    from kimi.infrastructure.workspace.environment import claim_process as claim

    claim()


def import_http_library() -> None:
    """Import aiohttp, but not the certificates of the system, which only an encrypted connection needs."""
    from kimi.infrastructure.http.late_certificates import certificates_when_used

    with certificates_when_used():
        import_module("aiohttp.web")


class ReloadingSettings:
    """The settings of the process; loads them again when one of their files has changed (A-30)."""

    def __init__(self, flags: Flags, environ: Mapping[str, str], initial: Settings, load: LoadSettings) -> None:
        self._flags = flags
        self._environ = environ
        self._load = load
        self._settings = initial
        share = initial.share_dir
        named = [flags.config_file] if flags.config_file else [os.path.join(share, "config.toml")]
        self._files = [*named, os.path.join(share, "mcp.json"), *flags.mcp_config_files]
        # None until the first `get`: stamps taken now would miss a change since the settings were loaded.
        self._file_stamps: _FileStamps | None = None

    def get(self) -> Settings:
        """Return the current settings. Raises ConfigError or UsageError if the files cannot be used."""
        seen = self._read_stamps()
        if seen != self._file_stamps:
            if (found := self._load(self._flags, self._environ)) != self._settings:
                self._settings = found
                hide_secrets(found.secret_values)
            self._file_stamps = seen
        return self._settings

    def _read_stamps(self) -> _FileStamps:
        return tuple(_read_stamp(path) for path in self._files)


def _read_stamp(path: str) -> tuple[str, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return path, found.st_mtime_ns, found.st_size


# --- commands ------------------------------------------------------------------------------------------------------


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
    from kimi.interfaces.bootstrap.tools import find_plugin_directory

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


# --- batches ---------------------------------------------------------------------------------------------------

_WORKER_ARGUMENTS: Final = ("-P", "-m", "kimi.interfaces.batch.worker")
"""What follows the interpreter; -P: not a `kimi` package in the work directory."""


def open_journal(results_path: str) -> AbstractContextManager[JournalFile]:
    """Return the journal beside a results file; entering it raises BatchRefused or StoreFailed."""
    from kimi.infrastructure.batch.journal import open_journal as open_file

    return open_file(results_path)


def store_last_sessions(share_dir: str, session_ids: Mapping[str, str | None]) -> None:
    """Make work directories known, with their last sessions, in one write. Raises StoreFailed."""
    from kimi.infrastructure.store.kimi_json import set_last_session_ids

    set_last_session_ids(share_dir, session_ids)


def build_worktrees(directory: str, environ: Mapping[str, str], lock_fd: int | None) -> BatchWorktrees:
    """Return the maker of worktrees below a directory; its git holds the descriptor of the batch's lock."""
    from kimi.infrastructure.batch.worktrees import GitWorktrees

    return GitWorktrees(directory, environ, lock_fd)


def open_local_pool(
    size: int, environ: Mapping[str, str], lock_fd: int | None
) -> AbstractAsyncContextManager[WorkerPool]:
    """Return a pool of worker processes, which hold the descriptor of the batch's lock until they end."""
    from kimi.infrastructure.batch.worker_pool import share_workers
    from kimi.infrastructure.batch.worker_process import WorkerProcess

    return share_workers(lambda: WorkerProcess(_WORKER_ARGUMENTS, environ, lock_fd), size)


def open_ray_pool(address: str, size: int | None, share_dir: str) -> AbstractAsyncContextManager[WorkerPool]:
    """Return a pool of workers on a Ray cluster; entering it raises BatchRefused: it cannot be reached."""
    from kimi.infrastructure.batch.ray_pool import share_ray_workers

    return share_ray_workers(address, size, _WORKER_ARGUMENTS, {"KIMI_SHARE_DIR": share_dir})
