"""Grep: searches the contents of files with ripgrep (tools spec 3.7)."""

from __future__ import annotations

import os
import posixpath
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, TypeAlias

import anyio
from anyio import to_thread
from pydantic import BaseModel, Field

from kimi.application.ports import PreparedCall, ToolCallContext, Workspace
from kimi.domain.content.message import JsonObject
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.permissions.path_rules import (
    PathAccess,
    PathAllowed,
    PathDenied,
    PathScopes,
    check_read_access,
    check_read_location,
)
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error
from kimi.infrastructure.tools.files.path_policy import (
    PathPolicy,
    ResolvedPath,
    describe_error,
    missing_file_error,
    moved_file_error,
    not_a_file_error,
)
from kimi.infrastructure.tools.output import MAX_CHARS, MAX_LINE_CHARS
from kimi.infrastructure.tools.params import build_schema, parse_arguments, prepare_finished_call
from kimi.infrastructure.tools.search.grep_output import (
    ContentCollector,
    CountCollector,
    FileListCollector,
    OutputCollector,
    ResultPage,
    SecretFilter,
    paginate_lines,
)
from kimi.infrastructure.tools.search.ripgrep import OutputMode, Ripgrep, RipgrepSearch, build_search_arguments
from kimi.infrastructure.tools.search.search_exclusions import build_exclusions

TIMEOUT_S = 20.0
KILL_GRACE_S = 5.0
DEFAULT_HEAD_LIMIT = 250
_MAX_ERROR_BYTES = 16 * 1024

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
- `head_limit` (default {DEFAULT_HEAD_LIMIT}, 0: no limit) and `offset`: which lines of the result to show.
- `include_ignored`: also files that .gitignore leaves out. Hidden files are searched; directories of version control
  are not.

