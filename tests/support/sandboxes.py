"""The sandboxes that work on this machine, and a place with things to keep from a confined command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from kimi.application.settings.settings import SandboxSettings
from kimi.domain.permissions.path_rules import PathScopes
from kimi.infrastructure.sandbox.bubblewrap import find_bubblewrap, wrap_by_bubblewrap
from kimi.infrastructure.sandbox.landlock import find_landlock, wrap_by_landlock
from kimi.infrastructure.sandbox.mechanisms import Mechanism, find_mechanism
from kimi.infrastructure.sandbox.sandbox import Sandbox

SECRET = "the-planted-secret"

NOT_HERE = {
    "bubblewrap": "bubblewrap does not start here: install the package 'bubblewrap', and allow user namespaces",
    "landlock": "Landlock does not work here: it needs Linux 5.13 or later, with Landlock switched on",
}


@cache
def find_named_mechanism(name: str) -> Mechanism:
    """Return this mechanism; skip the test, with the reason, where it does not work."""
    if name == "bubblewrap":
        if (program := find_bubblewrap()) is not None:
            return Mechanism(name, partial(wrap_by_bubblewrap, program), (), needs_places=True)
    elif find_landlock() is not None:
        return Mechanism(name, wrap_by_landlock, ())
    pytest.skip(NOT_HERE[name])


def find_any_mechanism() -> Mechanism:
    """Return the mechanism that the program would use; skip the test where none works."""
    mechanism = find_mechanism()
    if mechanism is None:
        pytest.skip("no sandbox works here: install the package 'bubblewrap', or use Linux 5.13 or later")
    return mechanism


@dataclass
class SandboxPlace:
    """A home with a repository to work in, the program's own files, and other files of the user."""

    home: Path
    mechanism: Mechanism | None = None
    own_files: list[str] = field(default_factory=list[str])
    _made: list[Sandbox] = field(default_factory=list[Sandbox])

    def __enter__(self) -> SandboxPlace:
        return self

    def __exit__(self, *_: object) -> None:
        """Close all sandboxes that were made here."""
        for sandbox in self._made:
            sandbox.close()

    def __post_init__(self) -> None:
        for path, text in (
            ("share/config.toml", SECRET),
            ("share/sessions/s/context.jsonl", SECRET),
            ("share/skills/one/SKILL.md", "a skill"),
            ("other/notes.txt", "notes"),
            ("extra/e.txt", "extra"),
            ("work/sub/a.txt", "a"),
            ("work/.git/config", "[core]\n\tbare = false\n"),
            ("work/.git/HEAD", "ref: refs/heads/main\n"),
            ("work/.git/hooks/sample", "#!/bin/sh\n"),
            ("work/.git/objects/pack/.keep", ""),
            ("work/.git/refs/heads/.keep", ""),
        ):
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_text(text)

    @property
    def work(self) -> Path:
        """The work directory."""
        return self.home / "work"

    def sandbox(self, find: Callable[[], Mechanism | None] | None = None, **settings: Any) -> Sandbox:
        """Return the sandbox of a conversation here; keywords are settings."""
        chosen = SandboxSettings.model_validate({"mode": "workspace", **settings})

        async def load_scopes() -> PathScopes:
            return PathScopes(
                workspace=(str(self.work), str(self.home / "extra")),
                readable=(str(self.home / "share/skills"),),
                protected=(str(self.home / "share/config.toml"), *self.own_files),
            )

        find = find or (lambda: self.mechanism)
        self._made.append(Sandbox(chosen, str(self.work), str(self.home / "share"), load_scopes, find))
        return self._made[-1]

    async def run(self, command: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run a command line of bash confined, and remove what was made for it."""
        sandbox = self.sandbox(**settings)
        try:
            return await run_in(sandbox, command)
        finally:
            sandbox.close()


async def run_in(sandbox: Sandbox, command: str, *, read_only: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command line of bash in this sandbox."""
    confined = await sandbox.confine(("/bin/bash", "-c", command), read_only=read_only)
    assert confined is not None
    return run_bare(confined.argv, confined.confinement.work_dir)


def run_bare(argv: tuple[str, ...], work_dir: str) -> subprocess.CompletedProcess[str]:
    """Run a command line as it is."""
    return subprocess.run(
        argv, cwd=work_dir, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


def read_tree(directory: Path) -> dict[str, str]:
    """Return everything below a directory: its kind and mode, and its content."""
    found: dict[str, str] = {}
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            path = Path(parent, name)
            status = path.lstat()
            text = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""
            found[str(path.relative_to(directory))] = f"{status.st_mode:o} {text}"
    return found
