"""Access rules for paths: workspace roots, sensitive files, files of the program itself (tools spec 2).

The functions do not touch the disk: callers pass the real path, with every symlink resolved. Decisions use the real
path, messages the path as the model wrote it. Paths are absolute and normalised unless a function says otherwise.
"""

from __future__ import annotations

import ntpath
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

ReadOutside: TypeAlias = Literal["allow", "ask", "deny"]
AccessVerb: TypeAlias = Literal["read", "write", "edit"]

EDIT_INSIDE = "edit file"
EDIT_OUTSIDE = "edit file outside of working directory"
READ_OUTSIDE = "read file outside of working directory"

SENSITIVE_PATTERNS = (
    *(".env", ".env.*", "id_rsa", "id_ed25519", "id_ecdsa", "credentials"),
    *(".aws/credentials", ".gcp/credentials"),
    *(".netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", "id_dsa", "id_*_sk"),
    *("*.pem", "*.p12", "*.pfx", "*.keystore"),
    *(".kube/config", ".docker/config.json", ".config/gh/hosts.yml", "gcloud/*credentials*.json"),
)
"""Files that hold secrets (tools spec 2.3): a name, or the last components of a path; shell globs."""

_PROCESS_ENVIRONMENTS = ("/proc/*/environ", "/proc/*/task/*/environ")
"""Where Linux shows the environment of a process; that of the program itself holds API keys."""

NOT_SENSITIVE_PATTERNS = (".env.example", ".env.sample", ".env.template", "*.pub")
"""Names that `SENSITIVE_PATTERNS` match although the files hold no secrets."""

OWN_FILES = (
    *("config.toml", "config.json", "config.json.bak", "mcp.json", "kimi.json", "device_id"),
    *("credentials", "mcp-oauth", "sessions", "user-history"),
)
"""Files below the share directory that tools may neither read nor change (tools spec 2.3, T-45)."""


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

    `workspace`, `readable` and `protected` hold each root twice: as it is named and as its real path. `sensitive` and
    `not_sensitive` are the user's additions to `SENSITIVE_PATTERNS` and `NOT_SENSITIVE_PATTERNS`.
    """

    workspace: tuple[str, ...]
    readable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
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
    """The path may be used. `action` is the action that needs approval, None when no approval is needed."""

    is_in_workspace: bool
    action: str | None = None
    is_sensitive: bool = field(default=False)


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
    if is_protected(path, scopes):
        return True
    secret, exempt = _compile_sensitive_patterns(scopes.sensitive, scopes.not_sensitive)
    plain = _normalise_for_match(path, scopes.windows)
    return secret.search(plain) is not None and exempt.search(plain) is None


def is_protected(path: str, scopes: PathScopes) -> bool:
    """Return whether the path is a file of the program itself and not below a readable root."""
    if not scopes.protected or is_within(path, scopes.readable, windows=scopes.windows):
        return False
    return _is_own_file(path, scopes)


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
    if is_within(real_path, (*scopes.workspace, *scopes.readable), windows=scopes.windows):
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
    return PathAllowed(inside, EDIT_INSIDE if inside else EDIT_OUTSIDE, secret)


def glob_to_regex(component: str) -> str:
    """Return a regular expression, without anchors, for one component of a shell glob: `*`, `?`, `[...]`, `[!...]`."""
    pieces: list[str] = []
    at = 0
    while at < len(component):
        piece, at = _translate_glob_piece(component, at)
        pieces.append(piece)
    return "".join(pieces)


def _translate_glob_piece(component: str, at: int) -> tuple[str, int]:
    char = component[at]
    if char == "*":
        return "[^/]*", at + 1
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
    roots = (*scopes.workspace, *scopes.readable)
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
    return tuple(part for part in path.split("/") if part)


def _normalise_for_match(path: str, windows: bool) -> str:
    if windows:
        from kimi.domain.permissions.windows_paths import canonicalise_windows_path  # only where it is needed

        path = canonicalise_windows_path(path)
    return path.casefold()


@lru_cache(maxsize=16)
def _compile_sensitive_patterns(
    sensitive: tuple[str, ...], not_sensitive: tuple[str, ...]
) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return _compile_patterns((*SENSITIVE_PATTERNS, *_PROCESS_ENVIRONMENTS, *sensitive)), _compile_patterns(
        (*NOT_SENSITIVE_PATTERNS, *not_sensitive)
    )


def _compile_patterns(patterns: Sequence[str]) -> re.Pattern[str]:
    """Return one expression for all patterns, because it is matched once per file of a search."""
    usable = [pattern.casefold() for pattern in patterns if pattern.strip("/")]
    rooted = [_pattern_to_regex(pattern) for pattern in usable if pattern.startswith("/")]
    anywhere = [_pattern_to_regex(pattern) for pattern in usable if not pattern.startswith("/")]
    groups = [*(f"^/(?:{'|'.join(found)})" for found in (rooted,) if found), f"(?:^|/)(?:{'|'.join(anywhere)})"]
    return re.compile("|".join(groups), re.DOTALL)


def _pattern_to_regex(pattern: str) -> str:
    """Return the expression of one pattern: a name matches the last component, a path any run of components."""
    parts = [glob_to_regex(part) for part in pattern.strip("/").split("/")]
    return "/".join(parts) + (r"\Z" if len(parts) == 1 and not pattern.startswith("/") else r"(?:/|\Z)")
