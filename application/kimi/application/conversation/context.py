"""The context of a conversation: what the model gets to read, in memory and on disk."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from kimi.application.ports import LoadSystemPrompt, SessionFiles
from kimi.domain.history.history import History
from kimi.domain.history.session import ContextRecord, SystemPromptRecord


class ConversationContext:
    """The only writer of the history and of its file.

    It stores first, then changes the memory: when a method raises StoreFailed the history is unchanged.
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
        """The records as they stand now; another object after `replace_history` and inside of a scratch context."""
        return self._history

    @property
    def version(self) -> int:
        """A number that changes when the history is another one; it stays when records are appended."""
        return self._version

    @property
    def is_scratch(self) -> bool:
        """Whether nothing of the context is stored now; see `scratch_context`."""
        return self._is_scratch

    @property
    def has_pending_records(self) -> bool:
        """Whether records wait that could not be stored. They answer every call that the history leaves open."""
        return bool(self._pending_records)

    def append(self, *records: ContextRecord) -> None:
        """Store records, those that wait before them, and add them to the history. Raises StoreFailed."""
        due = records
        if not self._is_scratch:
            due = (*self._pending_records, *records)
            self._files.append_context(due)
            self._pending_records.clear()
        for record in due:
            self._history.append(record)

    def add_pending_records(self, *records: ContextRecord) -> None:
        """Keep records that could not be stored: they go before the next ones, when there is room again."""
        self._pending_records += records

    def replace_history(self, records: Sequence[ContextRecord]) -> None:
        """Start the context anew with these records; the old file is kept (R-64). Raises StoreFailed."""
        if not self._is_scratch:
            self._files.rotate_context(records)
            self._pending_records.clear()
        self._set_history(History(records))

    def ensure_system_prompt(self) -> str:
        """Return the frozen system prompt of the session; make and store it when there is none yet."""
        if self._history.system_prompt is None:
            self._freeze_system_prompt(self._load_system_prompt())
        return self._history.system_prompt or ""

    @contextmanager
    def scratch_context(self) -> Generator[None, None, None]:
        """A context of its own with the same system prompt; nothing of it is stored, and it is gone on leaving."""
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
            # Files of old generations lack the record: it must be the first line all the same.
            self.replace_history([record, *self._history.records])
        else:
            self.append(record)
