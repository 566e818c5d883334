"""A live conversation: the state that its use-cases share.

The use-cases are in modules of their own. Each part of the conversation is the only writer of its state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from kimi.application.conversation.background_tasks import BackgroundTaskRegistry
from kimi.application.conversation.context import ConversationContext
from kimi.application.conversation.event_stream import EventStream
from kimi.application.conversation.hook_registry import HookRegistry
from kimi.application.conversation.model_selection import ModelSelection, UsageLedger
from kimi.application.conversation.permissions import Permissions
from kimi.application.conversation.running_turn import RunningTurn, TurnSlot
from kimi.application.conversation.session import ConversationSession
from kimi.application.conversation.skill_registry import SkillRegistry
from kimi.application.ports import ChatModel, LoadSystemPrompt, NewId, Now, SessionFiles
from kimi.application.toolset.toolset import Toolset
from kimi.domain.client import Client
from kimi.domain.errors import StateError
from kimi.domain.history.history import History
from kimi.domain.permissions.approval import Policy

if TYPE_CHECKING:
    from kimi.application.conversation.project import LoadProject, Project
    from kimi.domain.agents.subagent import SubagentIdentity

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationResources:
    """What a conversation uses besides model and tools. Only the main agent has background tasks and a project."""

    now: Now
    new_id: NewId
    hooks: HookRegistry = field(default_factory=HookRegistry)
    skills: SkillRegistry = field(default_factory=SkillRegistry)
    background: BackgroundTaskRegistry = field(default_factory=BackgroundTaskRegistry)
    load_project: LoadProject | None = None
    plans_dir: str | None = None
    """The directory of plan files; None where plan mode is not available."""
    takes_commands: bool = True
    """Whether prompts may be slash commands in this process."""

    def require_project(self) -> Project:
        """Return the project in which the agent works. Raises StateError when there is none."""
        if self.load_project is None:
            raise StateError("This command is not supported here")
        return self.load_project()


class FeatureStates:
    """The state of single features in a conversation: one value per class, created on first use.

    Each class is defined in the module of its feature, and only that module reads and writes the value.
    """

    def __init__(self) -> None:
        self._values: dict[type[object], object] = {}

    def get(self, kind: type[T]) -> T:
        """Return the value of class `kind`; it is created without arguments on first use."""
        if kind not in self._values:
            self._values[kind] = kind()
        return cast("T", self._values[kind])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conversation:
    """The state that the use-cases of one conversation share. Its parts are never replaced.

    The conversation of a subagent, which `build_subagent_conversation` builds, has its own session, context, tools and
    turns. It shares permissions, hooks, pending requests, client and event channel with its parent.
    """

    session: ConversationSession
    context: ConversationContext
    events: EventStream
    turns: TurnSlot
    models: ModelSelection
    toolset: Toolset
    permissions: Permissions
    resources: ConversationResources
    feature_states: FeatureStates = field(default_factory=FeatureStates)

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.session.files.id

    @property
    def files(self) -> SessionFiles:
        """The files of the session."""
        return self.session.files

    @property
    def history(self) -> History:
        """The current history, which the model reads."""
        return self.context.history

    @property
    def model(self) -> ChatModel | None:
        """The model of the next step; None when none is configured."""
        return self.models.model

    @property
    def policy(self) -> Policy:
        """The current policy, which decides which actions need approval."""
        return self.permissions.policy

    @property
    def client(self) -> Client:
        """The client that reads the events and answers the requests."""
        return self.events.client

    @property
    def subagent(self) -> SubagentIdentity | None:
        """The identity of the subagent whose conversation this is; None for the main agent."""
        return self.events.subagent

    @property
    def turn(self) -> RunningTurn | None:
        """The turn that is running; None between turns."""
        return self.turns.current

    @property
    def is_empty(self) -> bool:
        """Whether the session is new and its history is empty."""
        return not self.files.is_resumed and not self.history.records


def build_subagent_conversation(
    parent: Conversation,
    subagent: SubagentIdentity,
    session: ConversationSession,
    model: ChatModel | None,
    toolset: Toolset,
    load_system_prompt: LoadSystemPrompt,
) -> Conversation:
    """The conversation of a subagent over `session`, whose files are a child of those of `parent`."""
    shared = parent.resources
    return Conversation(
        session=session,
        context=ConversationContext(session.files, load_system_prompt),
        events=EventStream(session.files, shared.now, parent=parent.events, subagent=subagent),
        turns=TurnSlot(parent.turns.limits, shared.new_id),
        models=ModelSelection(model, usage=UsageLedger(parent.models.usage)),
        toolset=toolset,
        permissions=parent.permissions,
        resources=ConversationResources(
            now=shared.now, new_id=shared.new_id, hooks=shared.hooks, skills=shared.skills, plans_dir=shared.plans_dir
        ),
    )
