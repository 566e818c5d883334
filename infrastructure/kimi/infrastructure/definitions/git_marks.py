"""Whether a repository has changes, and how it stands to its upstream branch (runtime spec 8)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kimi.infrastructure.definitions.git_commands import read_git_output

TIMEOUT_S = 2.0
_MAX_CONFIG_BYTES = 1_000_000
_MAX_STATUS_BYTES = 20_000
_FILTER = re.compile(r"filter\.(.*)\.(?:clean|smudge|process|required)", re.DOTALL | re.IGNORECASE)
_DISTANCE = re.compile(rb"# branch\.ab \+(\d+) -(\d+)")


@dataclass(frozen=True, slots=True)
class GitMarks:
    """`is_dirty`: a tracked file is changed, or a file is neither tracked nor ignored. The others are counts."""

    is_dirty: bool
    ahead: int = 0
    behind: int = 0


def read_git_marks(work_dir: str, environ: Mapping[str, str]) -> GitMarks | None:
    """Return the marks of the project of a work directory; None where they cannot be told safely and soon. Blocks.

    To compare a file git runs the filters that the configuration names, so each of them is replaced by nothing; changes
    within submodules do not count, because git would look at each with a configuration of its own.
    """
    overrides = _disable_filters(work_dir, environ)
    if overrides is None:
        return None
    status = (*overrides, "status", "--porcelain=v2", "--branch", "--untracked-files=normal")
    options = ("--ignore-submodules=all", "--no-renames")
    output = read_git_output(work_dir, (*status, *options), environ, TIMEOUT_S, _MAX_STATUS_BYTES)
    if not output:
        return None
    distance = _DISTANCE.search(output)
    ahead, behind = (int(distance[1]), int(distance[2])) if distance else (0, 0)
    return GitMarks(any(not line.startswith(b"#") for line in output.splitlines()), ahead, behind)


def _disable_filters(work_dir: str, environ: Mapping[str, str]) -> Sequence[str] | None:
    """Return options that leave no filter of the configuration anything to run; None where that is not certain."""
    listing = ("config", "--includes", "--null", "--name-only", "--list")
    listed = read_git_output(work_dir, listing, environ, TIMEOUT_S, _MAX_CONFIG_BYTES)
    if not listed or len(listed) >= _MAX_CONFIG_BYTES:
        return None  # git failed or took too long, or there is more than was read
    found = (_FILTER.fullmatch(key) for key in listed.decode("utf-8", "surrogateescape").split("\0"))
    drivers = sorted({match[1] for match in found if match})
    if any("=" in driver or "\n" in driver for driver in drivers):
        return None  # such a name cannot be written into an option
    options: list[str] = ["-c", "status.submoduleSummary=false"]
    for driver in drivers:
        for member in ("clean=", "smudge=", "process=", "required=false"):
            options += ["-c", f"filter.{driver}.{member}"]
    return options
