"""The shell's own commands (runtime spec 8, R-157). The agent's commands are sent to it as typed text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import anyio.to_thread

from kimi.application.commands.registry import COMMANDS, list_agent_commands
from kimi.application.control.mcp_servers import list_servers, mcp_status, reload_servers
from kimi.application.control.session_title import session_title, set_title
from kimi.application.sessions.fork_session import fork, load_turns, undo
from kimi.application.sessions.open_session import SessionSelector
from kimi.domain.command import CommandInfo
from kimi.domain.content.parts import join_text
from kimi.domain.errors import StateError
from kimi.domain.turn import format_usage
from kimi.interfaces.process.log import log_path
from kimi.interfaces.shell.panels import Menu, MenuOption
from kimi.interfaces.shell.preferences import choose_editor, choose_effort, choose_model, choose_theme, log_in, log_out
from kimi.interfaces.shell.render.blocks import MarkdownBlock, Note, OutputBlock
from kimi.interfaces.shell.render.sanitize import fit_one_line, neutralize
from kimi.interfaces.shell.session import CommandTable, Exit, SessionOutcome, ShellCommand, ShellSession, SwitchSession
from kimi.interfaces.shell.session_picker import pick_session
from kimi.interfaces.shell.shell_context import ShellContext
from kimi.interfaces.shell.terminal.terminal_ui import CompletionSources, TerminalUI
from kimi.interfaces.version import __version__

KEYS = (
    ("Enter", "send; while the agent works: queue for the next turn"),
    ("Ctrl-J, Alt-Enter", "a new line"),
    ("Ctrl-S", "send into the running turn; with an empty input: what was queued first"),
    ("Up", "history; with an empty input: take back what was queued"),
    ("Ctrl-R", "search the history"),
    ("Ctrl-C", "interrupt; clear the input; twice: leave"),
    ("Ctrl-D", "leave"),
    ("Ctrl-X", "run commands of the system's shell"),
    ("Shift-Tab", "plan mode"),
    ("Ctrl-T", "unfold what was thought last"),
    ("Ctrl-O", "write in an editor"),
    ("Ctrl-V", "paste text, an image or files"),
    ("@", "name a file"),
)


NOT_PROVIDED = "Not provided"
STOPPED_BY_USER = "Stopped by the user"


async def exit_shell(session: ShellSession, arguments: str) -> SessionOutcome:
    """`/exit`: leave the shell."""
    return Exit()


async def show_help(session: ShellSession, arguments: str) -> None:
    """`/help`: show keys and commands."""
    keys = _format_columns(KEYS)
    commands = _format_columns(
        [
            (" ".join(f"/{name}" for name in (info.name, *info.aliases)), fit_one_line(info.description, 120))
            for info in list_commands(session.shell_context)
        ]
    )
    session.ui.show(MarkdownBlock("## Keys"), OutputBlock(keys), MarkdownBlock("## Commands"), OutputBlock(commands))


def _format_columns(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)


async def show_version(session: ShellSession, arguments: str) -> None:
    """`/version`: show the version."""
    session.ui.show(Note(f"kimi {__version__}"))


async def start_new_session(session: ShellSession, arguments: str) -> SessionOutcome:
    """`/new` and `/clear`: begin another session. A session without content is not kept."""
    return SwitchSession(SessionSelector())


async def choose_session(session: ShellSession, arguments: str) -> SessionOutcome | None:
    """`/sessions`: go on with another one."""
    context = session.shell_context
    settings = context.settings
    picked = await pick_session(session.ui, settings.share_dir, settings.work_dir, context.conversation.id)
    return None if picked is None or picked == context.conversation.id else SwitchSession(SessionSelector(picked))


async def show_or_set_title(session: ShellSession, arguments: str) -> None:
    """`/title [TEXT]`: set the title, then show it."""
    if arguments:
        set_title(session.conversation, arguments)
    title = session_title(session.conversation)
    session.ui.show(Note(f"Title: {title}" if title else "The session has no title yet: /title TEXT"))


async def undo_turn(session: ShellSession, arguments: str) -> SessionOutcome | None:
    """`/undo`: a session without the chosen turn and those after it; its text goes into the input."""
    context = session.shell_context
    turns = await anyio.to_thread.run_sync(load_turns, session.conversation.files)
    if not turns:
        session.ui.show(Note("There is nothing to undo yet.", "warning"))
        return None
    options = tuple(MenuOption(fit_one_line(join_text(turn.user_input), 100) or "(media)") for turn in reversed(turns))
    picked = await session.ui.ask(Menu("Undo which turn, with all after it? Files stay as they are.", options))
    if picked is None:
        return None
    chosen = turns[len(turns) - 1 - picked.positions[0]].index
    undone = await undo(context.app.store(), session.conversation.files, context.app.new_id(), chosen)
    return SwitchSession(SessionSelector(undone.session_id), prefill=join_text(undone.user_input))


async def fork_session(session: ShellSession, arguments: str) -> SessionOutcome:
    """`/fork`: go on in a copy."""
    context = session.shell_context
    forked = await fork(context.app.store(), session.conversation.files, context.app.new_id())
    session.ui.show(Note(f"Forked. The session before: kimi -r {session.conversation.id}"))
    return SwitchSession(SessionSelector(forked))


async def reload_configuration(session: ShellSession, arguments: str) -> SessionOutcome:
    """`/reload`: read the configuration again and continue this session."""
    return SwitchSession(SessionSelector(session.conversation.id), reload=True)


async def show_debug(session: ShellSession, arguments: str) -> None:
    """`/debug`: show facts that help to find an error."""
    conversation, settings = session.conversation, session.shell_context.settings
    facts = (
        ("session", conversation.id),
        ("directory", conversation.files.directory or "-"),
        ("log", log_path(settings.share_dir)),
        ("model", f"{session.shell_context.model_name} ({settings.model.type if settings.model else '-'})"),
        (
            "context",
            f"{session.context_usage.context_tokens or 0} tokens, {len(conversation.history.messages)} messages",
        ),
        ("tools", ", ".join(spec.name for spec in conversation.toolset.visible_specs())),
        ("approved", ", ".join(sorted(conversation.policy.remembered)) or "-"),
    )
    session.ui.show(OutputBlock("\n".join(f"{name:<10} {neutralize(value)}" for name, value in facts)))


async def show_usage(session: ShellSession, arguments: str) -> None:
    """`/usage`: show the tokens and costs of the last turn and of the session."""
    used = session.conversation.models.usage.figures
    session.ui.show(OutputBlock(f"last turn  {format_usage(used.turn)}\nsession    {format_usage(used.session)}"))
    if used.session.cost is None:
        session.ui.show(Note("Costs need the prices of each model: [models.NAME.prices], or kimi setup --catalogue"))


async def show_hooks(session: ShellSession, arguments: str) -> None:
    """`/hooks`: list the configured hooks."""
    hooks = session.conversation.resources.hooks.commands
    lines = [f"{hook.event}  {hook.matcher or '*'}  {fit_one_line(hook.command)}" for hook in hooks]
    session.ui.show(OutputBlock("\n".join(lines)) if lines else Note("No hooks are configured."))


async def show_mcp(session: ShellSession, arguments: str) -> None:
    """`/mcp [reload]`: list the servers with their state and tools, or connect the failed ones again."""
    servers = list_servers(session.conversation)
    if not servers:
        session.ui.show(Note("No MCP servers are configured: `kimi mcp add` does that."))
        return
    if arguments.strip() == "reload":
        reload_servers(session.conversation)
        session.ui.show(Note("What is not connected is tried again."))
        return
    status = mcp_status(session.conversation)
    shown = {one.name: one.tools for one in status.servers} if status else {}
    lines: list[str] = []
    for server in servers:
        reason = f": {fit_one_line(server.reason)}" if server.reason else ""
        lines.append(f"{server.name}  {server.state}{reason}")
        lines += [f"    {tool}" for tool in shown.get(server.name, ())]
    session.ui.show(OutputBlock("\n".join(lines)))


async def show_tasks(session: ShellSession, arguments: str) -> None:
    """`/task`: let the user pick a background task, show its output, and offer to stop it."""
    tasks = session.conversation.resources.background.tasks
    found = tasks.list_tasks() if tasks else ()
    if tasks is None or not found:
        session.ui.show(Note("There are no background tasks."))
        return
    options = tuple(
        MenuOption(f"{one.id}  {one.status}", fit_one_line(one.description or one.command, 100)) for one in found
    )
    picked = await session.ui.ask(Menu("Background tasks", options))
    if picked is None:
        return
    chosen = found[picked.positions[0]]
    session.ui.show(OutputBlock(tasks.read_output(chosen.id, 4000).text or "(no output yet)"))
    if chosen.is_active and await _confirm_stop(session.ui, chosen.id):
        tasks.stop(chosen.id, STOPPED_BY_USER)
        session.ui.show(Note(f"{chosen.id} is asked to stop."))


async def _confirm_stop(ui: TerminalUI, task_id: str) -> bool:
    picked = await ui.ask(Menu(task_id, (MenuOption("Let it run"), MenuOption("Stop it"))))
    return picked is not None and picked.positions == (1,)


async def show_changelog(session: ShellSession, arguments: str) -> None:
    """`/changelog`: show what is new in this version."""
    session.ui.show(Note(f"This is kimi {__version__}."), MarkdownBlock(await anyio.to_thread.run_sync(read_changes)))


def read_changes() -> str:
    """Return what the list of changes says of the newest version, which stands first there."""
    module = Path(__file__).resolve()
    packed, checkout = module.parent.parent / "CHANGELOG.md", module.parents[4] / "CHANGELOG.md"
    try:
        text = (packed if packed.is_file() else checkout).read_text(encoding="utf-8")
    except OSError:
        return "The list of changes did not come with this installation."
    _, _, newest = text.partition("\n## ")
    return "## " + newest.partition("\n## ")[0].strip()


async def copy_answer(session: ShellSession, arguments: str) -> None:
    """`/copy`: put the last answer into the clipboard."""
    from kimi.interfaces.shell.terminal.input.clipboard import write_clipboard  # start-up time

    said = (one for one in reversed(session.conversation.history.messages) if one.role == "assistant")
    text = next((answer for one in said if (answer := join_text(one.content).strip())), "")
    if not text:
        session.ui.show(Note("There is no answer to copy yet."))
    elif await anyio.to_thread.run_sync(write_clipboard, text, session.shell_context.environ):
        session.ui.show(Note(f"The last answer is in the clipboard: {len(text)} characters."))
    elif session.ui.copy(text):
        session.ui.show(
            Note(f"The terminal is asked to copy the last answer: {len(text)} characters. Some refuse that.")
        )
    else:
        session.ui.show(Note("No program here can write to the clipboard: install wl-copy or xclip.", "warning"))


async def ask_side_question(session: ShellSession, arguments: str) -> None:
    """`/btw QUESTION`: answer a side question, also while a turn runs."""
    from kimi.application.commands.side_question import answer_side_question  # start-up time

    if not arguments:
        raise StateError("Ask something: /btw <question>")
    await answer_side_question(session.conversation, arguments)


_INSTEAD: Final[Mapping[str, str]] = {
    "feedback": "It belongs to a hosted service.",
    "upgrade": "Upgrade with what has installed the program, such as 'uv tool upgrade kimi-wire'.",
    "vis": "'kimi export --html' writes a session into one page for any browser.",
    "web": "Leave with /exit and run 'kimi web': its page lists this session.",
}
"""Commands of kimi-cli that are refused, and what helps."""


async def refuse_command(session: ShellSession, arguments: str, *, name: str) -> None:
    """Refuse a command of kimi-cli and say what helps instead."""
    session.ui.show(Note(f"/{name} is not provided. {_INSTEAD[name]}", "warning"))


_CommandRow: TypeAlias = tuple[str, tuple[str, ...], str, ShellCommand]

_COMMAND_ROWS: tuple[_CommandRow, ...] = (
    ("help", ("h", "?"), "Keys and commands", show_help),
    ("exit", ("quit",), "Leave", exit_shell),
    ("version", (), "The version", show_version),
    ("new", (), "A new session", start_new_session),
    ("clear", ("reset",), "A new session, with an empty context", start_new_session),
    ("sessions", ("resume",), "Go on with another session", choose_session),
    ("title", ("rename",), "Show or set the title: [text]", show_or_set_title),
    ("undo", (), "Take back a turn and all after it", undo_turn),
    ("fork", (), "Go on in a copy of this session", fork_session),
    ("theme", (), "Dark or light: [dark|light]", choose_theme),
    ("editor", (), "The editor of Ctrl-O: [command]", choose_editor),
    ("reload", (), "Read the configuration again", reload_configuration),
    ("debug", (), "What helps when something is wrong", show_debug),
    ("mcp", (), "MCP servers and their state; try again: [reload]", show_mcp),
    ("hooks", (), "The configured hooks", show_hooks),
    ("usage", ("status",), "Tokens and costs of the last turn and of the session", show_usage),
    ("btw", (), "Ask something beside the work, which is not kept: <question>", ask_side_question),
    ("task", (), "Background tasks", show_tasks),
    ("copy", (), "Copy the last answer to the clipboard", copy_answer),
    ("changelog", ("release-notes",), "What is new", show_changelog),
    ("model", (), "Another model, or thinking on and off: [alias] [on|off]", choose_model),
    ("effort", (), "How much the model thinks: [level]", choose_effort),
    ("login", ("setup",), "Set up a provider, a key and a model", log_in),
    ("logout", (), "Remove the stored API keys", log_out),
    *((name, (), NOT_PROVIDED, partial(refuse_command, name=name)) for name in _INSTEAD),
)


def _collect_names(rows: Sequence[_CommandRow], wanted: set[str]) -> frozenset[str]:
    """Return all names of these commands, aliases included."""
    return frozenset(name for row in rows if row[0] in wanted for name in (row[0], *row[1]))


def _build_command_table(rows: Sequence[_CommandRow]) -> CommandTable:
    run: dict[str, ShellCommand] = {}
    for name, aliases, _, command in rows:
        run |= dict.fromkeys((name, *aliases), command)
    return CommandTable(
        infos=tuple(CommandInfo(name, text, aliases) for name, aliases, text, _ in rows),
        handlers=run,
        during_turn=_collect_names(
            rows, {"help", "version", "mcp", "hooks", "usage", "debug", "changelog", "copy", "task", "btw"}
        ),
        in_shell_mode=_collect_names(
            rows, {"help", "exit", "version", "editor", "theme", "changelog", "task", "hooks"}
        ),
    )


COMMAND_TABLE = _build_command_table(_COMMAND_ROWS)


def list_commands(shell_context: ShellContext) -> list[CommandInfo]:
    """Return the commands of shell and agent by name. The shell's wins over the agent's; refused ones are left out."""
    return _merge_commands(list_agent_commands(shell_context.conversation))


def _merge_commands(of_agent: Iterable[CommandInfo]) -> list[CommandInfo]:
    others = [info for info in of_agent if info.name not in COMMAND_TABLE.handlers]
    return sorted(
        [*(info for info in COMMAND_TABLE.infos if info.description != NOT_PROVIDED), *others],
        key=lambda info: info.name,
    )


def list_static_commands() -> list[CommandInfo]:
    """Return the commands that every session has, for what is typed before it is open."""
    return _merge_commands(row.info for row in COMMANDS)


def build_completion_sources(shell_context: ShellContext, files: Callable[[str], Sequence[str]]) -> CompletionSources:
    """Return what `/` and `@` complete to in a session."""
    return CompletionSources(commands=lambda: list_commands(shell_context), files=files)
