"""The tools of an agent and of its subagents, composed (tools spec 1.2, 7.2; runtime spec 6).

Part of the composition root without adapters of its own: `container` hands them in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, cast

from kimi.application.conversation.conversation import Conversation
from kimi.application.ports import ChatModel, CheckSchema, MakeTool, SubagentFiles, ThirdPartyTool, Tool, Workspace
from kimi.application.toolset.toolset import TOOL_NAME_PATTERN, Toolset
from kimi.domain.agents.agent import KNOWN_TOOLS, AgentSpec
from kimi.domain.errors import ConfigError
from kimi.interfaces.bootstrap.injector import providers

if TYPE_CHECKING:
    from kimi.domain.agents.subagent import SubagentIdentity
    from kimi.interfaces.bootstrap.containers import SessionContainer

logger = logging.getLogger(__name__)


def build_tool_factory(
    tools: providers.Aggregate[Tool],
    extra_tools: Mapping[str, ThirdPartyTool],
    find_registered: Callable[[str], ThirdPartyTool | None],
    workspace: Workspace,
    check_schema: CheckSchema,
) -> MakeTool:
    """`MakeTool` over the container's table, then what an embedder added, then what is installed.

    It raises ConfigError for a tool from elsewhere that no provider would take.
    """

    def make(tool_id: str) -> Tool | None:
        if tool_id in tools.providers:
            return tools(tool_id)
        if tool_id in KNOWN_TOOLS:
            logger.info("the tool %s is not available in this version", tool_id)
            return None
        factory = extra_tools.get(tool_id) or find_registered(tool_id)
        if factory is None:
            raise KeyError(tool_id)
        return _check_foreign_tool(tool_id, factory(workspace), check_schema)

    return make


def _check_foreign_tool(tool_id: str, tool: Tool | None, check_schema: CheckSchema) -> Tool | None:
    """A tool from elsewhere, if a provider takes its name and schema (tools spec 1.1). Raises ConfigError."""
    if tool is None:
        return None
    if not TOOL_NAME_PATTERN.fullmatch(tool.spec.name):
        raise ConfigError(f"The tool '{tool_id}' has the name '{tool.spec.name}', which no provider takes.")
    if (fault := check_schema(tool.spec.parameters)) is not None:
        raise ConfigError(f"The parameters of the tool '{tool.spec.name}' are no valid JSON Schema: {fault}")
    return tool


def build_toolset(make_tool: MakeTool, tools: providers.Aggregate[Tool], agent: AgentSpec) -> Toolset:
    """The toolset of an agent. Tools that this version lacks take no name away from the client's tools."""
    return Toolset(make_tool, [one for one in agent.tools if one not in KNOWN_TOOLS or one in tools.providers])


def open_subagent_conversation(
    new_container: Callable[..., SessionContainer],
    session: SessionContainer,
    spec: AgentSpec,
    files: SubagentFiles,
    model: ChatModel | None,
    subagent: SubagentIdentity,
) -> Conversation:
    """The conversation of a subagent. Its tools are its own, over the workspace and the path rules of its parent."""
    parent = session.conversation()
    inner = _create_child_container(new_container, session, spec, files)
    toolset = inner.toolset()
    toolset.hidden_names = parent.toolset.hidden_names
    if parent.toolset.servers is not None:
        toolset.servers = parent.toolset.servers.for_subagents()
    return Conversation(
        files=files,
        open_model=lambda session_id, client: model,
        toolset=toolset,
        policy=parent.policy,
        limits=parent.limits,
        load_system_prompt=lambda: session.load_prompt()(spec),
        mark_last=lambda session_id: None,
        now=parent.now,
        new_id=parent.new_id,
        plans_dir=parent.plans_dir,
        parent=parent,
        subagent=subagent,
    )


def _create_child_container(
    new_container: Callable[..., SessionContainer], session: SessionContainer, spec: AgentSpec, files: SubagentFiles
) -> SessionContainer:
    """A container beside that of the parent. What was put in the place of a tool there holds here too."""
    given = {name: getattr(session, name) for name in session.dependencies}
    shared = {name: getattr(session, name) for name in ("workspace", "path_policy", "conversation")}
    own = {
        "agent": providers.Object(spec),
        "files": providers.Object(files),
        "file_record": providers.Object(session.file_record().fork_for_subagent()),
    }
    child = new_container(**given | shared | own)
    for tool_id, provider in session.tools.providers.items():
        for replacement in cast("_OverridableProvider", provider).overridden:
            cast("_OverridableProvider", child.tools.providers[tool_id]).override(replacement)
    return child


def replace_workspace(container: SessionContainer, workspace: Workspace) -> None:
    """Let a conversation work with this workspace; before any of its members is made."""
    cast("_OverridableProvider", container.workspace).override(providers.Object(workspace))


class _OverridableProvider(Protocol):
    """What is needed of a provider here; the library leaves these types open."""

    @property
    def overridden(self) -> tuple[object, ...]: ...

    def override(self, provider: object) -> object: ...
