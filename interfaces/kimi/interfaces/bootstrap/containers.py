"""The two containers: one that all conversations of a process share, and one for each conversation.

A provider is a typed function of a module beside this one. It returns the type of the port, takes the ports that it
needs and imports its adapter inside: a wrong adapter is a type error, and nothing is imported before it is needed.
A member that is made later, such as the conversation, which is made after its tools, is passed as a provider
(`.provider`): a function that returns it. Nothing is injected by name or annotation.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kimi.application.conversation.context import ConversationContext
from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import (
    CheckArguments,
    CheckSchema,
    NewId,
    Now,
    OpenModel,
    SessionFiles,
    SessionStore,
    ThirdPartyTool,
)
from kimi.application.settings.settings import Settings
from kimi.domain.agents.agent import AgentSpec
from kimi.interfaces.bootstrap import conversation as conversation_factories
from kimi.interfaces.bootstrap import mcp
from kimi.interfaces.bootstrap import models as model_factories
from kimi.interfaces.bootstrap import store as store_factories
from kimi.interfaces.bootstrap.injector import containers, providers
from kimi.interfaces.bootstrap.tools import dialog, machine, web
from kimi.interfaces.bootstrap.tools.toolset import (
    BuiltinTool,
    build_plugin_tools,
    build_tool_factory,
    build_toolset,
    check_arguments,
    check_schema,
    load_agent,
    load_plugins,
)

if TYPE_CHECKING:
    from kimi.application.agents.run_subagent import OpenChild
    from kimi.infrastructure.http.client import HttpClient
    from kimi.infrastructure.observability.instruments import Instruments
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep


def _declare_dependency() -> Any:
    """Declare a member that must be passed when a container is made. The annotation of the member is its type,
    because the library's own class for this does not accept a protocol."""
    return providers.Dependency()


def _generate_id() -> str:
    return str(uuid.uuid4())


