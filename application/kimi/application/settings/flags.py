"""The parsed command line (runtime spec 1.2), readable by every layer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

UiMode: TypeAlias = Literal["shell", "print", "acp", "wire"]
PrintFormat: TypeAlias = Literal["text", "stream-json"]
SandboxMode: TypeAlias = Literal["read-only", "workspace", "off"]


@dataclass(frozen=True, slots=True)
class Flags:
    """The options of the root command; None or empty means "not given".

    Paths are absolute and lexically normalised; symlinks are kept as they were given (R-24). `--quiet` appears as the
    options that it stands for. `pick_session` is `--session` or `--resume` without an id; with `must_exist` the session
    is not created, and with `here` it may belong to another directory. Nothing here was checked against files or
    configuration, except that named paths existed.
    """

    work_dir: str
    ui: UiMode = "shell"
    verbose: bool = False
    debug: bool = False
    add_dirs: tuple[str, ...] = ()
    session: str | None = None
    pick_session: bool = False
    must_exist: bool = False
    here: bool = False
    continue_last: bool = False
    config: str | None = None
    config_file: str | None = None
    model: str | None = None
    thinking: bool | None = None
    yolo: bool = False
    edits: bool = False
    plan: bool = False
    afk: bool = False
    sandbox: SandboxMode | None = None
    no_slash_commands: bool = False
    prompt: str | None = None
    input_format: PrintFormat = "text"
    output_format: PrintFormat = "text"
    final_message_only: bool = False
    agent: str | None = None
    agent_file: str | None = None
    mcp_config_files: tuple[str, ...] = ()
    mcp_configs: tuple[str, ...] = ()
    skills_dirs: tuple[str, ...] = ()
    max_steps_per_turn: int | None = None
    max_retries_per_step: int | None = None
    max_ralph_iterations: int | None = None


def share_directory(environ: Mapping[str, str]) -> str:
    """Return the directory of configuration, sessions and logs (runtime spec 2.1).

    It is `KIMI_SHARE_DIR`, else `~/.kimi`. It is not created.
    """
    named = environ.get("KIMI_SHARE_DIR")
    if named:
        return os.path.abspath(named)
    return os.path.join(home_directory(environ), ".kimi")


def home_directory(environ: Mapping[str, str]) -> str:
    """Return the user's home directory."""
    return environ.get("HOME") or os.path.expanduser("~")
