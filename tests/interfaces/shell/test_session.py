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
from kimi.interfaces.shell.panels import Menu, MenuSelection, TabbedMenus
from kimi.interfaces.shell.preferences import FIRST_RUN_ARGUMENT, choose_model, log_in
from kimi.interfaces.shell.render.blocks import Block, Note
from kimi.interfaces.shell.render.status import StatusBarState
from kimi.interfaces.shell.session import CommandTable, ShellSession
from kimi.interfaces.shell.shell_context import ShellContext
from kimi.interfaces.shell.terminal.terminal_lease import TerminalLease
from kimi.interfaces.shell.terminal.terminal_ui import (
    EnteredInput,
    ExitRequested,
    LiveView,
    SessionUISetup,
    SteerRequested,
    UserAction,
)
from tests.support.conversations import conversation_with
from tests.support.fakes import FakeModel

pytestmark = pytest.mark.anyio

APPROVAL = ApprovalRequest("r1", "c1", "Shell", "run command", "Run it")
QUESTION = QuestionRequest("r2", "c2", (Question("Which?", options=(QuestionOption("a"), QuestionOption("b"))),))


@dataclass
class FakeFront:
    """A terminal at which nothing is typed but what `type` is given; its panels stay open, break, or are answered."""

    breaks: bool = False
    picks: MenuSelection | None = None
    is_interactive: bool = True
    asked: list[str] = field(default_factory=list[str])
    commands: list[Sequence[str]] = field(default_factory=list[Sequence[str]])
    lease: TerminalLease = field(default_factory=TerminalLease)
    open: int = 0
    shown: list[Block] = field(default_factory=list[Block])

    typed: list[UserAction] = field(default_factory=list[UserAction])
    arrived: anyio.Event = field(default_factory=anyio.Event)

    has_input: bool = False

    def copy(self, text: str) -> bool:
        return False

    def type(self, one: UserAction) -> None:
        self.typed.append(one)
        self.arrived.set()

    def begin_session(self, setup: SessionUISetup) -> None: ...

    async def read(self) -> UserAction:
        await self.arrived.wait()
        self.arrived = anyio.Event()
        return self.typed.pop(0)

    def show(self, *blocks: Block) -> None:
        self.shown += blocks

    def update(self, view: LiveView) -> None: ...

    async def ask(self, menu: Menu) -> MenuSelection | None:
        return self.picks or await self._panel(menu.title)

    async def ask_all(self, tabs: TabbedMenus) -> tuple[MenuSelection, ...] | None:
        return await self._panel(tabs.current_menu.title)

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

    def ring_bell(self) -> None: ...

    async def run_program(self, command: Sequence[str], work_dir: str) -> int:
        self.commands.append(command)
        return 1

    def set_theme(self, name: str) -> None: ...


def session_on(front: FakeFront, conversation: Conversation, flags: Flags | None = None) -> ShellSession:
    settings = Settings.model_validate({"share_dir": "/nowhere", "work_dir": "/"})
    place = ShellContext(App(settings=providers.Object(settings)), conversation, settings, flags or Flags("/"), {})
    return ShellSession(conversation, front, CommandTable(), lambda: StatusBarState("m", "/"), place)


@pytest.mark.parametrize(
    ("request_", "refused"), [(APPROVAL, ApprovalAnswer("reject")), (QUESTION, QuestionAnswer({}))]
)
async def test_failing_panel_rejects_its_request(request_: Request, refused: Answer) -> None:
    conversation = await conversation_with(None)
    front = FakeFront(breaks=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(front, conversation).run)
        with anyio.fail_after(5):
            assert await conversation.events.pending_requests.ask(request_, conversation.events.emit) == refused
        front.type(ExitRequested())
    assert len(front.asked) == 1


@pytest.mark.parametrize("settled", [ApprovalResponse("r1", "approve"), TurnEnd()])
async def test_request_resolved_before_its_panel_opens_shows_no_panel(
    settled: ApprovalResponse | TurnEnd,
) -> None:
    conversation = await conversation_with(None)
    conversation.events.emit_nowait(APPROVAL)
    conversation.events.emit_nowait(settled)
    conversation.events.emit_nowait(TextPart("on it goes\n\n"))
    front = FakeFront()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(front, conversation).run)
        await anyio.wait_all_tasks_blocked()
        assert front.shown
        assert front.open == 0
        front.type(ExitRequested())


async def test_closing_the_terminal_ui_ends_the_running_turn() -> None:
    streams = anyio.Event()

    async def answer_for_ever() -> None:
        streams.set()
        await anyio.sleep_forever()

    conversation = await conversation_with(FakeModel([[TextPart("wait"), answer_for_ever]]))
    front = FakeFront()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session_on(front, conversation).run)
            front.type(EnteredInput("go"))
            await streams.wait()
            tasks.cancel_scope.cancel()
    assert conversation.turn is None


async def test_input_during_a_single_prompt_is_reported_or_steers() -> None:
    streams, over = anyio.Event(), anyio.Event()

    async def until_it_is_over() -> None:
        streams.set()
        await over.wait()

    model = FakeModel([[TextPart("wait"), until_it_is_over], [TextPart("heard")]])
    conversation = await conversation_with(model)
    front = FakeFront()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session_on(front, conversation).run_once, EnteredInput("go"))
        await streams.wait()
        for one in (
            EnteredInput("and this"),
            SteerRequested(EnteredInput("ls", is_shell_command=True)),
            SteerRequested(EnteredInput("use tabs")),
        ):
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


async def test_setup_command_ignores_modules_of_the_work_dir(tmp_path: Path) -> None:
    front = FakeFront()
    await log_in(session_on(front, await conversation_with(None)), "")
    (command,) = front.commands
    (tmp_path / "kimi").mkdir()
    (tmp_path / "kimi" / "__init__.py").write_text("raise SystemExit('not me')", encoding="utf-8")
    done = await anyio.run_process([*command, "--help"], cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", ["", FIRST_RUN_ARGUMENT])
async def test_setup_is_refused_with_an_explicit_configuration(arguments: str) -> None:
    front = FakeFront(picks=MenuSelection((0,)))
    session = session_on(front, await conversation_with(None), Flags("/", config="{}"))
    with pytest.raises(StateError, match="not with --config"):
        await log_in(session, arguments)
    assert not front.commands


async def test_invalid_model_arguments_are_refused() -> None:
    with pytest.raises(StateError, match=r"/model \[alias\] \[on\|off\]"):
        await choose_model(session_on(FakeFront(), await conversation_with(None)), "m loud")
