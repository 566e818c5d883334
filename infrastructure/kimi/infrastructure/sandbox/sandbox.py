"""The sandbox of one conversation: what its commands are confined to, and how (runtime spec 7.10)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from anyio import to_thread

from kimi.application.settings.settings import SandboxSettings
from kimi.domain.permissions.confinement import (
    Confinement,
    ConfinementMode,
    find_gitlinks,
    list_protected_paths,
    parse_git_pointer,
)
from kimi.domain.permissions.path_rules import PathScopes
from kimi.infrastructure.sandbox.mechanisms import Mechanism, find_mechanism, require_mechanism

FindMechanism: TypeAlias = Callable[[], "Mechanism | None"]

_POINTER_BYTES = 64 * 1024
"""More of a `.git` file is not read."""

_INDEX_BYTES = 64 * 1024 * 1024

_SUBMODULE_DEPTH = 8


@dataclass(frozen=True, slots=True)
class ConfinedCommand:
    """A command line that confines itself, and to what."""

    argv: tuple[str, ...]
    confinement: Confinement


class Sandbox:
    """Confines the commands of one conversation.

    `load_scopes` returns the roots and the program's own files as they are now; `share_dir` is hidden with everything
    in it but what is readable there. The mechanism is found with the first command, never at the start.
    """

    def __init__(
        self,
        settings: SandboxSettings,
        work_dir: str,
        share_dir: str,
        load_scopes: Callable[[], Awaitable[PathScopes]],
        find: FindMechanism = find_mechanism,
    ) -> None:
        self.settings = settings
        self._work_dir = work_dir
        self._share_dir = share_dir
        self._load_scopes = load_scopes
        self._find = find
        self._temp_dir: str | None = None
        self._places: list[str] = []
        """Empty directories that were made to be mounted over."""

    @property
    def is_requested(self) -> bool:
        """Whether the user wants commands to be confined: then none runs without."""
        return self.settings.mode != "off"

    async def confine(self, argv: Sequence[str], *, read_only: bool) -> ConfinedCommand | None:
        """Return the command line that runs `argv` confined.

        None means that it runs as it is: nothing was asked for, and either the command may write or nothing works here.
        Raises ConfigError if a sandbox was asked for and none works; OSError.
        """
        if not (self.is_requested or read_only):
            return None
        found = await to_thread.run_sync(self._find)
        if found is None and not self.is_requested:
            return None
        mechanism = require_mechanism(found)
        mode: ConfinementMode = "read-only" if read_only or self.settings.mode == "read-only" else "workspace"
        scopes = await self._load_scopes()
        temp_dir = self._make_temp_dir()  # here, not in the threads of several commands

        def wrap() -> ConfinedCommand:
            confinement = self._build_confinement(mode, scopes, temp_dir)
            if mechanism.needs_places and mode == "workspace":
                self._make_places(confinement.protected)
            return ConfinedCommand(mechanism.wrap(confinement, argv), confinement)

        return await to_thread.run_sync(wrap)

    def _build_confinement(self, mode: ConfinementMode, scopes: PathScopes, temp_dir: str) -> Confinement:
        roots = _resolve_existing(scopes.workspace)
        named = (os.path.join(self._work_dir, os.path.expanduser(path)) for path in self.settings.writable)
        os.makedirs(self._share_dir, mode=0o700, exist_ok=True)  # what does not exist cannot be hidden
        return Confinement(
            mode=mode,
            work_dir=os.path.realpath(self._work_dir),
            temp_dir=temp_dir,
            # What is confined without having been asked for keeps the network that it has.
            network=self.settings.network or not self.is_requested,
            writable=(*roots, *_resolve_existing(named)),
            readable=_resolve_existing(scopes.readable),
            protected=tuple(dict.fromkeys(path for root in roots for path in find_protected_paths(root))),
            hidden=_resolve_existing((self._share_dir, *scopes.protected)),
        )

    def _make_temp_dir(self) -> str:
        """Return the directory for temporary files, which all commands of the conversation share; made once."""
        if self._temp_dir is None or not os.path.isdir(self._temp_dir):
            self._temp_dir = os.path.realpath(tempfile.mkdtemp(prefix="kimi-sandbox-"))
        return self._temp_dir

    def _make_places(self, paths: Iterable[str]) -> None:
        """Make an empty directory where something protected does not exist.

        It stays until the conversation ends: once it is gone, a command that still runs could make it anew.
        """
        for path in paths:
            if not os.path.lexists(path):
                with suppress(OSError):  # what we cannot make, the command cannot make either
                    os.mkdir(path)
                    self._places.append(path)

    def close(self) -> None:
        """Remove what was made for the commands, which have ended. Idempotent."""
        if self._temp_dir is not None:
            shutil.rmtree(self._temp_dir, ignore_errors=True)
            self._temp_dir = None
        while self._places:
            with suppress(OSError):  # it is in use
                os.rmdir(self._places.pop())


def _resolve_existing(paths: Iterable[str]) -> tuple[str, ...]:
    real = (os.path.realpath(path) for path in paths)
    return tuple(dict.fromkeys(path for path in real if os.path.exists(path)))


def find_protected_paths(root: str) -> Iterator[str]:
    """Yield what stays read-only in a writable root: by name, where links and pointers lead, and in submodules."""
    for path in list_protected_paths(root):
        yield from _with_target(path)
    yield from _find_repository_paths(root, _SUBMODULE_DEPTH)


def _find_repository_paths(directory: str, depth: int) -> Iterator[str]:
    """Yield the directories that the `.git` of a work tree leads to, and the same for its submodules.

    A submodule that has no `.git` yet is kept as a whole: with a new one, git would take it for a repository.
    """
    git = os.path.join(directory, ".git")
    named = parse_git_pointer(_read(git).decode("utf-8", "surrogateescape"), directory)
    repository = os.path.realpath(named or git)
    if named is not None:
        yield repository
        if common := os.fsdecode(_read(os.path.join(repository, "commondir")).strip()):
            yield os.path.realpath(os.path.join(repository, common))
    for path in find_gitlinks(_read(os.path.join(repository, "index"), _INDEX_BYTES)):
        submodule = os.path.join(directory, path)
        inner = os.path.join(submodule, ".git")
        if os.path.lexists(inner):
            yield from _with_target(inner)
            if depth:
                yield from _find_repository_paths(submodule, depth - 1)
        elif os.path.isdir(submodule):
            yield submodule


def _with_target(path: str) -> Iterator[str]:
    """Yield a path and, if there is a link in it, where it leads."""
    yield path
    if (real := os.path.realpath(path)) != path:
        yield real


def _read(path: str, limit: int = _POINTER_BYTES) -> bytes:
    """Return the beginning of a regular file; empty if there is none."""
    with suppress(OSError, ValueError):  # ValueError: a NUL in the path
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read(limit)
    return b""
