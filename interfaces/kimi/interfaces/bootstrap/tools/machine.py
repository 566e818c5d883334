"""Compose the tools for files, searches and processes of the workspace (tools spec 3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from kimi.application.ports import BackgroundTasks, SessionFiles, Tool, Workspace
from kimi.application.settings.settings import Settings
from kimi.domain.agents.agent import BUILTIN_PROMPT, AgentSpec

if TYPE_CHECKING:
    from kimi.application.conversation.conversation import Conversation
    from kimi.domain.agents.agent import AgentSpec
    from kimi.domain.permissions.path_rules import PathScopes
    from kimi.domain.tools.plugin import InstalledPlugins
    from kimi.infrastructure.definitions.skill_files import SkillSearchPaths
    from kimi.infrastructure.sandbox.sandbox import Sandbox
    from kimi.infrastructure.tools.files.path_policy import FileRecord, PathPolicy
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep
    from kimi.infrastructure.tools.shell.confined_commands import ConfinedCommands


def find_spill_directory(files: SessionFiles) -> str | None:
    """Return the directory for outputs that are too long for the model; None for a store without files."""
    return os.path.join(files.directory, "output") if files.directory else None


def build_ripgrep(settings: Settings, environ: Mapping[str, str]) -> Ripgrep:
    """Return the configured ripgrep, else the one that is found."""
    from kimi.infrastructure.tools.search.ripgrep import Ripgrep

    return Ripgrep(settings.tools.ripgrep_path, environ)


def build_file_record() -> FileRecord:
    """Return the record of the files that the model has read or written."""
    from kimi.infrastructure.tools.files.path_policy import FileRecord

    return FileRecord()


def build_path_policy(
    settings: Settings,
    workspace: Workspace,
    files: SessionFiles,
    skill_paths: Callable[[], SkillSearchPaths],
    environ: Mapping[str, str],
    agent: AgentSpec,
    plugins: InstalledPlugins | None,
) -> PathPolicy:
    """Return where tools may read and write; skills, pages of the help and spilled output can be read, too."""
    from kimi.domain.permissions.path_rules import list_own_files
    from kimi.infrastructure.tools.files.path_policy import PathPolicy, PolicyRoots

    @cache
    def list_skill_directories() -> list[str]:
        from kimi.infrastructure.definitions.skill_files import list_readable_skill_roots

        return list_readable_skill_roots(skill_paths())

    @cache
    def list_readable() -> list[str]:
        from kimi.infrastructure.definitions.skill_files import find_help_pages

        builtin = skill_paths().builtin
        pages = [os.path.realpath(find_help_pages(builtin))] if builtin else []
        return [*list_skill_directories(), *pages]

    def list_additional() -> Sequence[str]:
        return (*settings.additional_dirs, *files.state.additional_dirs)

    def list_guarded() -> Sequence[str]:
        named = _list_guarded_files(settings, list_additional(), list_skill_directories(), environ)
        return (*named, *_list_prompt_files(agent), *_list_plugin_commands(plugins))

    spilled = find_spill_directory(files)
    roots = PolicyRoots(
        additional=list_additional,
        readable=list_readable,
        opened=[spilled, os.path.join(os.path.dirname(spilled), "tasks")] if spilled else [],
        own_files=(*list_own_files(settings.share_dir, settings.own_files), *_list_plugin_keys(plugins)),
        guarded=list_guarded,
    )
    return PathPolicy(workspace, settings.files, home=os.path.expanduser("~"), roots=roots)


def _list_plugin_keys(plugins: InstalledPlugins | None) -> Sequence[str]:
    """Return the files that may hold keys of plugins, which are closed like our own."""
    if plugins is None:
        return ()
    from kimi.infrastructure.plugins.plugin_files import list_config_files

    return list_config_files(plugins)


def _list_plugin_commands(plugins: InstalledPlugins | None) -> Sequence[str]:
    if plugins is None:
        return ()
    from kimi.infrastructure.plugins.plugin_files import list_command_files

    return list_command_files(plugins)


def _list_guarded_files(
    settings: Settings, additional: Sequence[str], skill_roots: Sequence[str], environ: Mapping[str, str]
) -> Sequence[str]:
    """Return what becomes a command or an instruction, beside what is known by its name."""
    from kimi.infrastructure.definitions import guarded_files as guarded

    work_dir = settings.work_dir
    commands = [(hook.command, work_dir) for hook in settings.hooks]
    for server in settings.mcp.servers:
        commands += [(word, server.cwd or work_dir) for word in (server.command or "", *server.args)]
    return (
        *guarded.list_linked_files((work_dir, *additional)),
        *guarded.list_skill_files(skill_roots),
        *(path for command, cwd in commands for path in guarded.list_named_files(command, cwd)),
        *guarded.list_command_directories(environ.get("PATH", ""), work_dir),
        *([settings.agent_file] if settings.agent_file else []),
    )


def _list_prompt_files(agent: AgentSpec) -> Sequence[str]:
    specs = (agent, *(one.spec for one in agent.subagents.values()))
    return [spec.prompt_path for spec in specs if spec.prompt_path != BUILTIN_PROMPT]


# --- processes --------------------------------------------------------------------------------------------------


def check_sandbox() -> None:
    """Raise ConfigError if no sandbox works here."""
    from kimi.infrastructure.sandbox.mechanisms import find_mechanism, require_mechanism

    require_mechanism(find_mechanism())


def build_sandbox(settings: Settings, workspace: Workspace, policy: PathPolicy, cleanup: ExitStack) -> Sandbox:
    """Return the sandbox of the conversation's commands; `cleanup` removes what it leaves."""
    from kimi.infrastructure.sandbox.sandbox import Sandbox

    sandbox = Sandbox(settings.sandbox, workspace.work_dir, settings.share_dir, policy.resolve_scopes)
    cleanup.callback(sandbox.close)
    return sandbox


