"""Skills in files: roots, priorities, what is left out."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kimi.domain.skills.skill import Skill
from kimi.infrastructure.definitions import skill_files
from kimi.infrastructure.definitions.project_files import PromptFiles, list_dirs_from_project_root
from kimi.infrastructure.definitions.skill_files import (
    MAX_ENTRIES,
    MAX_SKILL_BYTES,
    MAX_SKILLS,
    SkillSearchPaths,
    find_skill_roots,
    list_readable_skill_roots,
    read_skill_text,
)
from tests.support.program.pace import slowdown


def write(path: Path, text: str = "body") -> Path:
    """A file with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def places(tmp_path: Path) -> SkillSearchPaths:
    work_dir = tmp_path / "project" / "inner"
    for path in (work_dir, tmp_path / "project" / ".git", tmp_path / "home"):
        path.mkdir(parents=True)
    return SkillSearchPaths(str(work_dir), str(tmp_path / "home"))


def prompt_files(places: SkillSearchPaths) -> PromptFiles:
    return PromptFiles(list_dirs_from_project_root(places.work_dir)[0])


def load_skills(places: SkillSearchPaths) -> list[Skill]:
    return skill_files.load_skills(places, prompt_files(places))


def by_name(places: SkillSearchPaths) -> dict[str, Skill]:
    return {skill.name: skill for skill in load_skills(places)}


PROJECT = [".kimi/skills", ".claude/skills", ".codex/skills", ".agents/skills"]
USER = [".kimi/skills", ".claude/skills", ".codex/skills", ".config/agents/skills"]


