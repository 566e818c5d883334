"""The command line (runtime spec 1.1, 1.2): with the other modules of `cli` the only importer of typer."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.main import get_command

from kimi.application.settings.flags import Flags, UiMode, share_directory
from kimi.domain.errors import UsageError
from kimi.interfaces.cli import mcp as cli_mcp
from kimi.interfaces.cli import plugin as cli_plugin
from kimi.interfaces.cli.options import NOT_PROVIDED, check_option_conflicts, with_session_value
from kimi.interfaces.process.streams import write_stderr
from kimi.interfaces.version import __version__

_HELP = ["-h", "--help"]

app = typer.Typer(
    name="kimi",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND [ARGS]...]",
    context_settings={"help_option_names": _HELP},
    epilog="Options stand before the command. Without a command an agent is run, in the interactive shell.",
)

_FLAGS_KEY = "kimi.flags"
"""The key under which the root command stores the flags for a command that runs an agent."""

_PRINT_OPTIONS = ("--input-format", "--output-format", "--final-message-only")
_MODE_OPTIONS: dict[str, UiMode] = {"--print": "print", "--quiet": "print", "--acp": "acp", "--wire": "wire"}

_PROTOCOL_COMMANDS: Mapping[str, str] = {
    "schema": "Print the wire protocol for programs: JSON Schema, OpenRPC or TypeScript.",
    "conformance": "Test whether a server keeps the protocol.",
}

_ANY_ARGUMENTS: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True}
_PASSED_ON: dict[str, Any] = {"add_help_option": False, "context_settings": _ANY_ARGUMENTS}
"""Of a command whose arguments another parser reads."""

_ACP_IS_DEPRECATED = "'--acp' is deprecated; use 'kimi acp'.\n"


def _start_driver(flags: Flags) -> int:
    from kimi.interfaces.cli.start import start_driver

    return start_driver(flags, os.environ)


def run(arguments: Sequence[str], start: Callable[[Flags], int] = _start_driver) -> int:
    """Parse `arguments` and run the command; return the exit status. Errors are written to stderr.

    `start` is called with the flags if the command runs an agent.
    """
    command = get_command(app)
    switches = {
        name for option in command.params if getattr(option, "is_flag", False) for name in _option_names(option)
    }
    arguments = with_session_value(arguments, frozenset({*_HELP, *switches}))
    try:
        result = command.main(args=arguments, prog_name="kimi", standalone_mode=False, obj=start)
    except UsageError as error:
        from kimi.interfaces.process.startup_errors import format_usage_error, format_usage_panel  # start-up time

        write_stderr(format_usage_panel(format_usage_error(error)))
        return 2
    except typer.TyperException as error:
        write_stderr(_format_framework_error(error))
        return error.exit_code
    except Exception as error:
        from kimi.interfaces.process.startup_errors import format_failure  # start-up time

        log = os.path.join(share_directory(os.environ), "logs", "kimi.log")
        write_stderr(format_failure(error, log, "--debug" in arguments))
        return 1
    return result if isinstance(result, int) else 0


def _option_names(option: Any) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def _format_framework_error(error: typer.TyperException) -> str:
    from kimi.interfaces.process.startup_errors import format_usage_panel  # start-up time

    context: Any = getattr(error, "ctx", None)
    if context is None:
        return format_usage_panel(error.format_message())
    return format_usage_panel(error.format_message(), context.get_usage(), context.command_path)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"kimi, version {__version__}")
        raise typer.Exit


def _write_completion(option: typer.CallbackParam, shell: str | None) -> None:
    if shell is not None:
        from kimi.interfaces.cli.shell_completion import write_completion  # start-up time

        typer.echo(write_completion(shell, get_command(app), option.name == "install_completion", os.environ), nl=False)
        raise typer.Exit


_EXISTING_FILE: dict[str, Any] = {"exists": True, "dir_okay": False, "readable": True}
_EXISTING_DIR: dict[str, Any] = {"exists": True, "file_okay": False, "readable": True}


@app.callback(help="Kimi Code CLI: a coding agent, for the terminal and for other programs.")
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    show_completion: Annotated[
        str | None,
        typer.Option(
            metavar="SHELL", is_eager=True, callback=_write_completion, help="For bash, zsh or fish: print it."
        ),
    ] = None,
    install_completion: Annotated[
        str | None,
        typer.Option(metavar="SHELL", is_eager=True, callback=_write_completion, help="Write it where SHELL looks."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Accepted; changes nothing.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Log in detail; show tracebacks of fatal errors.")] = False,
    work_dir: Annotated[
        Path | None,
        typer.Option("--work-dir", "-w", writable=True, help="Work in this directory.", **_EXISTING_DIR),
    ] = None,
    add_dir: Annotated[
        list[Path] | None,
        typer.Option("--add-dir", metavar="<dir>", help="Work in this directory too.", **_EXISTING_DIR),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", "-S", metavar="[ID]", help="Resume or create a session; without ID: choose one."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", "-r", metavar="[ID]", help="Resume a session that there is; without ID: choose one."),
    ] = None,
    here: Annotated[
        bool, typer.Option("--here", help="With --resume: go on in this directory with a session of another.")
    ] = False,
    continue_last: Annotated[
        bool, typer.Option("--continue", "-C", help="Resume the last session of the work directory.")
    ] = False,
    config: Annotated[str | None, typer.Option("--config", help="Configuration as TOML or JSON text.")] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config-file", help="Configuration file, TOML or JSON.", **_EXISTING_FILE)
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of the configuration.")] = None,
    thinking: Annotated[bool | None, typer.Option("--thinking/--no-thinking", help="Let the model think.")] = None,
    yolo: Annotated[
        bool, typer.Option("--yolo", "--yes", "-y", "--auto-approve", help="Approve every tool call.")
    ] = False,
    edits: Annotated[
        bool, typer.Option("--edits", help="Approve edits in the work directory and commands that only look.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Start in plan mode.")] = False,
    afk: Annotated[bool, typer.Option("--afk", help="Nobody is there: approve all, dismiss questions.")] = False,
    sandbox: Annotated[
        Literal["read-only", "workspace", "off"] | None,
        typer.Option("--sandbox", help="Confine commands: what they may change."),
    ] = None,
    no_slash_commands: Annotated[
        bool, typer.Option("--no-slash-commands", help="Take every prompt as text, with --print, --wire and acp.")
    ] = False,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", "--command", "-c", help="What to do; not used with --wire.")
    ] = None,
    print_mode: Annotated[bool, typer.Option("--print", help="Run without interaction; see --prompt.")] = False,
    acp: Annotated[bool, typer.Option("--acp", help="Deprecated: the same as 'kimi acp'.")] = False,
    acp_setup: Annotated[bool, typer.Option("--setup", hidden=True, help="With --acp: as 'kimi acp --setup'.")] = False,
    wire: Annotated[bool, typer.Option("--wire", help="Serve the wire protocol on stdin and stdout.")] = False,
    input_format: Annotated[
        Literal["text", "stream-json"] | None, typer.Option("--input-format", help="Of stdin, with --print.")
    ] = None,
    output_format: Annotated[
        Literal["text", "stream-json"] | None, typer.Option("--output-format", help="Of stdout, with --print.")
    ] = None,
    final_message_only: Annotated[
        bool, typer.Option("--final-message-only", help="Print the last message only, with --print.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Short for --print --output-format text --final-message-only.")
    ] = False,
    agent: Annotated[Literal["default", "okabe"] | None, typer.Option("--agent", help="A built-in agent.")] = None,
    agent_file: Annotated[
        Path | None, typer.Option("--agent-file", help="The file of another agent.", **_EXISTING_FILE)
    ] = None,
    mcp_config_file: Annotated[
        list[Path] | None,
        typer.Option("--mcp-config-file", metavar="<file>", help="MCP servers, JSON file.", **_EXISTING_FILE),
    ] = None,
    mcp_config: Annotated[
        list[str] | None, typer.Option("--mcp-config", metavar="<json>", help="MCP servers, JSON text.")
    ] = None,
    skills_dir: Annotated[
        list[Path] | None,
        typer.Option("--skills-dir", metavar="<dir>", help="Take skills from here only.", **_EXISTING_DIR),
    ] = None,
    max_steps_per_turn: Annotated[
        int | None, typer.Option("--max-steps-per-turn", min=1, metavar="<int>", help="Steps before a turn is ended.")
    ] = None,
    max_retries_per_step: Annotated[
        int | None,
        typer.Option("--max-retries-per-step", min=1, metavar="<int>", help="Attempts to get an answer of the model."),
    ] = None,
    max_ralph_iterations: Annotated[
        int | None,
        typer.Option("--max-ralph-iterations", min=-1, metavar="<int>", help="Further turns of a loop; -1: no limit."),
    ] = None,
) -> int | None:
    command = context.invoked_subcommand
    if command not in (None, "acp", "batch", "doctor", "web"):
        return None
    if acp_setup and not acp:
        raise UsageError("Only 'kimi acp' and '--acp' have a setup; use 'kimi setup'", "--setup")
    used_options = {
        "--print": print_mode,
        "--acp": acp or command == "acp",
        "--wire": wire or command == "web",
        "--quiet": quiet,
        "--agent": agent is not None,
        "--agent-file": agent_file is not None,
        "--continue": continue_last,
        "--session": session is not None or resume is not None,
        "--config": config is not None,
        "--config-file": config_file is not None,
        "--input-format": input_format is not None,
        "--output-format": output_format is not None,
        "--final-message-only": final_message_only,
    }
    if session is not None and resume is not None:
        raise UsageError("Cannot combine --session, --resume.", "--session")
    chosen = resume if session is None else session
    flags = Flags(
        work_dir=_make_absolute(work_dir) or os.getcwd(),
        ui=_select_ui(used_options, prompt),
        verbose=verbose,
        debug=debug,
        add_dirs=_make_all_absolute(add_dir),
        session=chosen if chosen and chosen.strip() else None,
        pick_session=chosen is not None and not chosen.strip(),
        must_exist=bool(resume and resume.strip()),
        here=here,
        continue_last=continue_last,
        config=_strip_text(config),
        config_file=_make_absolute(config_file),
        model=model,
        thinking=thinking,
        yolo=yolo,
        edits=edits,
        plan=plan,
        afk=afk,
        sandbox=sandbox,
        no_slash_commands=no_slash_commands,
        prompt=_strip_text(prompt),
        input_format=input_format or "text",
        output_format=output_format or "text",
        final_message_only=final_message_only or quiet,
        agent=agent,
        agent_file=_make_absolute(agent_file),
        mcp_config_files=_make_all_absolute(mcp_config_file),
        mcp_configs=tuple(mcp_config or ()),
        skills_dirs=_make_all_absolute(skills_dir),
        max_steps_per_turn=max_steps_per_turn,
        max_retries_per_step=max_retries_per_step,
        max_ralph_iterations=max_ralph_iterations,
    )
    check_option_conflicts(flags, used_options)
    if command is not None:
        context.meta[_FLAGS_KEY] = flags
        return None
    if acp:
        write_stderr(_ACP_IS_DEPRECATED)
    if acp_setup:
        return _run_setup(context)
    return context.obj(flags)


def _select_ui(used_options: Mapping[str, bool], prompt: str | None) -> UiMode:
    """Return the mode. A prompt without a terminal, or with an option of print mode, is for print mode."""
    for option, ui in _MODE_OPTIONS.items():
        if used_options[option]:
            return ui
    if prompt is None or (os.isatty(0) and os.isatty(1) and not any(used_options[one] for one in _PRINT_OPTIONS)):
        return "shell"
    return "print"


def _make_absolute(path: Path | None) -> str | None:
    return None if path is None else os.path.abspath(path)


def _make_all_absolute(paths: list[Path] | None) -> tuple[str, ...]:
    return tuple(os.path.abspath(path) for path in paths or ())


def _strip_text(text: str | None) -> str | None:
    return None if text is None else text.strip()


# --- commands (`main` answers the plain forms of `info` without coming here) -----------------------------------------


@app.command(help="Serve the Agent Client Protocol on stdin and stdout, for editors.")
def acp(
    context: typer.Context,
    setup: Annotated[bool, typer.Option("--setup", help="Set up a provider in this terminal instead.")] = False,
) -> int:
    return _run_setup(context) if setup else context.obj(context.meta[_FLAGS_KEY])


@app.command(help="Run the prompts of a file, each in its own directory.", **_PASSED_ON)
def batch(context: typer.Context) -> int:
    from kimi.interfaces.cli.batch import run_command  # start-up time

    return run_command(context.args, context.meta[_FLAGS_KEY])


@app.command(help="Find, show, delete and fork stored sessions.", **_PASSED_ON)
def sessions(context: typer.Context) -> int:
    from kimi.interfaces.cli.sessions import run_sessions  # start-up time: not with each start of a driver

    return run_sessions(context.args, _make_absolute(context.find_root().params.get("work_dir")) or os.getcwd())


@app.command(help="Serve a page for browsers, and the wire protocol over WebSocket.", **_PASSED_ON)
def web(context: typer.Context) -> int:
    from kimi.interfaces.cli.web import run_web_command  # start-up time: not with each start of a driver

    return run_web_command(context.args, context.meta[_FLAGS_KEY])


def _run_setup(context: typer.Context) -> int:
    from kimi.interfaces.admin.setup import run_setup

    return run_setup(config_file=_resolve_config_file(context))


@app.command(help="Print the versions of the program and its protocols.")
def info(json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False) -> None:
    from kimi.interfaces.admin.info import format_info

    typer.echo(format_info(json))


@app.command(help="Watch a session with a scripted model; no account needed.")
def demo(
    trace: Annotated[bool, typer.Option("--trace", help="Show every line of the protocol.")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Do not pause to let you read.")] = False,
) -> int:
    from kimi.interfaces.demo.demo import run_demo

    return run_demo(trace, fast)


@app.command(help="Write a session into a zip archive, or into a page to read; its path is printed.")
def export(
    context: typer.Context,
    session_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The session; without it, the last one of the work directory.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="<file>", help="The file; else session-<id>.zip or .html here."),
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="One page of HTML that loads nothing, instead of an archive.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the last session is exported.")] = False,
) -> int:
    from kimi.interfaces.admin.export import run_export

    work_dir = _make_absolute(context.find_root().params.get("work_dir")) or os.getcwd()
    return run_export(session_id, _make_absolute(output), yes, work_dir, html)


@app.command(help="Write provider, key and model into the configuration; asks, unless --provider is given.")
def setup(
    context: typer.Context,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="<name>", help="Of those that setup lists, like 'ollama'.")
    ] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", metavar="<url>", help="Where its API is.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="<name>", help="The variable that holds the key.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="<id>", help="The model, as the provider names it.")
    ] = None,
    context_size: Annotated[
        int | None, typer.Option("--context-size", min=1, metavar="<tokens>", help="How much the model can read.")
    ] = None,
    capability: Annotated[
        list[str] | None,
        typer.Option("--capability", metavar="<name>", help="thinking, always_thinking, image_in, video_in, or none."),
    ] = None,
    remove_key: Annotated[
        bool, typer.Option("--remove-key", help="Remove the stored key of the provider instead.")
    ] = False,
    catalogue: Annotated[
        Path | None,
        typer.Option("--catalogue", help="Take context sizes, capabilities and prices from here.", **_EXISTING_FILE),
    ] = None,
) -> int:
    from kimi.application.admin.setup import SetupOptions
    from kimi.interfaces.admin.model_import import run_import
    from kimi.interfaces.admin.setup import run_setup

    if catalogue is not None and provider is None:
        return run_import(os.path.abspath(catalogue), _resolve_config_file(context))
    named = tuple(capability) if capability else None
    wanted = SetupOptions(provider, base_url, api_key_env, model, context_size, named, remove_key)
    status = run_setup(wanted, config_file=_resolve_config_file(context))
    if catalogue is None or status:
        return status
    return run_import(os.path.abspath(catalogue), _resolve_config_file(context))


def _resolve_config_file(context: typer.Context) -> str | None:
    """Return the configuration file in the root's options. Raises UsageError if they hold a text instead of a file."""
    options = context.find_root().params
    if options.get("config") is not None:
        raise UsageError("There is no file to write to; use --config-file", "--config")
    return _make_absolute(options.get("config_file"))


