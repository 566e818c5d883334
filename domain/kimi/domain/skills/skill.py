"""Skills: instructions in files that the model or the user may call for (runtime spec 7.3).

This module is pure: an adapter finds and reads the files and parses their YAML.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from kimi.domain.tools.tool import escape_host_tags

if TYPE_CHECKING:
    from kimi.domain.skills.flow import Flow

SkillScope: TypeAlias = Literal["Project", "User", "Extra", "Built-in"]
SCOPES: Final[tuple[SkillScope, ...]] = ("Project", "User", "Extra", "Built-in")
"""The scopes in the order of the system prompt."""

NO_DESCRIPTION: Final = "No description provided."
DESCRIPTION_CHARS: Final = 240
"""For a description taken from the text."""
MAX_DESCRIPTION_CHARS: Final = 1024
MAX_NAME_CHARS: Final = 128
MAX_FRONTMATTER_BYTES: Final = 16 * 1024
"""Every description is in the prompt, and every frontmatter is parsed before the first one."""

_FRONTMATTER_DELIMITER: Final = "---"


class SkillInvalid(ValueError):
    """The file is not a valid skill; the message says why."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill and the path of its file.

    A flow skill has either `flow`, or `flow_error`, which says why there is none.
    """

    name: str
    description: str
    path: str
    scope: SkillScope
    flow: Flow | None = None
    flow_error: str | None = None


def split_frontmatter(text: str) -> tuple[str | None, str]:
    """Return the YAML between `---` lines at the very start, or None, and the body.

    Raises SkillInvalid if the frontmatter is not closed, or too long.
    """
    first, *lines = text.split("\n")
    if first.rstrip() != _FRONTMATTER_DELIMITER:
        return None, text
    for index, line in enumerate(lines):
        if line.rstrip() == _FRONTMATTER_DELIMITER:
            return _check_length("\n".join(lines[:index])), "\n".join(lines[index + 1 :])
    raise SkillInvalid("the frontmatter is not closed")


def _check_length(frontmatter: str) -> str:
    if len(frontmatter.encode("utf-8", "replace")) > MAX_FRONTMATTER_BYTES:
        raise SkillInvalid(f"its frontmatter has more than {MAX_FRONTMATTER_BYTES // 1024} KiB")
    return frontmatter


def build_skill(frontmatter: object, body: str, *, default_name: str, path: str, scope: SkillScope) -> Skill:
    """Build the skill of a file.

    `frontmatter` is the parsed YAML, None if there is none. Raises SkillInvalid.
    """
    members = _check_frontmatter(frontmatter)
    kind = members.get("type")
    if kind not in (None, "standard", "flow"):
        raise SkillInvalid("its type is neither standard nor flow")
    name = _member_line(members, "name") or default_name
    if len(name) > MAX_NAME_CHARS:
        raise SkillInvalid(f"its name has more than {MAX_NAME_CHARS} characters")
    stated = _member_line(members, "description")[:MAX_DESCRIPTION_CHARS]
    skill = Skill(name, stated or _first_line(body) or NO_DESCRIPTION, path, scope)
    return _with_flow(skill, body) if kind == "flow" else skill


def is_flow(frontmatter: object) -> bool:
    """Return whether the skill of this frontmatter has a flow in its text."""
    return isinstance(frontmatter, dict) and cast("dict[str, Any]", frontmatter).get("type") == "flow"


def _with_flow(skill: Skill, body: str) -> Skill:
    from kimi.domain.skills.flow import FlowInvalid  # start-up time: most skills are no flows
    from kimi.domain.skills.flow_markdown import parse_flow

    flow: Flow | None = None
    fault: str | None = None
    try:
        flow = parse_flow(body)
    except FlowInvalid as error:
        fault = str(error)
    return Skill(skill.name, skill.description, skill.path, skill.scope, flow, fault)


def _check_frontmatter(frontmatter: object) -> dict[str, Any]:
    if frontmatter is None:
        return {}
    if not isinstance(frontmatter, dict):
        raise SkillInvalid("the frontmatter holds no members")
    return cast("dict[str, Any]", frontmatter)


def _member_line(members: dict[str, Any], key: str) -> str:
    """Return a member as one line of text; empty if it is absent."""
    value = members.get(key)
    if isinstance(value, (dict, list)):
        raise SkillInvalid(f"its {key} is no text")
    return "" if value is None else " ".join(str(value).split())


def _first_line(body: str) -> str:
    return next((line.strip()[:DESCRIPTION_CHARS] for line in body.splitlines() if line.strip()), "")


def deduplicate_skills(skills: Iterable[Skill]) -> list[Skill]:
    """Return the first of the skills whose names differ only in case; the order is kept."""
    found: dict[str, Skill] = {}
    for skill in skills:
        found.setdefault(skill.name.casefold(), skill)
    return list(found.values())


def format_skills(skills: Iterable[Skill]) -> str:
    """Format the list of skills for the system prompt, grouped by scope; empty if there are none."""
    known = sorted(skills, key=lambda skill: skill.name.casefold())
    sections = (_format_section(scope, [skill for skill in known if skill.scope == scope]) for scope in SCOPES)
    return "\n\n".join(section for section in sections if section)


def _format_section(scope: SkillScope, skills: list[Skill]) -> str:
    if not skills:
        return ""
    entries = (f"- {skill.name}\n  - Path: {skill.path}\n  - Description: {skill.description}" for skill in skills)
    return "\n".join((f"### {scope}", "", *entries))


def skill_message(text: str, arguments: str) -> str:
    """Build the text of the user message for `/skill:<name> arguments` from the text of the skill's file.

    The file is not the person's own words: host tags in it are escaped.
    """
    text = escape_host_tags(text.strip())
    return f"{text}\n\nUser request:\n{arguments}" if arguments else text
