"""Skills in files: their directories and how they are read (runtime spec 7.3).

The YAML library is imported for the first file with a frontmatter. Somebody else may have made the directories, so
there are bounds on what is looked at.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from kimi.domain.skills.skill import (
    Skill,
    SkillInvalid,
    SkillScope,
    build_skill,
    deduplicate_skills,
    is_flow,
    split_frontmatter,
)
from kimi.infrastructure.definitions.project_files import (
    PromptFiles,
    is_in_project,
    list_dirs_from_project_root,
    name_refusal,
)

logger = logging.getLogger(__name__)

SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 1024 * 1024
MAX_ENTRIES = 2_000
"""So many names of one directory are looked at."""
MAX_SKILLS = 500
"""So many skills of one directory are loaded."""
MAX_FRONTMATTER_NODES = 1_000
MAX_LOADED_BYTES = 16 * 1024 * 1024
MAX_PARSED_BYTES = 256 * 1024
"""Of frontmatters and flows. Both for all skills together."""

HELP_SKILL = "kimi-cli-help"
BUILTIN_SKILLS = {
    HELP_SKILL: (
        "Answers questions about this program itself (kimi, Kimi Code CLI): installation, configuration, providers and "
        "keys, commands and options, slash commands, tools, approvals, sandbox, sessions, MCP, plugins, skills, hooks, "
        "agents, editors, scripts. Use it when the person asks what the program can do, how to set it up, or why it "
        "did something."
    ),
    "skill-creator": (
        "Helps to write a new skill, or to improve one: what belongs into it, where its file goes, how it is described "
        "so that it is found, and how to try it out. Use it when the person wants to make, change or review a skill or "
        "a flow."
    ),
}
"""The names and descriptions of the built-in skills, as their files have them: no start reads these."""

_BRANDS = (".kimi", ".claude", ".codex")


@dataclass(frozen=True, slots=True)
class SkillSearchPaths:
    """The paths that decide where skills are searched.

    Paths are absolute, except for those of `extra`. `only` replaces the directories of the project and of the user;
    `merge` uses the directories of all brands, not only the first that exists. `plugins` is the user's directory of
    plugins, each of which may bring a skill; `builtin` holds the skills of `list_builtin_skills`.
    """

    work_dir: str
    home: str
    only: Sequence[str] = ()
    extra: Sequence[str] = ()
    merge: bool = True
    plugins: str | None = None
    builtin: str | None = None


def find_skill_roots(search_paths: SkillSearchPaths) -> list[tuple[SkillScope, str]]:
    """Return the existing directories of skills, highest priority first.

    A directory of the project whose real path lies elsewhere is left out, with a line in the log.
    """
    project = list_dirs_from_project_root(search_paths.work_dir)[0]
    return [
        (scope, root)
        for scope, root in _list_roots(search_paths, project)
        if os.path.isdir(root) and _is_root_trusted(scope, root, project)
    ]


def has_skill_directories(search_paths: SkillSearchPaths) -> bool:
    """Return whether any directory of skills that have to be read exists, trusted or not."""
    project = list_dirs_from_project_root(search_paths.work_dir)[0]
    roots = _list_roots(search_paths, project)
    return any(os.path.isdir(root) for scope, root in roots if scope != "Built-in")


def _is_root_trusted(scope: SkillScope, root: str, project: str) -> bool:
    bound = _find_bound(scope, root, project)
    if bound is None or is_in_project(root, bound):
        return True
    logger.warning("no skills are read from %s: it leads out of the project", root)
    return False


def _find_bound(scope: SkillScope, path: str, project: str) -> str | None:
    """Return the real directory that skills below `path` must lie in; None where the user may link what they like.

    A directory inside of the project is the project's, whoever named it.
    """
    if scope in ("User", "Built-in"):
        return None
    files = PromptFiles(project)
    return files.real_project if scope == "Project" else files.find_bound(path)


def list_readable_skill_roots(search_paths: SkillSearchPaths) -> list[str]:
    """Return the real paths of the directories of skills."""
    return [os.path.realpath(root) for _, root in find_skill_roots(search_paths)]


def list_builtin_skills(root: str) -> list[Skill]:
    """Return the skills that the program brings, in their directory."""
    return [
        Skill(name, description, os.path.join(root, name, SKILL_FILE), "Built-in")
        for name, description in BUILTIN_SKILLS.items()
    ]


def find_help_pages(root: str) -> str:
    """Return the directory of the pages that the help skill reads: beside it, or in the checkout that it is part of."""
    packed = os.path.join(root, HELP_SKILL, "pages")
    return packed if os.path.isdir(packed) else os.path.normpath(os.path.join(root, *[os.pardir] * 5, "docs"))


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
    if search_paths.plugins is not None:
        yield "Extra", search_paths.plugins
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


class _Budget:
    """What may still be read and parsed for all skills together."""

    def __init__(self) -> None:
        self._loaded = self._parsed = 0

    def spend(self, loaded: int, parsed: int) -> None:
        """Raises SkillInvalid: nothing is left."""
        self._loaded += loaded
        self._parsed += parsed
        self.check()

    def check(self) -> None:
        """Raises SkillInvalid: nothing is left."""
        if self._loaded > MAX_LOADED_BYTES or self._parsed > MAX_PARSED_BYTES:
            raise SkillInvalid("the skills before it are as much as is loaded")


def load_skills(search_paths: SkillSearchPaths, files: PromptFiles) -> list[Skill]:
    """Load all skills, highest priority first; what cannot be used is left out, with a line in the log."""
    budget = _Budget()
    found = (
        skill
        for scope, root in find_skill_roots(search_paths)
        for skill in (
            list_builtin_skills(root)
            if scope == "Built-in"
            else _load_root(root, scope, _SkillReader(files, _find_bound(scope, root, files.project), budget))
        )
    )
    return deduplicate_skills(found)


@dataclass(frozen=True, slots=True)
class _SkillReader:
    """Reads the skills of one directory, which must lie in `bound`."""

    files: PromptFiles
    bound: str | None
    budget: _Budget

    def load(self, path: str, name: str, scope: SkillScope) -> Skill:
        """Raises OSError or ValueError: the skill cannot be used."""
        self.budget.check()
        text = self.files.read(path, MAX_SKILL_BYTES, self.bound)
        frontmatter, body = split_frontmatter(text)
        self.budget.spend(len(text), len(frontmatter or ""))
        members = None if frontmatter is None else _parse_frontmatter(frontmatter)
        if is_flow(members):
            self.budget.spend(0, len(body))
        return build_skill(members, body, default_name=name, path=path, scope=scope)


def _load_root(root: str, scope: SkillScope, reader: _SkillReader) -> Iterator[Skill]:
    found = sorted(_find_skill_files(root).items())
    if len(found) > MAX_SKILLS:
        logger.warning("of the %d skills in %s the first %d are loaded", len(found), root, MAX_SKILLS)
    for name, path in found[:MAX_SKILLS]:
        try:
            skill = reader.load(path, name, scope)
        except (OSError, ValueError) as error:
            logger.warning("the skill %s is left out: %s", path, name_refusal(error))
            continue
        if skill.flow_error is not None:
            logger.warning("the skill %s is no flow: %s", path, skill.flow_error)
        yield skill


def _find_skill_files(root: str) -> dict[str, str]:
    """Return the file of each skill by its default name; a directory has priority over a file of the same name."""
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in islice(entries, MAX_ENTRIES + 1)]
    except OSError as error:
        logger.warning("no skills are read from %s: %s", root, error.strerror)
        return {}
    if len(names) > MAX_ENTRIES:
        logger.warning("%s holds more than %d names: the others are not looked at", root, MAX_ENTRIES)
    flat = {name[:-3]: os.path.join(root, name) for name in names if name.endswith(".md") and name != SKILL_FILE}
    nested = {name: os.path.join(root, name, SKILL_FILE) for name in names[:MAX_ENTRIES]}
    return flat | {name: path for name, path in nested.items() if os.path.lexists(path)}


def _parse_frontmatter(frontmatter: str) -> object:
    from kimi.infrastructure.definitions.bounded_yaml import parse_yaml  # start-up time: most projects have no skills

    try:
        return parse_yaml(frontmatter, MAX_FRONTMATTER_NODES)
    except ValueError as error:
        raise SkillInvalid(f"the frontmatter is no YAML: {error}") from None


def read_skill_text(path: str, search_paths: SkillSearchPaths, files: PromptFiles) -> str:
    """Return the text of a skill's file.

    Raises OSError, or ValueError if it is not UTF-8, or must not become part of a prompt.
    """
    for scope, root in find_skill_roots(search_paths):
        if os.path.dirname(path) == root or os.path.dirname(os.path.dirname(path)) == root:
            return files.read(path, MAX_SKILL_BYTES, _find_bound(scope, root, files.project))
    raise FileNotFoundError(errno.ENOENT, "its directory holds no skills any more", path)
