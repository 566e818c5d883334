"""A few lines about the repository for a subagent that explores it (runtime spec 6.4)."""

from __future__ import annotations

from collections.abc import Mapping

import anyio.to_thread

from kimi.infrastructure.definitions.git_commands import read_git_output

TIMEOUT_S = 3.0
MAX_BYTES = 4_000
_COMMIT_COUNT = 5


async def read_git_context(work_dir: str, environ: Mapping[str, str]) -> str:
    """Return branch and last commits; empty without a repository or git, or if it takes too long."""
    return await anyio.to_thread.run_sync(_describe_repository, work_dir, environ, abandon_on_cancel=True)


def _describe_repository(work_dir: str, environ: Mapping[str, str]) -> str:
    branch = _run_git(work_dir, environ, "rev-parse", "--abbrev-ref", "HEAD")
    if not branch:
        return ""
    commits = _run_git(
        work_dir, environ, "log", "--format=%h %s", f"--max-count={_COMMIT_COUNT}",
        *("--no-show-signature", "--no-ext-diff", "--no-textconv", "--no-patch", "--no-notes"),
    )  # fmt: skip
    return f"Branch: {branch}\nLast commits:\n{commits}"


def _run_git(work_dir: str, environ: Mapping[str, str], *arguments: str) -> str:
    return read_git_output(work_dir, arguments, environ, TIMEOUT_S, MAX_BYTES).decode("utf-8", "replace").strip()
