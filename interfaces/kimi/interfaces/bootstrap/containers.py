"""The composition root, with the modules beside it: the one part that knows every adapter (docs/architecture.md).

`App` lives as long as the process, `SessionContainer` as long as one conversation. A provider is a typed function that
returns the port's type and imports its adapter inside: a wrong adapter is a type error, and nothing is imported
before it is needed. Nothing is injected by name or annotation: use-cases get their ports as arguments.
"""

from __future__ import annotations

import math
import os
import platform
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kimi.application.agents.system_prompt import build_prompt_arguments, check_prompts, render_agent_prompt
from kimi.application.conversation.background_tasks import BackgroundTaskRegistry
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.hook_registry import HookRegistry
from kimi.application.conversation.skill_registry import SkillRegistry
from kimi.application.ports import (
    ChatModel,
    CheckArguments,
    CheckSchema,
    LoadSystemPrompt,
    NewId,
    Now,
    OpenModel,
    SessionCatalog,
    SessionFiles,
    SessionStore,
    ThirdPartyTool,
    Workspace,
)
from kimi.application.sessions.negotiate_initialize import (
    ExternalToolOffer,
    InitializeOutcome,
    negotiate_initialize,
)
from kimi.application.sessions.open_session import SessionSelector, build_policy, open_session, save_additional_dirs
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import ModelSettings, Settings
from kimi.application.toolset.toolset import Toolset
from kimi.domain.agents.agent import AgentSpec
from kimi.domain.client import Client, user_agent_suffix
from kimi.domain.content.message import JsonObject
from kimi.domain.skills.skill import format_skills
from kimi.domain.turn import TurnLimits
from kimi.interfaces.bootstrap import mcp
from kimi.interfaces.bootstrap import tools as make
from kimi.interfaces.bootstrap import web_tools as web
from kimi.interfaces.bootstrap.agent_toolset import build_toolset, open_subagent_conversation
from kimi.interfaces.bootstrap.conversation_lifespan import conversation_lifespan
from kimi.interfaces.bootstrap.injector import containers, providers
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.application.agents.run_subagent import OpenNamedModel, SubagentRegistry
    from kimi.application.conversation.model_catalog import ModelCatalog
    from kimi.application.conversation.project import LoadProject, Project
    from kimi.application.sessions.export_session import SessionArchives
    from kimi.infrastructure.http.client import HttpClient
    from kimi.infrastructure.tools.files.path_policy import PathPolicy
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep


# --- adapters, each behind the type of its port -----------------------------------------------------------------


def _build_http(environ: Mapping[str, str]) -> HttpClient:
    from kimi.infrastructure.http.client import HttpClient

    return HttpClient(environ)


def _build_model_opener(settings: Settings, http: HttpClient, environ: Mapping[str, str]) -> OpenModel:
    from kimi.infrastructure.models.open import make_model_opener

    return make_model_opener(settings.model, http, __version__, environ)


def _build_store(settings: Settings) -> SessionStore:
    from kimi.infrastructure.store.jsonl import JsonlStore

    return JsonlStore(settings.share_dir, settings.work_dir)


def _check_arguments(schema: JsonObject, value: Any) -> str | None:
    from kimi.infrastructure.json_schema import check_arguments

    return check_arguments(schema, value)


def _generate_id() -> str:
    return str(uuid.uuid4())


def _build_workspace(settings: Settings, environ: Mapping[str, str]) -> Workspace:
    from kimi.infrastructure.workspace.local import LocalWorkspace

    return LocalWorkspace(settings.work_dir, settings.shell, settings.secret_variables, environ)


def _build_project(workspace: Workspace, policy: PathPolicy, store: SessionStore) -> Project:
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
        load_instructions=lambda: load_agents_text(workspace.work_dir),
        open_stored_session=store.open,
    )


# --- use-cases with their ports bound ---------------------------------------------------------------------------