The result is cut at {MAX_CHARS} characters, lines at {MAX_LINE_CHARS}; a search ends after {TIMEOUT_S:.0f} seconds.
Files that hold secrets are not searched."""


class GrepParams(BaseModel):
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
        DEFAULT_HEAD_LIMIT
    )
    offset: Annotated[int, Field(ge=0, description="How many lines of the result to leave out at its beginning.")] = 0
    multiline: Annotated[bool, Field(description="Let matches span lines.")] = False
    include_ignored: Annotated[bool, Field(description="Search ignored files too.")] = False


GrepCollector: TypeAlias = ContentCollector | FileListCollector | CountCollector
"""The collector of a run's output, by output mode."""


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The end of a run: its exit status, None if it timed out."""

    status: int | None


class GrepTool:
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
        """The name, description and schema for the model."""
        return _spec()

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall]:
        """See `Tool`. Needs approval only outside the workspace, if the settings say so."""
        params = parse_arguments(GrepParams, arguments)
        if isinstance(params, ToolReturnValue):
            yield prepare_finished_call(params)
            return
        target = await self._policy.locate(params.path)
        scopes = await self._policy.resolve_scopes()
        access = await self._check_access(target, scopes)
        if isinstance(access, PathDenied):
            yield prepare_finished_call(tool_error(access.message, access.brief))
            return

        async def run() -> ToolReturnValue:
            if access.action is not None and not await self._policy.is_unchanged(target):
                return moved_file_error(params.path)
            return await self._search(params, target, scopes)

        yield PreparedCall(run, _propose_search(access, target), subject=target.real_path)

    async def _check_access(self, target: ResolvedPath, scopes: PathScopes) -> PathAccess:
        """Decide whether the place may be searched: as ReadFile does, and a directory like a file in it."""
        named, real = target.named_path, target.real_path
        stat = await self._workspace.stat(real)
        if stat is not None and stat.kind == "directory":
            inside = replace(named, absolute=os.path.join(named.absolute, "_"))
            refused = check_read_access(inside, os.path.join(real, "_"), scopes)
            return refused if isinstance(refused, PathDenied) else check_read_location(named, real, scopes)
        return check_read_access(named, real, scopes)

    async def _search(self, params: GrepParams, target: ResolvedPath, scopes: PathScopes) -> ToolReturnValue:
        try:
            stat = await self._workspace.stat(target.real_path)
            if stat is None:
                return missing_file_error(params.path)
            if stat.kind == "other":
                return not_a_file_error(params.path)
            return await self._run_ripgrep(params, target, scopes)
        except (OSError, ValueError) as error:
            return _search_error(describe_error(error))

    async def _run_ripgrep(self, params: GrepParams, target: ResolvedPath, scopes: PathScopes) -> ToolReturnValue:
        search = _build_search(params, target)
        secrets = SecretFilter(target, search.path, self._workspace.work_dir, scopes)
        command = await self._ripgrep.find_command(self._workspace)
        deadline = anyio.current_time() + self._timeout_s
        exclusions = build_exclusions(target, params.glob, params.type, self._workspace.work_dir, scopes)
        collector = _create_collector(params, search, secrets)
        foreign: dict[str, list[str]] = {}
        if not search.pattern.isascii() and len(command) == 1:  # the slower search converts such files itself
            foreign = await self._find_foreign_files(command, search, exclusions, secrets, deadline)
            secrets.left_out = frozenset(path for paths in foreign.values() for path in paths)
        outcome = await self._collect_output(
            [*command, *build_search_arguments(search, exclusions)], collector, deadline, merge_stderr=False
        )
        if outcome.status is not None and _is_failure(outcome.status) and not collector.has_output:
            # Another run on one thread works around a lack of threads; otherwise it reports the error.
            collector = _create_collector(params, search, secrets)
            recorder = _RecordingCollector(collector)
            arguments = [*command, *build_search_arguments(search, exclusions, one_thread=True)]
            outcome = await self._collect_output(arguments, recorder, deadline, merge_stderr=True)
            if outcome.status is not None and _is_failure(outcome.status):
                return _search_error(recorder.text)
        secrets.left_out = frozenset()
        if outcome.status is not None and foreign:
            outcome = await self._search_foreign_files(command, search, foreign, collector, deadline)
        return self._format_result(params, collector, outcome)

    async def _find_foreign_files(
        self,
        command: list[str],
        search: RipgrepSearch,
        exclusions: Sequence[str],
        secrets: SecretFilter,
        deadline: float,
    ) -> dict[str, list[str]]:
        """Return the files of the search that are not UTF-8, by their encoding."""
        from kimi.infrastructure.tools.search import foreign_text  # only for a pattern that is not ASCII

        every = replace(
            search,
            pattern=foreign_text.NO_UTF8_PATTERN,
            output_mode="files_with_matches",
            ignore_case=False,
            multiline=False,
        )
        found = FileListCollector(secrets)
        await self._collect_output(
            [*command, *build_search_arguments(every, exclusions)], found, deadline, merge_stderr=False
        )
        absolute = {path: secrets.real_path(path) for path in found.paths[: foreign_text.MAX_FILES]}
        return await to_thread.run_sync(
            foreign_text.group_by_encoding, absolute, absolute, foreign_text.FileEncodings()
        )

    async def _search_foreign_files(
        self,
        command: list[str],
        search: RipgrepSearch,
        foreign: Mapping[str, list[str]],
        collector: OutputCollector,
        deadline: float,
    ) -> SearchOutcome:
        """Search the files that are not UTF-8, one encoding after the other."""
        from kimi.infrastructure.tools.search.foreign_text import batch_paths

        outcome = SearchOutcome(0)
        for encoding, paths in foreign.items():
            # The files were chosen by the first search; a glob or type would be asked again.
            within = replace(search, encoding=encoding, glob=None, type=None)
            for batch in batch_paths(paths):
                arguments = build_search_arguments(within, files=batch)
                outcome = await self._collect_output([*command, *arguments], collector, deadline, merge_stderr=False)
                if outcome.status is None:
                    return outcome
        return outcome

    async def _collect_output(
        self, command: list[str], collector: OutputCollector, deadline: float, *, merge_stderr: bool
    ) -> SearchOutcome:
        """Run the command to its end or to `deadline`, in the time of the event loop."""
        async with self._workspace.run(command, merge_stderr=merge_stderr) as process:
            with anyio.CancelScope(deadline=deadline):
                async for block in process.output():
                    # In a thread, because a collector may look at files; one block at a time keeps the order.
                    await to_thread.run_sync(collector.feed, block)
                return SearchOutcome(await process.wait())
            # Outside of the scope, whose deadline has passed and would cancel this as well.
            await process.kill(KILL_GRACE_S)
        return SearchOutcome(None)

    def _format_result(self, params: GrepParams, collector: GrepCollector, outcome: SearchOutcome) -> ToolReturnValue:
        timed_out = outcome.status is None
        seconds = f"{self._timeout_s:g}s"
        if timed_out and not collector.has_output:
            return tool_error(f"Grep timed out after {seconds}. Try a more specific path or pattern.", "Grep timed out")
        page = _select_page(params, collector)
        remarks: list[str] = []
        if timed_out:
            remarks.append(f"Grep timed out after {seconds}. Partial results returned.")
        if outcome.status is not None and _is_failure(outcome.status):
            remarks.append("Some files could not be searched.")
        if not isinstance(collector, ContentCollector) and collector.truncated:
            remarks.append("Output exceeded buffer limit. Some results omitted.")
        if isinstance(collector, CountCollector) and collector.file_count:
            remarks.append(f"Found {collector.match_count} total occurrences across {collector.file_count} files.")
        remarks += _format_page_remarks(params, page)
        if not page.lines:
            return page.output.ok(" ".join(["No matches found.", *remarks]))
        return page.output.ok(" ".join(remarks))


class _RecordingCollector:
    """Passes blocks on and keeps the first bytes, to be shown if they turn out to be an error."""

    def __init__(self, collector: OutputCollector) -> None:
        self._collector = collector
        self._recorded = b""

    def feed(self, block: bytes) -> None:
        self._recorded = (
            (self._recorded + block)[:_MAX_ERROR_BYTES] if len(self._recorded) < _MAX_ERROR_BYTES else self._recorded
        )
        self._collector.feed(block)

    @property
    def has_output(self) -> bool:
        return self._collector.has_output

    @property
    def text(self) -> str:
        return self._recorded.decode("utf-8", "replace").strip()


@cache
def _spec() -> ToolSpec:
    return ToolSpec(
        "Grep", _DESCRIPTION, build_schema(GrepParams), True, "search", key_argument="pattern", path_argument="path"
    )


def _propose_search(access: PathAllowed, target: ResolvedPath) -> ProposedAction | None:
    if access.action is None:
        return None
    return ProposedAction(access.action, target.format_action_title("Search"), kind="path", subject=target.real_path)


def _build_search(params: GrepParams, target: ResolvedPath) -> RipgrepSearch:
    """Build the search. A relative path stays relative, so that results look as the model wrote it."""
    named = target.named_path
    path = posixpath.normpath(named.expanded.replace(os.sep, "/")) if named.is_relative else named.absolute
    return RipgrepSearch(
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


def _create_collector(params: GrepParams, search: RipgrepSearch, secrets: SecretFilter) -> GrepCollector:
    if params.output_mode == "files_with_matches":
        return FileListCollector(secrets)
    if params.output_mode == "count_matches":
        return CountCollector(secrets)
    return ContentCollector(
        secrets,
        offset=params.offset,
        limit=params.head_limit or None,
        has_line_numbers=search.has_line_numbers,
        show_line_numbers=params.line_number,
    )


def _select_page(params: GrepParams, collector: GrepCollector) -> ResultPage:
    """Return the page of the result that was asked for."""
    if isinstance(collector, ContentCollector):
        return collector.build_page()
    return paginate_lines(collector.lines(), params.offset, params.head_limit or None)


def _format_page_remarks(params: GrepParams, page: ResultPage) -> list[str]:
    end = params.offset + page.lines
    if page.lines and page.total > end:
        return [f"Results truncated to {page.lines} lines (total: {page.total}). Use offset={end} to see more."]
    if page.total and not page.lines:
        return [f"The offset {params.offset} lies beyond the last of {page.total} lines."]
    return []


def _is_failure(status: int) -> bool:
    """Return whether the search failed: 0 means a match, 1 none; a negative number is a signal."""
    return status not in (0, 1)


def _search_error(text: str) -> ToolReturnValue:
    return tool_error(f"Failed to grep. Error: {text}", "Failed to grep")
