"""The names of kimi-agent-sdk: programs that were written for it run after a change of the import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kimi.interfaces import agent_sdk as sdk
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply
from tests.support.providers.scripted_calls import call

pytestmark = pytest.mark.anyio

HEAD = """
default_model = "main"
[providers.p]
type = "{type}"
base_url = "{url}"
api_key = "secret-key"
[models.main]
provider = "p"
model = "m"
max_context_size = 100000
[models.other]
provider = "p"
model = "o"
max_context_size = 100000
"""
WRITE = call("c1", "WriteFile", path="new.txt", content="x")

Script = Callable[..., None]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The work directory; the configuration names the model that plays scripts."""
    monkeypatch.setenv("KIMI_SHARE_DIR", str(tmp_path / "share"))
    (tmp_path / "share").mkdir()
    (tmp_path / "share" / "config.toml").write_text(HEAD.format(type="_scripted_echo", url=""))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Says what the model answers, one text a call."""

    def play(*answers: str) -> None:
        (tmp_path / "scripts.txt").write_text("\n---\n".join(answers))

    monkeypatch.setenv("KIMI_SCRIPTED_ECHO_SCRIPTS", str(tmp_path / "scripts.txt"))
    return play


@pytest.mark.spec("R-428")
async def test_prompt_yields_whole_messages(work: Path, script: Script) -> None:
    script("text: look\ntext: ing\n" + call("c1", "Glob", pattern="*"), "think: hm\ntext: done")
    found = [message async for message in sdk.prompt("go", work_dir=work, yolo=True)]
    assert [(one.role, one.extract_text()) for one in found if one.role == "assistant"] == [
        ("assistant", "looking"),
        ("assistant", "done"),
    ]
    assert [one.role for one in found] == ["assistant", "tool", "assistant"]
    assert found[0].tool_calls[0].function.name == "Glob"
    assert found[1].tool_call_id == "c1"
    assert isinstance(found[2].content[0], sdk.ThinkPart)
    assert "Message(role='assistant'" in repr(found[0])


async def test_prompt_yields_only_the_final_message_when_asked(work: Path, script: Script) -> None:
    script("text: first\n" + call("c1", "Glob", pattern="*"), "text: last")
    found = [one.extract_text() async for one in sdk.prompt("go", work_dir=work, yolo=True, final_message_only=True)]
    assert found == ["last"]


@pytest.mark.spec("R-428")
@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize(("word", "is_written"), [("approve", True), ("approve_for_session", True), ("reject", False)])
async def test_handler_of_prompt_resolves_requests(
    work: Path, script: Script, kind: str, word: Any, is_written: bool
) -> None:
    def handle(request: sdk.ApprovalRequest) -> None:
        assert (request.sender, request.tool_call_id, request.resolved) == ("WriteFile", "c1", False)
        request.resolve(word)
        request.resolve("reject")
        assert request.resolved

    async def handle_later(request: sdk.ApprovalRequest) -> None:
        handle(request)
        assert await request.wait() == word

    script(WRITE, "text: ok")
    handler = handle if kind == "plain" else handle_later
    async for _ in sdk.prompt("write", work_dir=work, approval_handler_fn=handler):
        pass
    assert (work / "new.txt").exists() == is_written


async def test_prompt_without_anybody_who_approves_is_refused(work: Path) -> None:
    with pytest.raises(sdk.PromptValidationError, match="approval_handler_fn"):
        sdk.prompt("go", work_dir=work)


async def test_misspelled_arguments_are_refused(work: Path) -> None:
    wrong: Any = {"yollo": True}
    for make in (lambda: sdk.prompt("go", **wrong), lambda: sdk.Session.create(work, **wrong).send(None)):
        with pytest.raises(TypeError, match="did you mean 'yolo'"):
            make()


async def test_prompt_takes_every_argument_of_the_package(work: Path, script: Script, tmp_path: Path) -> None:
    script("text: one")
    (tmp_path / "agent.yaml").write_text("version: 1\nagent: {extend: default, name: mine}\n")
    (tmp_path / "skills").mkdir()
    found = [
        message
        async for message in sdk.prompt(
            "go",
            work_dir=work,
            config=tmp_path / "share" / "config.toml",
            model="other",
            thinking=False,
            yolo=True,
            agent_file=tmp_path / "agent.yaml",
            mcp_configs=[{"mcpServers": {}}],
            skills_dir=tmp_path / "skills",
            max_steps_per_turn=3,
            max_retries_per_step=1,
            max_ralph_iterations=0,
            final_message_only=True,
            approval_handler_fn=None,
        )
    ]
    assert [one.extract_text() for one in found] == ["one"]


@pytest.mark.spec("R-428")
async def test_session_streams_pieces_or_merged_parts(work: Path, script: Script) -> None:
    script("text: a\ntext: b", "text: a\ntext: b")
    async with await sdk.Session.create(work_dir=work) as session:
        assert (session.model_name, bool(session.id)) == ("scripted_echo", True)
        pieces = [one.text async for one in session.prompt("one") if isinstance(one, sdk.TextPart)]
        merged = [one async for one in session.prompt([sdk.TextPart("two")], merge_wire_messages=True)]
    assert pieces == ["a", "b"]
    kinds = [type(one) for one in merged]
    assert kinds == [sdk.TurnBegin, sdk.StepBegin, sdk.TextPart, sdk.StatusUpdate, sdk.TurnEnd]
    assert merged[2] == sdk.TextPart("ab")
    assert isinstance(merged[2], sdk.ContentPart)


@pytest.mark.spec("R-428")
async def test_requests_of_a_session_are_resolved_while_it_is_read(work: Path, script: Script) -> None:
    script(WRITE, "text: ok")
    async with await sdk.Session.create(work_dir=work) as session:
        async for message in session.prompt("write"):
            match message:
                case sdk.ApprovalRequest() as request:
                    with pytest.raises(ValueError, match="is no answer"):
                        request.resolve("yes")  # pyright: ignore[reportArgumentType]
                    request.resolve("approve")
                case _:
                    pass
    assert (work / "new.txt").exists()


@pytest.mark.spec("R-428")
async def test_session_is_resumed_by_its_id_or_as_the_last_one(work: Path, script: Script) -> None:
    script("text: one")
    assert await sdk.Session.resume(work) is None
    assert await sdk.Session.resume(work, "none") is None
    session = await sdk.Session.create(work, session_id="mine")
    async for _ in session.prompt("go"):
        pass
    await session.close()
    await session.close()
    for session_id in ("mine", None):
        again = await sdk.Session.resume(work, session_id)
        assert again is not None
        assert again.id == "mine"
        await again.close()


@pytest.mark.spec("R-428")
async def test_cancelled_turn_raises_run_cancelled(work: Path, script: Script) -> None:
    script(call("c1", "Shell", command="sleep 30"), "text: next")
    async with await sdk.Session.create(work, yolo=True) as session:

        async def read() -> None:
            async for message in session.prompt("go"):
                if isinstance(message, sdk.ToolCall):
                    session.cancel()

        with pytest.raises(sdk.RunCancelled):
            await read()
        async for _ in session.prompt("and now?"):
            break
        stream = session.prompt("again")
        await stream.aclose()


async def read_all(work: Path, **options: Any) -> None:
    async for _ in sdk.prompt("go", work_dir=work, yolo=True, **options):
        pass


@pytest.mark.spec("R-428")
async def test_errors_have_the_classes_of_the_package(work: Path, script: Script, tmp_path: Path) -> None:
    script(*[call(f"c{number}", "Glob", pattern="*") for number in range(3)])
    with pytest.raises(sdk.MaxStepsReached) as caught:
        await read_all(work, max_steps_per_turn=2)
    assert caught.value.n_steps == 2
    with pytest.raises(sdk.ConfigError):
        await read_all(work, config="not = [")
    (tmp_path / "agent.yaml").write_text("version: 1\nagent: {extend: default, tools: [no:Tool]}\n")
    with pytest.raises(sdk.AgentSpecError):
        await read_all(work, agent_file=tmp_path / "agent.yaml")
    with pytest.raises(sdk.MCPConfigError):
        await read_all(work, mcp_configs=["not json"])
    with pytest.raises(sdk.LLMNotSet):
        await read_all(work, config={})
    async with await sdk.Session.create(work) as session:
        first = session.prompt("one")
        await anext(first)
        with pytest.raises(sdk.SessionStateError):
            await anext(session.prompt("two"))
        await first.aclose()
        picture = sdk.ImageURLPart(image_url=None)  # pyright: ignore[reportArgumentType]
        with pytest.raises(sdk.LLMNotSupported):
            await read_session(session, [picture])


async def read_session(session: sdk.Session, user_input: Any) -> None:
    async for _ in session.prompt(user_input):
        pass


async def test_status_of_a_provider_is_an_api_status_error(work: Path) -> None:
    with loopback(Reply(status=400)) as server:
        config = HEAD.format(type="openai_legacy", url=server.base_url)
        with pytest.raises(sdk.APIStatusError) as caught:
            await read_all(work, config=config)
    assert caught.value.status_code == 400
    assert isinstance(caught.value, sdk.ChatProviderError)
    assert isinstance(caught.value, sdk.KimiAgentException)


def test_every_public_name_is_there_and_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/embedding.md").read_text(encoding="utf-8")
    assert [name for name in sdk.__all__ if not hasattr(sdk, name) or f"`{name}" not in page] == []
