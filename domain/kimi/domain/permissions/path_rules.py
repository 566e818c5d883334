"""Access rules for paths: workspace roots, sensitive, protected and own files (tools spec 2).

The functions do not touch the disk: callers pass the real path, with every symlink resolved. Decisions use the real
path, messages the path as the model wrote it. Paths are absolute and normalised unless a function says otherwise.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from kimi.domain.permissions.file_patterns import FilePatterns

ReadOutside: TypeAlias = Literal["allow", "ask", "deny"]
AccessVerb: TypeAlias = Literal["read", "write", "edit"]

EDIT_INSIDE = "edit file"
EDIT_OUTSIDE = "edit file outside of working directory"
EDIT_PROTECTED = "edit protected file"
READ_OUTSIDE = "read file outside of working directory"

OWN_FILES = (
    *("config.toml", "config.json", "config.json.bak", "mcp.json", "kimi.json", "device_id"),
    *("credentials", "mcp-oauth", "sessions", "user-history", "backups"),
)
"""Files below the share directory that tools may neither read nor change (tools spec 2.3, T-45)."""


_IGNORED_IN_NAMES = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that a file system of macOS leaves out when it compares names."""


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path as the model wrote it, and its lexical interpretation.

    `expanded` is the path after `~` expansion, for messages. `absolute` is joined to the work directory, with `.` and
    `..` removed without looking at the disk.
    """

    original: str
    expanded: str
    absolute: str
    is_relative: bool


@dataclass(frozen=True, slots=True)
class PathScopes:
    """The parts of the file system with different access rights.

    `workspace`, `opened`, `protected` and `guarded` hold each root twice: as it is named and as its real path;
    `readable` holds real paths only. `protected` are own files of this program, closed whatever a root says, but for
    `opened`, which may be read. Changes below `guarded` count as changes of `PROTECTED_PATTERNS`. `sensitive` and
    `not_sensitive` are the user's additions to `SENSITIVE_PATTERNS` and `NOT_SENSITIVE_PATTERNS`.
    """

    workspace: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    read_outside: ReadOutside = "allow"
    sensitive: tuple[str, ...] = ()
    not_sensitive: tuple[str, ...] = ()
    windows: bool = False


@dataclass(frozen=True, slots=True)
class PathDenied:
    """The path may not be used. `message` is for the model, `brief` is one line for the user."""

    message: str
    brief: str


@dataclass(frozen=True, slots=True)
class PathAllowed:
    """The path may be used. `action` is the action that needs approval, None when no approval is needed.

    `is_protected` marks a file that becomes a command or an instruction: a change is asked about each time.
    """

    is_in_workspace: bool
    action: str | None = None
    is_sensitive: bool = field(default=False)
    is_protected: bool = False


PathAccess: TypeAlias = PathDenied | PathAllowed


def interpret_path(original: str, *, work_dir: str, home: str, windows: bool = False) -> NamedPath:
    """Return the interpretation of `original`, relative to the work directory. Only `~` and `~/...` mean the home."""
    if windows:
        from kimi.domain.permissions.windows_paths import to_native_windows_path  # only where it is needed

        original_path = to_native_windows_path(original)
    else:
        original_path = original
    expanded = _expand_home(original_path, home)
    flavour = ntpath if windows else posixpath
    relative = not flavour.isabs(expanded)
    absolute = flavour.normpath(flavour.join(work_dir, expanded))
    return NamedPath(original, expanded, _strip_double_root(absolute), relative)


def is_within(path: str, roots: Iterable[str], *, windows: bool = False) -> bool:
    """Return whether `path` is one of `roots` or below one. Compares components, never string prefixes."""
    parts = _split_components(path, windows)
    return any(parts[: len(root)] == root for root in (_split_components(root, windows) for root in roots))


def is_sensitive(path: str, scopes: PathScopes) -> bool:
    """Return whether the path matches the patterns of files with secrets, or is a file of the program itself.

    Case is ignored, because some file systems ignore it.
    """
    if is_own_file(path, scopes):
        return True
    secret, exempt, exempt_by_user = _compile_sensitive_patterns(scopes.sensitive, scopes.not_sensitive)
    plain = _normalise_for_match(path, scopes.windows)
    return secret.match(plain) and not exempt.match(plain) and not exempt_by_user.match(plain)


def is_own_file(path: str, scopes: PathScopes) -> bool:
    """Return whether the path is a file of the program itself that is not opened for reading.

    Readable roots and the workspace change nothing about it.
    """
    return _is_own_file(path, scopes) and not is_within(path, scopes.opened, windows=scopes.windows)


def is_guarded(path: str, scopes: PathScopes) -> bool:
    """Return whether a change of the file becomes a command or an instruction without a further question."""
    plain = _normalise_for_match(path, scopes.windows)
    protected, exempt = _compile_protected_patterns()
    if protected.match(plain) and not exempt.match(plain):
        return True
    return is_within(path.casefold(), _casefold_paths(scopes.guarded), windows=scopes.windows)


def list_own_files(share_dir: str, named: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the own files of a share directory, and those that the command line names; `share_dir` may be empty."""
    return (*(os.path.join(share_dir, name) for name in OWN_FILES if share_dir), *named)


