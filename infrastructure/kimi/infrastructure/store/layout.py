"""Names and paths of the session layout that is shared with the reference (runtime spec 2.1, 4.1)."""

from __future__ import annotations

import hashlib
import os
import re

CONTEXT_FILE = "context.jsonl"
EVENTS_FILE = "wire.jsonl"
STATE_FILE = "state.json"
OLD_METADATA_FILE = "metadata.json"
LOCK_FILE = "session.lock"
REGISTRY_FILE = "kimi.json"
REGISTRY_LOCK_FILE = "kimi.json.lock"
SUBAGENTS_DIRECTORY = "subagents"
TASKS_DIRECTORY = "tasks"
PLANS_DIRECTORY = "plans"
META_FILE = "meta.json"
PROMPT_FILE = "prompt.txt"
OUTPUT_FILE = "output"
NEW_SUFFIX = ".new"
"""The suffix of a file that is being written and will replace the one without it."""

_OUR_FILES = re.compile(
    r"(context(_\d+|_sub_\d+)?\.jsonl|wire\.jsonl|state\.json|metadata\.json)(\.new)?|session\.lock"
)
_OUR_DIRECTORIES = frozenset({SUBAGENTS_DIRECTORY, TASKS_DIRECTORY, "notifications", "output"})
_WINDOWS_NAMES = {ord(char): 0xF000 + ord(char) for char in ':*?"<>|'}
_WINDOWS_CHARACTERS = {coded: char for char, coded in _WINDOWS_NAMES.items()}
_ROTATED_NAME = re.compile(r"context_(\d+)\.jsonl")


def normalize_path(path: str) -> str:
    """Return the work directory as it is hashed: absolute, without `.` and `..`, symlinks kept."""
    return os.path.abspath(path)


def sessions_directory(share_dir: str, work_dir: str) -> str:
    """Return the directory of the sessions of a work directory, named by the MD5 of its path (R-51)."""
    name = hashlib.md5(os.fsencode(normalize_path(work_dir)), usedforsecurity=False).hexdigest()
    return os.path.join(share_dir, "sessions", name)


def session_directory(directory: str, session_id: str) -> str:
    """Return the directory of a session in the sessions directory of a work dir."""
    return os.path.join(directory, encode_name(session_id))


def encode_name(session_id: str, *, on_windows: bool = os.name == "nt") -> str:
    """Return the file name that stands for a session id: the id itself, but for what Windows takes in no name.

    There such a character becomes the one of the private use area by which Cygwin and Samba write it too: a colon would
    name a drive or a hidden stream of a file.
    """
    return session_id.translate(_WINDOWS_NAMES) if on_windows else session_id


def decode_name(name: str, *, on_windows: bool = os.name == "nt") -> str:
    """Return the session id that a file name stands for."""
    return name.translate(_WINDOWS_CHARACTERS) if on_windows else name


def find_context_file(directory: str, session_id: str) -> str | None:
    """The context file of a session in the sessions directory of a work dir, the oldest layout included."""
    own = session_directory(directory, session_id)
    for path in (os.path.join(own, CONTEXT_FILE), own + ".jsonl"):
        if os.path.isfile(path):
            return path
    return None


def is_our_file(name: str) -> bool:
    """Return whether this program makes files of this name in a session directory."""
    return _OUR_FILES.fullmatch(name) is not None


def is_our_directory(name: str) -> bool:
    """Return whether this program makes directories of this name in a session directory."""
    return name in _OUR_DIRECTORIES


def next_rotated_path(directory: str) -> str:
    """Return the path for the next older context: `context_N.jsonl`, N one more than the highest there is."""
    return _rotated_path(directory, max(_list_rotation_numbers(directory), default=0) + 1)


def list_rotated_paths(directory: str) -> list[str]:
    """Return the paths of the older contexts, newest first. Raises OSError."""
    return [_rotated_path(directory, number) for number in sorted(_list_rotation_numbers(directory), reverse=True)]


def _rotated_path(directory: str, number: int) -> str:
    return os.path.join(directory, f"context_{number}.jsonl")


def _list_rotation_numbers(directory: str) -> list[int]:
    return [int(found[1]) for name in os.listdir(directory) if (found := _ROTATED_NAME.fullmatch(name))]
