"""The session picker: sessions of this or of all directories, newest first (runtime spec 4.5, 8)."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

import anyio.to_thread

from kimi.domain.history.session import SessionSummary, shorten_title
from kimi.interfaces.bootstrap.store import build_session_catalog
from kimi.interfaces.shell.panels import Menu, MenuOption
from kimi.interfaces.shell.render.blocks import Note
from kimi.interfaces.shell.terminal.terminal_ui import TerminalUI

NO_SESSIONS = "There are no sessions of this directory yet."


async def pick_session(ui: TerminalUI, share_dir: str, work_dir: str, current: str | None = None) -> str | None:
    """Let the user choose a session; return its id, None when none of the work directory was chosen.

    For a session of another directory the command that resumes it is shown.
    """
    catalog = build_session_catalog(share_dir)
    everywhere = False
    while True:
        found = await anyio.to_thread.run_sync(catalog.list_sessions, None if everywhere else work_dir)
        sessions = sorted(found, key=lambda one: one.updated_at, reverse=True)
        if not sessions and not everywhere:
            ui.show(Note(NO_SESSIONS, "warning"))
            return None
        picked = await ui.ask(build_session_menu(sessions, everywhere, time.time(), current))
        if picked is None:
            return None
        if not picked.toggled:
            break
        everywhere = not everywhere
    chosen = sessions[picked.positions[0]]
    if chosen.work_dir == work_dir:
        return chosen.id
    ui.show(Note("This session belongs to another directory. Resume it with:"), Note(format_resume_command(chosen)))
    return None


def build_session_menu(sessions: Sequence[SessionSummary], everywhere: bool, now: float, current: str | None) -> Menu:
    """Return the menu of the sessions."""
    options = tuple(
        MenuOption(
            f"{shorten_title(one.title)} ({one.id[:8]})",
            ", ".join([format_age(now - one.updated_at), *([one.work_dir] if everywhere else [])])
            + (", this one" if one.id == current else ""),
        )
        for one in sessions
    )
    title = "Sessions of all directories" if everywhere else "Sessions of this directory"
    return Menu(title, options, toggle_label="this directory only" if everywhere else "all directories")


def format_age(seconds: float) -> str:
    """Format an age: `just now`, `5 min ago`, `3 h ago`, `2 days ago`."""
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if seconds < 2 * 86_400:
        return f"{int(seconds // 3600)} h ago"
    return f"{int(seconds // 86_400)} days ago"


def format_resume_command(session: SessionSummary) -> str:
    """Return the command line that resumes a session of another directory."""
    return f"cd {shlex.quote(session.work_dir)} && kimi -r {shlex.quote(session.id)}"
