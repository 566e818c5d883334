"""The command line of `kimi schema` and `kimi conformance`, the tools for who implements the protocols."""

from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

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


def run_protocol_command(name: str, arguments: Sequence[str]) -> int:
    """Run one of the commands; return the exit status. Raises what the parser raises."""
    result = get_command(app).main(args=[name, *arguments], prog_name="kimi", standalone_mode=False)
    return result if isinstance(result, int) else 0
