"""The state of a session that the shell's commands and status bar use."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio
import anyio.to_thread

from kimi.application.conversation.conversation import Conversation
from kimi.application.settings.flags import Flags, home_directory
from kimi.application.settings.settings import Settings
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.shell import find_branch, read_git_marks

NO_MODEL_NAME = "no model"
DEFAULT_BELL_AFTER_S = 10.0
LOOK_INTERVAL_S = 0.5
REREAD_MARKS_S = 10.0
"""The least number of seconds between two looks at the changes of the repository, while nothing runs."""


@dataclass(slots=True)
class ShellContext:
    """A conversation with the settings, flags and environment of the shell process."""

    app: App
    conversation: Conversation
    settings: Settings
    flags: Flags
    environ: Mapping[str, str]
    editor: str = ""
    _branch: str | None = None
    _git_marks: str = ""
    _marks_due_at: float = 0.0
    _active_task_count: int = 0
    _counted_at: float = -1.0

    @property
    def bell_after_s(self) -> float:
        """The end of work that took at least this many seconds rings the bell."""
        text = self.environ.get("KIMI_BELL_AFTER_S", "")
        return float(text) if text.replace(".", "", 1).isdecimal() else DEFAULT_BELL_AFTER_S

    @property
    def home(self) -> str:
        """The user's home directory."""
        return home_directory(self.environ)

    @property
    def model_name(self) -> str:
        """The name of the model as the user configured it."""
        if self.conversation.model is None:
            return NO_MODEL_NAME
        if self.conversation.models.choice is not None and self.conversation.models.choice.alias:
            return self.conversation.models.choice.alias
        model = self.settings.model
        return (model.alias or model.model or model.type) if model and model.is_usable else self.conversation.model.name

    @property
    def is_thinking(self) -> bool:
        """Whether the model thinks before it answers."""
        if self.conversation.models.choice is not None:
            return self.conversation.models.choice.thinking
        return bool(self.settings.model and self.settings.model.thinking)

    @property
    def branch(self) -> str:
        """The branch of the work directory's repository, empty outside of one; cached until `invalidate_branch`."""
        if self._branch is None:
            self._branch = find_branch(self.settings.work_dir)
        return self._branch + (self._git_marks if self._branch else "")

    async def keep_git_marks_current(self, is_idle: Callable[[], bool]) -> None:
        """Look at the changes of the repository while `is_idle`, soon after each turn and command."""
        while True:
            await anyio.sleep(LOOK_INTERVAL_S)
            if is_idle():
                await self._refresh_git_marks()

    async def _refresh_git_marks(self) -> None:
        """Look at the changes again when that is due; where it takes long, more rarely."""
        begun = time.monotonic()
        if begun < self._marks_due_at or not self.branch:
            return
        self._marks_due_at = math.inf  # until it is done
        marks = await anyio.to_thread.run_sync(
            read_git_marks, self.settings.work_dir, self.environ, abandon_on_cancel=True
        )
        ended = time.monotonic()
        self._git_marks, self._marks_due_at = marks, ended + max(REREAD_MARKS_S, 60 * (ended - begun))

    @property
    def active_task_count(self) -> int:
        """The number of active background tasks, counted at most once a second."""
        if time.monotonic() - self._counted_at > 1:
            tasks = self.conversation.resources.background.tasks
            self._active_task_count = sum(task.is_active for task in tasks.list_tasks()) if tasks else 0
            self._counted_at = time.monotonic()
        return self._active_task_count

    def invalidate_branch(self) -> None:
        """Look the branch up again at its next use: a command or turn may have changed it."""
        self._branch = None
        if self._marks_due_at < math.inf:  # else it is being looked at
            self._marks_due_at = 0.0
