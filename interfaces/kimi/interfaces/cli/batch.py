"""The command line of `kimi batch`; `batch.run` runs it (runtime spec 10)."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from kimi.application.settings.flags import Flags
from kimi.domain.errors import UsageError

app = typer.Typer(
    name="batch",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(
    help="Run every task of a file, a JSON object a line, and write its result; run it again to go on. "
    "Options of the agent stand before the command: kimi --model NAME --sandbox workspace batch TASKS.",
)
def batch(
    context: typer.Context,
    tasks: Annotated[Path, typer.Argument(metavar="TASKS", help="The file; see docs/batch.md.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="<file>", help="The results; else TASKS.results.jsonl.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="<n>", help="Tasks at the same time.")] = 4,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, metavar="<n>", help="Worker processes; else one a core.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.1, metavar="<s>", help="For a task that names none.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, metavar="<n>", help="For a task that names none.")
    ] = None,
    retries: Annotated[int, typer.Option("--retries", min=0, metavar="<n>", help="For a task that names none.")] = 0,
    total_tokens: Annotated[
        int | None, typer.Option("--total-tokens", min=1, metavar="<n>", help="Of the batch, all its runs together.")
    ] = None,
    total_time: Annotated[
        float | None, typer.Option("--total-time", min=0.1, metavar="<s>", help="Of this run of the batch.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="<address>", help="Run on this Ray cluster; 'local' starts one here."),
    ] = None,
) -> int:
    from kimi.application.batch.task_file import TaskDefaults
    from kimi.domain.batch import BatchLimits
    from kimi.interfaces.batch.run import BatchOptions, run_batch
    from kimi.interfaces.cli.start import start_driver

    path = os.path.abspath(tasks)
    results = os.path.abspath(output) if output else f"{path.removesuffix('.jsonl')}.results.jsonl"
    options = BatchOptions(
        path,
        results,
        BatchLimits(jobs, total_tokens, total_time),
        workers,
        TaskDefaults(timeout, max_tokens, retries),
        ray,
    )
    return start_driver(context.obj, os.environ, serve=partial(run_batch, options, _copy_stderr()))


def _copy_stderr() -> int:
    """Return a descriptor of stderr that stays when the streams are taken; -1 if it is closed."""
    try:
        return os.dup(2)
    except OSError:
        return -1


def run_command(arguments: Sequence[str], flags: Flags) -> int:
    """Run the command with the options of the agent; return the exit status. Raises what the parser raises."""
    if flags.session is not None or flags.pick_session or flags.continue_last or flags.prompt is not None:
        raise UsageError("Each task of a batch has a session and a prompt of its own", "--session, --prompt")
    if flags.ui != "shell":
        raise UsageError("'kimi batch' takes none of --print, --wire, --acp and --quiet", "--print")
    result = get_command(app).main(args=list(arguments), prog_name="kimi batch", standalone_mode=False, obj=flags)
    return result if isinstance(result, int) else 0
