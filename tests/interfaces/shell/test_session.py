"""What a session does with a front that fails or is late, and what its commands refuse."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from kimi.application.conversation.conversation import Conversation
from kimi.application.settings.flags import Flags
from kimi.application.settings.settings import Settings
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import StateError
from kimi.domain.events.event import ApprovalResponse, TurnEnd
from kimi.domain.events.request import (
    Answer,
    ApprovalAnswer,
    ApprovalRequest,
    Question,
    QuestionAnswer,
    QuestionOption,
    QuestionRequest,
    Request,
)
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.shell.panels import Menu, Picked, Tabs
from kimi.interfaces.shell.preferences import FIRST_RUN, choose_model, log_in
from kimi.interfaces.shell.render.blocks import Block, Note
from kimi.interfaces.shell.render.status import Status
from kimi.interfaces.shell.session import CommandTable, ShellSession
from kimi.interfaces.shell.shell_context import Place
from kimi.interfaces.shell.terminal.terminal_lease import Loan
from kimi.interfaces.shell.terminal.terminal_ui import Entered, Input, Left, Setup, Steered, View
from tests.support.conversations import conversation_with
from tests.support.fakes import FakeModel

pytestmark = pytest.mark.anyio

APPROVAL = ApprovalRequest("r1", "c1", "Shell", "run command", "Run it")
QUESTION = QuestionRequest("r2", "c2", (Question("Which?", options=(QuestionOption("a"), QuestionOption("b"))),))


@dataclass
class FakeFront:
    """A terminal at which nothing is typed but what `type` is given; its panels stay open, break, or are answered."""

    breaks: bool = False
    picks: Picked | None = None
    interactive: bool = True
    asked: list[str] = field(default_factory=list[str])
    commands: list[Sequence[str]] = field(default_factory=list[Sequence[str]])
    loan: Loan = field(default_factory=Loan)
    open: int = 0
    shown: list[Block] = field(default_factory=list[Block])

    typed: list[Input] = field(default_factory=list[Input])
    arrived: anyio.Event = field(default_factory=anyio.Event)

    def type(self, one: Input) -> None:
        self.typed.append(one)
        self.arrived.set()

    def begin(self, setup: Setup) -> None: ...

    async def read(self) -> Input:
        await self.arrived.wait()
        self.arrived = anyio.Event()
        return self.typed.pop(0)

    def show(self, *blocks: Block) -> None:
        self.shown += blocks

    def update(self, view: View) -> None: ...

    async def ask(self, menu: Menu) -> Picked | None:
        return self.picks or await self._panel(menu.title)

    async def ask_all(self, tabs: Tabs) -> tuple[Picked, ...] | None:
        return await self._panel(tabs.menu.title)

    async def _panel(self, title: str) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        self.asked.append(title)
        if self.breaks:
            raise ValueError("it cannot be drawn")
        self.open += 1
        try:
            await anyio.sleep_forever()
        finally:
            self.open -= 1

    def prefill(self, text: str) -> None: ...

    def bell(self) -> None: ...

    async def run_local(self, command: Sequence[str], work_dir: str) -> int:
        self.commands.append(command)
        return 1

    def set_theme(self, name: str) -> None: ...


def session_on(front: FakeFront, conversation: Conversation, flags: Flags | None = None) -> ShellSession:
    settings = Settings.model_validate({"share_dir": "/nowhere", "work_dir": "/"})
    place = Place(App(settings=providers.Object(settings)), conversation, settings, flags or Flags("/"), {})
    return ShellSession(conversation, front, CommandTable(), lambda: Status("m", "/"), place)


@pytest.mark.parametrize(
    ("request_", "refused"), [(APPROVAL, ApprovalAnswer("reject")), (QUESTION, QuestionAnswer({}))]
)
async def test_a_panel_that_breaks_refuses_its_request_in_its_own_kind(request_: Request, refused: Answer) -> None:
    conversation = await conversation_with(None)
    front = FakeFront(breaks=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(front, conversation).run)
        with anyio.fail_after(5):
            assert await conversation.waiting.ask(request_, conversation.emit) == refused
        front.type(Left())
    assert len(front.asked) == 1


@pytest.mark.parametrize("settled", [ApprovalResponse("r1", "approve"), TurnEnd()])
async def test_a_request_that_is_settled_before_its_panel_is_open_opens_none(
    settled: ApprovalResponse | TurnEnd,
) -> None:
    conversation = await conversation_with(None)
    conversation.post(APPROVAL)
    conversation.post(settled)
    conversation.post(TextPart("on it goes\n\n"))
    front = FakeFront()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(front, conversation).run)
        await anyio.wait_all_tasks_blocked()
        assert front.shown
        assert front.open == 0
        front.type(Left())


async def test_a_session_whose_front_is_gone_ends_with_its_turn() -> None:
    streams = anyio.Event()

    async def answer_for_ever() -> None:
        streams.set()
        await anyio.sleep_forever()

    conversation = await conversation_with(FakeModel([[TextPart("wait"), answer_for_ever]]))
    front = FakeFront()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session_on(front, conversation).run)
            front.type(Entered("go"))
            await streams.wait()
            tasks.cancel_scope.cancel()
    assert conversation.turn is None


async def test_what_is_entered_beside_a_single_prompt_is_not_lost_silently() -> None:
    streams, over = anyio.Event(), anyio.Event()

    async def until_it_is_over() -> None:
        streams.set()
        await over.wait()

    model = FakeModel([[TextPart("wait"), until_it_is_over], [TextPart("heard")]])
    conversation = await conversation_with(model)
    front = FakeFront()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(front, conversation).run_once, Entered("go"))
        await streams.wait()
        for one in (Entered("and this"), Steered(Entered("ls", shell=True)), Steered(Entered("use tabs"))):
            front.type(one)
            await anyio.wait_all_tasks_blocked()
        over.set()
    assert [block.text for block in front.shown if isinstance(block, Note)] == [
        "One prompt is answered here; Ctrl-S sends words into its turn."
    ] * 2
    assert [message.content for message in model.asked[1].history if message.role == "user"] == [
        (TextPart("go"),),
        (TextPart("use tabs"),),
    ]


async def test_what_sets_a_provider_up_is_this_program_whatever_lies_in_the_work_dir(tmp_path: Path) -> None:
    front = FakeFront()
    await log_in(session_on(front, await conversation_with(None)), "")
    (command,) = front.commands
    (tmp_path / "kimi").mkdir()
    (tmp_path / "kimi" / "__init__.py").write_text("raise SystemExit('not me')", encoding="utf-8")
    done = await anyio.run_process([*command, "--help"], cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", ["", FIRST_RUN])
async def test_a_given_configuration_is_not_set_up(arguments: str) -> None:
    front = FakeFront(picks=Picked((0,)))
    session = session_on(front, await conversation_with(None), Flags("/", config="{}"))
    with pytest.raises(StateError, match="not with --config"):
        await log_in(session, arguments)
    assert not front.commands


async def test_a_model_is_not_chosen_with_words_that_mean_nothing() -> None:
    with pytest.raises(StateError, match=r"/model \[alias\] \[on\|off\]"):
        await choose_model(session_on(FakeFront(), await conversation_with(None)), "m loud")