class SessionContainer(containers.DeclarativeContainer):
    """The members of one conversation. `create_session_container` passes the dependencies from an `App`."""

    settings: providers.Provider[Settings] = _declare_dependency()
    environ: providers.Provider[Mapping[str, str]] = _declare_dependency()
    open_model: providers.Provider[OpenModel] = _declare_dependency()
    store: providers.Provider[SessionStore] = _declare_dependency()
    now: providers.Provider[Now] = _declare_dependency()
    new_id: providers.Provider[NewId] = _declare_dependency()
    http: providers.Provider[HttpClient] = _declare_dependency()
    instruments: providers.Provider[Instruments | None] = _declare_dependency()
    ripgrep: providers.Provider[Ripgrep] = _declare_dependency()
    extra_tools: providers.Provider[Mapping[str, ThirdPartyTool]] = _declare_dependency()
    agent: providers.Provider[AgentSpec] = _declare_dependency()
    files: providers.Provider[SessionFiles] = _declare_dependency()
    open_child: providers.Provider[OpenChild] = _declare_dependency()

    conversation = providers.Singleton(Conversation)
    """Its arguments are set at the end of the class, because some of them take its provider."""

    stored_session = providers.Singleton(conversation_factories.build_stored_session, files, store)
    workspace = providers.Singleton(conversation_factories.build_workspace, settings, environ)
    background_tasks = providers.Singleton(
        conversation_factories.build_background_tasks, settings, workspace, files, environ
    )
    background = providers.Singleton(
        conversation_factories.build_background_registry, settings, background_tasks.provider
    )
    skill_paths = providers.Singleton(conversation_factories.build_skill_paths, settings, environ)
    skills = providers.Singleton(conversation_factories.build_skill_registry, settings, skill_paths.provider)
    plugins = providers.Singleton(load_plugins, settings)
    path_policy = providers.Singleton(
        machine.build_path_policy, settings, workspace, files, skill_paths.provider, environ, agent, plugins
    )
    file_record = providers.Singleton(machine.build_file_record)
    cleanup = providers.Singleton(ExitStack)
    """What is to be done when the conversation has ended; those who made something add to it."""
    sandbox = providers.Singleton(machine.build_sandbox, settings, workspace, path_policy, cleanup)
    confined_commands = providers.Factory(
        machine.build_confined_commands, settings, sandbox.provider, agent, conversation.provider
    )
    plugin_sandbox = providers.Singleton(
        machine.build_plugin_sandbox, settings, workspace, path_policy, plugins, cleanup
    )
    confined_plugins = providers.Factory(
        machine.build_confined_commands, settings, plugin_sandbox.provider, agent, conversation.provider
    )
    project = providers.Singleton(conversation_factories.build_project, settings, workspace, path_policy, store)
    hooks = providers.Singleton(conversation_factories.build_hooks, settings, files, environ)
    models = providers.Factory(
        model_factories.build_model_catalog, settings, http, environ, conversation.provider, instruments
    )
    open_named_model = providers.Factory(model_factories.build_named_model_opener, models)
    plan_mode = providers.Factory(dialog.build_plan_mode, conversation.provider, new_id)
    subagents = providers.Singleton(
        dialog.build_subagents, conversation, agent, open_child, open_named_model, workspace, settings, environ
    )

    builtin_tools: ClassVar = (
        BuiltinTool("kimi_cli.tools.agent:Agent", providers.Factory(dialog.build_agent, subagents)),
        BuiltinTool("kimi_cli.tools.multiagent:Task", providers.Factory(dialog.build_task, subagents)),
        BuiltinTool(
            "kimi_cli.tools.multiagent:CreateSubagent",
            providers.Factory(dialog.build_create_subagent, subagents, agent),
        ),
        BuiltinTool(
            "kimi_cli.tools.dmail:SendDMail", providers.Factory(dialog.build_send_dmail, conversation.provider)
        ),
        BuiltinTool("kimi_cli.tools.think:Think", providers.Factory(dialog.build_think)),
        BuiltinTool(
            "kimi_cli.tools.ask_user:AskUserQuestion",
            providers.Factory(dialog.build_ask_user, conversation.provider, new_id),
        ),
        BuiltinTool("kimi_cli.tools.todo:SetTodoList", providers.Factory(dialog.build_todo, stored_session)),
        BuiltinTool(
            "kimi_cli.tools.shell:Shell",
            providers.Factory(
                machine.build_shell, settings, workspace, files, background_tasks.provider, confined_commands
            ),
        ),
        BuiltinTool("kimi_cli.tools.background:TaskList", providers.Factory(machine.build_task_list, background_tasks)),
        BuiltinTool(
            "kimi_cli.tools.background:TaskOutput",
            providers.Factory(machine.build_task_output, settings, background_tasks),
        ),
        BuiltinTool(
            "kimi_cli.tools.background:TaskStop",
            providers.Factory(machine.build_task_stop, background_tasks, conversation.provider),
        ),
        BuiltinTool(
            "kimi_cli.tools.file:ReadFile",
            providers.Factory(machine.build_read_file, workspace, path_policy, file_record),
        ),
        BuiltinTool(
            "kimi_cli.tools.file:ReadMediaFile",
            providers.Factory(machine.build_read_media_file, workspace, path_policy, conversation.provider),
            providers.Callable(machine.can_take_media, conversation),
        ),
        BuiltinTool("kimi_cli.tools.file:Glob", providers.Factory(machine.build_glob, workspace, path_policy)),
        BuiltinTool("kimi_cli.tools.file:Grep", providers.Factory(machine.build_grep, workspace, path_policy, ripgrep)),
        BuiltinTool(
            "kimi_cli.tools.file:WriteFile",
            providers.Factory(machine.build_write_file, workspace, path_policy, file_record, conversation.provider),
        ),
        BuiltinTool(
            "kimi_cli.tools.file:StrReplaceFile",
            providers.Factory(
                machine.build_str_replace_file,
                settings,
                workspace,
                path_policy,
                file_record,
                conversation.provider,
            ),
        ),
        BuiltinTool(
            "kimi_cli.tools.web:SearchWeb",
            providers.Factory(web.build_search_web, settings, http),
            providers.Callable(web.has_search_service, settings),
        ),
        BuiltinTool("kimi_cli.tools.web:FetchURL", providers.Factory(web.build_fetch_url, settings, http, environ)),
        BuiltinTool("kimi_cli.tools.plan:ExitPlanMode", providers.Factory(dialog.build_exit_plan_mode, plan_mode)),
        BuiltinTool(
            "kimi_cli.tools.plan.enter:EnterPlanMode", providers.Factory(dialog.build_enter_plan_mode, plan_mode)
        ),
    )
    """The built-in tools: id, factory, and for some a check whether the conversation can use the tool. Everything else
    about a tool is in its spec."""

    tools = providers.Aggregate({row.id: row.factory for row in builtin_tools})
    availability = providers.Aggregate({row.id: row.is_available for row in builtin_tools if row.is_available})
    make_tool = providers.Factory(build_tool_factory, tools.provider, availability.provider, extra_tools, workspace)
    toolset = providers.Singleton(build_toolset, make_tool, agent, tools.provider)
    tool_source = providers.Singleton(mcp.build_tool_source, settings, workspace, files, environ)
    server_tools = providers.Singleton(
        mcp.build_server_tools, settings, files, tool_source, conversation.provider, new_id
    )
    plugin_tools = providers.Factory(
        build_plugin_tools, settings, workspace, files, environ, plugins, confined_plugins, toolset
    )
    load_prompt = providers.Factory(conversation_factories.build_prompt_loader, settings, workspace, skills)
    load_system_prompt = providers.Factory(conversation_factories.build_system_prompt_loader, load_prompt, agent)
    spans = providers.Singleton(model_factories.build_spans, instruments, files, agent)
    events = providers.Singleton(conversation_factories.build_event_stream, files, now, spans)
    resources = providers.Singleton(
        conversation_factories.build_resources, settings, now, new_id, hooks, skills, background, project.provider
    )
    conversation.add_kwargs(
        session=stored_session,
        context=providers.Singleton(ConversationContext, files, load_system_prompt),
        events=events,
        turns=providers.Singleton(conversation_factories.build_turn_slot, settings, new_id),
        models=providers.Singleton(
            conversation_factories.build_model_selection, files, open_model, events, models.provider
        ),
        toolset=toolset,
        permissions=providers.Singleton(conversation_factories.build_permissions, settings, stored_session),
        resources=resources,
    )


KNOWN_TOOLS: Final = tuple(row.id for row in SessionContainer.builtin_tools)
"""The ids of all built-in tools (tools spec 7.2)."""


class App(containers.DeclarativeContainer):
    """The members that all conversations of a process share. Requires `settings`; every member can be overridden."""

    settings: providers.Provider[Settings] = _declare_dependency()
    environ = providers.Object[Mapping[str, str]](os.environ)
    now = providers.Object[Now](time.time)
    new_id = providers.Object[NewId](_generate_id)
    http = providers.Singleton(model_factories.build_http, environ)
    instruments = providers.Singleton(model_factories.build_instruments, settings)
    open_model = providers.Singleton(model_factories.build_model_opener, settings, http, environ, instruments)
    store = providers.Singleton(store_factories.build_store, settings)
    ripgrep = providers.Singleton(machine.build_ripgrep, settings, environ)
    extra_tools = providers.Object[Mapping[str, ThirdPartyTool]]({})
    agent = providers.Singleton(load_agent, settings, extra_tools, KNOWN_TOOLS)
    check_schema = providers.Object[CheckSchema](check_schema)
    check_arguments = providers.Object[CheckArguments](check_arguments)