def _build_models(
    settings: Settings, http: HttpClient, environ: Mapping[str, str], session: SessionContainer
) -> ModelCatalog:
    from kimi.application.conversation.model_catalog import ModelCatalog  # start-up time

    def open_chosen(chosen: ModelSettings) -> ChatModel:
        from kimi.infrastructure.http.headers import format_user_agent
        from kimi.infrastructure.models.open import open_model

        conversation = session.conversation()

        def user_agent() -> str:
            return format_user_agent(__version__, user_agent_suffix(conversation.client))

        return open_model(chosen, conversation.id, http, user_agent, environ)

    return ModelCatalog(settings.model, settings.models, open_chosen)


def _build_named_model_opener(models: ModelCatalog) -> OpenNamedModel:
    return lambda alias: models.open_model(models.configured[alias])


def _build_subagents(session: SessionContainer, agent: AgentSpec, open_named_model: OpenNamedModel) -> SubagentRegistry:
    from kimi.application.agents.run_subagent import SubagentRegistry  # start-up time

    async def git_context() -> str:
        from kimi.infrastructure.definitions.git_context import read_git_context as read

        return await read(session.workspace())

    return SubagentRegistry(
        parent=session.conversation(),
        types=dict(agent.subagents),
        open_child=partial(open_subagent_conversation, SessionContainer, session),
        open_named_model=open_named_model,
        load_git_context=git_context,
    )


LoadPrompt: TypeAlias = Callable[[AgentSpec], str]
"""The system prompt of an agent, as things are now. Raises ConfigError: its template cannot be rendered."""


def _build_prompt_loader(settings: Settings, workspace: Workspace, skills: SkillRegistry) -> LoadPrompt:
    def load(agent: AgentSpec) -> str:
        from kimi.infrastructure.definitions.project_text import load_project_text

        project = load_project_text(workspace.work_dir, settings.additional_dirs)
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        listed = format_skills(skills.skills)
        arguments = build_prompt_arguments(project, workspace.shell, now=now, system=platform.system(), skills=listed)
        return render_agent_prompt(agent, arguments, _render_prompt)

    return load


def _render_prompt(path: str, arguments: Mapping[str, str]) -> str:
    from kimi.infrastructure.definitions.agent_template import render_prompt

    return render_prompt(path, arguments)


def _build_system_prompt_loader(load_prompt: LoadPrompt, agent: AgentSpec) -> LoadSystemPrompt:
    return lambda: load_prompt(agent)


def _build_hooks(settings: Settings, files: SessionFiles, environ: Mapping[str, str]) -> HookRegistry:
    run = None
    if settings.hooks:
        from kimi.infrastructure.workspace.hook_commands import make_hook_runner

        run = make_hook_runner(settings.work_dir, settings.shell, settings.secret_variables, environ)
    return HookRegistry(settings.hooks, run, session_id=files.id, work_dir=settings.work_dir)


def _build_conversation(
    settings: Settings,
    files: SessionFiles,
    open_model: OpenModel,
    toolset: Toolset,
    load_prompt: LoadSystemPrompt,
    store: SessionStore,
    now: Now,
    new_id: NewId,
    hooks: HookRegistry,
    skills: SkillRegistry,
    background: BackgroundTaskRegistry,
    load_project: LoadProject,
    load_models: Callable[[], ModelCatalog],
) -> Conversation:
    return Conversation(
        files=files,
        open_model=open_model,
        toolset=toolset,
        policy=build_policy(settings, files.state, resumed=files.is_resumed),
        limits=TurnLimits(
            max_steps=settings.loop.max_steps_per_turn,
            max_attempts=settings.loop.max_retries_per_step,
            compaction_ratio=settings.loop.compaction_trigger_ratio,
            reserved_tokens=settings.loop.reserved_context_size,
            ralph_iterations=settings.loop.max_ralph_iterations,
        ),
        load_system_prompt=load_prompt,
        mark_last=store.mark_last,
        now=now,
        new_id=new_id,
        hooks=hooks,
        skills=skills,
        background=background,
        load_project=load_project,
        load_models=load_models,
        plans_dir=os.path.join(settings.share_dir, "plans"),
    )


