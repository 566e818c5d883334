"""Skills in files: where they are looked for and how they are read (runtime spec 7.3).

The YAML library is imported for the first file with a frontmatter.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kimi.domain.skills.skill import Scope, Skill, SkillInvalid, make_skill, split_frontmatter, without_doubles
from kimi.infrastructure.config.text_file import read_text
from kimi.infrastructure.definitions.project_text import from_project_root

logger = logging.getLogger(__name__)

FILE = "SKILL.md"
_BRANDS = (".kimi", ".claude", ".codex")


@dataclass(frozen=True, slots=True)
class SkillPlaces:
    """What decides where skills are. Paths are absolute, but for those of `extra`; `only` takes the place of the
    directories of project and person; `merge` takes all brands of directories, not only the first that is there.
    """

    work_dir: str
    home: str
    only: Sequence[str] = ()
    extra: Sequence[str] = ()
    merge: bool = True
    builtin: str | None = None


def skill_roots(places: SkillPlaces) -> list[tuple[Scope, str]]:
    """The directories that hold skills and exist, highest priority first."""
    roots = _roots(places, from_project_root(places.work_dir)[0])
    return [(scope, root) for scope, root in roots if os.path.isdir(root)]


def _roots(places: SkillPlaces, project: str) -> Iterator[tuple[Scope, str]]:
    if places.only:
        yield from _scoped("Extra", places.only)
    else:
        yield from _scoped("Project", _branded(project, places.merge))
        yield "Project", os.path.join(project, ".agents", "skills")
        yield from _scoped("User", _branded(places.home, places.merge))
        shared = [
            os.path.join(places.home, *names) for names in ((".config", "agents", "skills"), (".agents", "skills"))
        ]
        yield "User", next(filter(os.path.isdir, shared), shared[0])
    yield from _scoped("Extra", [_extra(root, places.home, project) for root in places.extra])
    if places.builtin is not None:
        yield "Built-in", places.builtin


def _scoped(scope: Scope, roots: Sequence[str]) -> Iterator[tuple[Scope, str]]:
    return ((scope, root) for root in roots)


def _branded(directory: str, merge: bool) -> list[str]:
    found = [path for brand in _BRANDS if os.path.isdir(path := os.path.join(directory, brand, "skills"))]
    return found if merge else found[:1]


def _extra(root: str, home: str, project: str) -> str:
    """An absolute path, one in the home directory, or one that is relative to the project."""
    if root == "~" or root.startswith(("~/", "~" + os.sep)):
        root = home + root[1:]
    return os.path.normpath(os.path.join(project, root))


def load_skills(places: SkillPlaces) -> list[Skill]:
    """All skills, highest priority first; what cannot be used is left out, with a line in the log."""
    found = (skill for scope, root in skill_roots(places) for skill in _skills_of(root, scope))
    return without_doubles(found)


def _skills_of(root: str, scope: Scope) -> Iterator[Skill]:
    for name, path in sorted(_files(root).items()):
        try:
            skill = _read(path, name, scope)
        except (OSError, ValueError) as error:
            logger.warning("the skill %s is left out: %s", path, error)
            continue
        if skill.fault is not None:
            logger.warning("the skill %s is no flow: %s", path, skill.fault)
        yield skill


def _files(root: str) -> dict[str, str]:
    """The file of each skill by its default name; a directory goes before a file of the same name."""
    try:
        names = os.listdir(root)
    except OSError as error:
        logger.warning("no skills are read from %s: %s", root, error.strerror)
        return {}
    flat = {name[:-3]: os.path.join(root, name) for name in names if name.endswith(".md") and name != FILE}
    nested = {name: os.path.join(root, name, FILE) for name in names}
    return {name: path for name, path in (flat | _existing(nested)).items() if os.path.isfile(path)}


def _existing(paths: dict[str, str]) -> dict[str, str]:
    return {name: path for name, path in paths.items() if os.path.exists(path)}


def _read(path: str, name: str, scope: Scope) -> Skill:
    frontmatter, body = split_frontmatter(read_skill(path))
    members = None if frontmatter is None else _parsed(frontmatter)
    return make_skill(members, body, default_name=name, path=path, scope=scope)


def _parsed(frontmatter: str) -> object:
    import yaml  # start-up time: most projects have no skills

    try:
        return yaml.safe_load(frontmatter)
    except (yaml.YAMLError, RecursionError) as error:
        raise SkillInvalid(f"the frontmatter is no YAML: {' '.join(str(error).split())}") from None


def read_skill(path: str) -> str:
    """The text of a skill's file. Raises OSError, or ValueError when it is not UTF-8."""
    return read_text(path)
