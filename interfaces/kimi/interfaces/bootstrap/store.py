"""Compose the stores of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi.application.ports import SessionCatalog, SessionStore
from kimi.application.settings.settings import Settings

if TYPE_CHECKING:
    from kimi.application.sessions.export_session import SessionArchives


def build_store(settings: Settings) -> SessionStore:
    """Return the store of the work directory's sessions, as files."""
    from kimi.infrastructure.store.jsonl import JsonlStore

    return JsonlStore(settings.share_dir, settings.work_dir)


def build_memory_store(work_dir: str) -> SessionStore:
    """Return a store in memory: its sessions live as long as the store."""
    from kimi.infrastructure.store.memory import MemoryStore

    return MemoryStore(work_dir)


def build_session_catalog(share_dir: str) -> SessionCatalog:
    """Return the catalog of the stored sessions of all work directories."""
    from kimi.infrastructure.store.catalog import JsonlCatalog

    return JsonlCatalog(share_dir)


def build_session_archives(share_dir: str, work_dir: str) -> SessionArchives:
    """Return the archives that `kimi export` reads from and writes to."""
    from kimi.infrastructure.store.session_archive import ZipSessionArchives

    return ZipSessionArchives(share_dir, work_dir)
