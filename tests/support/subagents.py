"""A conversation over fakes that can start subagents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kimi.application.agents.background_subagents import start_in_background
from kimi.application.agents.run_subagent import SubagentRegistry, create_subagent_type, run_subagent
from kimi.application.conversation.conversation import Conversation, build_subagent_conversation
from kimi.application.conversation.session import ConversationSession
from kimi.application.ports import ChatModel, PreparedCall, SessionFiles, SubagentFiles, Tool, ToolCallContext
from kimi.application.toolset.toolset import Toolset
from kimi.domain.agents.agent import AgentSpec, SubagentType
from kimi.domain.agents.subagent import SubagentIdentity
from kimi.domain.content.message import JsonObject
from kimi.domain.permissions.approval import Policy, ProposedAction
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_ok
from kimi.domain.turn import TurnLimits
from kimi.infrastructure.tools.dialog.subagents import AgentTool, CreateSubagentTool, TaskTool
from tests.support.conversations import conversation_with, with_resources
from tests.support.fakes import FakeModel, FakeTool


def agent(name: str, *tools: str, is_explorer: bool = False) -> SubagentType:
    """Return a type of subagent; an explorer only looks, and its commands are asked about each time."""
    spec = AgentSpec(name, tools, ask_commands=is_explorer, git_context=is_explorer, is_read_only=is_explorer)
    return SubagentType(f"Does {name}.", spec)


TYPES = {
    "coder": agent("coder", "Run", "Agent"),
    "explore": agent("explore", "Run", is_explorer=True),
}


@dataclass
class Crew:
    """A parent conversation with its tools, and its subagents."""

    parent: Conversation
    subagents: SubagentRegistry
    children: list[Conversation] = field(default_factory=list[Conversation])
    prompts: list[str] = field(default_factory=list[str])
    """The types whose system prompt was rendered, in order."""

    def change_resources(self, **changes: Any) -> Conversation:
        """Return the parent with other `ConversationResources`; before its first use."""
        self.parent = self.subagents.parent = with_resources(self.parent, **changes)
        return self.parent


async def crew_with(
    model: FakeModel,
    tools: Sequence[Tool] = (),
    *,
    models: Mapping[str, FakeModel] | None = None,
    files: SessionFiles | None = None,
    policy: Policy | None = None,
    limits: TurnLimits | None = None,
    by_type: Mapping[str, FakeModel] | None = None,
) -> Crew:
    """Return a conversation with Agent, Task, CreateSubagent and `tools`, which its subagents have, too.

    `models` are the configured ones by alias; `by_type` are the models for the subagents of a type.
    """
    given: list[Tool] = []
    parent = await conversation_with(model, files=files, policy=policy, limits=limits)
    subagents = SubagentRegistry(
        parent,
        dict(TYPES),
        open_child=lambda spec, files, model, subagent: parent,
        open_named_model=(models or {}).__getitem__,
        load_git_context=_git,
    )
    crew = Crew(parent, subagents)

    def system_prompt(spec: AgentSpec) -> str:
        crew.prompts.append(spec.name)
        return spec.prompt_text or f"You are a {spec.name}."

    def open_child(
        spec: AgentSpec, files: SubagentFiles, model: ChatModel | None, subagent: SubagentIdentity
    ) -> Conversation:
        own = (by_type or {}).get(spec.name, model)
        toolset = _toolset([tool for tool in given if tool.spec.name in spec.tools])
        session = ConversationSession(files)
        child = build_subagent_conversation(crew.parent, subagent, session, own, toolset, lambda: system_prompt(spec))
        crew.children.append(child)
        return child

    def create(name: str, prompt: str) -> bool:
        return create_subagent_type(subagents, name, prompt, ("Run",))

    subagents.open_child = open_child
    run, types = partial(run_subagent, subagents), lambda: subagents.types
    given += [
        *tools,
        AgentTool(run, partial(start_in_background, subagents), types),
        TaskTool(run, types),
        CreateSubagentTool(create, types),
    ]
    crew.parent = subagents.parent = replace(parent, toolset=_toolset(given))
    return crew


def _toolset(tools: Sequence[Tool]) -> Toolset:
    by_id = {f"tests:{tool.spec.name}": tool for tool in tools}
    return Toolset(by_id.__getitem__, by_id)


async def _git() -> str:
    return "Branch: main"


@dataclass
class CommandTool(FakeTool):
    """A tool whose proposed action is a command line."""

    contexts: list[ToolCallContext] = field(default_factory=list[ToolCallContext])

    @property
    def spec(self) -> ToolSpec:
        """The spec with the name that was passed."""
        return ToolSpec(self.name, "Runs a command.", {"type": "object"})

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        async def run() -> ToolReturnValue:
            self.ran.append(arguments)
            self.contexts.append(context)
            return await self.run(arguments, context) if self.run else tool_ok("ran")

        line = str(arguments.get("command", "ls"))
        yield PreparedCall(run, ProposedAction("run command", f"Run command `{line}`", kind="command", subject=line))
