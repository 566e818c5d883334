"""The ports of the machine: files, processes, and the tasks that outlive a turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from kimi.application.ports.model_and_tools import ToolCallContext
    from kimi.domain.background import BackgroundTask, BackgroundTaskSpec, NotificationSink, TaskOutput, TaskStatus

# --- the machine --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileStat:
    """The status of a file. `identity` changes when the file is replaced or its content changes."""

    real_path: str
    kind: Literal["file", "directory", "other"]
    size: int
    mode: int
    identity: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shell:
    """The shell that runs commands: its name and language for the model, and how it is started.

    `language` is "bash", "powershell", or the name of another shell (`fish`).
    """

    name: str
    path: str
    language: str
    arguments: tuple[str, ...] = ("-c",)


class Process(Protocol):
    """A running command. Its output (stdout and stderr merged) is iterated once, in blocks of bytes."""

    def output(self) -> AsyncIterator[bytes]:
        """Yield the blocks in order of arrival, at most 256 KiB each.

        The output ends when the command has ended and the buffered rest is read; a descendant that keeps the pipe open
        delays the end by at most half a second.
        """
        ...

    async def wait(self) -> int:
        """Wait for the end and return the exit status; a signal is a negative number.

        Idempotent. Cancellation ends only the wait, not the command.
        """
        ...

    async def kill(self, grace_s: float = 2.0) -> None:
        """End the whole process tree: terminate, wait up to `grace_s` seconds, kill.

        Idempotent. Cancellation may leave processes alive; a caller that must not leave any shields the call.
        """
        ...


class Workspace(Protocol):
    """Files and processes of a conversation: bytes in, bytes out. Paths are absolute.

    Every method raises OSError as the operating system does. Blocking work happens off the event loop.
    """

    @property
    def work_dir(self) -> str:
        """The work directory as it was given: absolute, normalised, symlinks kept."""
        ...

    @property
    def shell(self) -> Shell:
        """The shell that `run` starts for a command line."""
        ...

    async def stat(self, path: str) -> FileStat | None:
        """Return the status of the file at `path`, symlinks followed; None if there is none. Never opens it.

        For the real path of a missing file use `real_path`.
        """
        ...

    async def real_path(self, path: str) -> str:
        """Resolve every symlink in the existing part of `path`; the file need not exist."""
        ...

    def read(self, path: str, offset: int = 0) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a file and yield its content from byte `offset`, in blocks of at most 1 MiB.

        Memory use does not depend on the size of the file. Leaving the context closes the file.
        """
        ...

    async def read_small(
        self, path: str, may_read: Callable[[str], bool] | None = None
    ) -> tuple[FileStat, bytes | None] | None:
        """Return what `stat` returns, with the content of a regular file below 1 MiB.

        Both are of the same open file. The content is None for a longer file, and for anything but a regular file,
        which is not opened.

        With `may_read` the file is read ahead, before its call may run: the content is None also where `may_read`, that
        is called with the real path in any thread, says no, and where more than this machine's disk is asked for it.
        """
        ...

    async def write(self, path: str, content: bytes, expected: FileStat | None) -> FileStat:
        """Replace or create the file at the real path `path`, atomically; mode bits are kept and parents created.

        Raises `FileChanged` if the file is no longer the one of `expected` (None: there was none), or if its real path
        is no longer `path`. After an error the old content is still there, whole; after a cancellation the file is
        either the old or the new one, whole.
        """
        ...

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        merge_stderr: bool = True,
        call: ToolCallContext | None = None,
    ) -> AbstractAsyncContextManager[Process]:
        """Start a program in the work directory with empty stdin and its own process group.

        `env` is added to the environment of commands (the secrets of this program removed). Leaving the context, also
        by cancellation, kills the process tree if the command is still running. `call` is the tool call that runs the
        command: a workspace with a terminal that the user sees may run it there.
        """
        ...


class FileChanged(OSError):
    """The file on disk is not the one that the caller saw; nothing was written."""


# --- background tasks ---------------------------------------------------------------------------------------------


class BackgroundTasks(Protocol):
    """The commands of one session that run beside its turns. Task ids are unguessable and never used again.

    A task outlives the turn that started it. A task without a sign of life for too long is `lost`. The methods are
    cheap enough for the event loop: they read and write small files.
    """

    def start(self, spec: BackgroundTaskSpec) -> BackgroundTask:
        """Start a command in the background; returns before it has done anything.

        Raises TooManyTasks or OSError; nothing is left of the task then.
        """
        ...

    def adopt(self, spec: BackgroundTaskSpec, stop: Callable[[str], None]) -> BackgroundTask:
        """Register a task that the caller runs itself; `spec.argv` is not started.

        `stop(reason)` is called, once or more, to ask for its end: by `stop`, and by `stop_all`, which asks an adopted
        task in every case. The task ends with the program: if it has not ended by then, it is `lost`. Raises
        TooManyTasks or OSError; nothing is left of the task then.
        """
        ...

    def set_status(self, task_id: str, status: TaskStatus, *, reason: str = "", timed_out: bool = False) -> None:
        """Set the status of an adopted task.

        A terminal status is final: later changes and output are ignored, and `stop` is not called any more. Other tasks
        are not affected. Raises OSError; the status is then unchanged.
        """
        ...

    def append_output(self, task_id: str, text: str) -> None:
        """Add to the output of an adopted task that has not ended. Raises OSError."""
        ...

    def list_tasks(self) -> Sequence[BackgroundTask]:
        """Return all tasks of the session, newest first, including those of earlier runs of the program."""
        ...

    def find(self, task_id: str) -> BackgroundTask | None:
        """Return a snapshot of the task; None for an unknown id."""
        ...

    def read_output(self, task_id: str, max_bytes: int) -> TaskOutput:
        """Return the end of the task's output, at most `max_bytes` bytes, decoded as UTF-8."""
        ...

    def stop(self, task_id: str, reason: str) -> None:
        """Ask for the end of a task and of everything that it has started; it then is `killed`. Returns at once.

        Idempotent; a task that has ended is not affected. Raises OSError.
        """
        ...

    def find_unannounced(self, sink: NotificationSink) -> Sequence[BackgroundTask]:
        """Return the ended tasks that were not announced to `sink`, oldest first. Cheap if there are none."""
        ...

    def mark_announced(self, task_id: str, sink: NotificationSink) -> None:
        """Record that the end of the task was announced to `sink`; it is not announced again, also after a restart.

        If this cannot be stored, it is logged, and holds until the program ends. Raises nothing.
        """
        ...

    def stop_all(self) -> None:
        """Ask all tasks of this program to end. Returns at once. Idempotent.

        Started tasks go on if they are configured to be kept alive.
        """
        ...

    async def wait_until_stopped(self, timeout_s: float) -> None:
        """Wait after `stop_all` until the started tasks have ended, at most `timeout_s` seconds.

        The wait is shielded from cancellation. It does not wait for tasks that are kept alive.
        """
        ...
