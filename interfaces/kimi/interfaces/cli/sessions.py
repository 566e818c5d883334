"""The command line of `kimi sessions`; `admin.sessions` runs the commands (runtime spec 1.6)."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

app = typer.Typer(
    name="sessions",
    help="Find, show, count, delete and fork stored sessions.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The session, of this or any other directory.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="As one JSON object.")]


@app.command("list", help="List the sessions of this directory, newest first.")
def list_sessions(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="Words in the title, the prompts or the id.")
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all", "-a", help="Of all directories.")] = False,
    directory: Annotated[
        Path | None, typer.Option("--directory", "-d", metavar="<dir>", help="Of this directory and those below it.")
    ] = None,
    json: JsonFlag = False,
) -> int:
    from kimi.interfaces.admin import sessions

    below = None if directory is None else os.path.abspath(directory)
    return sessions.list_sessions(words or (), context.obj, everywhere=everywhere, below=below, as_json=json)


@app.command(help="Count turns, tool calls and tokens of the sessions of this directory.")
def stats(
    context: typer.Context,
    everywhere: Annotated[bool, typer.Option("--all", "-a", help="Of all directories.")] = False,
    directory: Annotated[
        Path | None, typer.Option("--directory", "-d", metavar="<dir>", help="Of this directory and those below it.")
    ] = None,
    json: JsonFlag = False,
) -> int:
    from kimi.interfaces.admin import sessions

    below = None if directory is None else os.path.abspath(directory)
    return sessions.show_statistics(context.obj, everywhere=everywhere, below=below, as_json=json)


@app.command(help="Show what is known of a session, and its prompts.")
def show(context: typer.Context, session_id: SessionId, json: JsonFlag = False) -> int:
    from kimi.interfaces.admin import sessions

    return sessions.show_session(session_id, context.obj, as_json=json)


@app.command(help="Remove a session, with everything that belongs to it.")
def delete(
    context: typer.Context,
    session_id: SessionId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonFlag = False,
) -> int:
    from kimi.interfaces.admin import sessions

    return sessions.delete_session(session_id, context.obj, is_confirmed=yes, as_json=json)


@app.command(help="Copy a session into a new one; its id is printed.")
def fork(
    context: typer.Context,
    session_id: SessionId,
    turn: Annotated[
        int | None, typer.Option("--turn", min=0, metavar="<n>", help="Up to this prompt, as `show` numbers them.")
    ] = None,
    json: JsonFlag = False,
) -> int:
    from kimi.interfaces.admin import sessions

    return sessions.fork_session(session_id, context.obj, turn=turn, as_json=json)


def run_sessions(arguments: Sequence[str], work_dir: str) -> int:
    """Run a command of the group for a work directory; return the exit status. Raises what the parser raises."""
    result = get_command(app).main(args=list(arguments), prog_name="kimi sessions", standalone_mode=False, obj=work_dir)
    return result if isinstance(result, int) else 0
