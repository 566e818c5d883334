"""Where a session works and with what: directories, settings as they are now, servers (acp spec 4.3, 4.4)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import McpServer, Settings
from kimi.interfaces.acp.sessions.mcp_servers import BadMcpServer, mcp_servers
from kimi.interfaces.acp.transport.errors import invalid_params
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.process.process import hide_secrets

LoadSettings: TypeAlias = Callable[[Flags, Mapping[str, str]], Settings]
_Seen: TypeAlias = tuple[tuple[str, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where a session works: its directory, further roots, and the MCP servers that the client brought."""

    cwd: str
    roots: tuple[str, ...] = ()
    servers: tuple[McpServer, ...] = ()
    stored_in: str | None = None
    """The work dir under which the session is stored, if it has moved since."""


def place_in(params: Mapping[str, Any]) -> SessionPlace:
    """The place that the parameters of new, load, resume and fork name. Raises Refused (A-35, A-107)."""
    cwd = _directory(params.get("cwd"), "cwd")
    given: object = params.get("additionalDirectories")
    if given is not None and not isinstance(given, list):
        raise invalid_params("additionalDirectories: must be a list of strings")
    roots = [_directory(path, "additionalDirectories") for path in cast("Sequence[object]", given or ())]
    try:
        servers = mcp_servers(params.get("mcpServers"), cwd)
    except BadMcpServer as error:
        raise invalid_params(str(error)) from None
    return SessionPlace(cwd, tuple(dict.fromkeys(roots)), servers)


def _directory(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise invalid_params(f"{name}: must be a string")
    if "\0" in value or not os.path.isabs(value):
        raise invalid_params(f"{name} must be an absolute path", cwd=value)
    path = os.path.abspath(value)
    if not os.path.isdir(path):
        raise invalid_params(f"{name} does not exist", cwd=value)
    return path


class CurrentSettings:
    """The settings of the process, read again when one of their files has changed (A-30)."""

    def __init__(self, flags: Flags, environ: Mapping[str, str], first: Settings, load: LoadSettings) -> None:
        self._flags = flags
        self._environ = environ
        self._load = load
        self._settings = first
        share = first.share_dir
        named = [flags.config_file] if flags.config_file else [os.path.join(share, "config.toml")]
        self._files = [*named, os.path.join(share, "mcp.json"), *flags.mcp_config_files]
        self._seen: _Seen | None = None  # what changed between the first reading and now would be missed

    def get(self) -> Settings:
        """The settings as they are now. Raises ConfigError or UsageError when the files cannot be used."""
        seen = self._look()
        if seen != self._seen:
            if (found := self._load(self._flags, self._environ)) != self._settings:
                self._settings = found
                hide_secrets(found.secret_values)
            self._seen = seen
        return self._settings

    def _look(self) -> _Seen:
        return tuple(_look_of(path) for path in self._files)


def _look_of(path: str) -> tuple[str, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return path, found.st_mtime_ns, found.st_size


def settings_at(settings: Settings, place: SessionPlace) -> Settings:
    """The settings of a session: those of the process, its directories, and its servers over those configured."""
    mine = {server.name for server in place.servers}
    servers = (*(server for server in settings.mcp.servers if server.name not in mine), *place.servers)
    mcp = settings.mcp.model_copy(update={"servers": servers})
    roots = tuple(dict.fromkeys((*settings.additional_dirs, *place.roots)))
    return settings.model_copy(update={"work_dir": place.cwd, "additional_dirs": roots, "mcp": mcp})


def app_at(shared: App, settings: Callable[[], Settings], stored_in: str | None) -> App:
    """The app of one session, whose settings may change. It shares what does not depend on them: the way to
    providers, the agent, the search program.
    """
    own: dict[str, Any] = {}
    if stored_in is not None:
        own["store"] = App(settings=providers.Object(settings().model_copy(update={"work_dir": stored_in}))).store
    return App(
        settings=providers.Callable(settings),
        environ=_shared(shared.environ),
        now=_shared(shared.now),
        new_id=_shared(shared.new_id),
        http=_shared(shared.http),
        ripgrep=_shared(shared.ripgrep),
        extra_tools=_shared(shared.extra_tools),
        agent=_shared(shared.agent),
        **own,
    )


def _shared(provider: Callable[[], Any]) -> Any:
    """A provider that gives what `provider` gives. The shared one itself would keep every container that it was given
    to, for ever.
    """

    def give() -> Any:
        return provider()

    return providers.Callable(give)
