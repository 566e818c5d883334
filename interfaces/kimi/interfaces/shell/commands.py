"""The commands of the shell itself (runtime spec 8, R-157). What the agent knows too goes to it as typed text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import anyio.to_thread

from kimi.application.commands.registry import known_commands
from kimi.application.control.mcp_servers import mcp_status, reload_servers, server_list
from kimi.application.control.titles import set_title, title_of
from kimi.application.sessions.fork_session import fork, turns_of, undo
from kimi.application.sessions.open_session import Choice
from kimi.domain.command import CommandInfo
from kimi.domain.content.parts import joined_text
from kimi.domain.errors import StateError
from kimi.interfaces.process.process import log_path
from kimi.interfaces.shell.panels import Menu, Option
from kimi.interfaces.shell.preferences import choose_editor, choose_model, choose_theme, log_in, log_out
from kimi.interfaces.shell.render.blocks import Note, Output, Said
from kimi.interfaces.shell.render.sanitize import neutral, one_line
from kimi.interfaces.shell.session import CommandTable, GoOn, Leave, Outcome, ShellCommand, ShellSession
from kimi.interfaces.shell.session_picker import pick_session
from kimi.interfaces.shell.shell_context import Place
from kimi.interfaces.shell.terminal.terminal_ui import Completions, Front
from kimi.interfaces.version import __version__

KEYS = (
    ("Enter", "send; while the agent works: queue for the next turn"),
    ("Ctrl-J, Alt-Enter", "a new line"),
    ("Ctrl-S", "send into the running turn"),
    ("Up", "history; with an empty input: take back what was queued"),
    ("Ctrl-R", "search the history"),
    ("Ctrl-C", "interrupt; clear the input; twice: leave"),
    ("Ctrl-D", "leave"),
    ("Ctrl-X", "run commands of the system's shell"),
    ("Shift-Tab", "plan mode"),
    ("Ctrl-T", "unfold what was thought last"),
    ("Ctrl-O", "write in an editor"),
    ("Ctrl-V", "paste an image"),
    ("@", "name a file"),
)


NOT_PROVIDED = "Not provided"
STOPPED_BY_PERSON = "Stopped by the user"


async def leave(session: ShellSession, arguments: str) -> Outcome:
    """`/exit`."""
    return Leave()


async def show_help(session: ShellSession, arguments: str) -> None:
    """`/help`: keys and commands."""
    keys = _columns(KEYS)
    commands = _columns(
        [
            (" ".join(f"/{name}" for name in (info.name, *info.aliases)), one_line(info.description, 120))
            for info in all_commands(session.place)
        ]
    )
    session.front.show(Said("## Keys"), Output(keys), Said("## Commands"), Output(commands))


def _columns(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)


async def show_version(session: ShellSession, arguments: str) -> None:
    """`/version`."""
    session.front.show(Note(f"kimi {__version__}"))


async def new_session(session: ShellSession, arguments: str) -> Outcome:
    """`/new` and `/clear`: another session; an empty one leaves nothing behind."""
    return GoOn(Choice())


async def choose_session(session: ShellSession, arguments: str) -> Outcome | None:
    """`/sessions`: go on with another one."""
    place = session.place
    settings = place.settings
    picked = await pick_session(session.front, settings.share_dir, settings.work_dir, place.conversation.id)
    return None if picked is None or picked == place.conversation.id else GoOn(Choice(picked))


async def name_session(session: ShellSession, arguments: str) -> None:
    """`/title TEXT`."""
    if arguments:
        set_title(session.conversation, arguments)
    title = title_of(session.conversation)
    session.front.show(Note(f"Title: {title}" if title else "The session has no title yet: /title TEXT"))


async def undo_turn(session: ShellSession, arguments: str) -> Outcome | None:
    """`/undo`: a session without the chosen turn and those after it; its text goes into the input."""
    place = session.place
    turns = await anyio.to_thread.run_sync(turns_of, session.conversation.files)
    if not turns:
        session.front.show(Note("There is nothing to undo yet.", "warning"))
        return None
    options = tuple(Option(one_line(joined_text(turn.user_input), 100) or "(media)") for turn in reversed(turns))
    picked = await session.front.ask(Menu("Undo which turn, with all after it? Files stay as they are.", options))
    if picked is None:
        return None
    chosen = turns[len(turns) - 1 - picked.positions[0]].index
    undone = await undo(place.app.store(), session.conversation.files, place.app.new_id(), chosen)
    return GoOn(Choice(undone.session_id), prefill=joined_text(undone.user_input))


async def fork_session(session: ShellSession, arguments: str) -> Outcome:
    """`/fork`: go on in a copy."""
    place = session.place
    forked = await fork(place.app.store(), session.conversation.files, place.app.new_id())
    session.front.show(Note(f"Forked. The session before: kimi -r {session.conversation.id}"))
    return GoOn(Choice(forked))


async def reload(session: ShellSession, arguments: str) -> Outcome:
    """`/reload`: read the configuration again and go on with this session."""
    return GoOn(Choice(session.conversation.id), reload=True)


async def show_debug(session: ShellSession, arguments: str) -> None:
    """`/debug`: what one needs to know when something is wrong."""
    conversation, settings = session.conversation, session.place.settings
    facts = (
        ("session", conversation.id),
        ("directory", conversation.files.directory or "-"),
        ("log", log_path(settings.share_dir)),
        ("model", f"{session.place.model_name} ({settings.model.type if settings.model else '-'})"),
        ("context", f"{session.context.context_tokens or 0} tokens, {len(conversation.history.messages)} messages"),
        ("tools", ", ".join(spec.name for spec in conversation.toolset.visible())),
        ("approved", ", ".join(sorted(conversation.policy.remembered)) or "-"),
    )
    session.front.show(Output("\n".join(f"{name:<10} {neutral(value)}" for name, value in facts)))


async def show_hooks(session: ShellSession, arguments: str) -> None:
    """`/hooks`: which are configured."""
    hooks = session.conversation.hooks.commands
    lines = [f"{hook.event}  {hook.matcher or '*'}  {one_line(hook.command)}" for hook in hooks]
    session.front.show(Output("\n".join(lines)) if lines else Note("No hooks are configured."))


async def show_mcp(session: ShellSession, arguments: str) -> None:
    """`/mcp [reload]`: the servers, their state and their tools."""
    servers = server_list(session.conversation)
    if not servers:
        session.front.show(Note("No MCP servers are configured: `kimi mcp add` does that."))
        return
    if arguments.strip() == "reload":
        reload_servers(session.conversation)
        session.front.show(Note("What is not connected is tried again."))
        return
    status = mcp_status(session.conversation)
    shown = {one.name: one.tools for one in status.servers} if status else {}
    lines: list[str] = []
    for server in servers:
        reason = f": {one_line(server.reason)}" if server.reason else ""
        lines.append(f"{server.name}  {server.state}{reason}")
        lines += [f"    {tool}" for tool in shown.get(server.name, ())]
    session.front.show(Output("\n".join(lines)))


async def show_tasks(session: ShellSession, arguments: str) -> None:
    """`/task`: background tasks; one can be looked at or stopped."""
    tasks = session.conversation.background.tasks
    found = tasks.tasks() if tasks else ()
    if tasks is None or not found:
        session.front.show(Note("There are no background tasks."))
        return
    options = tuple(Option(f"{one.id}  {one.status}", one_line(one.description or one.command, 100)) for one in found)
    picked = await session.front.ask(Menu("Background tasks", options))
    if picked is None:
        return
    chosen = found[picked.positions[0]]
    session.front.show(Output(tasks.output(chosen.id, 4000).text or "(no output yet)"))
    if chosen.active and await _wants_it_stopped(session.front, chosen.id):
        tasks.stop(chosen.id, STOPPED_BY_PERSON)
        session.front.show(Note(f"{chosen.id} is asked to stop."))


async def _wants_it_stopped(front: Front, task_id: str) -> bool:
    picked = await front.ask(Menu(task_id, (Option("Let it run"), Option("Stop it"))))
    return picked is not None and picked.positions == (1,)


async def show_changelog(session: ShellSession, arguments: str) -> None:
    """`/changelog`."""
    session.front.show(Note(f"This is kimi {__version__}. What changed stands in CHANGELOG.md of its repository."))


async def ask_aside(session: ShellSession, arguments: str) -> None:
    """`/btw QUESTION`, also while a turn runs."""
    from kimi.application.commands.side_question import ask_beside  # start-up time

    if not arguments:
        raise StateError("Ask something: /btw <question>")
    await ask_beside(session.conversation, arguments)


async def not_provided(session: ShellSession, arguments: str) -> None:
    """Commands of kimi-cli for a hosted service, which this program does not have."""
    session.front.show(Note("This command belongs to a hosted service and is not provided here.", "warning"))


_Row: TypeAlias = tuple[str, tuple[str, ...], str, ShellCommand]

_ROWS: tuple[_Row, ...] = (
    ("help", ("h", "?"), "Keys and commands", show_help),
    ("exit", ("quit",), "Leave", leave),
    ("version", (), "The version", show_version),
    ("new", (), "A new session", new_session),
    ("clear", ("reset",), "A new session, with an empty context", new_session),
    ("sessions", ("resume",), "Go on with another session", choose_session),
    ("title", ("rename",), "Show or set the title: [text]", name_session),
    ("undo", (), "Take back a turn and all after it", undo_turn),
    ("fork", (), "Go on in a copy of this session", fork_session),
    ("theme", (), "Dark or light: [dark|light]", choose_theme),
    ("editor", (), "The editor of Ctrl-O: [command]", choose_editor),
    ("reload", (), "Read the configuration again", reload),
    ("debug", (), "What helps when something is wrong", show_debug),
    ("mcp", (), "MCP servers and their state; try again: [reload]", show_mcp),
    ("hooks", (), "The configured hooks", show_hooks),
    ("btw", (), "Ask something beside the work, which is not kept: <question>", ask_aside),
    ("task", (), "Background tasks", show_tasks),
    ("changelog", ("release-notes",), "What is new", show_changelog),
    ("model", (), "Another model, or thinking on and off: [alias] [on|off]", choose_model),
    ("login", ("setup",), "Set up a provider, a key and a model", log_in),
    ("logout", (), "How to remove an API key", log_out),
    *((name, (), NOT_PROVIDED, not_provided) for name in ("usage", "status", "feedback", "web", "vis", "upgrade")),
)


def _names(rows: Sequence[_Row], wanted: set[str]) -> frozenset[str]:
    """These commands by all their names."""
    return frozenset(name for row in rows if row[0] in wanted for name in (row[0], *row[1]))


def _table(rows: Sequence[_Row]) -> CommandTable:
    run: dict[str, ShellCommand] = {}
    for name, aliases, _, command in rows:
        run |= dict.fromkeys((name, *aliases), command)
    return CommandTable(
        infos=tuple(CommandInfo(name, text, aliases) for name, aliases, text, _ in rows),
        run=run,
        beside=_names(rows, {"help", "version", "mcp", "hooks", "debug", "changelog", "task", "btw"}),
        in_shell_mode=_names(rows, {"help", "exit", "version", "editor", "theme", "changelog", "task", "hooks"}),
    )


TABLE = _table(_ROWS)


def all_commands(place: Place) -> list[CommandInfo]:
    """The commands of shell and agent; where both have one, the shell's. What is only refused is not listed."""
    others = [info for info in known_commands(place.conversation) if info.name not in TABLE.run]
    return sorted(
        [*(info for info in TABLE.infos if info.description != NOT_PROVIDED), *others], key=lambda info: info.name
    )


def completions(place: Place, files: Callable[[str], Sequence[str]]) -> Completions:
    """What completes in a session."""
    return Completions(commands=lambda: all_commands(place), files=files)
