"""Clients of several generations on one long session: every kind of turn, line by line.

The expected lines are in `golden/`, one file per kind of turn, the same for all clients. To write them anew after a
deliberate change: `KIMI_WRITE_GOLDEN=1 pytest tests/e2e/test_wire_clients.py`, then read the difference.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kimi.domain.client import parse_version
from tests.support.program.wire_process import Answer, Json, Place, WireProcess, approval, approve
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, call_reply, error_reply, text_events, text_reply
from tests.support.providers.scripts import tool, tool_answer

GOLDEN = Path(__file__).parent / "golden"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
CONFIG = "[loop_control]\nmax_steps_per_turn = 2\nmax_retries_per_step = 2\n"

OLD_EVENTS = {
    "TurnBegin", "StepBegin", "StepInterrupted", "CompactionBegin", "CompactionEnd", "StatusUpdate", "ContentPart",
    "ToolCall", "ToolCallPart", "ToolResult", "SubagentEvent",
}  # fmt: skip
STRICT_EVENTS = OLD_EVENTS | {"TurnEnd", "ApprovalResponse"}
"""What the published Go client knows; it stops at anything else."""


@dataclass(frozen=True)
class Generation:
    """A client: what it says in its handshake (None: it knows none), and whether unknown events stop it."""

    name: str
    handshake: Json | None
    stops_at_unknown: bool = False

    @property
    def version(self) -> str:
        """The protocol version that it was written for."""
        return "1.0" if self.handshake is None else self.handshake["protocol_version"]


QUESTIONS = {"supports_question": True}
PLANS = {"supports_question": True, "supports_plan_mode": True}
CLIENT = {"name": "panel", "version": "0.1"}
HOOKS = [{"id": "h", "event": "PreToolUse", "matcher": "NoSuchTool"}]

GENERATIONS = (
    Generation("1.0", None),
    Generation("1.1", {"protocol_version": "1.1"}),
    Generation("1.2", {"protocol_version": "1.2", "client": CLIENT}),
    Generation("1.3", {"protocol_version": "1.3", "client": CLIENT}),
    Generation("1.4", {"protocol_version": "1.4", "client": CLIENT, "capabilities": QUESTIONS}),
    Generation("1.5", {"protocol_version": "1.5", "client": CLIENT, "capabilities": PLANS}),
    Generation("1.6", {"protocol_version": "1.6", "client": CLIENT, "capabilities": PLANS}),
    Generation("1.7", {"protocol_version": "1.7", "client": CLIENT, "capabilities": PLANS, "hooks": HOOKS}),
    Generation("1.8", {"protocol_version": "1.8", "client": CLIENT, "capabilities": PLANS, "hooks": HOOKS}),
    Generation("1.9", {"protocol_version": "1.9", "client": CLIENT, "capabilities": PLANS, "hooks": HOOKS}),
    Generation("go", {"protocol_version": "1.10"}, stops_at_unknown=True),
    Generation(
        "1.10",
        {
            "protocol_version": "1.10",
            "client": {"name": "panel", "version": "0.2"},
            "capabilities": {"supports_question": True, "supports_plan_mode": True},
        },
    ),
)


@dataclass(frozen=True)
class Turn:
    """A kind of turn: what the provider says, and what the client does."""

    name: str
    replies: Sequence[Reply]
    play: Callable[[WireProcess], Json]
    external: bool = False


def prompting(answer: Answer | None = None) -> Callable[[WireProcess], Json]:
    """A client that prompts and answers what it is asked."""
    return lambda kimi: kimi.prompt("go", answer)


def cancelling(awaited: str) -> Callable[[WireProcess], Json]:
    """A client that cancels as soon as it sees a certain event."""

    def play(kimi: WireProcess) -> Json:
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until(awaited)
        kimi.call("cancel")
        return kimi.response(prompt)

    return play


def rejecting(feedback: str = "") -> Callable[[WireProcess], Json]:
    """A client that rejects."""
    return prompting(lambda params: approval(params, "reject", feedback))


def command(call_id: str, text: str) -> Reply:
    """The provider asks for a command."""
    return call_reply((call_id, "Shell", json.dumps({"command": text})), text="One moment.")


DONE = text_reply("All ", "done.")

TURNS = (
    Turn("text", [text_reply("Hel", "lo")], prompting()),
    Turn("approved", [command("c1", "echo one"), DONE], prompting(approve)),
    Turn("rejected", [command("c2", "echo two")], rejecting()),
    Turn("rejected_with_feedback", [command("c3", "echo three"), DONE], rejecting("use ninja")),
    Turn("cancelled_in_approval", [command("c4", "echo four")], cancelling("ApprovalRequest")),
    Turn(
        "approved_for_session",
        [command("c5", "echo five"), DONE],
        prompting(lambda params: approval(params, "approve_for_session")),
    ),
    Turn("remembered", [command("c6", "echo six"), DONE], prompting()),
    Turn(
        "external_tool",
        [call_reply(("c7", "ask_ci", '{"job":"main"}')), DONE],
        prompting(lambda params: tool_answer(params["payload"]["id"], "green", message="asked")),
        external=True,
    ),
    Turn(
        "cancelled_in_external_tool",
        [call_reply(("c8", "ask_ci", '{"job":"main"}'))],
        cancelling("ToolCallRequest"),
        external=True,
    ),
    Turn("cancelled_in_command", [command("c9", "sleep 30")], cancelling("StatusUpdate")),
    Turn("cancelled_in_stream", [Reply(text_events(*["x"] * 2000), event_delay_s=0.005)], cancelling("ContentPart")),
    Turn("cancelled_in_stall", [Reply(text_events("half"), fault="stall", fault_after=1)], cancelling("ContentPart")),
    Turn("max_steps", [command("c10", "echo ten"), command("c11", "echo eleven")], prompting()),
    Turn("provider_error", [error_reply(400, "the request is bad")], prompting()),
    Turn("retry", [error_reply(503, "busy"), DONE], prompting()),
    Turn("text_at_last", [DONE], prompting()),
)


def normalised(lines: Sequence[Json], prompt: object) -> list[Json]:
    """Lines of a turn with what changes from run to run replaced; the pieces of a cancelled stream counted once."""
    text = json.dumps(lines)
    for number, found in enumerate(dict.fromkeys(UUID.findall(text))):
        text = text.replace(found, f"<id {number}>")
    kept: list[Json] = []
    for line in json.loads(text):
        if "method" not in line:
            line["id"] = "<prompt>" if line["id"] == prompt else "<cancel>"
        elif line["params"]["type"] == "StepRetry":
            line["params"]["payload"]["wait_s"] = "<wait>"
        if not (is_piece(line) and line in kept):
            kept.append(line)
    return kept


def is_piece(line: Json) -> bool:
    """Is it one of the many pieces of the cancelled stream?"""
    return "method" in line and line["params"]["payload"] == {"type": "text", "text": "x"}


def golden(name: str, lines: Sequence[Json]) -> list[Json]:
    """The expected lines; with KIMI_WRITE_GOLDEN they are these."""
    path = GOLDEN / f"{name}.jsonl"
    if os.environ.get("KIMI_WRITE_GOLDEN"):
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def known_to(generation: Generation, line: Json) -> bool:
    """Would the client get this line at all?"""
    return not generation.stops_at_unknown or line.get("method") != "event" or line["params"]["type"] in STRICT_EVENTS


def call_later_methods(kimi: WireProcess, version: tuple[int, int]) -> None:
    """What came after 1.1, each called by the clients that know it."""
    if version >= (1, 3):
        replayed = kimi.response(kimi.call("replay"))["result"]
        assert replayed["status"] == "finished"
        assert replayed["events"] > 50
    if version >= (1, 4):
        assert kimi.response(kimi.call("steer", {"user_input": "too late"}))["error"]["code"] == -32000
        for enabled in (True, False):
            answer = kimi.response(kimi.call("set_plan_mode", {"enabled": enabled}))
            assert answer["result"] == {"status": "ok", "plan_mode": enabled}


@pytest.mark.spec("R-93")
@pytest.mark.parametrize("generation", GENERATIONS, ids=[generation.name for generation in GENERATIONS])
def test_every_turn_kind_matches_the_recorded_client_generation(place: Place, generation: Generation) -> None:
    play_every_turn(place, generation, place.wire)


def play_every_turn(
    place: Place, generation: Generation, connect: Callable[[], AbstractContextManager[WireProcess]]
) -> None:
    """Play every kind of turn as a client of this generation, and compare the lines with the golden ones."""
    place.config = CONFIG
    turns = [turn for turn in TURNS if generation.handshake is not None or not turn.external]
    with loopback(*(reply for turn in turns for reply in turn.replies)) as server:
        place.provider(server.base_url)
        with connect() as kimi:
            if generation.handshake is not None:
                offer = tool("ask_ci", "Query the CI", properties={"job": {"type": "string"}})
                kimi.initialize(**generation.handshake, external_tools=[offer])
            for turn in turns:
                before = len(kimi.lines)
                prompt = turn.play(kimi)["id"]
                found = normalised(kimi.lines[before:], prompt)
                expected = [line for line in golden(turn.name, found) if known_to(generation, line)]
                assert found == expected, turn.name
            assert "ApprovalRequestResolved" not in kimi.types
            call_later_methods(kimi, parse_version(generation.version))
            assert kimi.finish() == 0
        assert len(server.requests) == sum(len(turn.replies) for turn in turns)


@pytest.mark.spec("R-93")
def test_two_parallel_calls_match_the_golden_lines(place: Place) -> None:
    calls = [(f"c{number}", "Shell", json.dumps({"command": f"sleep 0.{3 - 2 * number}"})) for number in range(2)]
    with loopback(call_reply(*calls), DONE) as server:
        place.provider(server.base_url)
        with place.wire("--yolo") as kimi:
            kimi.initialize()
            prompt = kimi.prompt("go")["id"]
            found = normalised(kimi.lines[1:], prompt)
            assert found == golden("two_parallel_calls", found)
