"""How the commands of one agent are confined, and what it is told of it (runtime spec 7.10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kimi.application.settings.settings import SandboxSettings
from kimi.domain.tools.tool import ToolReturnValue, tool_error

if TYPE_CHECKING:
    from kimi.infrastructure.sandbox.sandbox import ConfinedCommand, Sandbox

_ONLY_READS = tool_error(
    "Plan mode and agents that only read cannot leave the sandbox: leave `without_sandbox` out.", "Not available here"
)
_NOBODY_ASKED = tool_error(
    "A command outside the sandbox needs an answer of the user, and nobody is asked now: leave `without_sandbox` out.",
    "Nobody is asked",
)


class ConfinedCommands:
    """Confines commands, and decides who may ask for one without.

    The sandbox is made with the first command that needs it. `must_only_read` returns whether the agent may change
    nothing at the moment, `is_asked` whether the user answers questions: yolo and away mode would open the sandbox to
    the model.
    """

    def __init__(
        self,
        settings: SandboxSettings,
        sandbox: Callable[[], Sandbox],
        *,
        must_only_read: Callable[[], bool],
        is_asked: Callable[[], bool],
    ) -> None:
        self.settings = settings
        self._sandbox = sandbox
        self._must_only_read = must_only_read
        self._is_asked = is_asked

    @property
    def is_requested(self) -> bool:
        """Whether the user wants commands to be confined."""
        return self.settings.mode != "off"

    def check_leaving(self) -> ToolReturnValue | None:
        """Return the error for a command that is to run without the sandbox; None if the user can be asked."""
        if self._must_only_read():
            return _ONLY_READS
        return None if self._is_asked() else _NOBODY_ASKED

    async def confine(self, argv: Sequence[str]) -> ConfinedCommand | None:
        """Return the confined form of a command; None if it runs as it is. Raises ConfigError, OSError."""
        read_only = self._must_only_read()
        if not (self.is_requested or read_only):
            return None
        return await self._sandbox().confine(argv, read_only=read_only)

    def explain_failure(self, result: ToolReturnValue, output: str, command: ConfinedCommand) -> ToolReturnValue:
        """Return the result with a hint if it looks as if the sandbox had stopped the command."""
        from kimi.domain.permissions.confinement import looks_denied

        confinement = command.confinement
        if not (result.is_error and looks_denied(output, confinement)):
            return result
        allowed = "nothing" if confinement.mode == "read-only" else "the workspace, but for `.git` and `.kimi`,"
        hint = f"It ran in a sandbox, in which {allowed} can be changed"
        hint += "." if confinement.network else " and no network can be reached."
        if self.is_requested and self.check_leaving() is None:
            hint += " If it needs more, call Shell again with `without_sandbox`: the user is asked."
        return replace(result, message=f"{result.message} {hint}")


def describe_sandbox(settings: SandboxSettings) -> str:
    """Return the line for the tool's description; empty if no sandbox was asked for."""
    if settings.mode == "off":
        return ""
    writable = "nothing can be changed" if settings.mode == "read-only" else "only the workspace can be changed, and "
    writable += "" if settings.mode == "read-only" else "there neither `.git` nor `.kimi`"
    network = "the network can be used" if settings.network else "there is no network"
    return (
        f"- Commands run in a sandbox: {writable}; {network}; `$TMPDIR` is theirs. When a command fails for that "
        "reason, set `without_sandbox`: the person is asked each time.\n"
    )
