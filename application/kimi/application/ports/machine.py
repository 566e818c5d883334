"""The ports of the machine: files, programs, and the tasks that outlive a turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from kimi.domain.background import BackgroundTask, BackgroundTaskSpec, NotificationSink, TaskOutput, TaskStatus

if TYPE_CHECKING:
    from kimi.application.ports.agent import ToolCallContext

# --- the machine --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file as it was looked at. `identity` changes when the file is replaced or its content changes."""

    real_path: str
    kind: Literal["file", "directory", "other"]
    size: int
    mode: int
    identity: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shell:
    """The shell that runs commands: what the model is told, how it is started."""

    name: str
    path: str
    language: Literal["bash", "powershell"]
    arguments: tuple[str, ...] = ("-c",)


class Process(Protocol):
    """A running command. Its output (stdout and stderr merged) is iterated once, in blocks of bytes."""

    def output(self) -> AsyncIterator[bytes]:
        """Blocks in order of arrival, at most 256 KiB each.

        Ends when the command has ended and what was buffered is read; a descendant that keeps the pipe open
        delays it by at most half a second.
        """
        ...

    async def wait(self) -> int:
        """The exit status; a signal is a negative number. Idempotent."""
        ...

    async def kill(self, grace_s: float = 2.0) -> None:
        """End the whole process tree: terminate, wait `grace_s` seconds, kill. Idempotent."""
        ...


class Workspace(Protocol):
    """Files and processes of a conversation: bytes in, bytes out. Paths are absolute.

    Every method raises OSError as the operating system does. Blocking work happens off the event loop.
    """

    @property
    def work_dir(self) -> str:
        """The work dir as it was given: absolute, normalised, symlinks kept."""
        ...

    @property
    def shell(self) -> Shell:
        """The shell that `run` starts for a command line."""
        ...

    async def stat(self, path: str) -> FileStat | None:
        """The file behind `path`, symlinks followed; None when there is none. Never opens it.

        For a missing file use `real_path`.
        """
        ...

    async def real_path(self, path: str) -> str:
        """`path` with every symlink of its existing part resolved; the file need not exist."""
        ...

    def read(self, path: str, offset: int = 0) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The content from byte `offset`, in blocks of at most 1 MiB; memory use does not depend on the size."""
        ...

    async def read_small(self, path: str) -> tuple[FileStat, bytes | None] | None:
        """What `stat` gives, with all the content of a regular file below 1 MiB; both are of the same open file.

        The content is None for a longer file and for what is no regular file, which is not opened.
        """
        ...

    async def write(self, path: str, content: bytes, expected: FileStat | None) -> FileStat:
        """Replace or create the file at the real path `path`, atomically, mode bits kept; parents are created.

        Refused with `FileChanged` when the file is no longer what `expected` says (None: there was none), or
        when its real path is no longer `path`. After an error the old content is there, whole.
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
        """Start a program in the work dir with empty stdin and its own process group.

        `env` is added to the environment that commands get (our own secrets removed). Leaving the context, also
        by cancellation, kills the process tree if the command is still running. With `call` it is what this call does:
        a workspace with a terminal that a person watches may run it there.
        """
        ...


class FileChanged(OSError):
    """The file on disk is not the one the caller looked at; nothing was written."""


# --- background tasks ---------------------------------------------------------------------------------------------


class BackgroundTasks(Protocol):
    """The commands of one session that run beside its turns. Ids of tasks are unguessable and never used again.

    A task outlives the turn that started it. One that nothing was heard of for too long is `lost`. Methods are cheap
    enough for the event loop: they read and write small files.
    """

    def start(self, spec: BackgroundTaskSpec) -> BackgroundTask:
        """Start a command; returns before it has done anything. Raises TooManyTasks, OSError; nothing is left then."""
        ...

    def adopt(self, spec: BackgroundTaskSpec, stop: Callable[[str], None]) -> BackgroundTask:
        """Keep the books of a task that the caller carries out itself; `order.words` are not started.

        `stop(reason)` is called, once or more, when somebody wants it to end: by `stop`, or by `end`, which asks such a
        task in every case. It ends with the program: what had not ended then is `lost`. Raises TooManyTasks, OSError;
        nothing is left then.
        """
        ...

    def set_status(self, task_id: str, status: TaskStatus, *, reason: str = "", timed_out: bool = False) -> None:
        """How an adopted task stands now. Its end is final: what is noted or written later does nothing, and nobody
        asks it to end any more. Nothing happens to any other task. Raises OSError: it stands as before.
        """
        ...

    def append_output(self, task_id: str, text: str) -> None:
        """Add to the output of an adopted task that has not ended. Raises OSError."""
        ...

    def list_tasks(self) -> Sequence[BackgroundTask]:
        """All tasks of the session, also of earlier runs, newest first."""
        ...

    def find(self, task_id: str) -> BackgroundTask | None:
        """The task as it stands now; None for an unknown id."""
        ...

    def read_output(self, task_id: str, max_bytes: int) -> TaskOutput:
        """The end of what it has written, at most `max_bytes` bytes as UTF-8."""
        ...

    def stop(self, task_id: str, reason: str) -> None:
        """Ask for the end of a task with everything it has started; it then is `killed`. Returns at once.

        Nothing happens to a task that has ended. Raises OSError.
        """
        ...

    def find_unannounced(self, sink: NotificationSink) -> Sequence[BackgroundTask]:
        """The tasks that have ended and that `sink` was not told of, oldest first. Costs next to nothing if none."""
        ...

    def mark_announced(self, task_id: str, sink: NotificationSink) -> None:
        """`sink` was told of the end of the task: also after a restart it is not told again.

        What cannot be stored is logged and holds until then.
        """
        ...

    def stop_all(self) -> None:
        """Ask all tasks that were started to end, as the program will; nothing when they are to be kept alive."""
        ...

    async def wait_until_stopped(self, timeout_s: float) -> None:
        """Wait until they have, at most `patience_s` seconds."""
        ...