def build_plugin_sandbox(
    settings: Settings, workspace: Workspace, policy: PathPolicy, plugins: InstalledPlugins, cleanup: ExitStack
) -> Sandbox:
    """Return the sandbox of the commands of plugins, which may read the files with their own keys."""
    from kimi.infrastructure.sandbox.sandbox import Sandbox

    own = frozenset(_list_plugin_keys(plugins))

    async def load_scopes() -> PathScopes:
        scopes = await policy.resolve_scopes()
        return replace(scopes, protected=tuple(path for path in scopes.protected if path not in own))

    sandbox = Sandbox(settings.sandbox, workspace.work_dir, settings.share_dir, load_scopes)
    cleanup.callback(sandbox.close)
    return sandbox


def build_confined_commands(
    settings: Settings, sandbox: Callable[[], Sandbox], agent: AgentSpec, conversation: Callable[[], Conversation]
) -> ConfinedCommands:
    """Return how the commands of this agent are confined: read-only in plan mode and for agents that only read."""
    from kimi.infrastructure.tools.shell.confined_commands import ConfinedCommands

    return ConfinedCommands(
        settings.sandbox,
        sandbox,
        must_only_read=lambda: agent.ask_commands or conversation().policy.plan,
        is_asked=lambda: not (conversation().policy.yolo or conversation().policy.is_user_absent),
    )


def build_shell(
    settings: Settings,
    workspace: Workspace,
    files: SessionFiles,
    tasks: Callable[[], BackgroundTasks],
    confined: ConfinedCommands,
) -> Tool:
    from kimi.infrastructure.tools.shell.shell import ShellTool

    def spill(name: str) -> str | None:
        directory = find_spill_directory(files)
        return os.path.join(directory, name) if directory else None

    return ShellTool(workspace, settings.shell, spill, lambda task: tasks().start(task), confined)


def build_task_list(tasks: BackgroundTasks) -> Tool:
    from kimi.infrastructure.tools.shell.background_tasks import TaskListTool

    return TaskListTool(tasks)


def build_task_output(settings: Settings, tasks: BackgroundTasks) -> Tool:
    from kimi.infrastructure.tools.shell.background_tasks import TaskOutputTool

    return TaskOutputTool(tasks, settings.background.wait_poll_interval_ms / 1000)


def build_task_stop(tasks: BackgroundTasks, conversation: Callable[[], Conversation]) -> Tool:
    from kimi.infrastructure.tools.shell.background_tasks import TaskStopTool

    return TaskStopTool(tasks, lambda: conversation().policy.plan)


# --- files and searches -----------------------------------------------------------------------------------------


def build_read_file(workspace: Workspace, policy: PathPolicy, record: FileRecord) -> Tool:
    from kimi.infrastructure.tools.files.read_file import ReadFileTool

    return ReadFileTool(workspace, policy, record)


def build_read_media_file(workspace: Workspace, policy: PathPolicy, conversation: Callable[[], Conversation]) -> Tool:
    from kimi.infrastructure.tools.files.read_media_file import ReadMediaFileTool

    return ReadMediaFileTool(workspace, policy, _list_supported_media(conversation()))


def can_take_media(conversation: Conversation) -> bool:
    """Whether the model of the conversation can take in any media."""
    return bool(_list_supported_media(conversation))


def _list_supported_media(conversation: Conversation) -> frozenset[str]:
    model = conversation.model
    return model.capabilities & {"image_in", "video_in"} if model is not None else frozenset()


def build_write_file(
    workspace: Workspace, policy: PathPolicy, record: FileRecord, conversation: Callable[[], Conversation]
) -> Tool:
    from kimi.application.control.plan_mode import find_active_plan_file
    from kimi.infrastructure.tools.files.write_file import WriteFileTool

    return WriteFileTool(workspace, policy, record, lambda: find_active_plan_file(conversation()))


def build_str_replace_file(
    settings: Settings,
    workspace: Workspace,
    policy: PathPolicy,
    record: FileRecord,
    conversation: Callable[[], Conversation],
) -> Tool:
    from kimi.application.control.plan_mode import find_active_plan_file
    from kimi.infrastructure.tools.files.str_replace_file import StrReplaceFileTool

    def find_plan() -> str | None:
        return find_active_plan_file(conversation())

    return StrReplaceFileTool(workspace, policy, record, find_plan, strict=settings.files.strict_edit)


def build_glob(workspace: Workspace, policy: PathPolicy) -> Tool:
    from kimi.infrastructure.tools.search.glob import GlobTool

    return GlobTool(workspace, policy)


def build_grep(workspace: Workspace, policy: PathPolicy, ripgrep: Ripgrep) -> Tool:
    from kimi.infrastructure.tools.search.grep import GrepTool

    return GrepTool(workspace, policy, ripgrep)