@pytest.mark.spec("R-130")
def test_skill_roots_have_scopes_and_priorities(places: SkillSearchPaths, tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    assert find_skill_roots(places) == []
    for root in (*PROJECT, "shared"):
        (project / root).mkdir(parents=True)
    for root in (*USER, ".agents/skills", "mine"):
        (home / root).mkdir(parents=True)
    for root in ("given", "more", "shipped"):
        (tmp_path / root).mkdir()
    in_project = [("Project", str(project / root)) for root in PROJECT]
    in_home = [("User", str(home / root)) for root in USER]
    assert find_skill_roots(places) == in_project + in_home

    first_only = replace(places, merge=False)
    assert find_skill_roots(first_only) == [in_project[0], in_project[3], in_home[0], in_home[3]]
    (project / PROJECT[0]).rmdir()
    (home / USER[0]).rmdir()
    assert find_skill_roots(first_only) == [in_project[1], in_project[3], in_home[1], in_home[3]]
    (home / USER[3]).rmdir()
    assert find_skill_roots(places)[-1] == ("User", str(home / ".agents/skills"))

    more = [str(tmp_path / "more"), "~/mine", "shared", "missing"]
    extra = [("Extra", str(path)) for path in (tmp_path / "more", home / "mine", project / "shared")]
    builtin = ("Built-in", str(tmp_path / "shipped"))
    assert find_skill_roots(replace(places, extra=more, builtin=builtin[1]))[-4:] == [*extra, builtin]
    given = [str(tmp_path / "given"), str(tmp_path / "more")]
    assert find_skill_roots(replace(places, only=given, extra=["~/mine"], builtin=builtin[1])) == [
        *(("Extra", root) for root in given),
        extra[1],
        builtin,
    ]

    for root in (project / PROJECT[1], project / PROJECT[3], home / USER[1], tmp_path / "more"):
        write(root / "Deploy" / "SKILL.md", f"from {root}")
    write(home / USER[1] / "other" / "SKILL.md", "---\nname: DEPLOY\n---\n")
    found = load_skills(replace(places, extra=more))
    assert [(skill.name, skill.scope, skill.description) for skill in found] == [
        ("Deploy", "Project", f"from {project / PROJECT[1]}")
    ]


def test_without_a_repository_the_work_dir_is_the_project(places: SkillSearchPaths, tmp_path: Path) -> None:
    (tmp_path / "project" / ".git").rmdir()
    write(tmp_path / "project" / ".kimi/skills/outer.md")
    inner = write(tmp_path / "project" / "inner" / ".kimi/skills/x.md")
    assert [skill.path for skill in load_skills(places)] == [str(inner)]


def test_skill_directory_precedes_file_and_root_skill_file_is_ignored(places: SkillSearchPaths, tmp_path: Path) -> None:
    root = tmp_path / "home" / ".kimi/skills"
    write(root / "SKILL.md")
    write(root / "both.md", "flat")
    write(root / "both" / "SKILL.md", "nested")
    write(root / "flat.md")
    write(root / "notes.txt")
    (root / "empty").mkdir()
    (root / "empty.md").mkdir()
    (root / "odd" / "SKILL.md").mkdir(parents=True)
    assert {name: skill.path for name, skill in by_name(places).items()} == {
        "both": str(root / "both" / "SKILL.md"),
        "flat": str(root / "flat.md"),
    }


@pytest.mark.spec("R-131")
def test_missing_skill_fields_get_defaults_and_invalid_skills_are_skipped(
    places: SkillSearchPaths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "home" / ".kimi/skills"
    texts = {
        "plain": "\n\n  What it does \nmore",
        "empty": "",
        "long": "x" * 300,
        "marked": "\ufeff---\nname: called\ndescription: >\n  Two\n  lines\n---\nbody",
        "half": "---\nname: halfway\n---\n\nThe body",
        "standard": "---\ntype: standard\n---\n",
        "flow": "---\ntype: flow\n---\nSteps\n```d2\nBEGIN -> a -> END\n```",
    }
    broken = {
        "open": "---\nname: x\n",
        "yaml": "---\nname: [\n---\n",
        "list": "---\n- a\n---\n",
        "kind": "---\ntype: other\n---\n",
        "deep": "---\n" + "[" * 5000 + "\n---\n",
    }
    for name, text in (texts | broken).items():
        write(root / name / "SKILL.md", text)
    write(root / "bytes" / "SKILL.md").write_bytes(b"\xff\xfe")
    found = by_name(places)
    assert {name: skill.description for name, skill in found.items()} == {
        "plain": "What it does",
        "empty": "No description provided.",
        "long": "x" * 240,
        "called": "Two lines",
        "halfway": "The body",
        "standard": "No description provided.",
        "flow": "Steps",
    }
    assert [name for name, skill in found.items() if skill.flow] == ["flow"]
    left_out = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(left_out) == len(broken) + 1
    for name in (*broken, "bytes"):
        assert any(f"{root / name / 'SKILL.md'} is left out" in message for message in left_out), name


def test_a_broken_diagram_is_named_in_the_log(
    places: SkillSearchPaths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "home/.kimi/skills/x.md", "---\ntype: flow\n---\n```d2\nBEGIN -> a\n```")
    assert by_name(places)["x"].flow_error == "Expected exactly one END node, found 0"
    assert "is no flow: Expected exactly one END node, found 0" in caplog.text


def test_skill_text_is_read_again_on_each_use(places: SkillSearchPaths, tmp_path: Path) -> None:
    path = write(tmp_path / "home/.kimi/skills/x/SKILL.md", "one")
    files = prompt_files(places)
    assert read_skill_text(str(path), places, files) == "one"
    path.write_text("two", encoding="utf-8")
    assert read_skill_text(str(path), places, files) == "two"
    path.unlink()
    with pytest.raises(OSError, match="No such file"):
        read_skill_text(str(path), places, files)


def test_yaml_is_imported_for_a_frontmatter_only(tmp_path: Path) -> None:
    write(tmp_path / ".kimi/skills/x.md", "no frontmatter")
    program = (
        "import sys\nfrom kimi.infrastructure.definitions.skill_files import SkillSearchPaths, load_skills\n"
        "from kimi.infrastructure.definitions.project_files import PromptFiles\n"
        f"places = SkillSearchPaths({str(tmp_path)!r}, {str(tmp_path / 'none')!r})\n"
        f"found = load_skills(places, PromptFiles({str(tmp_path)!r}))\n"
        "print(len(found), 'yaml' in sys.modules, 'kimi.domain.skills.flow' in sys.modules)"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert outcome.stdout.split() == ["1", "False", "False"]


# --- skills that somebody else made -----------------------------------------------------------------------------


@pytest.mark.spec("R-201")
@pytest.mark.parametrize("brand", PROJECT)
@pytest.mark.parametrize("target", ["/", "~", "elsewhere"])
def test_a_skill_directory_that_leads_out_is_neither_read_nor_readable(
    brand: str, target: str, places: SkillSearchPaths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "elsewhere/x/SKILL.md")
    write(tmp_path / "home/x.md")
    link = tmp_path / "project" / brand
    link.parent.mkdir(parents=True)
    os.symlink({"~": places.home, "elsewhere": str(tmp_path / "elsewhere")}.get(target, target), link)
    assert find_skill_roots(places) == []
    assert list_readable_skill_roots(places) == []
    assert load_skills(places) == []
    assert f"no skills are read from {link}: it leads out of the project" in caplog.text


@pytest.mark.spec("R-201")
def test_a_parent_of_a_skill_directory_that_leads_out_gives_nothing(places: SkillSearchPaths, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere/skills/x.md")
    os.symlink(tmp_path / "elsewhere", tmp_path / "project/.kimi")
    os.symlink(tmp_path / "elsewhere", tmp_path / "project/more")
    extra = replace(places, extra=["more/skills", str(tmp_path / "project/more/skills")])
    assert find_skill_roots(extra) == []
    given = replace(places, only=[str(tmp_path / "project/.kimi/skills")])
    assert find_skill_roots(given) == []


@pytest.mark.spec("R-201")
def test_skills_that_lead_out_of_the_project_are_left_out(places: SkillSearchPaths, tmp_path: Path) -> None:
    secret = write(tmp_path / "notes/SKILL.md", "private")
    root = tmp_path / "project/.kimi/skills"
    write(tmp_path / "project/shared/SKILL.md", "shared")
    write(tmp_path / "project/.env", "KEY=1")
    root.mkdir(parents=True)
    os.symlink(secret, root / "file.md")
    os.symlink(secret.parent, root / "directory")
    os.symlink("/proc/self/environ", root / "environ.md")
    os.symlink("../../.env", root / "env.md")
    os.symlink("../../shared", root / "inside")
    os.mkfifo(root / "pipe.md")
    assert [skill.name for skill in load_skills(places)] == ["inside"]
    for name in ("file.md", "environ.md", "env.md"):
        with pytest.raises(ValueError, match="it "):
            read_skill_text(str(root / name), places, prompt_files(places))
    assert read_skill_text(str(root / "inside/SKILL.md"), places, prompt_files(places)) == "shared"


def test_the_users_own_skills_may_be_links(places: SkillSearchPaths, tmp_path: Path) -> None:
    write(tmp_path / "dotfiles/skills/one/SKILL.md", "one")
    write(tmp_path / "dotfiles/two.md", "two")
    (tmp_path / "home/.kimi").mkdir()
    os.symlink(tmp_path / "dotfiles/skills", tmp_path / "home/.kimi/skills")
    os.symlink("../two.md", tmp_path / "dotfiles/skills/two.md")
    os.symlink("/proc/self/environ", tmp_path / "dotfiles/skills/environ.md")
    assert sorted(by_name(places)) == ["one", "two"]
    assert list_readable_skill_roots(places) == [str(tmp_path / "dotfiles/skills")]
    path = str(tmp_path / "home/.kimi/skills/one/SKILL.md")
    assert read_skill_text(path, places, prompt_files(places)) == "one"


def long_yaml() -> dict[str, str]:
    names = list(pairwise("abcdefghij"))
    doubled = "".join(f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in names)
    merged = "".join(f"{name}: &{name}\n  <<: [{', '.join(['*' + before] * 9)}]\n" for before, name in names)
    return {
        "laughs": "a: &a [x, x, x, x, x, x, x, x, x]\n" + doubled,
        "merges": "a: &a {x: 1}\n" + merged,
        "itself": "a: &a [*a]\n",
        "brackets": "[" * 10_000,
        "braces": "{" * 10_000,
        "dashes": "- " * 7_000,
        "members": "".join(f"k{number}: v\n" for number in range(1_500)),
        "number": "name: " + ":".join(["1"] * 5_000),
        "large": "description: " + "x" * 16_400,
        "name": "name: " + "x" * 200,
    }


@pytest.mark.spec("R-204")
def test_long_and_deep_frontmatter_is_refused_quickly(
    places: SkillSearchPaths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "project/.kimi/skills"
    for name, frontmatter in long_yaml().items():
        write(root / f"{name}.md", f"---\n{frontmatter}\n---\nbody")
    write(root / "huge.md", "---\n" + "k: [a, b]\n" * 80_000 + "---\n")
    write(root / "endless.md", "x" * (MAX_SKILL_BYTES + 1))
    write(root / "good.md", "---\nname: good\ndescription: &d Fine\n---\nbody")
    bound = 2 * slowdown()
    begun = time.perf_counter()
    assert [skill.name for skill in load_skills(places)] == ["good"]
    assert time.perf_counter() - begun < bound
    for name in (*long_yaml(), "huge", "endless"):
        assert f"the skill {root / name}.md is left out: " in caplog.text


@pytest.mark.spec("R-204")
def test_the_number_of_skills_and_their_sizes_are_bounded(
    places: SkillSearchPaths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "project/.kimi/skills"
    for number in range(MAX_ENTRIES + 200):
        write(root / f"s{number:05}.md", "---\nname: [\n")
    assert load_skills(places) == []
    assert f"more than {MAX_ENTRIES} names" in caplog.text
    assert f"the first {MAX_SKILLS} are loaded" in caplog.text

    shutil.rmtree(root)
    flow = "---\ntype: flow\n---\n```d2\nBEGIN -> " + "a -> " * 20_000 + "END\n```"
    for number in range(20):
        write(root / f"s{number:05}.md", flow)
    assert len(load_skills(places)) < 5
    assert "the skills before it are as much as is loaded" in caplog.text


def test_a_long_description_is_cut(places: SkillSearchPaths, tmp_path: Path) -> None:
    write(tmp_path / "home/.kimi/skills/x.md", f"---\ndescription: {'d' * 5000}\n---\n")
    assert by_name(places)["x"].description == "d" * 1024
