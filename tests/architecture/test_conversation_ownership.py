"""Each state of a conversation has one owner: nobody assigns to it from elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kimi.application.conversation.context import ConversationContext
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.model_selection import ModelSelection
from kimi.application.conversation.permissions import Permissions
from kimi.application.conversation.running_turn import TurnSlot
from kimi.application.toolset.toolset import Toolset

ROOT = Path(__file__).resolve().parents[2]
OWNERS = ROOT / "application" / "kimi" / "application" / "conversation"
MODULES = [
    path
    for layer in ("application", "infrastructure", "interfaces")
    for path in sorted((ROOT / layer).rglob("*.py"))
    if not path.is_relative_to(OWNERS)
]


def find_assignments(source: str) -> Iterator[str]:
    """The targets that belong to a conversation: `conversation.x`, `self._conversation.x.y`, `conversation().x` ..."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute | ast.Subscript) or isinstance(node.ctx, ast.Load):
            continue
        if _belongs_to_conversation(node.value) and not _is_feature_state(target := ast.unparse(node)):
            yield target


def _belongs_to_conversation(value: ast.expr) -> bool:
    match value:
        case ast.Name(id=name):
            return name.lstrip("_") == "conversation"
        case ast.Attribute(value=inner, attr=name):
            return name.lstrip("_") == "conversation" or _belongs_to_conversation(inner)
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return _belongs_to_conversation(inner)
        case _:
            return False


def test_nothing_of_a_conversation_is_assigned_outside_its_parts() -> None:
    found = {str(path.relative_to(ROOT)): list(find_assignments(path.read_text("utf-8"))) for path in MODULES}
    assert {path: targets for path, targets in found.items() if targets} == {}


def _is_feature_state(target: str) -> bool:
    """Whether it is the state of a feature, which only the module that has its class can name."""
    return ".feature_states.get(_" in target


@pytest.mark.parametrize(
    "source",
    [
        "conversation.model = x",
        "self._conversation.toolset.servers = x",
        "live.conversation.policy: Policy = x",
        "session.conversation().context.history = x",
        "mail, conversation.mail = conversation.mail, None",
        "conversation.turn.step += 1",
        "del conversation.resources.tasks[0]",
    ],
)
def test_the_check_finds_an_assignment(source: str) -> None:
    assert list(find_assignments(source))


def test_the_check_leaves_the_own_attributes_of_others_alone() -> None:
    assert list(find_assignments("self.conversation = x\nturn.step = 1\nconversation = build()")) == []


def test_the_parts_cannot_be_exchanged_and_show_their_state_read_only() -> None:
    assert getattr(Conversation, "__dataclass_params__").frozen  # noqa: B009 - the type checker does not know it
    shown = [
        (Conversation, "id files history model policy client subagent turn"),
        (ConversationContext, "history version is_scratch has_pending_records"),
        (ModelSelection, "model choice"),
        (Permissions, "policy"),
        (TurnSlot, "current"),
        (Toolset, "hidden_names servers builtin_names"),
    ]
    for owner, names in shown:
        for name in names.split():
            assert isinstance(vars(owner)[name], property)
            assert vars(owner)[name].fset is None
