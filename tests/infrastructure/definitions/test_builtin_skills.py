"""The skills that the program brings, and the pages that the help skill reads (runtime spec 7.3)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from kimi.domain.skills.skill import build_skill, split_frontmatter
from kimi.infrastructure.definitions import skill_files
from kimi.infrastructure.definitions.bounded_yaml import parse_yaml
from kimi.infrastructure.definitions.project_files import PromptFiles
from kimi.infrastructure.definitions.skill_files import (
    BUILTIN_SKILLS,
    SkillSearchPaths,
    find_help_pages,
    list_builtin_skills,
    load_skills,
    read_skill_text,
)

ROOT = Path(skill_files.__file__).parent / "builtin_skills"
CHECKOUT = Path(__file__).parents[3]


@pytest.mark.spec("R-302")
def test_the_builtin_skills_are_what_their_files_say() -> None:
    assert {path.name for path in ROOT.iterdir()} == set(BUILTIN_SKILLS)
    for known in list_builtin_skills(str(ROOT)):
        frontmatter, body = split_frontmatter(Path(known.path).read_text(encoding="utf-8"))
        assert frontmatter is not None
        members = parse_yaml(frontmatter, 100)
        read = build_skill(members, body, default_name="", path=known.path, scope="Built-in")
        assert read == known


@pytest.mark.spec("R-302")
def test_a_skill_of_the_user_takes_the_place_of_a_builtin_one(tmp_path: Path) -> None:
    own = tmp_path / "home/.kimi/skills/skill-creator/SKILL.md"
    own.parent.mkdir(parents=True)
    own.write_text("My way.", encoding="utf-8")
    paths = SkillSearchPaths(str(tmp_path), str(tmp_path / "home"), builtin=str(ROOT))
    files = PromptFiles(str(tmp_path))
    found = {skill.name: skill for skill in load_skills(paths, files)}
    assert found.keys() == BUILTIN_SKILLS.keys()
    assert (found["skill-creator"].path, found["skill-creator"].scope) == (str(own), "User")
    assert read_skill_text(found["kimi-cli-help"].path, paths, files).startswith("---\nname: kimi-cli-help\n")


@pytest.mark.spec("R-303")
def test_the_help_pages_are_found_in_a_checkout_and_in_a_wheel(tmp_path: Path) -> None:
    assert Path(find_help_pages(str(ROOT))) == CHECKOUT / "docs"
    assert (ROOT / "kimi-cli-help/../../../../../../docs").resolve() == CHECKOUT / "docs"
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "docs" in wheel["only-include"]
    packed = tmp_path / wheel["sources"]["docs"]
    packed.mkdir(parents=True)
    inside = ROOT.relative_to(CHECKOUT / "infrastructure")
    assert Path(find_help_pages(str(tmp_path / inside))) == packed


@pytest.mark.spec("R-303")
def test_the_help_skill_names_pages_that_exist() -> None:
    text = (ROOT / "kimi-cli-help/SKILL.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z-]+\.md)`", text))
    pages = {path.name for path in (CHECKOUT / "docs").glob("*.md")}
    assert named <= pages
    assert {"configuration.md", "setup.md", "plugins.md", "skills.md"} <= named
