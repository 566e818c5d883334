"""Another model for one conversation, from the next step on, remembered with the session only."""

import pytest

from kimi.application.control.switch_model import current_choice, switch_model
from kimi.application.conversation.model_selection import ModelCatalog, ModelChoice
from kimi.application.ports import ChatModel
from kimi.application.settings.settings import ModelSettings
from kimi.domain.client import Client
from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import ConfigError, StateError
from kimi.domain.events.event import Event
from tests.support.conversations import conversation_with, memory_files, run
from tests.support.fakes import FakeModel, FakeTool

pytestmark = pytest.mark.anyio

PLAIN = ModelSettings(alias="plain", provider_name="p", type="_echo", model="m1")
THINKER = ModelSettings(
    alias="thinker", provider_name="p", type="_echo", model="m2", capabilities=frozenset({"thinking"})
)
ALWAYS = ModelSettings(
    alias="always", provider_name="p", type="_echo", model="m3", capabilities=frozenset({"always_thinking"})
)


class Opened:
    """Opens fake models, and keeps what they were opened with."""

    def __init__(self, *answers: str) -> None:
        self.settings: list[ModelSettings] = []
        self._answers = list(answers)

    def __call__(self, settings: ModelSettings) -> ChatModel:
        if settings.model == "broken":
            raise ConfigError("The model cannot be used.")
        self.settings.append(settings)
        return FakeModel([[TextPart(answer)] for answer in self._answers], name=settings.model)


def models(opened: Opened) -> ModelCatalog:
    broken = ModelSettings(alias="broken", provider_name="p", type="_echo", model="broken")
    return ModelCatalog(PLAIN, {one.alias: one for one in (PLAIN, THINKER, ALWAYS, broken)}, opened)


async def test_the_choice_at_the_start_is_the_configured_model() -> None:
    conversation = await conversation_with(FakeModel([]), models=models(Opened()))
    assert current_choice(conversation) == ModelChoice("plain", False)


async def test_a_switch_counts_from_the_next_turn_and_is_stored() -> None:
    opened = Opened("from the other")
    files = await memory_files()
    conversation = await conversation_with(FakeModel([]), models=models(opened), files=files)
    assert switch_model(conversation, "thinker", True) == ModelChoice("thinker", True)
    assert opened.settings[0].thinking is True
    outcome = await run(conversation, "hello")
    assert TextPart("from the other") in outcome.events
    assert (files.state.model_alias, files.state.thinking) == ("thinker", True)


async def test_a_switch_in_a_running_turn_counts_from_the_next_step() -> None:
    opened = Opened("second step")
    first = FakeModel([[ToolCall("c1", Function("Look", "{}"))]])
    conversation = await conversation_with(first, [FakeTool("Look")], models=models(opened))

    def switch(_: object, event: Event) -> None:
        if isinstance(event, ToolCall):
            switch_model(conversation, "thinker")

    outcome = await run(conversation, "hello", react=switch)
    assert outcome.error is None
    assert len(first.asked) == 1
    assert TextPart("second step") in outcome.events


async def test_thinking_is_limited_to_model_capabilities() -> None:
    opened = Opened()
    conversation = await conversation_with(FakeModel([]), models=models(opened))
    assert switch_model(conversation, "always", False) == ModelChoice("always", True)
    assert switch_model(conversation, "plain") == ModelChoice("plain", False)
    assert [one.thinking for one in opened.settings] == [True, None]
    switch_model(conversation, "thinker", True)
    assert switch_model(conversation, thinking=False) == ModelChoice("thinker", False)


@pytest.mark.parametrize(("alias", "error"), [("unknown", StateError), ("broken", ConfigError)])
async def test_unusable_model_choice_changes_nothing(alias: str, error: type[Exception]) -> None:
    model = FakeModel([])
    conversation = await conversation_with(model, models=models(Opened()))
    with pytest.raises(error):
        switch_model(conversation, alias)
    assert conversation.model is model
    assert current_choice(conversation) == ModelChoice("plain", False)
    assert conversation.files.state.model_alias is None


LEVELLED = THINKER.model_copy(update={"alias": "levelled", "effort_levels": ("low", "high"), "thinking_effort": "low"})


def levelled(opened: Opened) -> ModelCatalog:
    return ModelCatalog(PLAIN, {one.alias: one for one in (PLAIN, THINKER, LEVELLED)}, opened)


@pytest.mark.spec("R-321")
async def test_an_effort_switches_thinking_on_and_is_stored_with_the_session() -> None:
    opened, files = Opened(), await memory_files()
    conversation = await conversation_with(FakeModel([]), models=levelled(opened), files=files)
    assert switch_model(conversation, "levelled") == ModelChoice("levelled", False, "low")
    assert switch_model(conversation, effort="high") == ModelChoice("levelled", True, "high")
    assert (opened.settings[-1].thinking, opened.settings[-1].thinking_effort) == (True, "high")
    assert (files.state.thinking, files.state.thinking_effort) == (True, "high")
    assert switch_model(conversation, thinking=False) == ModelChoice("levelled", False, "high")
    assert switch_model(conversation, "plain") == ModelChoice("plain", False)
    assert files.state.thinking_effort is None
    assert switch_model(conversation, "levelled") == ModelChoice("levelled", False, "low")


@pytest.mark.spec("R-321")
@pytest.mark.parametrize(
    ("alias", "effort", "why"),
    [
        ("levelled", "medium", "Unknown level of thinking 'medium' for 'levelled'; choose one of: low, high."),
        ("thinker", "low", "The provider of 'thinker' has no levels of thinking: switch it on or off."),
        ("plain", "low", "The model 'plain' is not known to think: it has no level of thinking."),
    ],
)
async def test_an_effort_that_a_model_does_not_have_changes_nothing(alias: str, effort: str, why: str) -> None:
    model = FakeModel([])
    conversation = await conversation_with(model, models=levelled(Opened()))
    with pytest.raises(StateError) as caught:
        switch_model(conversation, alias, effort=effort)
    assert str(caught.value) == why
    assert conversation.model is model


@pytest.mark.spec("R-321")
async def test_the_model_command_takes_a_level_of_thinking() -> None:
    conversation = await conversation_with(FakeModel([]), models=levelled(Opened()))
    conversation.events.set_client(Client(wants_model_command=True))
    outcomes = [await run(conversation, text) for text in ("/model levelled high", "/model low", "/model thinker low")]
    texts = [event.text for outcome in outcomes for event in outcome.events if isinstance(event, TextPart)]
    assert texts == [
        "Model: levelled (thinking: high)",
        "Model: levelled (thinking: low)",
        "The provider of 'thinker' has no levels of thinking: switch it on or off.",
    ]
