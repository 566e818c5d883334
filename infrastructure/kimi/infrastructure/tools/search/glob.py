"""Glob: finds files and directories by a pattern (tools spec 3.6)."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, Field

from kimi.application.ports import PreparedCall, ToolCallContext, Workspace
from kimi.domain.content.message import JsonObject
from kimi.domain.permissions.path_rules import PathScopes, is_within
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.infrastructure.tools.files.path_policy import PathPolicy, describe_error, make_printable
from kimi.infrastructure.tools.params import build_schema, prepare_call
from kimi.infrastructure.tools.search.directory_listing import list_two_levels
from kimi.infrastructure.tools.search.glob_walk import GlobMatches, GlobPattern, GlobWalk

MAX_MATCHES = 1000
BUDGET_S = 10.0
"""Seconds after which a search returns what it has found."""

MAX_PARALLEL = 2
"""The searches of one conversation at a time: many threads at work would keep the event loop from going on."""

_DESCRIPTION = f"""\
Find files and directories by name. Use Grep to search what files contain.

- `pattern`: a glob relative to `directory`: `*` and `?` within a name, `[abc]`, `{{a,b}}` for alternatives, `**` for
  any number of directories. It must not be absolute nor contain `..`.
- `directory`: an absolute path inside the working directory or an additional directory; null for the working
  directory.
- `include_dirs`: list directories too (default true).

At most {MAX_MATCHES} matches come back, sorted by path, relative to `directory`. `**` passes over directories of
version control and those that git ignores, unless the pattern names them, and never follows links. A search ends after
{BUDGET_S:.0f} seconds with what it has found. Prefer narrow patterns such as `src/**/*.py`."""


class GlobParams(BaseModel):
    """Arguments of Glob."""

    pattern: Annotated[str, Field(description="The glob pattern.")]
    directory: Annotated[
        str | None, Field(description="Absolute path of the directory to search; null: the working directory.")
    ] = None
    include_dirs: Annotated[bool, Field(description="List directories as well as files.")] = True


class GlobTool:
    """The Glob tool of one conversation; `budget_s` is the time limit of one search, in seconds."""

    def __init__(self, workspace: Workspace, policy: PathPolicy, *, budget_s: float = BUDGET_S) -> None:
        self._workspace = workspace
        self._policy = policy
        self._budget_s = budget_s
        self._limiter = CapacityLimiter(MAX_PARALLEL)

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema for the model."""
        return _spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall]:
        """See `Tool`. Needs no approval."""
        yield prepare_call(GlobParams, arguments, lambda params: PreparedCall(partial(self._search, params)))

    async def _search(self, params: GlobParams) -> ToolReturnValue:
        try:
            return await self._check_and_search(params)
        except (OSError, ValueError) as error:
            return tool_error(
                f"Failed to search for pattern {params.pattern}. Error: {describe_error(error)}", "Glob failed"
            )

    async def _check_and_search(self, params: GlobParams) -> ToolReturnValue:
        if self._policy.settings.glob_strict and params.pattern.startswith("**"):
            return await self._too_wide_error(params.pattern)
        # In a thread, because braces may stand for hundreds of long patterns.
        pattern = await to_thread.run_sync(
            partial(GlobPattern, params.pattern, ignore_case=self._policy.windows), limiter=self._limiter
        )
        if (error := _check_pattern(params.pattern, pattern)) is not None:
            return error
        scopes = await self._policy.resolve_scopes()
        directory = await self._resolve_directory(params.directory, scopes)
        if isinstance(directory, ToolReturnValue):
            return directory
        walk = GlobWalk(
            directory,
            pattern,
            roots=(*scopes.workspace, *scopes.readable),
            include_dirs=params.include_dirs,
            limit=MAX_MATCHES,
            budget_s=self._budget_s,
            windows=scopes.windows,
        )
        try:
            found = await to_thread.run_sync(walk.run, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            # A cancelled call abandons the thread, which must end by itself.
            walk.cancel()
        return _format_result(params.pattern, found, self._budget_s)

    async def _resolve_directory(self, given_path: str | None, scopes: PathScopes) -> str | ToolReturnValue:
        """Return the real path of the directory to search, or the error if it cannot be searched."""
        if given_path is None:
            return await self._workspace.real_path(self._workspace.work_dir)
        target = await self._policy.locate(given_path)
        if target.named_path.is_relative:
            return tool_error(
                f"`{given_path}` is not an absolute path. You must provide an absolute path to search.",
                "Invalid directory",
            )
        if not is_within(target.real_path, (*scopes.workspace, *scopes.readable), windows=scopes.windows):
            return tool_error(
                f"`{given_path}` is outside the workspace. You can only search within the working directory, "
                "additional directories, and skills directories.",
                "Directory outside workspace",
            )
        stat = await self._workspace.stat(target.real_path)
        if stat is None:
            return tool_error(f"`{given_path}` does not exist.", "Directory not found")
        if stat.kind != "directory":
            return tool_error(f"`{given_path}` is not a directory.", "Invalid directory")
        return target.real_path

    async def _too_wide_error(self, pattern: str) -> ToolReturnValue:
        listing = await to_thread.run_sync(list_two_levels, self._workspace.work_dir)
        return tool_error(
            f"Pattern `{pattern}` starts with '**' which is not allowed. This would recursively search all directories "
            "and may include large directories like `node_modules`. Use more specific patterns instead. For your "
            "convenience, a list of all files and directories in the top level of the working directory is provided "
            "below.",
            "Unsafe pattern",
            output=make_printable(listing),
        )


@cache
def _spec() -> ToolSpec:
    return ToolSpec(
        "Glob",
        _DESCRIPTION,
        build_schema(GlobParams),
        True,
        "search",
        key_argument="pattern",
        path_argument="directory",
    )


def _check_pattern(text: str, pattern: GlobPattern) -> ToolReturnValue | None:
    if os.path.isabs(text) or text.startswith("/"):
        message = f"Pattern `{text}` must not be absolute; give the directory to search as `directory`."
        return tool_error(message, "Unsafe pattern")
    if any(".." in components for components in pattern.components):
        return tool_error(f"Pattern `{text}` must not contain '..'.", "Unsafe pattern")
    if not all(pattern.components):
        raise ValueError("the pattern is empty")
    return None


def _format_result(pattern: str, found: GlobMatches, budget_s: float) -> ToolReturnValue:
    message = f"Found {found.count} matches for pattern `{pattern}`."
    if not found.count:
        message = f"No matches found for pattern `{pattern}`."
    if found.count > MAX_MATCHES:
        message += f" Only the first {MAX_MATCHES} matches are returned. You may want to use a more specific pattern."
    if found.stopped:
        message += f" The search ended after {budget_s:g} seconds; there may be more matches."
    return tool_ok(make_printable("\n".join(found.paths)), message)
