"""What the application needs from outside that is a function: time, ids, texts, hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from kimi.application.ports.agent import Tool
from kimi.application.ports.machine import Workspace
from kimi.domain.content.message import JsonObject
from kimi.domain.events.request import HookAnswer
from kimi.domain.hook import CommandHook
from kimi.domain.skills.skill import Skill

Now: TypeAlias = Callable[[], float]
"""Unix seconds."""

NewId: TypeAlias = Callable[[], str]
"""A fresh random UUID as text."""

Random: TypeAlias = Callable[[], float]
"""A number in [0, 1), for the jitter of back-off."""

LoadSystemPrompt: TypeAlias = Callable[[], str]
"""The system prompt for a new session."""

LoadSkills: TypeAlias = Callable[[], Sequence[Skill]]
"""All usable skills, of each name one. What cannot be used is left out, with a line in the log. Raises nothing."""

ReadSkill: TypeAlias = Callable[[str], str]
"""The text of a skill's file as it is now. Raises OSError, or ValueError when it is not UTF-8."""

RunHook: TypeAlias = Callable[[CommandHook, JsonObject], Awaitable[HookAnswer]]
"""Run a hook's command with the object on its stdin and give its verdict. At most the hook's time: then, and when it
is cancelled, the whole process tree is killed. Raises nothing: what fails allows, with a line in the log."""

ThirdPartyTool: TypeAlias = Callable[[Workspace], Tool | None]
"""Makes a tool that does not come with the program, over the workspace of a conversation; None: unavailable here."""
