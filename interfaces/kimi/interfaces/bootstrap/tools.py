"""The tools of agents: which adapter serves which id, and the agent that a process runs (tools spec 1.2, 7.2).

Part of the composition root, beside `container`: functions that return a port's type and import the adapter inside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from kimi.application.control.plan_mode import active_plan_file, plan_file, switch_plan_mode
from kimi.application.conversation.background_tasks import TaskBook
from kimi.application.conversation.skill_registry import SkillBook
from kimi.application.ports import BackgroundTasks, MakeTool, NewId, SessionFiles, ThirdPartyTool, Tool, Workspace
from kimi.application.settings.flags import home_directory
from kimi.application.settings.settings import Settings
from kimi.domain.agents.agent import KNOWN_TOOLS, AgentSpec, built_in, check_tools
from kimi.domain.content.message import JsonObject
from kimi.domain.skills.skill import Skill
from kimi.domain.tools.tool import TodoItem
from kimi.interfaces.bootstrap.agent_toolset import tool_maker
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.web_tools import SEARCH_TOOL

if TYPE_CHECKING:
    from kimi.application.agents.run_subagent import Subagents
    from kimi.infrastructure.definitions.skill_files import SkillPlaces
    from kimi.infrastructure.tools.dialog.plan_mode import PlanMode
    from kimi.infrastructure.tools.files.path_policy import FileRecord, PathPolicy
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep
    from kimi.interfaces.bootstrap.containers import Session


(MEDIA_TOOL,) = built_in("ReadMediaFile")
"""Only for models that can see."""


def spill_directory(files: SessionFiles) -> str | None:
    """Where the full text of what is too long for the model is kept; None for a store without files."""
    return os.path.join(files.directory, "output") if files.directory else None


def ripgrep(settings: Settings, environ: Mapping[str, str]) -> Ripgrep:
    """The ripgrep that is configured, else the one that is found."""
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep

    return Ripgrep(settings.tools.ripgrep_path, environ)


def file_record() -> FileRecord:
    """What the model knows of the files of the conversation."""
    from kimi.infrastructure.tools.files.path_policy import FileRecord

    return FileRecord()


def skill_places(settings: Settings, environ: Mapping[str, str]) -> SkillPlaces:
    """Where skills are looked for."""
    from kimi.infrastructure.definitions.skill_files import SkillPlaces

    skills = settings.skills
    return SkillPlaces(settings.work_dir, home_directory(environ), skills.only, skills.extra, skills.merge)


def skills(places: Callable[[], SkillPlaces]) -> SkillBook:
    """The skills of these places, read when they are asked for."""

    def load() -> Sequence[Skill]:
        from kimi.infrastructure.definitions.skill_files import load_skills

        return load_skills(places())

    def read(path: str) -> str:
        from kimi.infrastructure.definitions.skill_files import read_skill

        return read_skill(path)

    return SkillBook(load, read)


def path_policy(
    settings: Settings, workspace: Workspace, files: SessionFiles, places: Callable[[], SkillPlaces]
) -> PathPolicy:
    """Where tools may read and write: skills and spilled output can be read too."""
    from kimi.infrastructure.tools.files.path_policy import PathPolicy

    @cache
    def skill_directories() -> list[str]:
        from kimi.infrastructure.definitions.skill_files import skill_roots

        return [root for _, root in skill_roots(places())]

    def readable() -> list[str]:
        spilled = spill_directory(files)
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


def background_tasks(
    settings: Settings, workspace: Workspace, files: SessionFiles, environ: Mapping[str, str]
) -> BackgroundTasks:
    """The background tasks on this machine. They get our keys only if the settings say so."""
    from kimi.infrastructure.background.tasks import LocalTasks
    from kimi.infrastructure.workspace.environment import command_environment

    hidden = frozenset[str]() if settings.shell.inherit_secrets else settings.secret_variables
    inherited = command_environment(environ, hidden, workspace.shell)
    return LocalTasks(files.directory, settings.background, workspace.work_dir, inherited)


def background(settings: Settings, tasks: Callable[[], BackgroundTasks]) -> TaskBook:
    """What the conversation knows of its background tasks; they are not made before one is needed."""
    return TaskBook(tasks, settings.background)


def task_list(tasks: BackgroundTasks) -> Tool:
    from kimi.infrastructure.tools.shell.background_tasks import TaskList

    return TaskList(tasks)


def task_output(settings: Settings, tasks: BackgroundTasks) -> Tool:
    from kimi.infrastructure.tools.shell.background_tasks import TaskOutputTool

    return TaskOutputTool(tasks, settings.background.wait_poll_interval_ms / 1000)


def task_stop(session: Session, tasks: BackgroundTasks) -> Tool:
    from kimi.infrastructure.tools.shell.background_tasks import TaskStop

    return TaskStop(tasks, lambda: session.conversation().policy.plan)


def shell(settings: Settings, workspace: Workspace, files: SessionFiles, tasks: Callable[[], BackgroundTasks]) -> Tool:
    from kimi.infrastructure.tools.shell.shell import ShellTool

    def spill(name: str) -> str | None:
        directory = spill_directory(files)
        return os.path.join(directory, name) if directory else None

    return ShellTool(workspace, settings.shell, spill, lambda order: tasks().start(order))


def read_file(workspace: Workspace, policy: PathPolicy, record: FileRecord) -> Tool:
    from kimi.infrastructure.tools.files.read_file import ReadFile

    return ReadFile(workspace, policy, record)


def read_media_file(session: Session, workspace: Workspace, policy: PathPolicy) -> Tool:
    from kimi.infrastructure.tools.files.read_media_file import ReadMediaFile

    return ReadMediaFile(workspace, policy, _media(session))


def _media(session: Session) -> frozenset[str]:
    """The media that the model of the conversation can take in."""
    model = session.conversation().model
    return model.capabilities & {"image_in", "video_in"} if model is not None else frozenset()


def write_file(session: Session, workspace: Workspace, policy: PathPolicy, record: FileRecord) -> Tool:
    from kimi.infrastructure.tools.files.write_file import WriteFile

    return WriteFile(workspace, policy, record, partial(_active_plan_file, session))


def str_replace_file(
    session: Session, settings: Settings, workspace: Workspace, policy: PathPolicy, record: FileRecord
) -> Tool:
    from kimi.infrastructure.tools.files.str_replace_file import StrReplaceFile

    plan = partial(_active_plan_file, session)
    return StrReplaceFile(workspace, policy, record, plan, strict=settings.files.strict_edit)


def _active_plan_file(session: Session) -> str | None:
    return active_plan_file(session.conversation())


def glob(workspace: Workspace, policy: PathPolicy) -> Tool:
    from kimi.infrastructure.tools.search.glob import Glob

    return Glob(workspace, policy)


def grep(workspace: Workspace, policy: PathPolicy, ripgrep: Ripgrep) -> Tool:
    from kimi.infrastructure.tools.search.grep import Grep

    return Grep(workspace, policy, ripgrep)


def todo(files: SessionFiles) -> Tool:
    from kimi.infrastructure.tools.dialog.todo import TodoTool

    def save(todos: Sequence[TodoItem]) -> None:
        files.save_state(replace(files.state, todos=tuple(todos)))

    return TodoTool(lambda: files.state.todos, save)


def ask(session: Session, new_id: NewId) -> Tool:
    from kimi.infrastructure.tools.dialog.ask_user import AskUserQuestion

    def supported() -> bool:
        return session.conversation().client.supports_question

    return AskUserQuestion(supported, lambda: session.conversation().policy.nobody_there, new_id)


def plan_mode(session: Session, new_id: NewId) -> PlanMode:
    """What the two tools of plan mode know and do."""
    from kimi.infrastructure.tools.dialog.plan_mode import PlanMode

    conversation = session.conversation
    return PlanMode(
        is_on=lambda: conversation().policy.plan,
        set=lambda enabled: switch_plan_mode(conversation(), enabled),
        file=lambda: plan_file(conversation()),
        supported=lambda: conversation().client.supports_plan_mode,
        yolo=lambda: conversation().policy.yolo,
        nobody_there=lambda: conversation().policy.nobody_there,
        new_id=new_id,
    )


def enter_plan_mode(mode: PlanMode) -> Tool:
    from kimi.infrastructure.tools.dialog.plan_mode import EnterPlanMode

    return EnterPlanMode(mode)


def exit_plan_mode(mode: PlanMode) -> Tool:
    from kimi.infrastructure.tools.dialog.plan_mode import ExitPlanMode

    return ExitPlanMode(mode)


def send_dmail(session: Session) -> Tool:
    from kimi.application.step.checkpoints import send_dmail as send
    from kimi.infrastructure.tools.dialog.dmail import SendDMailTool

    return SendDMailTool(lambda message, checkpoint_id: send(session.conversation(), message, checkpoint_id))


def think() -> Tool:
    from kimi.infrastructure.tools.dialog.think import ThinkTool

    return ThinkTool()


def agent_tool(subagents: Subagents) -> Tool:
    from kimi.application.agents.background_subagents import start_in_background
    from kimi.application.agents.run_subagent import run_subagent
    from kimi.infrastructure.tools.dialog.subagents import AgentTool

    return AgentTool(partial(run_subagent, subagents), partial(start_in_background, subagents), lambda: subagents.types)


def task(subagents: Subagents) -> Tool:
    from kimi.application.agents.run_subagent import run_subagent
    from kimi.infrastructure.tools.dialog.subagents import TaskTool

    return TaskTool(partial(run_subagent, subagents), lambda: subagents.types)


def create_subagent(subagents: Subagents, agent: AgentSpec) -> Tool:
    from kimi.application.agents.run_subagent import create_subagent_type
    from kimi.infrastructure.tools.dialog.subagents import CreateSubagentTool

    def create(name: str, system_prompt: str) -> bool:
        return create_subagent_type(subagents, name, system_prompt, agent.tools)

    return CreateSubagentTool(create, lambda: subagents.types)


def make_tool(
    tools: providers.Aggregate[Tool],
    extra: Mapping[str, ThirdPartyTool],
    workspace: Workspace,
    session: Session,
) -> MakeTool:
    """Makes the tools of the conversation; None for one that it cannot use."""

    def registered(tool_id: str) -> ThirdPartyTool | None:
        from kimi.infrastructure.definitions.third_party_tools import load_tool

        return load_tool(tool_id)

    make = tool_maker(tools, extra, registered, workspace, check_schema)

    def make_usable(tool_id: str) -> Tool | None:
        if tool_id == MEDIA_TOOL and not _media(session):
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
    from kimi.infrastructure.definitions.agent_files import builtin_agent, load_agent_file

    if settings.agent_file is None:
        return builtin_agent(settings.agent)
    agent = load_agent_file(settings.agent_file)
    check_tools(agent, lambda tool_id: tool_id in KNOWN_TOOLS or tool_id in extra or _is_registered(tool_id))
    return agent


def _is_registered(tool_id: str) -> bool:
    from kimi.infrastructure.definitions.third_party_tools import is_registered

    return is_registered(tool_id)
