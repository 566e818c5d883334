"""Finds ripgrep and builds its arguments (tools spec 3.7, 8). Nothing is ever downloaded."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import anyio

from kimi.application.ports import Workspace
from kimi.infrastructure.tools.search.ignore_rules import VCS_DIRECTORIES

OutputMode: TypeAlias = Literal["content", "files_with_matches", "count_matches"]

START_TIMEOUT_S = 5
"""Seconds in which a binary must report its version."""

MAX_COLUMNS = 500
MAX_CONTENT_COLUMNS = 2000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RipgrepSearch:
    """One search, as the model asked for it; `path` is relative to the work directory or absolute."""

    pattern: str
    path: str = "."
    glob: str | None = None
    output_mode: OutputMode = "files_with_matches"
    before: int | None = None
    after: int | None = None
    context: int | None = None
    line_number: bool = True
    ignore_case: bool = False
    type: str | None = None
    multiline: bool = False
    include_ignored: bool = False
    encoding: str | None = None
    """What the files are in, as ripgrep names it; None for UTF-8, and for what a byte order mark tells."""

    @property
    def has_line_numbers(self) -> bool:
        """Whether the output of ripgrep has line numbers. With context they also show which lines matched."""
        return self.line_number or any((self.before, self.after, self.context))


def build_search_arguments(
    search: RipgrepSearch, exclusions: Sequence[str] = (), *, one_thread: bool = False, files: Sequence[str] = ()
) -> list[str]:
    """Build the arguments of ripgrep, without its own name. Text of the model can never become a flag.

    `exclusions` are the arguments that leave files out, after the model's own glob and type. With `files` these are
    searched instead of the path.
    """
    content = search.output_mode == "content"
    arguments = ["--no-config", "--null", "--with-filename", "--no-heading"]
    if content:
        arguments += ["--max-columns", str(MAX_CONTENT_COLUMNS), "--max-columns-preview"]
    else:
        arguments += ["--max-columns", str(MAX_COLUMNS)]
    arguments.append("--hidden")
    if search.include_ignored:
        arguments.append("--no-ignore")
    for name in VCS_DIRECTORIES:
        arguments += ["--glob", f"!{name}"]
    if one_thread:
        arguments += ["-j", "1"]
    if search.ignore_case:
        arguments.append("--ignore-case")
    if search.multiline:
        arguments += ["--multiline", "--multiline-dotall"]
    arguments += _build_content_arguments(search) if content else []
    arguments += [f"--encoding={search.encoding}"] if search.encoding else []
    arguments += [f"--glob={search.glob}"] if search.glob else []
    arguments += [f"--type={search.type}"] if search.type else []
    arguments += exclusions
    arguments += _build_mode_arguments(search.output_mode)
    return [*arguments, "--", search.pattern, *(files or [search.path])]


def _build_content_arguments(search: RipgrepSearch) -> list[str]:
    arguments: list[str] = []
    for flag, lines in (
        ("--before-context", search.before),
        ("--after-context", search.after),
        ("--context", search.context),
    ):
        if lines is not None:
            arguments += [flag, str(lines)]
    return [*arguments, "--line-number"] if search.has_line_numbers else arguments


def _build_mode_arguments(mode: OutputMode) -> list[str]:
    if mode == "content":
        return []
    return ["--files-with-matches" if mode == "files_with_matches" else "--count-matches"]


def find_packaged_binaries() -> Iterator[str]:
    """Yield the paths where the optional extra installs ripgrep: beside the interpreter, or as in its record."""
    name = "rg.exe" if os.name == "nt" else "rg"
    yield os.path.join(os.path.dirname(sys.executable), name)
    import importlib.metadata

    try:
        files = importlib.metadata.files("ripgrep") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name in ("rg", "rg.exe"):
            yield os.path.realpath(str(file.locate()))


class Ripgrep:
    """Finds ripgrep and tests each binary once; one object serves the whole process.

    `configured` replaces the search on PATH, which is read from `environ`.
    """

    def __init__(
        self,
        configured: str | None,
        environ: Mapping[str, str],
        find_packaged: Callable[[], Iterator[str]] = find_packaged_binaries,
    ) -> None:
        self._configured = configured
        self._environ = environ
        self._find_packaged = find_packaged
        self._start_results: dict[tuple[str, int], bool] = {}
        self._fallback_logged = False

    async def find_command(self, workspace: Workspace) -> list[str]:
        """Return the command that takes the arguments of ripgrep: the binary, or the slower fallback."""
        for path in self._find_candidates():
            if await self._is_working(path, workspace):
                return [path]
        if not self._fallback_logged:
            self._fallback_logged = True
            _log.info("ripgrep was not found; Grep uses the slower built-in search")
        # -P: the work directory belongs to the user, its modules must not be imported.
        return [sys.executable, "-P", "-m", "kimi.infrastructure.tools.search.grep_fallback"]

    def _find_candidates(self) -> Iterator[str]:
        """Yield absolute paths of executable files, best first."""
        for path in self._list_paths():
            if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK):
                yield path

    def _list_paths(self) -> Iterator[str]:
        first = os.path.expanduser(self._configured) if self._configured else self._find_on_path()
        if first is not None:
            yield first
        yield from self._find_packaged()

    def _find_on_path(self) -> str | None:
        return shutil.which("rg", path=self._environ.get("PATH", os.defpath))

    async def _is_working(self, path: str, workspace: Workspace) -> bool:
        key = (path, os.stat(path).st_mtime_ns)
        if key not in self._start_results:
            self._start_results[key] = await _can_start(path, workspace)
            if not self._start_results[key]:
                _log.warning("%s does not start and is not used", path)
        return self._start_results[key]


async def _can_start(path: str, workspace: Workspace) -> bool:
    try:
        with anyio.fail_after(START_TIMEOUT_S):
            async with workspace.run([path, "--version"]) as process:
                return await process.wait() == 0
    except (OSError, TimeoutError):
        return False
