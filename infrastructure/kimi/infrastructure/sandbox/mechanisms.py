"""The ways to confine a command on this machine, tried out once (runtime spec 7.10)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, TypeAlias

from kimi.domain.errors import ConfigError
from kimi.domain.permissions.confinement import Confinement
from kimi.infrastructure.sandbox.bubblewrap import find_bubblewrap, wrap_by_bubblewrap
from kimi.infrastructure.sandbox.landlock import find_landlock, wrap_by_landlock

WrapCommand: TypeAlias = Callable[[Confinement, Sequence[str]], tuple[str, ...]]
"""Return the command line that runs a command confined. May look at the disk."""

NO_SANDBOX: Final = (
    "Install bubblewrap (the package 'bubblewrap') where user namespaces are allowed, or use a kernel with Landlock."
)
"""What to do where nothing works."""

NOT_ON_LINUX: Final = "Only on Linux can commands be confined."

_OPEN_IN_ALL: Final = "nested repositories below a root can be changed"
_OPEN_IN_BUBBLEWRAP: Final = "sockets in the home directory and, with the network on, abstract ones can be reached"


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A way to confine commands that works here. `open_ends` says what it does not close.

    With `needs_places` it can only protect what exists.
    """

    name: str
    wrap: WrapCommand
    open_ends: tuple[str, ...]
    needs_places: bool = False


@cache
def find_mechanism() -> Mechanism | None:
    """Return the first mechanism that works, found out by starting commands; None if none does."""
    if sys.platform != "linux":
        return None
    if (program := find_bubblewrap()) is not None:
        wrap = partial(wrap_by_bubblewrap, program)
        return Mechanism(f"bubblewrap ({program[0]})", wrap, (_OPEN_IN_BUBBLEWRAP, _OPEN_IN_ALL), needs_places=True)
    if (abi := find_landlock()) is not None:
        return Mechanism(f"Landlock (version {abi})", wrap_by_landlock, _list_landlock_ends(abi))
    return None


def _list_landlock_ends(abi: int) -> tuple[str, ...]:
    return (
        "nothing can be made or removed directly in a writable root that holds protected entries",
        "with the network on, UNIX sockets of services can be reached",
        "outside of read-only mode, modes, owners and times of the user's other files can be changed",
        "other processes and their command lines can be seen",
        *(["processes of the user can be sent signals"] if abi < 6 else []),
        _OPEN_IN_ALL,
    )


def require_mechanism(mechanism: Mechanism | None) -> Mechanism:
    """Return the mechanism that was found. Raises ConfigError, which says what to do, if there is none."""
    if mechanism is None:
        raise ConfigError(f"A sandbox was asked for, but none works here. {explain_missing()}")
    return mechanism


def explain_missing() -> str:
    """Return what to do where no mechanism works."""
    return NO_SANDBOX if sys.platform == "linux" else NOT_ON_LINUX
