"""Forms of Windows paths that models write: Git Bash, Cygwin and forward-slash UNC (tools spec 2.1)."""

from __future__ import annotations

import re

_DEVICE = re.compile(r"^//[?.]/(?:(unc)/)?", re.IGNORECASE)
_STEPS = ("", ".", "..")
_DRIVE = re.compile(r"^(?:/cygdrive)?/([A-Za-z])(?:/(.*))?$", re.DOTALL)


def to_native_windows_path(path: str) -> str:
    """Return `/c/x` and `/cygdrive/c/x` as `c:\\x`, `//server/share` as `\\\\server\\share`, other paths unchanged."""
    if path.startswith("//"):
        return path.replace("/", "\\")
    drive = _DRIVE.match(path)
    if drive is None:
        return path
    rest = (drive[2] or "").replace("/", "\\")
    return f"{drive[1]}:\\{rest}"


def canonicalise_windows_path(path: str) -> str:
    """Return the path with forward slashes, each component replaced by the name that Windows opens.

    The prefix of `\\\\?\\c:\\x` and `\\\\.\\c:\\x` is removed: the path means the same file without it. A component of
    three or more dots falls away, because Windows reads it as none.
    """
    slashed = _DEVICE.sub(lambda found: "//" if found[1] else "", path.replace("\\", "/"))
    parts = slashed.split("/")
    return "/".join(canonicalise_windows_name(part) for part in parts if part in _STEPS or part.strip(". "))


def canonicalise_windows_name(component: str) -> str:
    """Return the name that Windows opens: without a stream suffix and without trailing dots and spaces.

    `.env::$DATA` and `.env. ` both open `.env`. A drive such as `C:` stays as it is.
    """
    if len(component) == 2 and component[1] == ":":
        return component
    return component.partition(":")[0].rstrip(". ") or component
