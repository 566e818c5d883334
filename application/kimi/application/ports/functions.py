"""The ports that are plain functions: time, ids, texts, hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from kimi.application.ports.model_and_tools import Tool
from kimi.application.ports.workspace import Workspace
from kimi.domain.content.message import JsonObject
from kimi.domain.events.event import Event
from kimi.domain.events.request import HookAnswer
from kimi.domain.hook import CommandHook
from kimi.domain.skills.skill import Skill

Now: TypeAlias = Callable[[], float]
"""Return the time in Unix seconds."""

NewId: TypeAlias = Callable[[], str]
"""Return a fresh random UUID as text."""

Random: TypeAlias = Callable[[], float]
"""Return a number in [0, 1), for the jitter of back-off."""

LoadSystemPrompt: TypeAlias = Callable[[], str]
"""Return the system prompt for a new session."""

LoadSkills: TypeAlias = Callable[[], Sequence[Skill]]
"""Load all usable skills, one of each name.

What cannot be used is left out, with a line in the log. Raises nothing.
"""

ReadSkill: TypeAlias = Callable[[str], str]
"""Read the present text of a skill's file. Raises OSError, or ValueError if it is not UTF-8."""

ObserveEvent: TypeAlias = Callable[[Event], None]
"""Look at an event of a conversation or of its subagents that has been recorded, in the task that emits it.

Called for every streamed piece, so it must be quick. Raises nothing.
"""

RunHook: TypeAlias = Callable[[CommandHook, JsonObject], Awaitable[HookAnswer]]
"""Run a hook's command with the object on its stdin and return its decision.

It takes at most the timeout of the hook. At the timeout, and on cancellation, the whole process tree is killed. Raises
nothing: a failure allows, with a line in the log.
"""

ThirdPartyTool: TypeAlias = Callable[[Workspace], Tool | None]
"""Make a third-party tool over the workspace of a conversation; None if it is unavailable here."""
