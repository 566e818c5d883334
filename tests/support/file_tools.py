"""The file tools of one conversation over real files, and ways to call them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kimi.application.ports import Tool, ToolCallContext
from kimi.application.settings.settings import FileSettings, ShellSettings
from kimi.domain.events.event import Event
from kimi.domain.events.request import Answer, Request
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.permissions.path_rules import list_own_files
from kimi.domain.tools.tool import BriefBlock, ToolReturnValue
from kimi.infrastructure.tools.files.path_policy import FileRecord, PathPolicy, PolicyRoots
from kimi.infrastructure.tools.files.read_file import ReadFileTool
from kimi.infrastructure.tools.files.str_replace_file import StrReplaceFileTool
from kimi.infrastructure.tools.files.write_file import WriteFileTool
from kimi.infrastructure.tools.search.glob import GlobTool
from kimi.infrastructure.tools.search.grep import GrepTool
from kimi.infrastructure.tools.search.ripgrep import Ripgrep
from kimi.infrastructure.workspace.local import LocalWorkspace


@dataclass
class Files:
    """A work directory below a temporary directory, with the share directory and the home directory beside it."""

    root: Path
    settings: FileSettings = field(default_factory=FileSettings)
    additional: list[str] = field(default_factory=list[str])
    readable: list[str] = field(default_factory=list[str])
    guarded: list[str] = field(default_factory=list[str])
    plan_file: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        for directory in (self.work_dir, self.home, self.share):
            directory.mkdir(parents=True, exist_ok=True)
        self.workspace = LocalWorkspace(str(self.work_dir), ShellSettings(), frozenset(), self.environ)
        self.record = FileRecord()
        self.policy = PathPolicy(
            self.workspace,
            self.settings,
            home=str(self.home),
            roots=PolicyRoots(
                additional=lambda: self.additional,
                readable=lambda: self.readable,
                opened=[str(self.opened)],
                own_files=list_own_files(str(self.share)),
                guarded=lambda: self.guarded,
            ),
        )
        self.read = ReadFileTool(self.workspace, self.policy, self.record)
        self.write = WriteFileTool(self.workspace, self.policy, self.record, lambda: self.plan_file)
        self.edit = StrReplaceFileTool(
            self.workspace, self.policy, self.record, lambda: self.plan_file, strict=self.settings.strict_edit
        )

        self.glob = GlobTool(self.workspace, self.policy)
        self.grep = GrepTool(self.workspace, self.policy, real_ripgrep())

    @property
    def work_dir(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def share(self) -> Path:
        return self.home / ".kimi"

    @property
    def opened(self) -> Path:
        """The folder of the share directory that may be read."""
        return self.share / "sessions" / "s" / "output"

    def put(self, name: str, content: str | bytes = "") -> Path:
        """Write a file of the work directory and its directories; return its path."""
        path = self.work_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


def example_path(pattern: str) -> str:
    """Return a path that a pattern of files matches: a name for each star, a file below a directory."""
    return pattern.replace("[0-9]", "1").replace("*", "some") + ("file" if pattern.endswith("/") else "")


def real_ripgrep() -> Ripgrep:
    """Return the ripgrep of the development environment."""
    return Ripgrep(None, {"PATH": ""})


def no_ripgrep() -> Ripgrep:
    """Return the ripgrep of a machine without one."""
    return Ripgrep(None, {"PATH": ""}, lambda: iter(()))


async def _no_event(event: Event) -> None:
    del event


async def _no_answer(request: Request) -> Answer:
    raise AssertionError(f"a file tool asked {request}")


CONTEXT = ToolCallContext(
    "session", "turn", 1, "call", "tool", None, _no_event, _no_answer, has_rule=lambda subject: False
)
"""The context of a call that no rule of the user speaks about."""


async def call(tool: Tool, **arguments: Any) -> ToolReturnValue:
    """Prepare and run a call as if it were approved."""
    async with tool.prepare(arguments, CONTEXT) as prepared:
        return await prepared.run()


async def effect(tool: Tool, **arguments: Any) -> ProposedAction | None:
    """Return what the call would do, without running it."""
    async with tool.prepare(arguments, CONTEXT) as prepared:
        return prepared.proposed_action


def brief(result: ToolReturnValue) -> str | None:
    """Return the one-line summary."""
    return next((block.text for block in result.display if isinstance(block, BriefBlock)), None)


def text(result: ToolReturnValue) -> str:
    """Return the output, which must be text."""
    assert isinstance(result.output, str)
    return result.output


def edits(*pairs: tuple[str, str]) -> Sequence[dict[str, str]]:
    """Return edits from pairs of old and new text."""
    return [{"old": old, "new": new} for old, new in pairs]
