"""An independent reader and writer of the stored layout of sessions, as other programs see it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.program.wire_process import Place, read_lines

Json = dict[str, Any]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Listed:
    """A session in the listing of an SDK."""

    id: str
    brief: str


def sessions_dir(place: Place, work_dir: str | None = None) -> Path:
    """Return the directory of a work directory's sessions, by the literal path."""
    name = hashlib.md5((work_dir or str(place.work)).encode()).hexdigest()
    return place.share / "sessions" / name


def listed(place: Place, work_dir: str | None = None) -> list[Listed]:
    """List as the Node SDK does: work directories of `kimi.json`, UUID directories, first input in `wire.jsonl`."""
    known = json.loads((place.share / "kimi.json").read_text(encoding="utf-8"))["work_dirs"]
    assert (work_dir or str(place.work)) in [entry["path"] for entry in known]
    found: list[Listed] = []
    for directory in sorted(sessions_dir(place, work_dir).iterdir()):
        log = directory / "wire.jsonl"
        if _UUID.fullmatch(directory.name) and log.is_file() and log.stat().st_size:
            found.append(Listed(directory.name, _first_input(log)))
    return found


def _first_input(log: Path) -> str:
    for line in read_lines(log):
        message = line.get("message", {})
        if message.get("type") == "TurnBegin":
            return message["payload"]["user_input"]
    return ""


def write_session(
    place: Place,
    session_id: str,
    *,
    context: list[Json] | str | bytes = "",
    events: list[Json] | str | bytes = "",
    **files: object,
) -> Path:
    """Write a session of another program; `files` are more files by name without `.json`."""
    directory = sessions_dir(place) / session_id
    directory.mkdir(parents=True)
    for name, content in (("context.jsonl", context), ("wire.jsonl", events)):
        if content:
            (directory / name).write_bytes(_lines(content))
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def _lines(content: list[Json] | str | bytes) -> bytes:
    if isinstance(content, list):
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in content).encode()
    return content.encode() if isinstance(content, str) else content


def register(place: Place, session_id: str | None) -> None:
    """Write `kimi.json` as the reference does."""
    entry = {"path": str(place.work), "kaos": "local", "last_session_id": session_id}
    (place.share / "kimi.json").write_text(json.dumps({"work_dirs": [entry]}), encoding="utf-8")


def last_session_id(place: Place) -> str | None:
    """Return the last session of the work directory in `kimi.json`; None without one."""
    path = place.share / "kimi.json"
    if not path.exists():
        return None
    entries: list[Json] = json.loads(path.read_text(encoding="utf-8"))["work_dirs"]
    return next((entry["last_session_id"] for entry in entries if entry["path"] == str(place.work)), None)


def event(kind: str, payload: Json, timestamp: float = 1_760_000_000.5) -> Json:
    """Return a record of a `wire.jsonl`."""
    return {"timestamp": timestamp, "message": {"type": kind, "payload": payload}}


def roles(records: list[Json]) -> list[str]:
    """Return the roles of context records, without token counts."""
    return [record["role"] for record in records if record["role"] != "_usage"]


def events_of(records: list[Json]) -> list[str]:
    """Return the types of the messages of a log, without the header."""
    return [record["message"]["type"] for record in records if "message" in record]


def mode(path: Path | str) -> int:
    """Return the permission bits."""
    return os.stat(path).st_mode & 0o777
