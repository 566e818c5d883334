"""The skills of a conversation, their commands, and the message of `/skill:<name>` (runtime spec 7.3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from anyio import to_thread

from kimi.application.ports import LoadSkills, ReadSkill
from kimi.domain.command import CommandInfo, parse_command
from kimi.domain.skills.skill import Skill, skill_message

logger = logging.getLogger(__name__)

SKILL_PREFIX: Final = "skill:"
FLOW_PREFIX: Final = "flow:"


def _load_no_skills() -> Sequence[Skill]:
    return ()


def _read_no_skill(path: str) -> str:
    raise FileNotFoundError(path)


class SkillRegistry:
    """The skills of a conversation, loaded once: by `load`, or on first use."""

    def __init__(self, load: LoadSkills = _load_no_skills, read: ReadSkill = _read_no_skill) -> None:
        self._load = load
        self._read = read
        self._skills: Sequence[Skill] | None = None

    async def load(self) -> None:
        """Load the skills in a thread: there may be many, and somebody else may have made them."""
        if self._skills is None:
            self._skills = await to_thread.run_sync(self._load_sorted)

    @property
    def skills(self) -> Sequence[Skill]:
        """All skills, sorted by name."""
        if self._skills is None:
            self._skills = self._load_sorted()
        return self._skills

    def _load_sorted(self) -> Sequence[Skill]:
        return sorted(self._load(), key=lambda skill: skill.name.casefold())

    def list_commands(self) -> list[CommandInfo]:
        """Return the commands in the order in which clients list them: all skills, then all flows."""
        flows = (skill for skill in self.skills if skill.flow is not None)
        return [*_list_typeable_commands(SKILL_PREFIX, self.skills), *_list_typeable_commands(FLOW_PREFIX, flows)]

    def find(self, prefix: str, command: str) -> Skill | None:
        """Return the skill that `command` names after `prefix`, None if there is none."""
        name = command.removeprefix(prefix)
        return next((skill for skill in self.skills if skill.name == name), None) if name != command else None

    def build_message(self, skill: Skill, arguments: str) -> str | None:
        """Return the message for the model for `/skill:<name> arguments`; None when the file cannot be read."""
        try:
            return skill_message(self._read(skill.path), arguments)
        except (OSError, ValueError) as error:
            logger.warning("the skill %s cannot be read: %s", skill.path, error)
            return None


def _list_typeable_commands(prefix: str, skills: Iterable[Skill]) -> Iterator[CommandInfo]:
    """Yield the commands that can be typed; not every name of a skill is a valid command name."""
    for skill in skills:
        name = f"{prefix}{skill.name}"
        command = parse_command(f"/{name}")
        if command is not None and command.name == name:
            yield CommandInfo(name, skill.description)
        else:
            logger.info("the name of the skill %s makes no command", skill.path)