def _declare_dependency() -> Any:
    """A member that whoever makes the container must give. Its annotation is its type: the library's own class for
    this cannot name a protocol."""
    return providers.Dependency()


class App(containers.DeclarativeContainer):
    """What all conversations of a process share. Needs `settings`; every member can be overridden."""

    settings: providers.Provider[Settings] = _declare_dependency()
    environ = providers.Object[Mapping[str, str]](os.environ)
    now = providers.Object[Now](time.time)
    new_id = providers.Object[NewId](_generate_id)
    http = providers.Singleton(_build_http, environ)
    open_model = providers.Singleton(_build_model_opener, settings, http, environ)
    store = providers.Singleton(_build_store, settings)
    ripgrep = providers.Singleton(make.build_ripgrep, settings, environ)
    extra_tools = providers.Object[Mapping[str, ThirdPartyTool]]({})
    agent = providers.Singleton(make.load_agent, settings, extra_tools)
    check_schema = providers.Object[CheckSchema](make.check_schema)
    check_arguments = providers.Object[CheckArguments](_check_arguments)


class SessionContainer(containers.DeclarativeContainer):
    """What belongs to one conversation; `new_session` fills in what it needs from an `App`."""

    settings: providers.Provider[Settings] = _declare_dependency()
    environ: providers.Provider[Mapping[str, str]] = _declare_dependency()
    open_model: providers.Provider[OpenModel] = _declare_dependency()
    store: providers.Provider[SessionStore] = _declare_dependency()
    now: providers.Provider[Now] = _declare_dependency()
    new_id: providers.Provider[NewId] = _declare_dependency()
    http: providers.Provider[HttpClient] = _declare_dependency()
    ripgrep: providers.Provider[Ripgrep] = _declare_dependency()
    extra_tools: providers.Provider[Mapping[str, ThirdPartyTool]] = _declare_dependency()
    agent: providers.Provider[AgentSpec] = _declare_dependency()
    files: providers.Provider[SessionFiles] = _declare_dependency()
    session: providers.Provider[SessionContainer] = providers.Self()
    workspace = providers.Singleton(_build_workspace, settings, environ)
    skill_places = providers.Singleton(make.build_skill_places, settings, environ)
    skills = providers.Singleton(make.build_skill_registry, skill_places.provider)
    path_policy = providers.Singleton(make.build_path_policy, settings, workspace, files, skill_places.provider)
    file_record = providers.Singleton(make.build_file_record)
    project = providers.Singleton(_build_project, workspace, path_policy, store)

    background_tasks = providers.Singleton(make.build_background_tasks, settings, workspace, files, environ)
    background = providers.Singleton(make.build_background_registry, settings, background_tasks.provider)
    shell = providers.Factory(make.build_shell, settings, workspace, files, background_tasks.provider)
    task_list = providers.Factory(make.build_task_list, background_tasks)
    task_output = providers.Factory(make.build_task_output, settings, background_tasks)
    task_stop = providers.Factory(make.build_task_stop, session, background_tasks)
    read_file = providers.Factory(make.build_read_file, workspace, path_policy, file_record)
    read_media_file = providers.Factory(make.build_read_media_file, session, workspace, path_policy)
    write_file = providers.Factory(make.build_write_file, session, workspace, path_policy, file_record)
    str_replace_file = providers.Factory(
        make.build_str_replace_file, session, settings, workspace, path_policy, file_record
    )
    glob = providers.Factory(make.build_glob, workspace, path_policy)
    grep = providers.Factory(make.build_grep, workspace, path_policy, ripgrep)
    todo = providers.Factory(make.build_todo, files)
    think = providers.Factory(make.build_think)
    search_web = providers.Factory(web.build_search_web, settings, http)
    fetch_url = providers.Factory(web.build_fetch_url, settings, http, environ)
    send_dmail = providers.Factory(make.build_send_dmail, session)
    ask = providers.Factory(make.build_ask_user, session, new_id)
    plan_mode = providers.Factory(make.build_plan_mode, session, new_id)
    enter_plan_mode = providers.Factory(make.build_enter_plan_mode, plan_mode)
    exit_plan_mode = providers.Factory(make.build_exit_plan_mode, plan_mode)
    models = providers.Factory(_build_models, settings, http, environ, session)
    open_named_model = providers.Factory(_build_named_model_opener, models)
    subagents = providers.Singleton(_build_subagents, session, agent, open_named_model)
    agent_tool = providers.Factory(make.build_agent, subagents)
    task = providers.Factory(make.build_task, subagents)
    create_subagent = providers.Factory(make.build_create_subagent, subagents, agent)
    tools = providers.Aggregate(
        {
            "kimi_cli.tools.agent:Agent": agent_tool,
            "kimi_cli.tools.multiagent:Task": task,
            "kimi_cli.tools.multiagent:CreateSubagent": create_subagent,
            "kimi_cli.tools.shell:Shell": shell,
            "kimi_cli.tools.background:TaskList": task_list,
            "kimi_cli.tools.background:TaskOutput": task_output,
            "kimi_cli.tools.background:TaskStop": task_stop,
            "kimi_cli.tools.file:ReadFile": read_file,
            "kimi_cli.tools.file:ReadMediaFile": read_media_file,
            "kimi_cli.tools.file:WriteFile": write_file,
            "kimi_cli.tools.file:StrReplaceFile": str_replace_file,
            "kimi_cli.tools.file:Glob": glob,
            "kimi_cli.tools.file:Grep": grep,
            "kimi_cli.tools.web:SearchWeb": search_web,
            "kimi_cli.tools.web:FetchURL": fetch_url,
            "kimi_cli.tools.todo:SetTodoList": todo,
            "kimi_cli.tools.think:Think": think,
            "kimi_cli.tools.dmail:SendDMail": send_dmail,
            "kimi_cli.tools.ask_user:AskUserQuestion": ask,
            "kimi_cli.tools.plan:ExitPlanMode": exit_plan_mode,
            "kimi_cli.tools.plan.enter:EnterPlanMode": enter_plan_mode,
        }
    )
    make_tool = providers.Factory(make.build_usable_tool_factory, tools.provider, extra_tools, workspace, session)
    tool_source = providers.Singleton(mcp.build_tool_source, settings, workspace, files, environ)
    server_tools = providers.Singleton(mcp.build_server_tools, session, tool_source)
    toolset = providers.Singleton(build_toolset, make_tool, tools.provider, agent)
    load_prompt = providers.Factory(_build_prompt_loader, settings, workspace, skills)
    load_system_prompt = providers.Factory(_build_system_prompt_loader, load_prompt, agent)
    hooks = providers.Singleton(_build_hooks, settings, files, environ)
    conversation = providers.Singleton(
        _build_conversation,
        settings,
        files,
        open_model,
        toolset,
        load_system_prompt,
        store,
        now,
        new_id,
        hooks,
        skills,
        background,
        project.provider,
        models.provider,
    )


