"""Compose the conversation and its environment: workspace, project, skills, system prompt, hooks."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from kimi.application.agents.system_prompt import build_prompt_arguments, render_agent_prompt
from kimi.application.conversation.background_tasks import BackgroundTaskRegistry
from kimi.application.conversation.conversation import ConversationResources
from kimi.application.conversation.event_stream import EventStream
from kimi.application.conversation.hook_registry import HookRegistry
from kimi.application.conversation.model_selection import ModelCatalog, ModelSelection
from kimi.application.conversation.permissions import Permissions
from kimi.application.conversation.running_turn import TurnSlot
from kimi.application.conversation.session import ConversationSession
from kimi.application.conversation.skill_registry import SkillRegistry
from kimi.application.ports import (
    BackgroundTasks,
    LoadSystemPrompt,
    NewId,
    Now,
    OpenModel,
    SessionFiles,
    SessionStore,
    Workspace,
)
from kimi.application.sessions.open_session import build_policy
from kimi.application.settings.flags import home_directory
from kimi.application.settings.settings import Settings
from kimi.domain.agents.agent import AgentSpec
from kimi.domain.client import user_agent_suffix
from kimi.domain.hook import SearchOutcome
from kimi.domain.skills.skill import Skill, format_skills
from kimi.domain.turn import TurnLimits
from kimi.interfaces.bootstrap.tools.toolset import find_plugin_directory

if TYPE_CHECKING:
    from kimi.application.conversation.project import LoadProject, Project
    from kimi.infrastructure.definitions.project_files import PromptFiles
    from kimi.infrastructure.definitions.skill_files import SkillSearchPaths
    from kimi.infrastructure.observability.conversation_spans import ConversationSpans
    from kimi.infrastructure.tools.files.path_policy import PathPolicy

LoadPrompt: TypeAlias = Callable[[AgentSpec], str]
"""Renders the current system prompt of an agent. Raises ConfigError: its template cannot be rendered."""


def build_event_stream(files: SessionFiles, now: Now, spans: ConversationSpans | None) -> EventStream:
    """Return the event stream of a conversation, observed if spans are enabled."""
    return EventStream(files, now, observe=None if spans is None else spans.observe)


def build_workspace(settings: Settings, environ: Mapping[str, str]) -> Workspace:
    """Return the workspace with the files and processes of this machine."""
    from kimi.infrastructure.workspace.local import LocalWorkspace

    return LocalWorkspace(settings.work_dir, settings.shell, settings.secret_variables, environ)


def build_background_tasks(
    settings: Settings, workspace: Workspace, files: SessionFiles, environ: Mapping[str, str]
) -> BackgroundTasks:
    """Return the background tasks of this machine. They get the provider keys only if the settings allow it."""
    from kimi.infrastructure.background.tasks import LocalBackgroundTasks
    from kimi.infrastructure.workspace.environment import build_command_environment

    hidden = frozenset[str]() if settings.shell.inherit_secrets else settings.secret_variables
    inherited = build_command_environment(environ, hidden, workspace.shell)
    return LocalBackgroundTasks(files.directory, settings.background, workspace.work_dir, inherited)


def build_background_registry(settings: Settings, tasks: Callable[[], BackgroundTasks]) -> BackgroundTaskRegistry:
    """Return the registry of background tasks. The tasks themselves are made when they are first needed."""
    return BackgroundTaskRegistry(tasks, settings.background)


def build_prompt_files(settings: Settings) -> PromptFiles:
    """Return what decides which files may become part of a prompt."""
    from kimi.domain.permissions.path_rules import PathScopes, list_own_files
    from kimi.infrastructure.definitions.project_files import PromptFiles, list_dirs_from_project_root

    own = list_own_files(settings.share_dir, settings.own_files)
    closed = PathScopes(
        protected=tuple(dict.fromkeys((*own, *_find_real_paths(own)))),
        sensitive=settings.files.sensitive,
        not_sensitive=settings.files.not_sensitive,
        windows=os.name == "nt",
    )
    return PromptFiles(list_dirs_from_project_root(settings.work_dir)[0], closed)


def _find_real_paths(paths: Sequence[str]) -> list[str]:
    """Return the real path of each; of the files of one directory, which is looked at once."""
    real_parents = {parent: os.path.realpath(parent) for parent in {os.path.dirname(path) for path in paths}}

    def find(path: str) -> str:
        parent, name = os.path.split(path)
        joined = os.path.join(real_parents[parent], name)
        return os.path.realpath(path) if name in ("", ".", "..") or os.path.islink(joined) else joined

    return [find(path) for path in paths]


def build_project(settings: Settings, workspace: Workspace, policy: PathPolicy, store: SessionStore) -> Project:
    """Return what slash commands need from the project."""
    from kimi.application.conversation.project import LocatedPath, Project
    from kimi.infrastructure.definitions.project_text import format_directory_tree, load_agents_text

    async def locate(given: str) -> LocatedPath:
        target = await policy.locate(given)
        return LocatedPath(target.named_path.absolute, target.real_path)

    return Project(
        workspace=workspace,
        locate=locate,
        load_path_scopes=policy.resolve_scopes,
        list_tree=format_directory_tree,
        load_instructions=lambda: load_agents_text(workspace.work_dir, build_prompt_files(settings)),
        open_stored_session=store.open,
    )


def build_skill_paths(settings: Settings, environ: Mapping[str, str]) -> SkillSearchPaths:
    """Return the directories that are searched for skills."""
    from kimi.infrastructure.definitions import skill_files

    skills = settings.skills
    return skill_files.SkillSearchPaths(
        settings.work_dir,
        home_directory(environ),
        skills.only,
        skills.extra,
        skills.merge,
        find_plugin_directory(settings),
        os.path.join(os.path.dirname(skill_files.__file__), "builtin_skills"),
    )


def build_skill_registry(settings: Settings, paths: Callable[[], SkillSearchPaths]) -> SkillRegistry:
    """Return the skills below these paths, which are read when they are first needed."""

    def load() -> Sequence[Skill]:
        from kimi.infrastructure.definitions.skill_files import load_skills

        return load_skills(paths(), build_prompt_files(settings))

    def read(path: str) -> str:
        from kimi.infrastructure.definitions.skill_files import read_skill_text

        return read_skill_text(path, paths(), build_prompt_files(settings))

    return SkillRegistry(load, read)


def build_prompt_loader(settings: Settings, workspace: Workspace, skills: SkillRegistry) -> LoadPrompt:
    """Return a function that renders the system prompt of any agent of the conversation, subagents included."""

    def load(agent: AgentSpec) -> str:
        from kimi.infrastructure.definitions.project_text import load_project_text

        files = build_prompt_files(settings)
        project = load_project_text(workspace.work_dir, settings.additional_dirs, files)
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        listed = format_skills(skills.skills)
        arguments = build_prompt_arguments(project, workspace.shell, now=now, system=platform.system(), skills=listed)

        def render(path: str, arguments: Mapping[str, str]) -> str:
            from kimi.infrastructure.definitions.agent_template import render_prompt

            return render_prompt(path, arguments, files)

        return render_agent_prompt(agent, arguments, render)

    return load


def build_system_prompt_loader(load_prompt: LoadPrompt, agent: AgentSpec) -> LoadSystemPrompt:
    """Return a function that renders the system prompt of the process's agent."""
    return lambda: load_prompt(agent)


