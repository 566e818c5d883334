"""Grep: search the contents of files with ripgrep (tools spec 3.7)."""

from __future__ import annotations

import os
import posixpath
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Annotated, TypeAlias

import anyio
from anyio import to_thread
from pydantic import BaseModel, Field

from kimi.application.ports import PreparedCall, ToolCallContext, Workspace
from kimi.domain.content.message import JsonObject
from kimi.domain.permissions.approval import Effect
from kimi.domain.permissions.path_rules import Granted, Refused, Zones, read_place
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error
from kimi.infrastructure.tools.files.path_policy import PathPolicy, Target, missing_file, moved_file, not_a_file, reason
from kimi.infrastructure.tools.output import MAX_CHARS, MAX_LINE_CHARS
from kimi.infrastructure.tools.params import answered, parse_arguments, schema_of
from kimi.infrastructure.tools.search.grep_output import (
    Collector,
    ContentWindow,
    CountList,
    FileList,
    Page,
    SecretFilter,
    page_of,
    secrets_remark,
)
from kimi.infrastructure.tools.search.ripgrep import OutputMode, Ripgrep, Search, search_arguments

TIMEOUT_S = 20.0
KILL_GRACE_S = 5.0
HEAD_LIMIT = 250
_ERROR_BYTES = 16 * 1024

_DESCRIPTION = f"""\
Search the contents of files with ripgrep. Prefer it to `grep` or `rg` in a shell command; use Glob to find files by
name.

- `pattern`: a regular expression in ripgrep's syntax: escape literal braces, e.g. `interface\\{{\\}}`.
- `path`: file or directory, relative to the working directory (default: the whole of it), absolute, or starting with
  `~/`. A place outside the working directory needs an absolute path.
- `output_mode`: `files_with_matches` (default) lists files, newest first; `content` shows the lines, with `-B`, `-A`
  or `-C` lines of context; `count_matches` counts the matches of each file.
- `glob`, `type`: which files, e.g. `*.ts` or `py`. `-i`: ignore case. `multiline`: a match may span lines, and `.`
  matches line breaks.
- `head_limit` (default {HEAD_LIMIT}, 0: no limit) and `offset`: which lines of the result to show.
- `include_ignored`: also files that .gitignore leaves out. Hidden files are searched; directories of version control
  are not.

The result is cut at {MAX_CHARS} characters, lines at {MAX_LINE_CHARS}; a search ends after {TIMEOUT_S:.0f} seconds.
Files that hold secrets are left out."""


class Params(BaseModel):
    """Arguments of Grep."""

    pattern: Annotated[str, Field(description="The regular expression to search for.")]
    path: Annotated[str, Field(description="File or directory to search.")] = "."
    glob: Annotated[str | None, Field(description="Only files whose path matches this glob.")] = None
    output_mode: Annotated[OutputMode, Field(description="What to show of the matches.")] = "files_with_matches"
    before: Annotated[int | None, Field(alias="-B", ge=0, description="Lines before a match (content mode).")] = None
    after: Annotated[int | None, Field(alias="-A", ge=0, description="Lines after a match (content mode).")] = None
    context: Annotated[
        int | None, Field(alias="-C", ge=0, description="Lines before and after a match (content mode).")
    ] = None
    line_number: Annotated[bool, Field(alias="-n", description="Show line numbers (content mode).")] = True
    ignore_case: Annotated[bool, Field(alias="-i", description="Ignore case.")] = False
    type: Annotated[str | None, Field(description="Only files of this type, e.g. py, js, rust.")] = None
    head_limit: Annotated[int | None, Field(ge=0, description="How many lines of the result to show; 0: all.")] = (
        HEAD_LIMIT
    )
    offset: Annotated[int, Field(ge=0, description="How many lines of the result to leave out at its beginning.")] = 0
    multiline: Annotated[bool, Field(description="Let matches span lines.")] = False
    include_ignored: Annotated[bool, Field(description="Search ignored files too.")] = False


Found: TypeAlias = ContentWindow | FileList | CountList
"""What a run has given, by output mode."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: its exit status, None when its time was up."""

    status: int | None