@app.command(
    help="Check configuration, key, endpoint, proxy, MCP servers, plugins, ripgrep, sandbox and terminal; "
    "say what to mend."
)
def doctor(
    context: typer.Context, json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False
) -> int:
    from kimi.interfaces.admin.doctor import run_doctor

    return run_doctor(context.meta[_FLAGS_KEY], json)


@app.command(help="Enter an API key: on a terminal the same as 'kimi setup'.")
def login(context: typer.Context, json: Annotated[bool, typer.Option("--json", help="As one event.")] = False) -> int:
    from kimi.interfaces.admin.login import run_login

    return run_login(json, _resolve_config_file(context))


@app.command(help="Remove the stored API keys, and a login that kimi-cli left.")
def logout(context: typer.Context, json: Annotated[bool, typer.Option("--json", help="As one event.")] = False) -> int:
    from kimi.interfaces.admin.login import run_logout

    return run_logout(json, _resolve_config_file(context))


@app.command(help="Say what of a share directory of kimi-cli works here, item by item.")
def migrate(
    context: typer.Context,
    apply: Annotated[
        bool, typer.Option("--apply", help="Take out what the program cannot start with; keeps a backup.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> int:
    from kimi.interfaces.admin.migrate import run_migrate

    work_dir = _make_absolute(context.find_root().params.get("work_dir")) or os.getcwd()
    return run_migrate(work_dir, apply, json)


def _run_protocol_command(context: typer.Context) -> int:
    from kimi.interfaces.cli.protocol import run_protocol_command  # start-up time, as for the sessions

    return run_protocol_command(context.info_name or "", context.args)


def _reject_command(context: typer.Context) -> None:
    raise UsageError(NOT_PROVIDED[context.info_name or ""])


app.add_typer(cli_mcp.app)
app.add_typer(cli_plugin.app)

for _name, _help in _PROTOCOL_COMMANDS.items():
    app.command(_name, help=_help, **_PASSED_ON)(_run_protocol_command)

for _name in NOT_PROVIDED:
    app.command(_name, hidden=True, help="Not provided.", context_settings=_ANY_ARGUMENTS)(_reject_command)