# --- what drivers call ------------------------------------------------------------------------------------------


def load_settings(flags: Flags, environ: Mapping[str, str]) -> Settings:
    """The settings of the process. Raises UsageError or ConfigError, with what to mend."""
    from kimi.infrastructure.config.settings_files import load_settings as load

    return load(flags, environ)


def build_session_archives(share_dir: str, work_dir: str) -> SessionArchives:
    """What `kimi export` reads from and writes to."""
    from kimi.infrastructure.store.session_archive import ZipSessionArchives

    return ZipSessionArchives(share_dir, work_dir)


def create_session_container(app: App, files: SessionFiles) -> SessionContainer:
    """The container of a conversation over an opened session."""
    return SessionContainer(
        settings=app.settings,
        environ=app.environ,
        open_model=app.open_model,
        store=app.store,
        now=app.now,
        new_id=app.new_id,
        http=app.http,
        ripgrep=app.ripgrep,
        extra_tools=app.extra_tools,
        agent=app.agent,
        files=providers.Object(files),
    )


def build_session_catalog(share_dir: str) -> SessionCatalog:
    """The stored sessions of all work dirs."""
    from kimi.infrastructure.store.catalog import JsonlCatalog

    return JsonlCatalog(share_dir)


@asynccontextmanager
async def open_conversation(
    app: App,
    selector: SessionSelector,
    *,
    time_left: Callable[[], float] = lambda: math.inf,
    adapt_container: Callable[[SessionContainer], None] = lambda session: None,
    close_http: bool = True,
    connect_servers: bool = True,
    persisted_dirs: Sequence[str] | None = None,
) -> AsyncGenerator[Conversation, None]:
    """Open the chosen session and its conversation; both are closed on leaving. `time_left()` is asked then: how many
    seconds the hooks of the end may take, at most. `adapt` may override members of the session's container before
    anything is made. With `close_http` the way to providers is closed too: nobody else uses it. Without
    `connect_servers` MCP servers are connected by `start_servers`, or with the first turn. `persisted_dirs` are
    the additional directories that become part of the session; None means all of the settings'.

    Raises InvalidSessionId, SessionBusy, StoreFailed, UsageError; ConfigError when the model cannot be made, or
    a required MCP server cannot be used.
    """
    app.agent()  # what is wrong with an agent file is said before a session is touched
    files = await open_session(app.store(), selector, app.new_id())
    try:
        settings = app.settings()
        kept = settings.additional_dirs if persisted_dirs is None else tuple(persisted_dirs)
        save_additional_dirs(files, settings.model_copy(update={"additional_dirs": kept}))
        session = create_session_container(app, files)
        adapt_container(session)
        check_prompts(app.agent(), session.load_prompt())
        if files.is_resumed and files.list_subagent_ids():
            from kimi.application.agents.run_subagent import fail_interrupted_subagents  # start-up time

            fail_interrupted_subagents(files, app.now()())
        async with conversation_lifespan(session, time_left, connect_servers=connect_servers) as conversation:
            yield conversation
    finally:
        files.close()  # first: what waits may be cancelled
        if close_http:
            await app.http().close()


