"""The command line of `kimi plugin`; `plugin_commands` runs the commands (tools spec 3.18)."""

from typing import Annotated

import typer

app = typer.Typer(
    name="plugin",
    help="Install plugins, whose tools and skills the agent may use.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

JsonFlag = Annotated[bool, typer.Option("--json", help="As one JSON object.")]


@app.command("list", help="Show all plugins, and why some cannot be used.")
def list_plugins(json: JsonFlag = False) -> int:
    from kimi.interfaces.admin import plugin_commands

    return plugin_commands.list_plugins(json)


@app.command(help="Install the plugin in a directory or zip archive, after it has shown what it adds.")
def install(
    source: Annotated[str, typer.Argument(metavar="DIRECTORY|ZIP", help="Where the plugin is.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a terminal.")] = False,
    json: JsonFlag = False,
) -> int:
    from kimi.interfaces.admin import plugin_commands

    return plugin_commands.install_plugin(source, yes, json)


@app.command(help="Delete a plugin.")
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the plugin.")], json: JsonFlag = False
) -> int:
    from kimi.interfaces.admin import plugin_commands

    return plugin_commands.remove_plugin(name, json)
