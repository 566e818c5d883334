"""Skills: frontmatter, the text for the system prompt, the message of a command."""

from __future__ import annotations

import pytest

from kimi.domain.skills.skill import (
    Skill,
    SkillInvalid,
    build_skill,
    deduplicate_skills,
    format_skills,
    skill_message,
    split_frontmatter,
)


def made(frontmatter: object, body: str = "") -> Skill:
    """A skill of the file /s/x/SKILL.md."""
    return build_skill(frontmatter, body, default_name="x", path="/s/x/SKILL.md", scope="User")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("body", (None, "body")),
        ("---\nname: a\n---\nbody\n", ("name: a", "body\n")),
        ("---\r\nname: a\r\n--- \r\nbody", ("name: a\r", "body")),
        ("---\n---", ("", "")),
        ("\n---\nname: a\n---\n", (None, "\n---\nname: a\n---\n")),
        (" ---\nx", (None, " ---\nx")),
    ],
)
def test_frontmatter_must_start_the_text(text: str, parts: tuple[str | None, str]) -> None:
    assert split_frontmatter(text) == parts


def test_frontmatter_must_end() -> None:
    with pytest.raises(SkillInvalid, match="is not closed"):
        split_frontmatter("---\nname: a\n")


def test_missing_fields_default_to_the_file_content() -> None:
    assert made(None) == Skill("x", "No description provided.", "/s/x/SKILL.md", "User")
    assert made({"name": None, "description": ""}, "\n  \n  First line \nsecond").description == "First line"
    assert made({}, "a" * 300).description == "a" * 240
    stated = made({"name": "  mine ", "description": "What it\n is for", "type": "standard"}, "body")
    assert (stated.name, stated.description) == ("mine", "What it is for")
    assert made({"name": 5}).name == "5"


@pytest.mark.parametrize("frontmatter", [[], "text", {"type": "other"}, {"type": 0}, {"name": []}, {"description": {}}])
def test_invalid_frontmatter_is_refused(frontmatter: object) -> None:
    with pytest.raises(SkillInvalid):
        made(frontmatter)


def test_flow_skill_has_a_flow_or_a_fault() -> None:
    whole = made({"type": "flow"}, "```d2\nBEGIN -> a -> END\n```")
    assert whole.flow is not None
    assert whole.flow_error is None
    broken = made({"type": "flow"}, "```d2\nBEGIN ->\n```")
    assert broken.flow is None
    assert broken.flow_error == "Line 1: Expected a node id"
    assert made({}, "```d2\nBEGIN ->\n```").flow_error is None


def test_first_skill_of_a_name_wins_in_any_case() -> None:
    skills = [Skill(name, path, path, "User") for name, path in (("Deploy", "1"), ("deploy", "2"), ("other", "3"))]
    assert [skill.path for skill in deduplicate_skills(skills)] == ["1", "3"]


@pytest.mark.spec("R-132")
def test_system_prompt_lists_skills_by_scope() -> None:
    assert format_skills([]) == ""
    skills = [
        Skill("b", "Does b", "/u/b.md", "User"),
        Skill("c", "Does c", "/x/c/SKILL.md", "Built-in"),
        Skill("A", "Does a", "/u/A/SKILL.md", "User"),
        Skill("p", "Does p", "/p/SKILL.md", "Project"),
        Skill("e", "Does e", "/e/SKILL.md", "Extra"),
    ]
    assert format_skills(skills) == (
        "### Project\n\n- p\n  - Path: /p/SKILL.md\n  - Description: Does p\n\n"
        "### User\n\n- A\n  - Path: /u/A/SKILL.md\n  - Description: Does a\n"
        "- b\n  - Path: /u/b.md\n  - Description: Does b\n\n"
        "### Extra\n\n- e\n  - Path: /e/SKILL.md\n  - Description: Does e\n\n"
        "### Built-in\n\n- c\n  - Path: /x/c/SKILL.md\n  - Description: Does c"
    )
    assert format_skills(skills[:1]) == "### User\n\n- b\n  - Path: /u/b.md\n  - Description: Does b"


def test_skill_message_contains_text_and_user_request() -> None:
    assert skill_message("\n text \n", "") == "text"
    assert skill_message("text\n", "more words") == "text\n\nUser request:\nmore words"
