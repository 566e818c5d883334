"""Skills in files: their directories and how they are read (runtime spec 7.3).

The YAML library is imported for the first file with a frontmatter.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kimi.domain.skills.skill import Skill, SkillInvalid, SkillScope, build_skill, deduplicate_skills, split_frontmatter
from kimi.infrastructure.config.text_file import read_text
from kimi.infrastructure.definitions.project_text import list_dirs_from_project_root

logger = logging.getLogger(__name__)

SKILL_FILE = "SKILL.md"
_BRANDS = (".kimi", ".claude", ".codex")


@dataclass(frozen=True, slots=True)
class SkillSearchPaths:
    """The paths that decide where skills are searched.

    Paths are absolute, except for those of `extra`. `only` replaces the directories of the project and of the user;
    `merge` uses the directories of all brands, not only the first that exists.
    """

    work_dir: str
    home: str
    only: Sequence[str] = ()
    extra: Sequence[str] = ()
    merge: bool = True
    builtin: str | None = None


def find_skill_roots(search_paths: SkillSearchPaths) -> list[tuple[SkillScope, str]]:
    """Return the existing directories of skills, highest priority first."""
    roots = _list_roots(search_paths, list_dirs_from_project_root(search_paths.work_dir)[0])
    return [(scope, root) for scope, root in roots if os.path.isdir(root)]


def _list_roots(search_paths: SkillSearchPaths, project: str) -> Iterator[tuple[SkillScope, str]]:
    if search_paths.only:
        yield from _add_scope("Extra", search_paths.only)
    else:
        yield from _add_scope("Project", _find_brand_roots(project, search_paths.merge))
        yield "Project", os.path.join(project, ".agents", "skills")
        yield from _add_scope("User", _find_brand_roots(search_paths.home, search_paths.merge))
        shared = [
            os.path.join(search_paths.home, *names)
            for names in ((".config", "agents", "skills"), (".agents", "skills"))
        ]
        yield "User", next(filter(os.path.isdir, shared), shared[0])
    yield from _add_scope(
        "Extra", [_resolve_extra_root(root, search_paths.home, project) for root in search_paths.extra]
    )
    if search_paths.builtin is not None:
        yield "Built-in", search_paths.builtin


def _add_scope(scope: SkillScope, roots: Sequence[str]) -> Iterator[tuple[SkillScope, str]]:
    return ((scope, root) for root in roots)


def _find_brand_roots(directory: str, merge: bool) -> list[str]:
    found = [path for brand in _BRANDS if os.path.isdir(path := os.path.join(directory, brand, "skills"))]
    return found if merge else found[:1]


def _resolve_extra_root(root: str, home: str, project: str) -> str:
    """Resolve an absolute path, one in the home directory, or one that is relative to the project."""
    if root == "~" or root.startswith(("~/", "~" + os.sep)):
        root = home + root[1:]
    return os.path.normpath(os.path.join(project, root))


def load_skills(search_paths: SkillSearchPaths) -> list[Skill]:
    """Load all skills, highest priority first; what cannot be used is left out, with a line in the log."""
    found = (skill for scope, root in find_skill_roots(search_paths) for skill in _load_root(root, scope))
    return deduplicate_skills(found)


def _load_root(root: str, scope: SkillScope) -> Iterator[Skill]:
    for name, path in sorted(_find_skill_files(root).items()):
        try:
            skill = _load_skill(path, name, scope)
        except (OSError, ValueError) as error:
            logger.warning("the skill %s is left out: %s", path, error)
            continue
        if skill.flow_error is not None:
            logger.warning("the skill %s is no flow: %s", path, skill.flow_error)
        yield skill


def _find_skill_files(root: str) -> dict[str, str]:
    """Return the file of each skill by its default name; a directory has priority over a file of the same name."""
    try:
        names = os.listdir(root)
    except OSError as error:
        logger.warning("no skills are read from %s: %s", root, error.strerror)
        return {}
    flat = {name[:-3]: os.path.join(root, name) for name in names if name.endswith(".md") and name != SKILL_FILE}
    nested = {name: os.path.join(root, name, SKILL_FILE) for name in names}
    return {name: path for name, path in (flat | _keep_existing(nested)).items() if os.path.isfile(path)}


def _keep_existing(paths: dict[str, str]) -> dict[str, str]:
    return {name: path for name, path in paths.items() if os.path.exists(path)}


def _load_skill(path: str, name: str, scope: SkillScope) -> Skill:
    frontmatter, body = split_frontmatter(read_skill_text(path))
    members = None if frontmatter is None else _parse_frontmatter(frontmatter)
    return build_skill(members, body, default_name=name, path=path, scope=scope)


def _parse_frontmatter(frontmatter: str) -> object:
    import yaml  # start-up time: most projects have no skills

    try:
        return yaml.safe_load(frontmatter)
    except (yaml.YAMLError, RecursionError) as error:
        raise SkillInvalid(f"the frontmatter is no YAML: {' '.join(str(error).split())}") from None


def read_skill_text(path: str) -> str:
    """Return the text of a skill's file. Raises OSError, or ValueError if it is not UTF-8."""
    return read_text(path)
