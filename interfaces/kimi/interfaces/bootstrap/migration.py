"""Compose `kimi migrate`: what reads a share directory, and what changes it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from json import dumps
from pathlib import Path
from typing import Final

from kimi.application.admin.migration import ShareContents
from kimi.application.settings.flags import Flags, home_directory
from kimi.application.settings.settings import Settings
from kimi.domain.errors import ConfigError, KimiError

_SECRET_FILES: Final = ("config.toml", "config.json", "mcp.json")
_BACKED_UP: Final = (*_SECRET_FILES, "kimi.json")
_UNUSED_VARIABLES: Final = (
    *("KIMI_CODE_BASE_URL", "KIMI_CODE_OAUTH_HOST", "KIMI_OAUTH_HOST"),
    *("KIMI_DISABLE_TELEMETRY", "KIMI_CLI_NO_AUTO_UPDATE"),
)
_AGENT_NAMES: Final = ("agent.yaml", "agent.yml")
_AGENT_DIRECTORIES: Final = ("", "agents")


def read_share(share: str, work_dir: str, environ: Mapping[str, str], command: str) -> ShareContents:
    """Return what is in a share directory; nothing is written. `command` is what started this program."""
    from kimi.infrastructure.config.review import ReviewedConfiguration
    from kimi.interfaces.bootstrap.start import load_settings
    from kimi.interfaces.bootstrap.store import build_session_catalog

    configuration = ReviewedConfiguration(share)
    settings, problem = None, ""
    if not configuration.review.problem:
        try:
            settings = load_settings(Flags(work_dir, config=dumps(configuration.usable, default=str)), environ)
        except KimiError as error:
            problem = str(error)
    sessions = build_session_catalog(share).list_sessions()
    return ShareContents(
        share,
        configuration.review,
        settings,
        problem,
        configuration.list_providers(environ),
        _find_logged_in(settings, share, environ),
        _list_skills(settings, environ),
        {} if settings is None else dict(_check_agents(settings)),
        len(sessions),
        len({one.work_dir for one in sessions}),
        _count_unlisted(share),
        [path.parent.name for path in sorted(Path(share, "plugins").glob("*/plugin.json"))],
        [str(path) for path in sorted(Path(share, "credentials").glob("*.json"))],
        list(_list_exposed(share)),
        _find_other_command(environ, command),
        [name for name in _UNUSED_VARIABLES if environ.get(name)],
    )


def apply_migration(share: str) -> str:
    """Back up the configuration, and change what `list_changes` names; return the directory of the backup.

    Raises:
        ConfigError: a file cannot be read or written.
    """
    from kimi.infrastructure.config.migration import ensure_default_file
    from kimi.infrastructure.config.review import ReviewedConfiguration

    backup = os.path.join(share, "backups", time.strftime("migrate-%Y%m%d-%H%M%S"))
    try:
        _back_up(share, backup)
        for path in _list_exposed(share):
            os.chmod(path, 0o600)
    except OSError as error:
        raise ConfigError(f"Cannot write {error.filename}: {error.strerror}") from None
    configuration = ReviewedConfiguration(share)
    configuration.mend()
    if configuration.review.is_legacy:
        ensure_default_file(share, os.path.join(share, "config.toml"))
    return backup


def _back_up(share: str, backup: str) -> None:
    os.makedirs(backup, mode=0o700)
    for name in _BACKED_UP:
        with suppress(FileNotFoundError):
            target = shutil.copyfile(os.path.join(share, name), os.path.join(backup, name))
            os.chmod(target, 0o600)


def _list_exposed(share: str) -> Iterator[str]:
    from kimi.infrastructure.config.file_access import is_readable_by_others

    credentials = sorted(Path(share, "credentials").glob("*.json"))
    for path in (*(os.path.join(share, name) for name in _SECRET_FILES), *map(str, credentials)):
        if is_readable_by_others(path):
            yield path


def _find_logged_in(settings: Settings | None, share: str, environ: Mapping[str, str]) -> frozenset[str]:
    servers = [one for one in settings.mcp.servers if one.auth == "oauth"] if settings is not None else []
    if not servers:
        return frozenset()
    from kimi.infrastructure.mcp.oauth.login_store import StoredMcpLogins

    logins = StoredMcpLogins(share, environ)
    return frozenset(server.name for server in servers if logins.has_login(server))


def _list_skills(settings: Settings | None, environ: Mapping[str, str]) -> Sequence[str]:
    if settings is None:
        return ()
    from kimi.infrastructure.definitions.skill_files import SkillSearchPaths, load_skills
    from kimi.interfaces.bootstrap.conversation import build_prompt_files

    wanted = settings.skills
    home = home_directory(environ)
    paths = SkillSearchPaths(settings.work_dir, home, wanted.only, wanted.extra, wanted.merge)
    return [skill.name for skill in load_skills(paths, build_prompt_files(settings))]


def _check_agents(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the agent files of the share directory and of the work directory, with what is wrong with each."""
    from kimi.interfaces.bootstrap.containers import KNOWN_TOOLS
    from kimi.interfaces.bootstrap.tools.toolset import load_agent

    for root in dict.fromkeys((settings.share_dir, settings.work_dir)):
        for path in _find_agent_files(root):
            try:
                load_agent(settings.model_copy(update={"agent_file": path}), {}, KNOWN_TOOLS)
            except KimiError as error:
                yield path, str(error)
            else:
                yield path, ""


def _find_agent_files(root: str) -> list[str]:
    candidates = [Path(root, below, name) for below in _AGENT_DIRECTORIES for name in _AGENT_NAMES]
    candidates += sorted(Path(root, "agents").glob("**/*.y*ml"))
    return list(dict.fromkeys(str(path) for path in candidates if path.is_file()))


def _count_unlisted(share: str) -> int:
    """Return how many directories of sessions belong to no work directory that is known."""
    from kimi.infrastructure.store.kimi_json import list_known_work_dirs
    from kimi.infrastructure.store.layout import sessions_directory

    known = {sessions_directory(share, path) for path in list_known_work_dirs(share)}
    found = [str(path) for path in Path(share, "sessions").glob("*") if path.is_dir() and any(path.iterdir())]
    return sum(path not in known for path in found)


def _find_other_command(environ: Mapping[str, str], command: str) -> str:
    """Return the program that `kimi` starts if it is not this one; empty if it is, or if there is none."""
    found = shutil.which("kimi", path=environ.get("PATH"))
    if found is None or os.path.basename(command) == "__main__.py":
        return ""
    is_ours = os.path.realpath(os.path.dirname(found)) == os.path.realpath(os.path.dirname(os.path.abspath(command)))
    return "" if is_ours or os.path.realpath(found) == os.path.realpath(command) else found