def check_read_access(named_path: NamedPath, real_path: str, scopes: PathScopes) -> PathAccess:
    """Decide whether the file may be read or searched; `real_path` is that of `named_path.absolute`."""
    if refused := _check_path_form(named_path, "read", scopes):
        return refused
    if is_sensitive(named_path.absolute, scopes) or is_sensitive(real_path, scopes):
        return _deny_sensitive(named_path)
    return check_read_location(named_path, real_path, scopes)


def check_read_location(named_path: NamedPath, real_path: str, scopes: PathScopes) -> PathAccess:
    """Decide by location only whether the path may be read; a search checks each of its results for secrets itself."""
    if refused := _check_path_form(named_path, "read", scopes):
        return refused
    if is_within(real_path, (*scopes.workspace, *scopes.readable, *scopes.opened), windows=scopes.windows):
        return PathAllowed(is_within(real_path, scopes.workspace, windows=scopes.windows))
    if scopes.read_outside == "deny":
        return PathDenied(
            f"`{named_path.expanded}` is outside the working directory. Reading there is switched off by the setting "
            "files.read_outside.",
            "Path outside working directory",
        )
    return PathAllowed(False, READ_OUTSIDE if scopes.read_outside == "ask" else None)


def check_write_access(
    named_path: NamedPath, real_path: str, verb: Literal["write", "edit"], scopes: PathScopes
) -> PathAccess:
    """Decide whether the file may be changed, and which action has to be approved for it."""
    if refused := _check_path_form(named_path, verb, scopes):
        return refused
    if _is_own_file(named_path.absolute, scopes) or _is_own_file(real_path, scopes):
        return PathDenied(
            f"`{named_path.original}` holds settings, credentials or sessions of this program. Tools cannot change it.",
            "Protected file",
        )
    inside = is_within(real_path, scopes.workspace, windows=scopes.windows)
    secret = is_sensitive(named_path.absolute, scopes) or is_sensitive(real_path, scopes)
    if is_guarded(named_path.absolute, scopes) or is_guarded(real_path, scopes):
        return PathAllowed(inside, EDIT_PROTECTED, secret, is_protected=True)
    return PathAllowed(inside, EDIT_INSIDE if inside else EDIT_OUTSIDE, secret)


def glob_to_regex(component: str) -> str:
    """Return a regular expression, without anchors, for one component of a shell glob: `*`, `?`, `[...]`, `[!...]`.

    It is for the whole of a component: what stands around it must not begin or go on within one. Then it matches in
    linear time, however many stars there are: a text between two stars is looked for once, at its first place.
    """
    texts, at = [""], 0
    while at < len(component):
        piece, at = _translate_glob_piece(component, at)
        if piece != _STAR:
            texts[-1] += piece
        elif texts[-1] or len(texts) == 1:  # several stars are one
            texts.append("")
    if len(texts) == 1:
        return texts[0]
    first, *middle, last = texts
    return f"{first}{''.join(f'(?>[^/]*?{text})' for text in middle)}[^/]*{last}"


_STAR = "*"


def _translate_glob_piece(component: str, at: int) -> tuple[str, int]:
    char = component[at]
    if char == "*":
        return _STAR, at + 1
    if char == "?":
        return "[^/]", at + 1
    if char == "[" and (end := component.find("]", at + 2 + component.startswith("!", at + 1))) > 0:
        return _translate_glob_class(component[at + 1 : end]), end + 1
    return re.escape(char), at + 1


