"""Runs a `kimi` command in a process to its end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.program.program import run


@dataclass(frozen=True)
class Finished:
    """The outcome of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def message(self) -> str:
        """The text on stderr on one line, without the box around it."""
        words = self.stderr.translate(str.maketrans("╭─╮│╰╯", "      ")).split()
        return " ".join(words)


def environment(share: Path | str, **extra: str) -> dict[str, str]:
    """Return the variables of a child: the test's without any that configure the program, and this share directory."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KIMI_", "OPENAI_"))}
    return {**inherited, "KIMI_SHARE_DIR": str(share), "COLUMNS": "80", **extra}


def kimi(
    *arguments: str,
    share: Path | str,
    stdin: str | None = None,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Finished:
    """Run `kimi` with `arguments` to its end; without `stdin` its input is empty."""
    done = run(arguments, cwd, environment(share, **(variables or {})), stdin=(stdin or "").encode("utf-8"), timeout=30)
    return Finished(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))
