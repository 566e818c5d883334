"""The command line of `kimi schema` and `kimi conformance`, the tools for who implements the protocols."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from kimi.domain.errors import UsageError

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """The commands keep their names."""


@app.command(help="Print the wire protocol for programs: JSON Schema, OpenRPC or TypeScript.")
def schema(
    kind: Annotated[str, typer.Argument(metavar="messages|openrpc|typescript", help="What to print.")],
    protocol_version: Annotated[
        str, typer.Option("--protocol-version", metavar="<version>", help="From 1.0 to 1.10.")
    ] = "1.10",
) -> None:
    from kimi.interfaces.schema.print_schema import format_schema

    typer.echo(format_schema(kind, protocol_version), nl=False)


@app.command(
    help="Test whether a server keeps the protocol: kimi conformance [OPTIONS] -- COMMAND...",
    context_settings={"allow_interspersed_args": False},
)
def conformance(
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND...", help="Starts the server.")] = None,
    protocol: Annotated[str, typer.Option("--protocol", metavar="<wire|acp>", help="Which suite.")] = "wire",
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="<url>", help="Over WebSocket; COMMAND then starts what listens there."),
    ] = None,
    token: Annotated[str | None, typer.Option("--token", metavar="<token>", help="Sent as `Bearer`.")] = None,
    model_port: Annotated[
        int,
        typer.Option("--model-port", metavar="<port>", help="Where the kit's model listens, for a server at --url."),
    ] = 0,
    only: Annotated[str, typer.Option("--only", metavar="<ids>", help="These items: W-05,W-09.")] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="<s>", help="Wait so long for a message.")
    ] = 15,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="<file>", help="Write JUnit XML there.")] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="<file>", help="Write JSON there.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="List every item.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not tell the progress.")] = False,
) -> int:
    from kimi.interfaces.conformance.main import Request, run_conformance

    if protocol not in ("wire", "acp"):
        raise UsageError(f"There is no suite {protocol!r}; give wire or acp.", "--protocol")
    return run_conformance(
        Request(
            command=tuple(command or ()),
            protocol="wire" if protocol == "wire" else "acp",
            url=url,
            token=token,
            model_port=model_port,
            only=tuple(one for one in only.split(",") if one),
            timeout_s=timeout,
            junit=junit,
            json=json,
            verbose=verbose,
            quiet=quiet,
        )
    )


def run_protocol_command(name: str, arguments: Sequence[str]) -> int:
    """Run one of the commands; return the exit status. Raises what the parser raises."""
    result = get_command(app).main(args=[name, *arguments], prog_name="kimi", standalone_mode=False)
    return result if isinstance(result, int) else 0
