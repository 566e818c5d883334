"""The sandbox by bubblewrap: a command in namespaces of its own (runtime spec 7.10)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from kimi.domain.permissions.confinement import AccessRule, Confinement, find_access, list_access_rules
from kimi.infrastructure.sandbox.probe import PROBE_COMMAND, can_run

TRUSTED_DIRECTORIES: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin", "/run/wrappers/bin")
"""Where bubblewrap is looked for. The search path of the environment may lead into a repository."""

_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc")
_SEALED: Final = ("--disable-userns",)
"""No further user namespaces: bubblewrap 0.8 or later."""

_BASE: Final = (
    *("--cap-drop", "ALL", "--die-with-parent", "--new-session"),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    # Bubblewrap leaves these open to root, although its rights are gone: the owner of a file needs none.
    *("--ro-bind-try", "/proc/sys", "/proc/sys", "--ro-bind-try", "/proc/sysrq-trigger", "/proc/sysrq-trigger"),
    # Services listen there that would start anything for the user: the message bus, containers, terminals.
    *("--tmpfs", "/run"),
)

_OF_THE_SANDBOX: Final = ("/dev", "/proc", "/sys", "/run")
"""What the sandbox has of its own, or keeps read-only, also where the work directory is the root of all files."""

_KEPT_OF_RUN: Final = ("/run/current-system", "/run/wrappers", "/run/opengl-driver")
"""Where one distribution keeps its programs."""


def find_bubblewrap(directories: Sequence[str] = TRUSTED_DIRECTORIES) -> tuple[str, ...] | None:
    """Return the beginning of a command line that starts a sandbox here; None if no sandbox can be started."""
    for directory in directories:
        path = os.path.join(directory, "bwrap")
        if os.access(path, os.X_OK):
            for sealed in (_SEALED, ()):
                program = (path, *_NAMESPACES, *sealed)
                if can_run((*program, "--unshare-net", *_BASE, "--", *PROBE_COMMAND)):
                    return program
    return None


def wrap_by_bubblewrap(program: Sequence[str], confinement: Confinement, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command line that runs `argv` confined; `program` is its beginning, from `find_bubblewrap`.

    Protected paths must exist: only what exists can be mounted over.
    """
    rules = _pin_parents(_protect_links(list_access_rules(confinement), confinement))
    network = () if confinement.network else ("--unshare-net",)
    mounts = [argument for rule in rules for argument in _mount(rule)]
    sealed = [argument for rule in rules if _is_hidden_directory(rule) for argument in ("--remount-ro", rule.path)]
    return (
        *(*program, *network, *_BASE, *_keep_of_run(confinement), "--bind", confinement.temp_dir, "/tmp"),
        *(*mounts, *sealed, "--setenv", "TMPDIR", confinement.temp_dir, "--chdir", confinement.work_dir),
        *("--", *argv),
    )


def _keep_of_run(confinement: Confinement) -> Iterator[str]:
    resolver = os.path.realpath("/etc/resolv.conf")
    kept = (*_KEPT_OF_RUN, *([resolver] if confinement.network and resolver.startswith("/run/") else []))
    for path in kept:
        yield from ("--ro-bind-try", path, path)


def _mount(rule: AccessRule) -> Sequence[str]:
    """Return the arguments for one rule; none where there is nothing."""
    if rule.access == "hidden":
        if _is_hidden_directory(rule):
            return "--tmpfs", rule.path
        return ("--ro-bind", "/dev/null", rule.path) if os.path.lexists(rule.path) else ()
    if not os.path.exists(rule.path):
        return ()
    return "--bind" if rule.access == "write" else "--ro-bind", rule.path, rule.path


def _is_hidden_directory(rule: AccessRule) -> bool:
    return rule.access == "hidden" and os.path.isdir(rule.path)


def _protect_links(rules: Sequence[AccessRule], confinement: Confinement) -> list[AccessRule]:
    """Replace a writable directory that cannot be mounted as a whole by what is in it.

    Nothing can be mounted over a protected link: it is kept by not letting anything be made or removed beside it. And
    the root of all files holds the devices and processes of the sandbox itself.
    """
    parents = {"/", *(os.path.dirname(path) for path in confinement.protected if os.path.islink(path))}
    known = {*(rule.path for rule in rules), *_OF_THE_SANDBOX}
    found: list[AccessRule] = []
    for rule in rules:
        if rule.access == "write" and rule.path in parents:
            found.append(AccessRule(rule.path, "read"))
            found += [AccessRule(path, "write") for path in _list_plain_entries(rule.path) if path not in known]
        elif not os.path.islink(rule.path):
            found.append(rule)
    return sorted((rule for rule in found if rule.path != "/"), key=lambda rule: rule.path.count("/"))


def _pin_parents(rules: Sequence[AccessRule]) -> list[AccessRule]:
    """Add a mount for each writable directory around a rule: what is mounted cannot be renamed.

    Else a command could move the directory away with what is protected in it, and make another one in its place.
    """
    known = {rule.path for rule in rules}
    parents = {parent for rule in rules for parent in _list_parents(rule.path)}
    pinned = [
        AccessRule(path, "write")
        for path in sorted(parents - known)
        if find_access(rules, path) == "write" and os.path.isdir(path)
    ]
    return sorted((*rules, *pinned), key=lambda rule: rule.path.count("/"))


def _list_parents(path: str) -> Iterator[str]:
    while (path := os.path.dirname(path)) != "/":
        yield path


def _list_plain_entries(directory: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                yield entry.path
