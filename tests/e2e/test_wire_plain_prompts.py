"""Prompts of others that a program passes on: every one is text, and none a command (runtime spec 7.1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kimi.domain.content.message import message_text
from kimi.domain.content.parts import TextPart
from tests.support.acp.client import acp_client, using
from tests.support.fakes import FakeModel
from tests.support.program.acp_process import acp_process
from tests.support.program.wire_process import Json, Place, WireProcess
from tests.support.providers.scripts import error_of

FLOW = "---\nname: ship\ndescription: Ship\ntype: flow\n---\n```d2\nBEGIN -> Test -> END\n```\n"
COMMANDS = (
    "/yolo",
    "/import .env",
    "/clear",
    "/init",
    "/skill:tidy now",
    "/flow:ship",
    "/skill:ship",
    "/nope",
    "/btw x",
)
OFF = "--no-slash-commands"


@pytest.fixture
def skilled(place: Place) -> Place:
    """A place with a skill, a flow and a secret, whose model always says the same."""
    for name, text in (("tidy", "---\ndescription: Tidy\n---\nTidy.\n"), ("ship", FLOW)):
        path = place.work / ".kimi/skills" / name / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    (place.work / ".env").write_text("TOKEN=secret\n", encoding="utf-8")
    return place.script(*["text: heard"] * 50)


def prompts_in(context: list[Json]) -> list[str]:
    """The prompts that a stored context holds."""
    texts = [record["content"] for record in context if record["role"] == "user"]
    return [text if isinstance(text, str) else text[0]["text"] for text in texts]


def say_all(kimi: WireProcess) -> None:
    """Send every command as a prompt, which the model answers."""
    for command in COMMANDS:
        kimi.lines.clear()
        assert kimi.prompt(command)["result"] == {"status": "finished"}
        assert kimi.text == "heard", command


@pytest.mark.spec("R-241")
def test_prompts_are_text_where_the_start_says_so(skilled: Place) -> None:
    with skilled.wire(OFF) as kimi:
        say_all(kimi)  # without a handshake
        assert kimi.initialize(slash_commands=True)["slash_commands"] == []  # a client cannot turn them on again
        say_all(kimi)
        assert kimi.finish() == 0
    assert prompts_in(skilled.context()) == [*COMMANDS, *COMMANDS]
    printed = skilled.run("--quiet", OFF, "--prompt", "/import .env")
    assert (printed.returncode, printed.stdout) == (0, b"heard\n")
    with acp_process(skilled, OFF) as kimi:
        kimi.shake_hands()
        session = kimi.new_session(skilled)
        assert kimi.until_update("available_commands_update")["availableCommands"] == []
        assert kimi.say(session, "/yolo")["result"]["stopReason"] == "end_turn"
        assert kimi.said == "heard"


@pytest.mark.spec("R-241")
def test_prompts_are_text_where_the_handshake_says_so(skilled: Place) -> None:
    with skilled.wire() as kimi:
        assert kimi.initialize(slash_commands=False)["slash_commands"] == []
        say_all(kimi)
        assert kimi.initialize()["slash_commands"] == []  # what is left out stays
        assert kimi.prompt("/yolo")["result"] == {"status": "finished"}
        assert "skill:tidy" in {one["name"] for one in kimi.initialize(slash_commands=True)["slash_commands"]}
        kimi.lines.clear()
        kimi.prompt("/nope")
        assert kimi.text == 'Unknown slash command "/nope".'
        wrong = kimi.call("initialize", {"protocol_version": "1.10", "slash_commands": "no"})
        assert error_of(kimi.response(wrong))[0] == -32602


@pytest.mark.spec("R-241")
@pytest.mark.anyio
@pytest.mark.parametrize("said", [True, None, "no", 0])
async def test_an_editor_turns_commands_off_with_false_only(tmp_path: Path, said: object) -> None:
    place = Place(tmp_path).script("text: unused")
    model = FakeModel([[TextPart("heard")] for _ in COMMANDS])
    async with acp_client(place, adapt=using(model)) as client:
        await client.shake_hands(_meta={"kimi": {"slashCommands": said}})
        await client.new_session(place)
        assert (await client.until_update("available_commands_update"))["availableCommands"]
        await client.shake_hands(_meta={"kimi": {"slashCommands": False}})
        session = await client.new_session(place)
        assert (await client.until_update("available_commands_update"))["availableCommands"] == []
        for command in COMMANDS:
            assert (await client.say(session, command))["result"]["stopReason"] == "end_turn"
    assert [message_text(asked.history[-1]) for asked in model.asked] == list(COMMANDS)


def test_a_fork_keeps_what_came_before_a_plain_clear(skilled: Place) -> None:
    with acp_process(skilled, OFF) as kimi:
        kimi.shake_hands()
        session = kimi.new_session(skilled)
        for text in ("first", "/clear", "last"):
            kimi.say(session, text)
        params: Json = {"sessionId": session, "cwd": str(skilled.work), "mcpServers": []}
        fork = kimi.result("session/fork", params)["sessionId"]
        kimi.say(fork, "after")
        assert kimi.finish() == 0
    (directory,) = skilled.share.glob(f"sessions/*/{fork}")
    records = [json.loads(line) for line in (directory / "context.jsonl").read_text(encoding="utf-8").splitlines()]
    assert prompts_in(records) == ["first", "/clear", "last", "after"]


def test_the_shell_keeps_its_commands(place: Place) -> None:
    refused = place.run(OFF)
    assert refused.returncode == 2
    assert b"--no-slash-commands is for programs" in refused.stderr
