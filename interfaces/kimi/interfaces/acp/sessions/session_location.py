"""The location and settings of a session: directories, MCP servers, current settings (acp spec 4.3, 4.4)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from kimi.application.ports import SessionStore
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import McpServer, Settings
from kimi.interfaces.acp.sessions.mcp_servers import InvalidMcpServer, parse_mcp_servers
from kimi.interfaces.acp.transport.errors import invalid_params
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.store import build_store
from kimi.interfaces.process.log import hide_secrets

LOCK_WAIT_S: Final = 1.0
"""How long a session that another process holds is waited for: a user looks at the editor, which shows nothing yet."""

LoadSettings: TypeAlias = Callable[[Flags, Mapping[str, str]], Settings]
_FileStamps: TypeAlias = tuple[tuple[str, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class SessionLocation:
    """The work directory of a session, its further roots, and the MCP servers that the client sent."""

    cwd: str
    additional_dirs: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    stored_work_dir: str | None = None
    """The work directory under which the session is stored, if it has moved since."""


def parse_location(params: Mapping[str, Any]) -> SessionLocation:
    """Parse the location in the parameters of new, load, resume and fork. Raises RpcError (A-35, A-107)."""
    cwd = _parse_directory(params.get("cwd"), "cwd")
    given: object = params.get("additionalDirectories")
    if given is not None and not isinstance(given, list):
        raise invalid_params("additionalDirectories: must be a list of strings")
    roots = [_parse_directory(path, "additionalDirectories") for path in cast("Sequence[object]", given or ())]
    try:
        servers = parse_mcp_servers(params.get("mcpServers"), cwd)
    except InvalidMcpServer as error:
        raise invalid_params(str(error)) from None
    return SessionLocation(cwd, tuple(dict.fromkeys(roots)), servers)


def _parse_directory(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise invalid_params(f"{name}: must be a string")
    if "\0" in value or not os.path.isabs(value):
        raise invalid_params(f"{name} must be an absolute path", cwd=value)
    path = os.path.abspath(value)
    if not os.path.isdir(path):
        raise invalid_params(f"{name} does not exist", cwd=value)
    return path


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


def derive_settings(settings: Settings, location: SessionLocation) -> Settings:
    """Return the settings of a session: those of the process, with its directories, and its servers first."""
    mine = {server.name for server in location.mcp_servers}
    servers = (*(server for server in settings.mcp.servers if server.name not in mine), *location.mcp_servers)
    mcp = settings.mcp.model_copy(update={"servers": servers})
    roots = tuple(dict.fromkeys((*settings.additional_dirs, *location.additional_dirs)))
    return settings.model_copy(update={"work_dir": location.cwd, "additional_dirs": roots, "mcp": mcp})


def derive_app(shared: App, settings: Callable[[], Settings], stored_work_dir: str | None) -> App:
    """Return the app of one session, whose settings may change.

    It shares what does not depend on them: the HTTP client for providers, the agent, the search program.
    """
    return App(
        settings=providers.Callable(settings),
        environ=_delegate_to(shared.environ),
        now=_delegate_to(shared.now),
        new_id=_delegate_to(shared.new_id),
        http=_delegate_to(shared.http),
        ripgrep=_delegate_to(shared.ripgrep),
        extra_tools=_delegate_to(shared.extra_tools),
        agent=_delegate_to(shared.agent),
        store=providers.Singleton(_build_store, settings, stored_work_dir),
    )


def _build_store(settings: Callable[[], Settings], stored_work_dir: str | None) -> SessionStore:
    found = settings()
    if stored_work_dir is not None:
        found = found.model_copy(update={"work_dir": stored_work_dir})
    return build_store(found, LOCK_WAIT_S)


def _delegate_to(provider: Callable[[], Any]) -> Any:
    """Return a provider that returns what `provider` returns.

    The shared provider itself would keep every container that it was passed to for ever.
    """

    def give() -> Any:
        return provider()

    return providers.Callable(give)
