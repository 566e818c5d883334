"""`kimi sessions`: list, search, show, count, delete and fork stored sessions (runtime spec 1.6)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kimi.application.ports import SessionCatalog
from kimi.application.sessions.find_sessions import find_sessions, locate_session
from kimi.application.settings.flags import share_directory
from kimi.domain.errors import KimiError, UnknownSession
from kimi.domain.history.session import SessionSummary
from kimi.interfaces.process.log import start_logging
from kimi.interfaces.process.streams import write_stderr
from kimi.interfaces.process.terminal_escape import escape_line, escape_text

if TYPE_CHECKING:
    from kimi.application.sessions.session_statistics import SessionFigures

_PROMPT_CHARS = 100
_NO_ANSWER = "nobody is there to confirm; say --yes to delete the session."
_NOT_DELETED = "Nothing was deleted.\n"


def list_sessions(words: Sequence[str], work_dir: str, *, everywhere: bool, below: str | None, as_json: bool) -> int:
    """Write the sessions that hold all words: of `work_dir`, of all directories, or of `below` and what is below it."""

    def run(catalog: SessionCatalog) -> int:
        is_wide = everywhere or below is not None
        found = find_sessions(catalog, words, work_dir=None if is_wide else work_dir, below=below)
        if as_json:
            return _write_json({"sessions": [_describe(one) for one in found]})
        if not found:
            what = "sessions with these words" if words else "sessions"
            where = "" if everywhere else f" of {escape_line(below or work_dir, 500)}; --all looks in every directory"
            write_stderr(f"There are no {what}{where}.\n")
            return 0
        width = max(len(escape_line(one.id)) for one in found)
        return _write_lines(_format_row(one, width, with_directory=is_wide) for one in found)

    return _report_errors(run)


def show_statistics(work_dir: str, *, everywhere: bool, below: str | None, as_json: bool) -> int:
    """Write the figures of the sessions of `work_dir`, of all directories, or of `below` and what is below it."""

    def run(catalog: SessionCatalog) -> int:
        from kimi.application.sessions.session_statistics import count_sessions

        is_wide = everywhere or below is not None
        figures = count_sessions(catalog, find_sessions(catalog, work_dir=None if is_wide else work_dir, below=below))
        return _write_json(_describe_figures(figures)) if as_json else _write_lines(_format_figures(figures))

    return _report_errors(run)


def show_session(session_id: str, work_dir: str, *, as_json: bool) -> int:
    """Write what is known of a session, and its prompts with the numbers of their turns."""

    def run(catalog: SessionCatalog) -> int:
        one = _find(catalog, session_id, work_dir)
        prompts, info = list(catalog.read_prompts(one)), catalog.inspect(one)
        if as_json:
            about = {"path": info.directory, "size": info.size, "open": info.is_open, "process": info.owner}
            return _write_json({**_describe(one), **about, "prompts": prompts})
        owner = f"yes, in process {info.owner}" if info.owner else "yes"
        rows = [
            ("id", one.id),
            ("directory", one.work_dir),
            ("last used", _format_time(one.updated_at)),
            ("files", f"{info.directory} ({_format_size(info.size)})"),
            ("open", owner if info.is_open else "no"),
        ]
        lines = [one.title, *(f"  {name:<10} {escape_line(value, 1000)}" for name, value in rows), "", "Prompts:"]
        lines += [f"  {number:>3}  {escape_line(text, _PROMPT_CHARS)}" for number, text in enumerate(prompts)]
        return _write_lines([*lines, "", f"Resume it: {_format_resume(one, work_dir)}"])

    return _report_errors(run)


def delete_session(session_id: str, work_dir: str, *, is_confirmed: bool, as_json: bool) -> int:
    """Remove a session with everything of it, after a question on a terminal."""

    def run(catalog: SessionCatalog) -> int:
        owner = locate_session(catalog, session_id, work_dir)
        one = next((one for one in catalog.list_sessions(owner) if one.id == session_id), None)
        named = one or SessionSummary(session_id, owner, "Untitled", 0.0)
        if (info := catalog.inspect(named)).is_open:
            by = f" in process {info.owner}" if info.owner else ""
            return _report_error(f"session '{session_id}' is open{by}; end it there first.")
        if not is_confirmed and not _confirm(named):
            return 1
        if not _run_on_store(owner, lambda store: store.delete(session_id)):
            return _report_error(f"session '{session_id}' has no context; there is nothing to delete.")
        if as_json:
            return _write_json({"deleted": session_id, "directory": owner})
        return _write_lines([f"Deleted {escape_line(session_id, 500)} ({named.title})."])

    return _report_errors(run)


def fork_session(session_id: str, work_dir: str, *, turn: int | None, as_json: bool) -> int:
    """Copy a session up to a turn, or whole, into a new one of the same directory; write its id."""

    def run(catalog: SessionCatalog) -> int:
        from uuid import uuid4

        from kimi.application.sessions.fork_session import fork

        owner = locate_session(catalog, session_id, work_dir)

        async def copy(store: Any) -> str | None:
            files = await store.open(session_id)
            if files is None:
                return None
            try:
                return await fork(store, files, lambda: str(uuid4()), turn)
            finally:
                files.close()

        new_id = _run_on_store(owner, copy)
        if new_id is None:
            return _report_error(f"session '{session_id}' has no context to go on from.")
        if as_json:
            return _write_json({"id": new_id, "directory": owner})
        return _write_lines([new_id])

    return _report_errors(run)


def _run_on_store(work_dir: str, use: Callable[[Any], Any]) -> Any:
    """Run `use` on the store of a work directory, which does not wait for a session that is open elsewhere."""
    import anyio

    from kimi.interfaces.bootstrap.store import build_sessions_of

    store = build_sessions_of(share_directory(os.environ), work_dir)
    return anyio.run(use, store)


def _find(catalog: SessionCatalog, session_id: str, work_dir: str) -> SessionSummary:
    owner = locate_session(catalog, session_id, work_dir)
    for one in catalog.list_sessions(owner):
        if one.id == session_id:
            return one
    raise UnknownSession(f"Session '{session_id}' of {owner} has no prompt yet.")


def _confirm(session: SessionSummary) -> bool:
    """Ask at the terminal; without one say what is missing."""
    if not sys.stdin.isatty():
        _report_error(_NO_ANSWER)
        return False
    what = f"{session.title} ({escape_line(session.id, 500)}) of {escape_line(session.work_dir, 500)}"
    write_stderr(f"Delete {what}, with all that belongs to it? [y/N]: ")
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    write_stderr(_NOT_DELETED)
    return False


def _report_errors(run: Callable[[SessionCatalog], int]) -> int:
    from kimi.interfaces.bootstrap.store import build_session_catalog

    share = share_directory(os.environ)
    start_logging(share, debug=False)  # what cannot be read of a session goes there, not before the answer
    try:
        return run(build_session_catalog(share))
    except KimiError as error:
        return _report_error(str(error))


def _report_error(message: str) -> int:
    write_stderr(f"Error: {escape_text(message)}\n")
    return 1


def _describe(one: SessionSummary) -> dict[str, str]:
    used = datetime.fromtimestamp(one.updated_at, UTC).isoformat(timespec="seconds")
    return {"id": one.id, "title": one.title, "directory": one.work_dir, "updated_at": used}


def _describe_figures(figures: SessionFigures) -> dict[str, Any]:
    usual = figures.usual_turn_seconds
    return {
        "sessions": figures.sessions,
        "size": figures.size,
        "turns": figures.turns,
        "steps": figures.steps,
        "retries": figures.retries,
        "turn_seconds": None if usual is None else {"median": round(usual[0], 3), "p95": round(usual[1], 3)},
        "tools": {
            name: {"calls": tool.calls, "failures": tool.failures} for name, tool in sorted(figures.tools.items())
        },
        "tokens": dict(sorted(figures.tokens.items())),
    }


def _format_figures(figures: SessionFigures) -> list[str]:
    usual = figures.usual_turn_seconds
    duration = "" if usual is None else f", half within {usual[0]:.1f} s, 95 of 100 within {usual[1]:.1f} s"
    lines = [
        f"sessions   {figures.sessions} ({_format_size(figures.size)})",
        f"turns      {figures.turns}{duration}",
        f"steps      {figures.steps}, {figures.retries} retried",
        f"tokens     {_join(figures.tokens)}",
    ]
    if figures.tools:
        lines += ["", f"{'tool':<24} {'calls':>7} {'failed':>7}"]
        by_calls = sorted(figures.tools.items(), key=lambda row: (-row[1].calls, row[0]))
        lines += [f"{escape_line(name, 100):<24} {tool.calls:>7} {tool.failures:>7}" for name, tool in by_calls]
    return lines


def _join(counts: dict[str, int]) -> str:
    return ", ".join(f"{escape_line(name, 100)} {count}" for name, count in sorted(counts.items())) or "none"


def _format_row(one: SessionSummary, width: int, *, with_directory: bool) -> str:
    row = f"{escape_line(one.id):<{width}}  {_format_time(one.updated_at)}  {one.title}"
    return f"{row}  {escape_line(one.work_dir, 500)}" if with_directory else row


def _format_resume(one: SessionSummary, work_dir: str) -> str:
    from shlex import quote

    directory = "" if one.work_dir == work_dir else f"-w {quote(one.work_dir)} "
    return escape_line(f"kimi {directory}-r {quote(one.id)}", 1000)


def _format_time(time: float) -> str:
    return datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M")


def _format_size(size: int) -> str:
    return f"{size} bytes" if size < 10_000 else f"{size // 1000} KB" if size < 10_000_000 else f"{size // 10**6} MB"


def _write_json(value: object) -> int:
    return _write_lines([json.dumps(value)])


def _write_lines(lines: Any) -> int:
    """Write lines to stdout; a reader that has gone is no error."""
    with suppress(BrokenPipeError):
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
        return 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the interpreter fails when it flushes at its end
    return 0