def bind_negotiation(
    app: App, conversation: Conversation
) -> Callable[[Client, Sequence[ExternalToolOffer]], InitializeOutcome]:
    """The use-case negotiate-initialize with its ports bound."""
    settings = app.settings()

    def negotiate(client: Client, offers: Sequence[ExternalToolOffer]) -> InitializeOutcome:
        return negotiate_initialize(
            conversation,
            client,
            offers,
            check_schema=app.check_schema(),
            check_arguments=app.check_arguments(),
            external_timeout_s=settings.tools.external_timeout_s,
        )

    return negotiate


def warm_up(app: App) -> None:
    """Import what the first turn needs. Meant for a thread, after the handshake was answered."""
    from kimi.application.turn import run_turn
    from kimi.infrastructure.tools.dialog import ask_user_question as ask
    from kimi.infrastructure.tools.dialog import plan_mode as plan
    from kimi.infrastructure.tools.dialog import set_todo_list as todo
    from kimi.infrastructure.tools.dialog import subagents as agent
    from kimi.infrastructure.tools.files import read_file, str_replace_file, write_file
    from kimi.infrastructure.tools.search import glob, grep
    from kimi.infrastructure.tools.shell import shell

    _ = (run_turn, agent, ask, glob, grep, plan, read_file, shell, str_replace_file, todo, write_file)
    model = app.settings().model
    app.http().warm(model.base_url if model else "")
