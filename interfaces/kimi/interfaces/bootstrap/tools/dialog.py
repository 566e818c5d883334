"""Compose the tools that talk to the user, to the model itself and to subagents (tools spec 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kimi.application.ports import NewId, Tool, Workspace
from kimi.domain.agents.agent import AgentSpec
from kimi.domain.tools.tool import TodoItem

if TYPE_CHECKING:
    from kimi.application.agents.run_subagent import OpenChild, OpenNamedModel, SubagentRegistry
    from kimi.application.conversation.conversation import Conversation
    from kimi.application.conversation.session import ConversationSession
    from kimi.application.settings.settings import Settings
    from kimi.infrastructure.tools.dialog.plan_mode import PlanModeControls

GetConversation: TypeAlias = "Callable[[], Conversation]"
"""Returns the conversation of a tool, which is made after its tools."""


def build_todo(session: ConversationSession) -> Tool:
    """The todo list is part of the session's state, which has one writer at a time."""
    from kimi.infrastructure.tools.dialog.set_todo_list import SetTodoListTool

    def save(todos: tuple[TodoItem, ...]) -> None:
        session.update_state(lambda state: replace(state, todos=todos))

    return SetTodoListTool(lambda: session.files.state.todos, save)


def build_think() -> Tool:
    from kimi.infrastructure.tools.dialog.think import ThinkTool

    return ThinkTool()


def build_send_dmail(conversation: GetConversation) -> Tool:
    from kimi.application.step.checkpoints import send_dmail
    from kimi.infrastructure.tools.dialog.send_dmail import SendDMailTool

    return SendDMailTool(lambda message, checkpoint_id: send_dmail(conversation(), message, checkpoint_id))


def build_ask_user(conversation: GetConversation, new_id: NewId) -> Tool:
    from kimi.infrastructure.tools.dialog.ask_user_question import AskUserQuestionTool

    def is_supported() -> bool:
        return conversation().client.supports_question

    return AskUserQuestionTool(is_supported, lambda: conversation().policy.is_user_absent, new_id)


# --- plan mode --------------------------------------------------------------------------------------------------


def build_plan_mode(conversation: GetConversation, new_id: NewId) -> PlanModeControls:
    """Return the controls that both tools of plan mode share."""
    from kimi.application.control.plan_mode import resolve_plan_file, switch_plan_mode
    from kimi.infrastructure.tools.dialog.plan_mode import PlanModeControls

    return PlanModeControls(
        is_on=lambda: conversation().policy.plan,
        set_enabled=lambda enabled: switch_plan_mode(conversation(), enabled),
        plan_path=lambda: resolve_plan_file(conversation()),
        is_supported=lambda: conversation().client.supports_plan_mode,
        is_yolo=lambda: conversation().policy.yolo,
        is_user_absent=lambda: conversation().policy.is_user_absent,
        new_id=new_id,
    )


def build_enter_plan_mode(controls: PlanModeControls) -> Tool:
    from kimi.infrastructure.tools.dialog.plan_mode import EnterPlanModeTool

    return EnterPlanModeTool(controls)


def build_exit_plan_mode(controls: PlanModeControls) -> Tool:
    from kimi.infrastructure.tools.dialog.plan_mode import ExitPlanModeTool

    return ExitPlanModeTool(controls)


# --- subagents --------------------------------------------------------------------------------------------------


def build_subagents(
    conversation: Conversation,
    agent: AgentSpec,
    open_child: OpenChild,
    open_named_model: OpenNamedModel,
    workspace: Workspace,
    settings: Settings,
    environ: Mapping[str, str],
) -> SubagentRegistry:
    """Return the registry of the conversation's subagents."""
    from kimi.application.agents.run_subagent import SubagentRegistry  # start-up time

    async def load_git_context() -> str:
        from kimi.infrastructure.definitions.git_context import read_git_context

        return await read_git_context(workspace.work_dir, environ)

    return SubagentRegistry(
        parent=conversation,
        types=dict(agent.subagents),
        open_child=open_child,
        open_named_model=open_named_model,
        load_git_context=load_git_context,
        default_model=settings.subagent_model,
    )


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
