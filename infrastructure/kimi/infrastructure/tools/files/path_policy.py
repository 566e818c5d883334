"""The path policy that all file tools of a conversation share: domain rules over real paths (tools spec 2)."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

import anyio
import anyio.to_thread

from kimi.application.ports import FileStat, Workspace
from kimi.application.settings.settings import FileSettings
from kimi.domain.permissions.path_rules import NamedPath, PathScopes, interpret_path, is_within
from kimi.domain.tools.tool import ToolReturnValue, tool_error

ListRoots = Callable[[], Sequence[str]]
"""Return absolute directories that may change while the conversation runs (`/add-dir`)."""


SmallFile: TypeAlias = tuple[FileStat, bytes | None]
"""What `Workspace.read_small` returns of a file."""


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A path of a call: as named, and the real path with the links of its existing part resolved."""

    named_path: NamedPath
    real_path: str
    is_detour: bool
    """Whether a symlink below its root leads elsewhere, so that the user must see the real path too."""

    def format_action_title(self, action: str) -> str:
        """Return the title of an action, e.g. ``Write file `/w/a` ``; with both paths if a link leads elsewhere."""
        if self.is_detour:
            return f"{action} `{self.named_path.original}` (-> `{self.real_path}`)"
        return f"{action} `{self.named_path.absolute}`"


def _list_nothing() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class PolicyRoots:
    """The directories and files that have rules of their own.

    `additional` count as workspace. `readable` are real paths that may be read without a question (skills).
    `own_files` are files of this program, which tools may not touch; of them only `opened` may be read (spilled
    output). `guarded` become a command or an instruction: each change of them is asked about.
    """

    additional: ListRoots = _list_nothing
    readable: ListRoots = _list_nothing
    opened: Sequence[str] = ()
    own_files: Sequence[str] = ()
    guarded: ListRoots = _list_nothing
    """Blocks, because what the workspace's own files name is guarded, too."""


