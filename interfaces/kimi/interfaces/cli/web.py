"""The command line of `kimi web`; the driver `web` serves (runtime spec 1.6)."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from kimi.application.settings.flags import Flags
from kimi.domain.errors import UsageError

app = typer.Typer(
    name="web",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(help="Serve a page for browsers, and the wire protocol over WebSocket.")
def web(
    context: typer.Context,
    host: Annotated[
        str, typer.Option("--host", metavar="<address>", help="Listen here; any but 127.0.0.1 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, metavar="<int>", help="Else 5494, or the next free one.")
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    directory: Annotated[
        list[Path] | None,
        typer.Option(
            "--directory", "-d", metavar="<dir>", exists=True, file_okay=False,
            help="Sessions may work here and below, and nowhere else; else here and wherever there are sessions.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", metavar="<name>", help="A name by which a proxy or network reaches it."),
    ] = None,
) -> int:  # fmt: skip
    from kimi.interfaces.cli.start import start_driver
    from kimi.interfaces.web.run import WebOptions, run_web

    flags: Flags = context.obj
    if flags.session is not None or flags.continue_last or flags.prompt is not None:
        raise UsageError("'kimi web' has sessions of its own: leave --session, --continue and --prompt out")
    directories = tuple(os.path.abspath(one) for one in directory or ())
    options = WebOptions(host, port, not no_open, directories, tuple(allowed_host or ()))
    # It serves the wire protocol, to which its settings are those of `--wire`.
    return start_driver(replace(flags, ui="wire"), os.environ, serve=partial(run_web, options))


def run_web_command(arguments: Sequence[str], flags: Flags) -> int:
    """Run the command; return the exit status. Raises what the parser raises."""
    result: Any = get_command(app).main(args=list(arguments), prog_name="kimi web", standalone_mode=False, obj=flags)
    return result if isinstance(result, int) else 0
