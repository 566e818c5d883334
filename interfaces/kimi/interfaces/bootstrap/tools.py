"""The tools of agents: which adapter serves which id, and the agent that a process runs (tools spec 1.2, 7.2).

Part of the composition root, beside `container`: functions that return a port's type and import the adapter inside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from kimi.application.control.plan_mode import find_active_plan_file, resolve_plan_file, switch_plan_mode
from kimi.application.conversation.background_tasks import BackgroundTaskRegistry
from kimi.application.conversation.skill_registry import SkillRegistry
from kimi.application.ports import BackgroundTasks, MakeTool, NewId, SessionFiles, ThirdPartyTool, Tool, Workspace
from kimi.application.settings.flags import home_directory
from kimi.application.settings.settings import Settings
from kimi.domain.agents.agent import KNOWN_TOOLS, AgentSpec, builtin_tool_ids, check_tools
from kimi.domain.content.message import JsonObject
from kimi.domain.skills.skill import Skill
from kimi.domain.tools.tool import TodoItem
from kimi.interfaces.bootstrap.agent_toolset import build_tool_factory
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.web_tools import SEARCH_TOOL

if TYPE_CHECKING:
    from kimi.application.agents.run_subagent import SubagentRegistry
    from kimi.infrastructure.definitions.skill_files import SkillSearchPaths
    from kimi.infrastructure.tools.dialog.plan_mode import PlanModeControls
    from kimi.infrastructure.tools.files.path_policy import FileRecord, PathPolicy
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep
    from kimi.interfaces.bootstrap.containers import SessionContainer


(MEDIA_TOOL,) = builtin_tool_ids("ReadMediaFile")
"""Only for models that can see."""


def find_spill_directory(files: SessionFiles) -> str | None:
    """Where the full text of what is too long for the model is kept; None for a store without files."""
    return os.path.join(files.directory, "output") if files.directory else None


def build_ripgrep(settings: Settings, environ: Mapping[str, str]) -> Ripgrep:
    """The ripgrep that is configured, else the one that is found."""
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep

    return Ripgrep(settings.tools.ripgrep_path, environ)


def build_file_record() -> FileRecord:
    """What the model knows of the files of the conversation."""
    from kimi.infrastructure.tools.files.path_policy import FileRecord

    return FileRecord()


def build_skill_places(settings: Settings, environ: Mapping[str, str]) -> SkillSearchPaths:
    """Where skills are looked for."""
    from kimi.infrastructure.definitions.skill_files import SkillSearchPaths

    skills = settings.skills
    return SkillSearchPaths(settings.work_dir, home_directory(environ), skills.only, skills.extra, skills.merge)


def build_skill_registry(places: Callable[[], SkillSearchPaths]) -> SkillRegistry:
    """The skills of these places, read when they are asked for."""

    def load() -> Sequence[Skill]:
        from kimi.infrastructure.definitions.skill_files import load_skills

        return load_skills(places())

    def read(path: str) -> str:
        from kimi.infrastructure.definitions.skill_files import read_skill_text

        return read_skill_text(path)

    return SkillRegistry(load, read)


def build_path_policy(
    settings: Settings, workspace: Workspace, files: SessionFiles, places: Callable[[], SkillSearchPaths]
) -> PathPolicy:
    """Where tools may read and write: skills and spilled output can be read too."""
    from kimi.infrastructure.tools.files.path_policy import PathPolicy

    @cache
    def skill_directories() -> list[str]:
        from kimi.infrastructure.definitions.skill_files import find_skill_roots

        return [root for _, root in find_skill_roots(places())]

    def readable() -> list[str]:
        spilled = find_spill_directory(files)
        own = [spilled, os.path.join(os.path.dirname(spilled), "tasks")] if spilled else []
        return [*own, *skill_directories()]

    return PathPolicy(
        workspace,
        settings.files,
        share_dir=settings.share_dir,
        home=os.path.expanduser("~"),
        additional_dirs=lambda: (*settings.additional_dirs, *files.state.additional_dirs),
        readable_roots=readable,
        own_files=settings.own_files,
    )


def build_background_tasks(
    settings: Settings, workspace: Workspace, files: SessionFiles, environ: Mapping[str, str]
) -> BackgroundTasks:
    """The background tasks on this machine. They get our keys only if the settings say so."""
    from kimi.infrastructure.background.tasks import LocalBackgroundTasks
    from kimi.infrastructure.workspace.environment import build_command_environment

    hidden = frozenset[str]() if settings.shell.inherit_secrets else settings.secret_variables
    inherited = build_command_environment(environ, hidden, workspace.shell)
    return LocalBackgroundTasks(files.directory, settings.background, workspace.work_dir, inherited)


def build_background_registry(settings: Settings, tasks: Callable[[], BackgroundTasks]) -> BackgroundTaskRegistry:
    """What the conversation knows of its background tasks; they are not made before one is needed."""
    return BackgroundTaskRegistry(tasks, settings.background)


def build_task_list(tasks: BackgroundTasks) -> Tool:
    from kimi.infrastructure.tools.shell.background_tasks import TaskListTool

    return TaskListTool(tasks)


def build_task_output(settings: Settings, tasks: BackgroundTasks) -> Tool:
    from kimi.infrastructure.tools.shell.background_tasks import TaskOutputTool

    return TaskOutputTool(tasks, settings.background.wait_poll_interval_ms / 1000)


def build_task_stop(session: SessionContainer, tasks: BackgroundTasks) -> Tool:
    from kimi.infrastructure.tools.shell.background_tasks import TaskStopTool

    return TaskStopTool(tasks, lambda: session.conversation().policy.plan)


def build_shell(
    settings: Settings, workspace: Workspace, files: SessionFiles, tasks: Callable[[], BackgroundTasks]
) -> Tool:
    from kimi.infrastructure.tools.shell.shell import ShellTool

    def spill(name: str) -> str | None:
        directory = find_spill_directory(files)
        return os.path.join(directory, name) if directory else None

    return ShellTool(workspace, settings.shell, spill, lambda order: tasks().start(order))


def build_read_file(workspace: Workspace, policy: PathPolicy, record: FileRecord) -> Tool:
    from kimi.infrastructure.tools.files.read_file import ReadFileTool

    return ReadFileTool(workspace, policy, record)


def build_read_media_file(session: SessionContainer, workspace: Workspace, policy: PathPolicy) -> Tool:
    from kimi.infrastructure.tools.files.read_media_file import ReadMediaFileTool

    return ReadMediaFileTool(workspace, policy, _supported_media(session))


def _supported_media(session: SessionContainer) -> frozenset[str]:
    """The media that the model of the conversation can take in."""
    model = session.conversation().model
    return model.capabilities & {"image_in", "video_in"} if model is not None else frozenset()


def build_write_file(session: SessionContainer, workspace: Workspace, policy: PathPolicy, record: FileRecord) -> Tool:
    from kimi.infrastructure.tools.files.write_file import WriteFileTool

    return WriteFileTool(workspace, policy, record, partial(_find_active_plan_file, session))


def build_str_replace_file(
    session: SessionContainer, settings: Settings, workspace: Workspace, policy: PathPolicy, record: FileRecord
) -> Tool:
    from kimi.infrastructure.tools.files.str_replace_file import StrReplaceFileTool

    plan = partial(_find_active_plan_file, session)
    return StrReplaceFileTool(workspace, policy, record, plan, strict=settings.files.strict_edit)


def _find_active_plan_file(session: SessionContainer) -> str | None:
    return find_active_plan_file(session.conversation())


def build_glob(workspace: Workspace, policy: PathPolicy) -> Tool:
    from kimi.infrastructure.tools.search.glob import GlobTool

    return GlobTool(workspace, policy)


def build_grep(workspace: Workspace, policy: PathPolicy, ripgrep: Ripgrep) -> Tool:
    from kimi.infrastructure.tools.search.grep import GrepTool

    return GrepTool(workspace, policy, ripgrep)


def build_todo(files: SessionFiles) -> Tool:
    from kimi.infrastructure.tools.dialog.set_todo_list import SetTodoListTool

    def save(todos: Sequence[TodoItem]) -> None:
        files.save_state(replace(files.state, todos=tuple(todos)))

    return SetTodoListTool(lambda: files.state.todos, save)


def build_ask_user(session: SessionContainer, new_id: NewId) -> Tool:
    from kimi.infrastructure.tools.dialog.ask_user_question import AskUserQuestionTool

    def supported() -> bool:
        return session.conversation().client.supports_question

    return AskUserQuestionTool(supported, lambda: session.conversation().policy.is_user_absent, new_id)


def build_plan_mode(session: SessionContainer, new_id: NewId) -> PlanModeControls:
    """What the two tools of plan mode know and do."""
    from kimi.infrastructure.tools.dialog.plan_mode import PlanModeControls

    conversation = session.conversation
    return PlanModeControls(
        is_on=lambda: conversation().policy.plan,
        set_enabled=lambda enabled: switch_plan_mode(conversation(), enabled),
        plan_path=lambda: resolve_plan_file(conversation()),
        is_supported=lambda: conversation().client.supports_plan_mode,
        is_yolo=lambda: conversation().policy.yolo,
        is_user_absent=lambda: conversation().policy.is_user_absent,
        new_id=new_id,
    )


def build_enter_plan_mode(mode: PlanModeControls) -> Tool:
    from kimi.infrastructure.tools.dialog.plan_mode import EnterPlanModeTool

    return EnterPlanModeTool(mode)


def build_exit_plan_mode(mode: PlanModeControls) -> Tool:
    from kimi.infrastructure.tools.dialog.plan_mode import ExitPlanModeTool

    return ExitPlanModeTool(mode)


def build_send_dmail(session: SessionContainer) -> Tool:
    from kimi.application.step.checkpoints import send_dmail as send
    from kimi.infrastructure.tools.dialog.send_dmail import SendDMailTool

    return SendDMailTool(lambda message, checkpoint_id: send(session.conversation(), message, checkpoint_id))


def build_think() -> Tool:
    from kimi.infrastructure.tools.dialog.think import ThinkTool

    return ThinkTool()


def build_agent(subagents: SubagentRegistry) -> Tool:
    from kimi.application.agents.background_subagents import start_in_background
    from kimi.application.agents.run_subagent import run_subagent
    from kimi.infrastructure.tools.dialog.subagents import AgentTool

    return AgentTool(partial(run_subagent, subagents), partial(start_in_background, subagents), lambda: subagents.types)


def build_task(subagents: SubagentRegistry) -> Tool:
    from kimi.application.agents.run_subagent import run_subagent
    from kimi.infrastructure.tools.dialog.subagents import TaskTool

    return TaskTool(partial(run_subagent, subagents), lambda: subagents.types)


def build_create_subagent(subagents: SubagentRegistry, agent: AgentSpec) -> Tool:
    from kimi.application.agents.run_subagent import create_subagent_type
    from kimi.infrastructure.tools.dialog.subagents import CreateSubagentTool

    def create(name: str, system_prompt: str) -> bool:
        return create_subagent_type(subagents, name, system_prompt, agent.tools)

    return CreateSubagentTool(create, lambda: subagents.types)


def build_usable_tool_factory(
    tools: providers.Aggregate[Tool],
    extra: Mapping[str, ThirdPartyTool],
    workspace: Workspace,
    session: SessionContainer,
) -> MakeTool:
    """Makes the tools of the conversation; None for one that it cannot use."""

    def registered(tool_id: str) -> ThirdPartyTool | None:
        from kimi.infrastructure.definitions.third_party_tools import load_tool

        return load_tool(tool_id)

    make = build_tool_factory(tools, extra, registered, workspace, check_schema)

    def make_usable(tool_id: str) -> Tool | None:
        if tool_id == MEDIA_TOOL and not _supported_media(session):
            return None
        if tool_id == SEARCH_TOOL and session.settings().web.search is None:
            return None
        return make(tool_id)

    return make_usable


def check_schema(schema: JsonObject) -> str | None:
    """See `CheckSchema` of the ports."""
    from kimi.infrastructure.json_schema import check_schema as check

    return check(schema)


def load_agent(settings: Settings, extra: Mapping[str, ThirdPartyTool]) -> AgentSpec:
    """The agent that the process runs. Raises ConfigError: its file cannot be used, or names an unknown tool."""
    from kimi.infrastructure.definitions.agent_files import load_agent_file, load_builtin_agent

    if settings.agent_file is None:
        return load_builtin_agent(settings.agent)
    agent = load_agent_file(settings.agent_file)
    check_tools(agent, lambda tool_id: tool_id in KNOWN_TOOLS or tool_id in extra or _is_registered(tool_id))
    return agent


def _is_registered(tool_id: str) -> bool:
    from kimi.infrastructure.definitions.third_party_tools import is_registered

    return is_registered(tool_id)
