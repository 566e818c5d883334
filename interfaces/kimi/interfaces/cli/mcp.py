"""The command line of `kimi mcp`; `mcp_commands` runs the commands (tools spec 4.5, runtime spec 1.6)."""

from typing import Annotated, Literal

import typer

app = typer.Typer(
    name="mcp",
    help="Configure MCP servers, whose tools the agent may use.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ServerName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the server.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="As one JSON object.")]


@app.command(help="Add a server, or replace the one of this name.")
def add(
    name: ServerName,
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND [ARGS]... | URL]", help="How to reach it.")
    ] = None,
    transport: Annotated[
        Literal["stdio", "http", "sse"], typer.Option("--transport", "-t", help="A process, or a server at a URL.")
    ] = "stdio",
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="A variable of the process.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="KEY:VALUE", help="Sent with each request.")
    ] = None,
    auth: Annotated[
        str | None, typer.Option("--auth", "-a", metavar="oauth", help="Log in with OAuth; else a bearer token.")
    ] = None,
) -> int:
    from kimi.interfaces.admin import mcp_commands

    return mcp_commands.add_server(name, targets or (), transport, env=env or (), headers=header or (), auth=auth)


@app.command(help="Remove a server.")
def remove(name: ServerName) -> int:
    from kimi.interfaces.admin import mcp_commands

    return mcp_commands.remove_server(name)


@app.command("list", help="Show all servers.")
def list_servers(json: JsonFlag = False) -> int:
    from kimi.interfaces.admin import mcp_commands

    return mcp_commands.list_servers(json)


@app.command(help="Show the entry of a server, without secrets.")
def get(name: ServerName) -> int:
    from kimi.interfaces.admin import mcp_commands

    return mcp_commands.show_server(name)


@app.command(help="Let sessions use a server again.")
def enable(name: ServerName) -> int:
    from kimi.interfaces.admin import mcp_commands

    return mcp_commands.set_server_enabled(name, True)


@app.command(help="Keep a server, unused.")
def disable(name: ServerName) -> int:
    from kimi.interfaces.admin import mcp_commands

    return mcp_commands.set_server_enabled(name, False)


@app.command(help="Log in at a server, in a browser.")
def auth(name: ServerName) -> int:
    from kimi.interfaces.admin import mcp_commands

    return mcp_commands.log_in_at_server(name)


@app.command("reset-auth", help="Forget the login at a server.")
def reset_auth(name: ServerName) -> int:
    from kimi.interfaces.admin import mcp_commands

    return mcp_commands.reset_auth(name)


@app.command("test", help="Connect to a server and show its tools.")
def try_out(name: ServerName, json: JsonFlag = False) -> int:
    from kimi.interfaces.admin import mcp_commands

    return mcp_commands.try_server(name, json)