def build_hooks(settings: Settings, files: SessionFiles, environ: Mapping[str, str]) -> HookRegistry:
    """Return the configured hooks. The runner of their commands is made only if there are any."""
    run = None
    if settings.hooks:
        from kimi.infrastructure.workspace.hook_commands import make_hook_runner

        run = make_hook_runner(settings.work_dir, settings.shell, settings.secret_variables, environ)
    return HookRegistry(settings.hooks, run, search=_search_matcher, session_id=files.id, work_dir=settings.work_dir)


def _search_matcher(expression: str, text: str) -> SearchOutcome:
    from kimi.infrastructure.linear_regex import search_expression

    return search_expression(expression, text)


def build_stored_session(files: SessionFiles, store: SessionStore) -> ConversationSession:
    """Return the stored session of the conversation."""
    return ConversationSession(files, store.mark_last)


def build_turn_slot(settings: Settings, new_id: NewId) -> TurnSlot:
    """Return the slot of the running turn, with its limits."""
    loop = settings.loop
    limits = TurnLimits(
        max_steps=loop.max_steps_per_turn,
        max_attempts=loop.max_retries_per_step,
        compaction_ratio=loop.compaction_trigger_ratio,
        reserved_tokens=loop.reserved_context_size,
        ralph_iterations=loop.max_ralph_iterations,
    )
    return TurnSlot(limits, new_id)


def build_model_selection(
    files: SessionFiles, open_model: OpenModel, events: EventStream, load_catalog: Callable[[], ModelCatalog]
) -> ModelSelection:
    """Return the model selection: the model at the start and the catalog to choose from."""
    # The client is not known before `initialize`, so the model asks for the User-Agent suffix at each request.
    return ModelSelection(open_model(files.id, lambda: user_agent_suffix(events.client)), load_catalog)


def build_permissions(settings: Settings, session: ConversationSession) -> Permissions:
    """Return the modes and approvals from the settings and the stored session."""
    files = session.files
    return Permissions(build_policy(settings, files.state, resumed=files.is_resumed), files, session.state_lock)


def build_resources(
    settings: Settings,
    now: Now,
    new_id: NewId,
    hooks: HookRegistry,
    skills: SkillRegistry,
    background: BackgroundTaskRegistry,
    load_project: LoadProject,
) -> ConversationResources:
    """Return what use-cases need beside the state of the conversation."""
    return ConversationResources(
        now=now,
        new_id=new_id,
        hooks=hooks,
        skills=skills,
        background=background,
        load_project=load_project,
        plans_dir=os.path.join(settings.share_dir, "plans"),
        takes_commands=settings.slash_commands,
    )
