"""Prepare a process: its settings, and what must be so before its first import or command."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypeAlias

from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.interfaces.process.log import hide_secrets

LoadSettings: TypeAlias = Callable[[Flags, Mapping[str, str]], Settings]
_FileStamps: TypeAlias = tuple[tuple[str, int, int] | None, ...]


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