def _translate_glob_class(inner: str) -> str:
    negated = inner.startswith(("!", "^"))
    body = re.sub(r"([\\\[\]&~|^])", r"\\\1", inner[negated:])
    try:
        re.compile(f"[{body}]")
    except re.error:
        return "(?!)"
    return f"(?!/)[{'^' if negated else ''}{body}]"


def _expand_home(path: str, home: str) -> str:
    if path == "~":
        return home
    if path.startswith(("~/", "~\\")) and home:
        return home.rstrip("/\\") + path[1:] if home not in ("/", "\\") else path[1:]
    return path


def _strip_double_root(path: str) -> str:
    """Return `//x`, which POSIX normalisation keeps, as `/x`."""
    return path[1:] if path.startswith("//") else path


def _check_path_form(named_path: NamedPath, verb: AccessVerb, scopes: PathScopes) -> PathDenied | None:
    if not named_path.original:
        return PathDenied("File path cannot be empty.", "Empty file path")
    if not _is_encodable(named_path.original):
        return PathDenied("File path holds characters that no file name can have.", "Invalid path")
    roots = (*scopes.workspace, *scopes.readable, *scopes.opened)
    if not named_path.is_relative or is_within(named_path.absolute, roots, windows=scopes.windows):
        return None
    return PathDenied(
        f"`{named_path.expanded}` is not an absolute path. "
        f"You must provide an absolute path to {verb} a file outside the working directory.",
        "Invalid path",
    )


def _is_encodable(path: str) -> bool:
    """Return whether the path can be passed to the system: it holds no NUL and no lone surrogate from the JSON text."""
    try:
        return b"\0" not in path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False


def _deny_sensitive(named_path: NamedPath) -> PathDenied:
    return PathDenied(
        f"`{named_path.original}` appears to contain secrets (matched sensitive file pattern). "
        "Reading this file is blocked to protect credentials.",
        "Sensitive file",
    )


def _is_own_file(path: str, scopes: PathScopes) -> bool:
    return is_within(path.casefold(), _casefold_paths(scopes.protected), windows=scopes.windows)


@lru_cache(maxsize=64)
def _casefold_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path.casefold() for path in paths)


@lru_cache(maxsize=256)
def _split_components(path: str, windows: bool) -> tuple[str, ...]:
    if windows:
        from kimi.domain.permissions.windows_paths import canonicalise_windows_path  # only where it is needed

        path = canonicalise_windows_path(ntpath.normcase(path))
        if path.startswith("//"):  # `//c:/work` is the share `work` of a server, not a directory of the drive
            return ("//", *(part for part in path.split("/") if part))
    return tuple(part for part in path.split("/") if part)


def _normalise_for_match(path: str, windows: bool) -> str:
    """Return the path as patterns are compared with it, without what some file systems do not tell apart."""
    if windows:
        from kimi.domain.permissions.windows_paths import canonicalise_windows_path  # only where it is needed

        path = canonicalise_windows_path(path)
    if not path.isascii():
        import unicodedata  # only where it is needed

        path = unicodedata.normalize("NFC", _IGNORED_IN_NAMES.sub("", path))
    return path.casefold()


@lru_cache(maxsize=16)
def _compile_sensitive_patterns(
    sensitive: tuple[str, ...], not_sensitive: tuple[str, ...]
) -> tuple[FilePatterns, FilePatterns, FilePatterns]:
    from kimi.domain.permissions import file_patterns as files  # start-up time

    return (
        files.compile_patterns((*files.SENSITIVE_PATTERNS, *files.SENSITIVE_SYSTEM_PATTERNS, *sensitive)),
        files.compile_patterns((*files.NOT_SENSITIVE_PATTERNS, *files.NOT_SENSITIVE_SYSTEM_PATTERNS), only_ends=True),
        files.compile_patterns(not_sensitive),
    )


@lru_cache(maxsize=1)
def _compile_protected_patterns() -> tuple[FilePatterns, FilePatterns]:
    from kimi.domain.permissions import file_patterns as files  # start-up time

    return (
        files.compile_patterns(files.PROTECTED_PATTERNS),
        files.compile_patterns(files.NOT_PROTECTED_PATTERNS, only_ends=True),
    )
