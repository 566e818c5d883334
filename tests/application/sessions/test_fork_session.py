"""Use-cases fork and undo over both stores: after any turn the model knows what it knew then (runtime spec 4.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kimi.application.codec.envelope import encode_event
from kimi.application.control.steer import steer
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.skill_registry import SkillRegistry
from kimi.application.ports import ResponseEnd, SessionFiles, SessionStore
from kimi.application.sessions.fork_session import fork, load_turns, undo
from kimi.application.step.checkpoints import send_dmail
from kimi.domain.content.message import Function, Message, ToolCall, message_text, user_message
from kimi.domain.content.parts import TextPart, UserInput
from kimi.domain.errors import APIStatusError, StateError
from kimi.domain.events.event import Event, StepBegin, TurnBegin, TurnEnd
from kimi.domain.history.history import find_unanswered_calls
from kimi.domain.history.session import CheckpointRecord, SystemPromptRecord
from kimi.domain.permissions.approval import Policy
from kimi.domain.skills.flow_d2 import parse_d2
from kimi.domain.skills.skill import Skill
from kimi.domain.tools.tool import INTERRUPTED, TodoItem, ToolReturnValue, tool_ok
from kimi.domain.turn import TokenUsage, TurnLimits
from kimi.infrastructure.store.jsonl import JsonlStore
from kimi.infrastructure.store.memory import MemoryStore
from tests.support.conversations import Reaction, Run, conversation_with, run, with_resources
from tests.support.fakes import FakeModel, FakeTool, Script

pytestmark = pytest.mark.anyio

LOOP = "BEGIN -> first -> second -> END\nfirst: The first part\nsecond: The second part"


def jsonl(directory: Path) -> SessionStore:
    return JsonlStore(str(directory / "share"), "/srv/app", lock_wait_s=0.15)


def memory(directory: Path) -> SessionStore:
    return MemoryStore("/srv/app", lock_wait_s=0.15)


@pytest.fixture(params=[jsonl, memory], ids=["jsonl", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStore:
    make: Callable[[Path], SessionStore] = request.param
    return make(tmp_path)


def says(text: str, used: int = 100) -> Script:
    return [TextPart(text), ResponseEnd(usage=TokenUsage(input_other=used))]


def calls(*call_ids: str) -> Script:
    return [*(ToolCall(call_id, Function("Look", "{}")) for call_id in call_ids), ResponseEnd()]


@dataclass
class Story:
    """A conversation, and after each of its turns what the model knew and how many events there were."""

    store: SessionStore
    conversation: Conversation
    model: FakeModel
    known: list[list[Message]] = field(default_factory=list[list[Message]])
    inputs: list[UserInput] = field(default_factory=list[UserInput])
    events: list[list[bytes]] = field(default_factory=list[list[bytes]])

    @property
    def files(self) -> SessionFiles:
        return self.conversation.files

    async def turn(
        self, text: UserInput, *scripts: Script, steered: str | None = None, reacting: Reaction | None = None
    ) -> Run:
        self.model.scripts += scripts
        waiting = [] if steered is None else [steered]

        def react(conversation: Conversation, event: Event) -> None:
            if waiting and isinstance(event, StepBegin):
                steer(conversation, waiting.pop())

        outcome = await run(self.conversation, text, react=reacting or react)
        self.conversation.events.flush()
        self.known.append(list(self.conversation.history.messages))
        self.inputs.append(text)
        self.events.append(list(self.files.events()))
        return outcome


async def begun(store: SessionStore) -> Story:
    async def look(arguments: object, context: object) -> ToolReturnValue:
        return tool_ok("seen")

    model = FakeModel([], context_size=100_000)
    files = await store.create("old")
    limits = TurnLimits(max_attempts=1, reserved_tokens=20_000)
    conversation = await conversation_with(model, [FakeTool("Look", look)], files=files, limits=limits)
    skills = [
        Skill("plain", "", "/s/plain", "User"),
        Skill("loop", "", "/s/loop", "User", parse_d2(LOOP)),
    ]
    conversation = with_resources(conversation, skills=SkillRegistry(lambda: skills, lambda path: "Do it well."))
    return Story(store, conversation, model)


async def reopened(store: SessionStore, session_id: str) -> SessionFiles:
    files = await store.open(session_id)
    assert files is not None
    return files


def messages(files: SessionFiles) -> list[Message]:
    return [record for record in files.load_context() if isinstance(record, Message)]


async def check(story: Story, turn: int) -> None:
    """Fork behind `turn`, and undo the one after it: both are what was there then."""
    forked = await fork(story.store, story.files, lambda: f"fork-{turn}", turn)
    ids = [(forked, "Fork")]
    if turn + 1 < len(story.inputs):
        undone = await undo(story.store, story.files, lambda: f"undo-{turn}", turn + 1)
        assert undone.user_input == story.inputs[turn + 1]
        ids.append((undone.session_id, "Undo"))
    for session_id, kind in ids:
        files = await reopened(story.store, session_id)
        assert messages(files) == story.known[turn], (kind, turn)
        assert isinstance(files.load_context()[0], SystemPromptRecord)
        assert list(files.events()) == story.events[turn]
        assert files.state.custom_title == f"{kind}: {story.files.state.custom_title}"
        files.close()


async def forked_as(name: str, store: SessionStore, files: SessionFiles, turn: int) -> SessionFiles:
    return await reopened(store, await fork(store, files, lambda: name, turn))


async def check_forks_of_forks(story: Story) -> None:
    """However often it is forked, the model knows what it knew."""
    for last in range(len(story.inputs)):
        files = await forked_as(f"first-{last}", story.store, story.files, last)
        for turn in range(last + 1):
            again = await forked_as(f"again-{last}-{turn}", story.store, files, turn)
            assert messages(again) == story.known[turn], (last, turn)
            again.close()
        files.close()


async def told(story: Story) -> None:
    """What happens in a session: reminders, commands, repeated texts, failures, steers, tools."""

    await story.turn("begin", says("hello"))
    await story.turn("go on", calls("c1", "c2"), says("looked"))
    await story.turn("go on", says("again"))
    await story.turn("/afk")
    await story.turn("go on", calls("c3"), says("alone"))
    await story.turn("go on", [APIStatusError(400, "no")])
    await story.turn("go on", says("once more"))
    await story.turn("/skill:plain now", says("done well"))
    await story.turn("/unknown")
    await story.turn((TextPart("two"), TextPart("parts")), says("wait"), says("both"), steered="and that too")
    await story.turn("/flow:loop", says("one"), says("two"))
    await story.turn("go on", says("end"))


@pytest.mark.spec("R-70")
async def test_fork_after_any_turn_restores_its_history(store: SessionStore) -> None:
    story = await begun(store)
    await told(story)
    assert [turn.user_input for turn in load_turns(story.files)] == story.inputs
    assert any("<system-reminder>" in message_text(message) for message in story.known[-1])
    for turn in range(len(story.inputs)):
        await check(story, turn)


@pytest.mark.spec("R-70")
@pytest.mark.parametrize("way", ["/compact", "/clear", "by itself"])
async def test_fork_restores_history_from_before_compaction_or_clear(store: SessionStore, way: str) -> None:
    story = await begun(store)
    await story.turn("begin", says("hello"))
    await story.turn("go on", calls("c1"), says("looked"))
    await story.turn("go on", says("full", 50 if way != "by itself" else 90_000))
    if way == "by itself":
        await story.turn("go on", says("They talked."), says("shorter"))
    else:
        await story.turn(way, *([says("They talked.")] if way == "/compact" else []))
    await story.turn("go on", calls("c2"), says("looked again"))
    await story.turn(way if way != "by itself" else "begin", *([] if way == "/clear" else [says("More talk.")]))
    await story.turn("go on", says("last"))
    for turn in range(len(story.inputs)):
        await check(story, turn)
    await check_forks_of_forks(story)


@pytest.mark.spec("R-70")
@pytest.mark.parametrize("back_to", [0, 1, 3])
async def test_fork_restores_history_discarded_by_dmail(store: SessionStore, back_to: int) -> None:
    story = await begun(store)

    def mail(conversation: Conversation, event: Event) -> None:
        if isinstance(event, StepBegin) and event.n == 1:
            assert send_dmail(conversation, "Do not.", back_to) is None

    await story.turn("begin", says("hello"))
    story.model.scripts += [calls("c1"), says("went back")]
    await story.turn("go on", reacting=mail)
    await story.turn("go on", says("last"))
    assert list(story.files.older_contexts())
    for turn in range(len(story.inputs)):
        await check(story, turn)
    await check_forks_of_forks(story)


async def test_the_first_turn_is_undone_to_the_system_prompt(store: SessionStore) -> None:
    story = await begun(store)
    await story.turn("begin", says("hello"))
    undone = await undo(store, story.files, lambda: "new")
    assert (undone.session_id, undone.user_input) == ("new", "begin")
    files = await reopened(store, "new")
    assert files.load_context() == [SystemPromptRecord("You are a test.")]
    assert (list(files.events()), files.state.custom_title) == ([], "Undo: begin")
    files.close()


async def test_full_fork_is_independent_and_inherits_no_approvals(store: SessionStore) -> None:
    story = await begun(store)
    await told(story)
    state = replace(
        story.files.state,
        yolo=True,
        auto_approve_actions=frozenset({"run command"}),
        todos=(TodoItem("look", "done"),),
        plan_mode=True,
    )
    story.files.save_state(state)
    await fork(store, story.files, lambda: "new")
    files = await reopened(store, "new")
    assert files.load_context() == story.files.load_context()
    assert list(files.timed_events()) == list(story.files.timed_events())
    new = files.state
    assert (new.yolo, new.afk, new.plan_mode, new.auto_approve_actions) == (False, False, False, frozenset())
    assert (new.todos, new.custom_title) == (state.todos, "Fork: begin")
    going_on = await conversation_with(FakeModel([says("fine")]), files=files, policy=Policy())
    await run(going_on, "and now?")
    assert message_text(messages(files)[-1]) == "fine"
    assert messages(story.files) == story.known[-1]
    files.close()


async def test_calls_of_a_turn_that_was_killed_are_answered(store: SessionStore) -> None:
    files = await store.create("old")
    call = Message("assistant", (), (ToolCall("c1", Function("Look", "{}")),))
    for text in ("first", "second"):
        for event in (TurnBegin(text), StepBegin(1), *([TurnEnd()] if text == "second" else [])):
            files.append_event(encode_event(event), 5.0)
    files.append_context([CheckpointRecord(0), user_message("first"), CheckpointRecord(1), call])
    files.append_context([CheckpointRecord(2), user_message("second"), CheckpointRecord(3)])
    assert [(turn.begin, turn.end) for turn in load_turns(files)] == [(0, None), (2, 5)]
    await fork(store, files, lambda: "new", 0)
    new = await reopened(store, "new")
    assert [message.role for message in messages(new)] == ["user", "assistant", "tool"]
    assert find_unanswered_calls(messages(new)) == []
    assert "interrupted" in message_text(messages(new)[-1])
    assert INTERRUPTED.is_error
    assert list(new.timed_events()) == [(encode_event(TurnBegin("first")), 5.0), (encode_event(StepBegin(1)), 5.0)]
    new.close()


async def test_fork_of_unknown_turn_is_refused_and_creates_no_session(store: SessionStore) -> None:
    story = await begun(store)
    for ask in (undo(store, story.files, lambda: "new"), fork(store, story.files, lambda: "new", 0)):
        with pytest.raises(StateError, match="no turn yet"):
            await ask
    await story.turn("begin", says("hello"))
    for turn in (-1, 1):
        with pytest.raises(StateError, match=f"no turn {turn}: the session has turns 0 to 0"):
            await fork(store, story.files, lambda: "new", turn)
    assert await store.open("new") is None