class PathPolicy:
    """Decides where the tools of one conversation may read and write.

    Real paths of roots are resolved once and kept: a root that is replaced by a link later does not move.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: FileSettings,
        *,
        home: str,
        roots: PolicyRoots,
        windows: bool = os.name == "nt",
    ) -> None:
        self.workspace = workspace
        self.settings = settings
        self.windows = windows
        self._home = home
        self._roots = roots
        self._real_roots: dict[str, str] = {}

    def interpret(self, given_path: str) -> NamedPath:
        """Interpret a path as the model means it."""
        return interpret_path(given_path, work_dir=self.workspace.work_dir, home=self._home, windows=self.windows)

    async def locate(self, given_path: str) -> ResolvedPath:
        """Resolve the real path of `given_path`.

        The file need not exist; a path that cannot exist is its own real path.
        """
        named = self.interpret(given_path)
        try:
            real = await self.workspace.real_path(named.absolute)
        except (OSError, ValueError):
            real = named.absolute
        return ResolvedPath(named, real, await self._is_detour(named.absolute, real))

    async def locate_and_read(
        self, given_path: str, may_read: Callable[[str], bool]
    ) -> tuple[ResolvedPath, SmallFile | None]:
        """Resolve a path, and read ahead what is there if it is small and `may_read` allows its real path.

        Costs one look at the disk where both would cost two.
        """
        named = self.interpret(given_path)
        try:
            found = await self.workspace.read_small(named.absolute, may_read)
        except (OSError, ValueError):
            found = None
        if found is None:
            return await self.locate(given_path), None
        stat, content = found
        target = ResolvedPath(named, stat.real_path, await self._is_detour(named.absolute, stat.real_path))
        return target, None if content is None else (stat, content)

    async def is_unchanged(self, target: ResolvedPath) -> bool:
        """Return whether the path still leads to the file that the user was asked about."""
        return (await self.locate(target.named_path.original)).real_path == target.real_path

    async def resolve_scopes(self) -> PathScopes:
        """Return the scopes as they are now, for reading: without what is guarded against changes."""
        return PathScopes(
            workspace=await self._with_real_paths((self.workspace.work_dir, *self._roots.additional())),
            readable=tuple(self._roots.readable()),
            protected=await self._with_real_paths(self._roots.own_files),
            opened=await self._resolve_opened(),
            read_outside=self.settings.read_outside,
            sensitive=self.settings.sensitive,
            not_sensitive=self.settings.not_sensitive,
            windows=self.windows,
        )

    async def resolve_write_scopes(self) -> PathScopes:
        """Return the scopes as they are now, with what is guarded against changes."""
        guarded = await anyio.to_thread.run_sync(self._list_guarded)
        return replace(await self.resolve_scopes(), guarded=guarded)

    def _list_guarded(self) -> tuple[str, ...]:
        """Return each guarded path as it is named, and as it really is at the moment."""
        named = self._roots.guarded()
        return tuple(dict.fromkeys((*named, *map(os.path.realpath, named))))

    async def _resolve_opened(self) -> tuple[str, ...]:
        """Return the opened folders of own files; one that is a link opens nothing."""
        kept: list[str] = []
        for root in self._roots.opened:
            parent, name = os.path.split(root)
            real = await self._resolve_root(root)
            if real == os.path.join(await self._resolve_root(parent), name):
                kept += (root, real)
        return tuple(dict.fromkeys(kept))

    async def _with_real_paths(self, roots: Sequence[str]) -> tuple[str, ...]:
        """Return each root as it is named, then as it really is."""
        real = [await self._resolve_root(root) for root in roots]
        return tuple(dict.fromkeys((*roots, *real)))

    async def _resolve_root(self, root: str) -> str:
        if root not in self._real_roots:
            self._real_roots[root] = await self.workspace.real_path(root)
        return self._real_roots[root]

    async def _is_detour(self, absolute: str, real: str) -> bool:
        """Return whether a link below the root leads elsewhere.

        A root that is itself reached through a link (a work directory below macOS's /tmp) is not a detour.
        """
        if absolute == real:
            return False
        for root in (self.workspace.work_dir, *self._roots.additional()):
            if is_within(absolute, [root], windows=self.windows):
                rest = os.path.relpath(absolute, root)
                return os.path.normpath(os.path.join(await self._resolve_root(root), rest)) != real
        return True


class FileRecord:
    """Shared state of the file tools of one conversation: a lock for each file, and what the model has seen of it.

    Keys are real paths. A file that was never read has no known state.
    """

    def __init__(self, locks: dict[str, anyio.Lock] | None = None) -> None:
        self._locks: dict[str, anyio.Lock] = {} if locks is None else locks
        self._seen_identities: dict[str, tuple[int, ...]] = {}

    def fork_for_subagent(self) -> FileRecord:
        """Return the record of a subagent that works on the same files: shared locks, knowledge of its own."""
        return FileRecord(self._locks)

    @asynccontextmanager
    async def lock_file(self, real_path: str) -> AsyncGenerator[None]:
        """Hold the lock of a file; waiting callers get it in their order (T-74)."""
        lock = self._locks.setdefault(real_path, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            # The lock passes directly to the next waiter, so an unlocked one has no waiters and can go.
            if not lock.locked():
                self._locks.pop(real_path, None)

    def mark_seen(self, stat: FileStat) -> None:
        """Record that the model has seen or written this state of the file."""
        self._seen_identities[stat.real_path] = stat.identity

    def has_seen(self, real_path: str) -> bool:
        """Return whether the model has seen or written the file at all."""
        return real_path in self._seen_identities

    def is_stale(self, stat: FileStat) -> bool:
        """Return whether the file changed since the model saw it; False if it never did."""
        known = self._seen_identities.get(stat.real_path)
        return known is not None and known != stat.identity


def stale_file_error() -> ToolReturnValue:
    """Return the error for a file that changed since the model saw it (tools spec 3.5)."""
    return tool_error("File changed on disk since it was read; read it again before editing.", "Stale file")


def missing_file_error(given_path: str) -> ToolReturnValue:
    """Return the error for a file that does not exist."""
    return tool_error(f"`{given_path}` does not exist.", "File not found")


def moved_file_error(given_path: str) -> ToolReturnValue:
    """Return the error for a path that leads elsewhere than when the user was asked."""
    return tool_error(
        f"`{given_path}` leads elsewhere now than when it was asked about; nothing was done.", "Path changed"
    )


def not_a_file_error(given_path: str) -> ToolReturnValue:
    """Return the error for a directory, FIFO, socket or device."""
    return tool_error(f"`{given_path}` is not a file.", "Invalid path")


def make_printable(name: str) -> str:
    """Return a file name as text; bytes that are not text become U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def describe_error(error: Exception) -> str:
    """Return the error text of the operating system without the path, which the caller names."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
