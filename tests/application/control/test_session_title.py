"""The title of a session: the first prompt, or what a model for titles writes beside the first turn."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from kimi.application.control.session_title import session_title, set_title
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.model_selection import ModelCatalog
from kimi.application.ports import ChatModel, ResponseEnd
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import message_text
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import APIConnectionError
from kimi.domain.turn import TokenUsage
from tests.support.conversations import conversation_with, run
from tests.support.fakes import FakeModel, Script

pytestmark = pytest.mark.anyio

SMALL = ModelSettings(
    alias="small",
    provider_name="p",
    type="_echo",
    model="s",
    capabilities=frozenset({"thinking"}),
    thinking=True,
)


async def titled(model: FakeModel, opened: list[ModelSettings] | None = None) -> Conversation:
    """A conversation whose titles this model writes."""

    def open_model(settings: ModelSettings) -> ChatModel:
        if opened is not None:
            opened.append(settings)
        return model

    catalog = ModelCatalog(None, {"small": SMALL}, open_model, title_model="small")
    return await conversation_with(FakeModel([[TextPart("ok")], [TextPart("ok")]]), models=catalog)


async def talk(conversation: Conversation, *prompts: str) -> None:
    """Run a turn for each prompt, and wait for what was started beside them."""
    async with anyio.create_task_group() as group:
        conversation.resources.hooks.set_task_group(group)
        for prompt in prompts:
            assert (await run(conversation, prompt)).error is None


@pytest.mark.spec("R-325")
async def test_a_model_writes_the_title_once_and_without_thinking() -> None:
    opened: list[ModelSettings] = []
    usage = TokenUsage(input_other=40, output=4)
    small = FakeModel([[TextPart(' "Mend the '), TextPart('parser"\n'), ResponseEnd("t", usage, "end")]])
    conversation = await titled(small, opened)

    await talk(conversation, "please mend the parser, it fails on blanks", "and the tests")

    assert session_title(conversation) == "Mend the parser"
    assert [message_text(one) for one in small.asked[0].history] == ["please mend the parser, it fails on blanks"]
    assert len(small.asked) == 1
    assert [one.thinking for one in opened] == [False]
    assert conversation.models.usage.figures.session.tokens.output == 4


@pytest.mark.spec("R-325")
@pytest.mark.parametrize("said", [[APIConnectionError("no network")], [[TextPart(" \n")]], [[TextPart('""')]]])
async def test_the_first_prompt_stays_the_title_when_the_model_gives_none(said: list[Script]) -> None:
    conversation = await titled(FakeModel(said))
    await talk(conversation, "mend the parser")
    assert session_title(conversation) == "mend the parser"


@pytest.mark.spec("R-325")
async def test_a_title_that_the_user_gives_meanwhile_stays() -> None:
    conversation = await titled(FakeModel([[TextPart("Mend the parser")]]))
    async with anyio.create_task_group() as group:
        conversation.resources.hooks.set_task_group(group)
        group.start_soon(run, conversation, "mend the parser")
        while conversation.files.state.custom_title is None:
            await anyio.lowlevel.checkpoint()
        set_title(conversation, "mine")
    assert session_title(conversation) == "mine"


async def test_without_a_model_for_titles_the_first_prompt_is_the_title() -> None:
    conversation = await conversation_with(FakeModel([[TextPart("ok")]]))
    await talk(conversation, "mend the parser")
    assert session_title(conversation) == "mend the parser"
