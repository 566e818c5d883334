"""The context of a conversation: the history that the model reads, in memory and on disk."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from kimi.application.ports import LoadSystemPrompt, SessionFiles
from kimi.domain.history.history import History
from kimi.domain.history.session import ContextRecord, SystemPromptRecord


class ConversationContext:
    """The only writer of the history and of its file.

    Each method stores first and changes the memory afterwards: when it raises StoreFailed, the history is unchanged.
    """

    def __init__(self, files: SessionFiles, load_system_prompt: LoadSystemPrompt) -> None:
        self._files = files
        self._load_system_prompt = load_system_prompt
        self._history = History(files.load_context())
        self._pending_records: list[ContextRecord] = []
        self._is_scratch = False
        self._version = 0

    @property
    def history(self) -> History:
        """The current history; a different object after `replace_history` and inside a scratch context."""
        return self._history

    @property
    def version(self) -> int:
        """A number that changes when the history is replaced, but not when records are appended."""
        return self._version

    @property
    def is_scratch(self) -> bool:
        """Whether the context is a scratch context, of which nothing is stored."""
        return self._is_scratch

    @property
    def has_pending_records(self) -> bool:
        """Whether there are records that could not be stored. They answer every open call of the history."""
        return bool(self._pending_records)

    def append(self, *records: ContextRecord) -> None:
        """Store the pending records and then these, and add all of them to the history. Raises StoreFailed."""
        unsaved = records
        if not self._is_scratch:
            unsaved = (*self._pending_records, *records)
            # Stored before anything is changed in memory: after StoreFailed the same records are still pending.
            self._files.append_context(unsaved)
            self._pending_records.clear()
        for record in unsaved:
            self._history.append(record)

    def add_pending_records(self, *records: ContextRecord) -> None:
        """Keep records that could not be stored; the next `append` stores them first."""
        self._pending_records += records

    def replace_history(self, records: Sequence[ContextRecord]) -> None:
        """Replace the whole history by these records; the old file is kept (R-64). Raises StoreFailed."""
        if not self._is_scratch:
            self._files.rotate_context(records)
            self._pending_records.clear()
        self._set_history(History(records))

    def ensure_system_prompt(self) -> str:
        """Return the system prompt of the session; render and store it when there is none yet. Raises StoreFailed."""
        if self._history.system_prompt is None:
            self._freeze_system_prompt(self._load_system_prompt())
        return self._history.system_prompt or ""

    @contextmanager
    def scratch_context(self) -> Generator[None, None, None]:
        """Use a temporary context with the same system prompt. It is not stored, and is discarded on exit."""
        prompt = SystemPromptRecord(self.ensure_system_prompt())
        kept = self._history
        self._set_history(History([prompt]))
        self._is_scratch = True
        try:
            yield
        finally:
            self._is_scratch = False
            self._set_history(kept)

    def _set_history(self, history: History) -> None:
        self._history = history
        self._version += 1

    def _freeze_system_prompt(self, text: str) -> None:
        record = SystemPromptRecord(text)
        if self._history.records:
            # A file of an older version lacks the record, which must be the first line.
            self.replace_history([record, *self._history.records])
        else:
            self.append(record)