class Grep:
    """The Grep tool of one conversation; `timeout_s` is the time limit of one search, in seconds."""

    def __init__(
        self, workspace: Workspace, policy: PathPolicy, ripgrep: Ripgrep, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._workspace = workspace
        self._policy = policy
        self._ripgrep = ripgrep
        self._timeout_s = timeout_s

    @property
    def spec(self) -> ToolSpec:
        """Name, text and schema for the model."""
        return _spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall]:
        """Ready to search; only a search outside the workspace may have to be approved."""
        params = parse_arguments(Params, arguments)
        if isinstance(params, ToolReturnValue):
            yield answered(params)
            return
        target = await self._policy.locate(params.path)
        zones = await self._policy.zones()
        access = read_place(target.named, target.real, zones)
        if isinstance(access, Refused):
            yield answered(tool_error(access.message, access.brief))
            return

        async def run() -> ToolReturnValue:
            if access.action is not None and not await self._policy.still_leads_to(target):
                return moved_file(params.path)
            return await self._search(params, target, zones)

        yield PreparedCall(run, _effect(access, target), subject=target.real)

    async def _search(self, params: Params, target: Target, zones: Zones) -> ToolReturnValue:
        try:
            stat = await self._workspace.stat(target.real)
            if stat is None:
                return missing_file(params.path)
            if stat.kind == "other":
                return not_a_file(params.path)
            return await self._run(params, target, zones)
        except (OSError, ValueError) as error:
            return _failed(reason(error))

    async def _run(self, params: Params, target: Target, zones: Zones) -> ToolReturnValue:
        search = _search_of(params, target)
        secrets = SecretFilter(target, search.path, self._workspace.work_dir, zones)
        command = await self._ripgrep.command(self._workspace)
        deadline = anyio.current_time() + self._timeout_s
        collector = _collector(params, search, secrets)
        ended = await self._collect([*command, *search_arguments(search)], collector, deadline, merge_stderr=False)
        if ended.status is not None and _bad(ended.status) and not collector.any:
            # One more run on one thread gets past a lack of threads; otherwise it tells what is wrong.
            collector = _collector(params, search, secrets)
            listener = _Listener(collector)
            arguments = [*command, *search_arguments(search, one_thread=True)]
            ended = await self._collect(arguments, listener, deadline, merge_stderr=True)
            if ended.status is not None and _bad(ended.status):
                return _failed(listener.text)
        return self._result(params, collector, secrets, ended)

    async def _collect(self, command: list[str], collector: Collector, deadline: float, *, merge_stderr: bool) -> Ended:
        """Run the command to its end or to the deadline, a moment of the event loop's clock."""
        async with self._workspace.run(command, merge_stderr=merge_stderr) as process:
            with anyio.CancelScope(deadline=deadline):
                async for block in process.output():
                    await to_thread.run_sync(collector.feed, block)
                return Ended(await process.wait())
            await process.kill(KILL_GRACE_S)
        return Ended(None)

    def _result(self, params: Params, collector: Found, secrets: SecretFilter, ended: Ended) -> ToolReturnValue:
        timed_out = ended.status is None
        seconds = f"{self._timeout_s:g}s"
        if timed_out and not collector.any:
            return tool_error(f"Grep timed out after {seconds}. Try a more specific path or pattern.", "Grep timed out")
        page = _page(params, collector)
        remarks: list[str] = []
        if timed_out:
            remarks.append(f"Grep timed out after {seconds}. Partial results returned.")
        if ended.status is not None and _bad(ended.status):
            remarks.append("Some files could not be searched.")
        if not isinstance(collector, ContentWindow) and collector.over:
            remarks.append("Output exceeded buffer limit. Some results omitted.")
        if secrets.names:
            remarks.append(secrets_remark(list(secrets.names)))
        if isinstance(collector, CountList) and collector.files:
            remarks.append(f"Found {collector.matches} total occurrences across {collector.files} files.")
        remarks += _page_remarks(params, page)
        if not page.lines:
            return page.output.ok(" ".join(["No matches found.", *remarks]))
        return page.output.ok(" ".join(remarks))


class _Listener:
    """Passes blocks on and keeps the first of them, to be shown if they turn out to be an error."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._heard = b""

    def feed(self, block: bytes) -> None:
        self._heard = (self._heard + block)[:_ERROR_BYTES] if len(self._heard) < _ERROR_BYTES else self._heard
        self._collector.feed(block)

    @property
    def any(self) -> bool:
        return self._collector.any

    @property
    def text(self) -> str:
        return self._heard.decode("utf-8", "replace").strip()


@cache
def _spec() -> ToolSpec:
    return ToolSpec("Grep", _DESCRIPTION, schema_of(Params), True, "search", key_argument="pattern")


def _effect(access: Granted, target: Target) -> Effect | None:
    if access.action is None:
        return None
    return Effect(access.action, target.titled("Search"), kind="path", subject=target.real)


def _search_of(params: Params, target: Target) -> Search:
    """Relative places stay relative, so that results read as the model wrote them."""
    named = target.named
    path = posixpath.normpath(named.expanded.replace(os.sep, "/")) if named.relative else named.absolute
    return Search(
        pattern=params.pattern,
        path=path,
        glob=params.glob,
        output_mode=params.output_mode,
        before=params.before,
        after=params.after,
        context=params.context,
        line_number=params.line_number,
        ignore_case=params.ignore_case,
        type=params.type,
        multiline=params.multiline,
        include_ignored=params.include_ignored,
    )


def _collector(params: Params, search: Search, secrets: SecretFilter) -> Found:
    if params.output_mode == "files_with_matches":
        return FileList(secrets)
    if params.output_mode == "count_matches":
        return CountList(secrets)
    return ContentWindow(
        secrets,
        offset=params.offset,
        limit=params.head_limit or None,
        numbered=search.numbered,
        show=params.line_number,
    )


def _page(params: Params, collector: Found) -> Page:
    """The window of the result."""
    if isinstance(collector, ContentWindow):
        return collector.page()
    return page_of(collector.lines(), params.offset, params.head_limit or None)


def _page_remarks(params: Params, page: Page) -> list[str]:
    end = params.offset + page.lines
    if page.lines and page.total > end:
        return [f"Results truncated to {page.lines} lines (total: {page.total}). Use offset={end} to see more."]
    if page.total and not page.lines:
        return [f"The offset {params.offset} lies beyond the last of {page.total} lines."]
    return []


def _bad(status: int) -> bool:
    """Did the search fail? 0 is a match, 1 is none; a negative number is a signal."""
    return status not in (0, 1)


def _failed(text: str) -> ToolReturnValue:
    return tool_error(f"Failed to grep. Error: {text}", "Failed to grep")
