"""What a confined command may read, write and reach (runtime spec 7.10). The functions do not touch the disk.

Paths are absolute, real and normalised, unless a function says otherwise.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kimi.domain.permissions.path_rules import is_within

ConfinementMode: TypeAlias = Literal["read-only", "workspace"]
ConfinedAccess: TypeAlias = Literal["hidden", "read", "write"]

PROTECTED_NAMES = (".git", ".kimi")
"""Entries of a writable root that stay read-only: what stands in them is run or believed outside of the sandbox.

All of `.git`, not its `config` and `hooks` alone: a new `commondir` in it names another configuration, and `modules`
and `worktrees` hold further ones.
"""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a sandbox lets a command do. Where nothing else is said, a path may be read.

    `writable` are the roots that may be changed in the mode `workspace`, and be seen in both. `readable` stay visible
    inside of hidden paths; `protected` stay read-only inside of writable ones, also where they do not exist yet;
    `hidden` can be neither read nor changed. `temp_dir` can be changed in both modes. Of two rules the one for the
    longer path holds; for the same path hidden counts over protected over writable over readable.
    """

    mode: ConfinementMode
    work_dir: str
    temp_dir: str
    network: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What a command may do with a path and everything below it, up to a longer path with a rule of its own."""

    path: str
    access: ConfinedAccess


def list_access_rules(confinement: Confinement) -> tuple[AccessRule, ...]:
    """Return one rule a path, parents first, without those that repeat the rule around them."""
    found: dict[str, ConfinedAccess] = dict.fromkeys(confinement.readable, "read")
    found |= dict.fromkeys(confinement.writable, "write" if confinement.mode == "workspace" else "read")
    found |= dict.fromkeys(confinement.protected, "read")
    found[confinement.temp_dir] = "write"
    found |= dict.fromkeys(confinement.hidden, "hidden")
    rules: list[AccessRule] = []
    for path in sorted(found, key=lambda path: (path.count("/"), path)):
        if (around := _find_deepest(rules, path)) is None or around.access != found[path]:
            rules.append(AccessRule(path, found[path]))
    return tuple(rules)


def find_access(rules: Sequence[AccessRule], path: str) -> ConfinedAccess:
    """Return what a command may do with `path` under these rules, which stand parents first."""
    rule = _find_deepest(rules, path)
    return rule.access if rule else "read"


def _find_deepest(rules: Sequence[AccessRule], path: str) -> AccessRule | None:
    return next((rule for rule in reversed(rules) if is_within(path, [rule.path])), None)


def list_protected_paths(root: str) -> tuple[str, ...]:
    """Return the paths directly in a writable root that stay read-only; they need not exist."""
    return tuple(posixpath.join(root, name) for name in PROTECTED_NAMES)


_GITDIR = re.compile(r"gitdir:[ \t]*([^\r\n]+)")


def parse_git_pointer(text: str, directory: str) -> str | None:
    """Return the path that a `.git` file in `directory` names, as a work tree has one; None for any other text."""
    found = _GITDIR.match(text)
    return posixpath.normpath(posixpath.join(directory, found[1].rstrip())) if found else None


_LONGEST_PATH = 4096
_GITLINK_MODE = b"\x00\x00\xe0\x00"
_PATH_OFFSETS = (4 + 12 + 20 + 2, 4 + 12 + 20 + 4, 4 + 12 + 32 + 2, 4 + 12 + 32 + 4)
"""Bytes from the mode of an entry to its path: with short and long hashes, without and with extended flags."""


def find_gitlinks(index: bytes) -> tuple[str, ...]:
    """Return the relative paths at which an index of git has submodules, and perhaps others that mean nothing.

    The bytes are searched for the mode of such entries, because reading all of a large index would take too long.
    """
    found: dict[str, None] = {}
    at = index.find(_GITLINK_MODE)
    while at >= 0:
        for offset in _PATH_OFFSETS:
            raw, end, _ = index[at + offset : at + offset + _LONGEST_PATH].partition(b"\0")
            path = posixpath.normpath(raw.decode("utf-8", "surrogateescape"))
            if end and path not in (".", "..") and not path.startswith(("/", "../")):
                found[path] = None
        at = index.find(_GITLINK_MODE, at + 1)
    return tuple(found)


_DENIALS = (
    *("permission denied", "operation not permitted", "read-only file system", "invalid cross-device link"),
    *("eacces", "eperm", "erofs", "device or resource busy"),
)
_NETWORK_DENIALS = (
    *("network is unreachable", "could not resolve", "couldn't resolve", "temporary failure in name resolution"),
    *("name or service not known", "failed to establish a new connection", "connection refused", "enotfound"),
    *("eai_again", "no such host", "failed to lookup address", "unable to resolve"),
)


def looks_denied(output: str, confinement: Confinement) -> bool:
    """Return whether the output of a command that failed looks as if the sandbox had stopped it."""
    text = output.casefold()
    return _holds_any(text, _DENIALS) or (not confinement.network and _holds_any(text, _NETWORK_DENIALS))


def _holds_any(text: str, signs: Iterable[str]) -> bool:
    return any(sign in text for sign in signs)
