"""A few lines about the repository for a subagent that explores it (runtime spec 6.4)."""

from __future__ import annotations

import anyio

from kimi.application.ports import Workspace

TIMEOUT_S = 3.0
MAX_BYTES = 4_000
_COMMIT_COUNT = 5

_SAFE_GIT_COMMAND = (
    "git",
    "--no-pager",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "log.showSignature=false",
)
"""A repository may have been downloaded: nothing that its configuration names is started."""


async def read_git_context(workspace: Workspace) -> str:
    """Return branch and last commits; empty without a repository or git, or if it takes too long."""
    branch = await _run_git(workspace, "rev-parse", "--abbrev-ref", "HEAD")
    if not branch:
        return ""
    commits = await _run_git(workspace, "log", "--oneline", "--no-decorate", f"--max-count={_COMMIT_COUNT}")
    return f"Branch: {branch}\nLast commits:\n{commits}"


async def _run_git(workspace: Workspace, *arguments: str) -> str:
    kept = bytearray()
    try:
        with anyio.fail_after(TIMEOUT_S):
            async with workspace.run((*_SAFE_GIT_COMMAND, *arguments)) as process:
                async for block in process.output():
                    kept += block[: max(0, MAX_BYTES - len(kept))]
                if await process.wait() != 0:
                    return ""
    except (OSError, ValueError, TimeoutError):
        return ""
    return kept.decode("utf-8", "replace").strip()
