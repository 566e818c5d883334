"""Compose the stores of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kimi.application.ports import SessionCatalog, SessionStore
from kimi.application.settings.settings import Settings

if TYPE_CHECKING:
    from kimi.application.sessions.export_session import SessionArchives
    from kimi.domain.history.session import ContextRecord, SessionState

_SECRET_TABLES = ("custom_headers", "headers", "env")


def build_store(settings: Settings, lock_wait_s: float | None = None) -> SessionStore:
    """Return the store of the work directory's sessions, as files.

    `lock_wait_s` is how long a session that another process holds is waited for, if not as long as usual.
    """
    from kimi.infrastructure.store.jsonl import LOCK_WAIT_S, JsonlStore

    wait = LOCK_WAIT_S if lock_wait_s is None else lock_wait_s
    adopted = dict(settings.adopted_sessions)
    return JsonlStore(settings.share_dir, settings.work_dir, lock_wait_s=wait, adopted=adopted)


def build_sessions_of(share_dir: str, work_dir: str) -> SessionStore:
    """Return the store of a work directory, for commands that do not wait for a session that is open elsewhere."""
    from kimi.infrastructure.store.jsonl import JsonlStore

    return JsonlStore(share_dir, work_dir, lock_wait_s=0.0)


def build_memory_store(work_dir: str) -> SessionStore:
    """Return a store in memory: its sessions live as long as the store."""
    from kimi.infrastructure.store.memory import MemoryStore

    return MemoryStore(work_dir)


def repair_context(
    records: Sequence[ContextRecord], newest_events: Callable[[], Iterable[bytes]]
) -> tuple[list[ContextRecord], bool]:
    """Return the records of a stored context with every tool call answered, and whether anything had to be changed.

    For the author of a session store (runtime spec 4.7). `newest_events` returns the envelopes of the event log,
    newest first; it is called only if a call is open.
    """
    from kimi.infrastructure.store.call_repair import answer_open_calls
    from kimi.infrastructure.store.event_line import encode_event_line

    return answer_open_calls(records, lambda: (encode_event_line(event, 0.0) for event in newest_events()))


def find_session_title(state: SessionState, events: Iterable[bytes]) -> str | None:
    """Return the title of a stored session for a listing; None if nothing was asked in it.

    For the author of a session store. `events` are the envelopes of the event log, oldest first.
    """
    from kimi.infrastructure.store.event_line import encode_event_line
    from kimi.infrastructure.store.session_listing import find_first_input, format_title

    first = find_first_input(encode_event_line(event, 0.0) for event in events)
    return None if first is None else format_title(state.custom_title or first)


def build_session_catalog(share_dir: str) -> SessionCatalog:
    """Return the catalog of the stored sessions of all work directories."""
    from kimi.infrastructure.store.catalog import JsonlCatalog

    return JsonlCatalog(share_dir)


def build_session_archives(share_dir: str, work_dir: str) -> SessionArchives:
    """Return the archives that `kimi export` reads from and writes to."""
    from kimi.infrastructure.store.session_archive import ZipSessionArchives

    return ZipSessionArchives(share_dir, work_dir)


def build_secret_mask(share_dir: str, environ: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that masks the keys of the configuration and the values of variables named like secrets."""
    import os
    import tomllib

    from kimi.infrastructure.models.provider_secrets import make_mask

    names = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
    secrets = [value for name, value in environ.items() if any(word in name.upper() for word in names)]
    try:
        with open(os.path.join(share_dir, "config.toml"), "rb") as file:
            secrets += _find_keys(tomllib.load(file))
    except (OSError, ValueError):
        pass  # without a file that can be read there are no keys in it to mask
    return make_mask(secrets)


def _find_keys(table: object, name: str = "") -> list[str]:
    """Return the texts below keys that hold secrets: API keys, and all headers and variables."""
    if isinstance(table, dict):
        items = cast("dict[str, object]", table)
        return [
            found
            for key, value in items.items()
            for found in _find_keys(value, name if name in _SECRET_TABLES else key)
        ]
    if isinstance(table, list):
        return [found for value in cast("list[object]", table) for found in _find_keys(value, name)]
    is_secret = name in _SECRET_TABLES or name == "api_key"
    return [table.removeprefix("Bearer ")] if isinstance(table, str) and is_secret else []
