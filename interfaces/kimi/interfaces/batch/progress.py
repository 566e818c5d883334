"""The progress of a batch on a terminal, and its last line everywhere."""

from __future__ import annotations

import os
from typing import Final

import anyio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from kimi.application.batch.run_batch import BatchState
from kimi.domain.turn import format_count

REFRESH_S: Final = 0.25


async def show_progress(state: BatchState, stderr_fd: int) -> None:
    """Show a bar for as long as this runs, if the descriptor is a terminal."""
    if not os.isatty(stderr_fd):
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with (
        os.fdopen(os.dup(stderr_fd), "w", encoding="utf-8") as file,
        Progress(*columns, console=Console(file=file), auto_refresh=False, transient=True) as progress,
    ):
        bar = progress.add_task("", total=state.total, completed=state.finished, text="")
        while True:
            progress.update(bar, completed=state.finished, text=describe_state(state), refresh=True)
            await anyio.sleep(REFRESH_S)


def describe_state(state: BatchState) -> str:
    """Return the numbers of a batch that runs."""
    faults = sum(state.counts.values()) - state.counts.get("done", 0)
    texts = [f"{state.running} running", f"{format_count(state.tokens)} tokens"]
    return ", ".join([*texts, f"{faults} not done"] if faults else texts)


def summarize(state: BatchState, results_path: str) -> str:
    """Return the last line about a batch, in words."""
    counts = ", ".join(f"{number} {status}" for status, number in sorted(state.counts.items()))
    left = state.total - state.finished
    parts = [
        f"{state.total} tasks",
        counts,
        f"{state.earlier} had their result already" if state.earlier else "",
        f"{left} left for the next run" if left else "",
        f"{format_count(state.tokens)} tokens in all" if state.tokens else "",
    ]
    return f"{'; '.join(part for part in parts if part)}. Results: {results_path}"
