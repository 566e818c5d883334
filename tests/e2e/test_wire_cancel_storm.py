"""Cancels at random moments of every state of a turn: each is answered at once, and the next prompt works (R-243)."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.support.mcp.entries import config, raw_entry
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Json, Place, WireProcess
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import (
    Reply,
    call_reply,
    error_reply,
    text_events,
    text_reply,
)
from tests.support.providers.scripts import tool
from tests.support.robustness.talkative import QUESTION

LONG = os.environ.get("KIMI_LONG_TESTS") == "1"
CANCELS = 200 if LONG else 12
"""How many cancels of each state."""

P99_S = 0.1


def calling(name: str, arguments: object) -> Reply:
    """Return an answer of the model that calls a tool."""
    return call_reply(("c1", name, json.dumps(arguments)))


@dataclass(frozen=True)
class State:
    """A state of a turn: what the provider answers, for ever, the last reply again, and how the program is set up."""

    name: str
    replies: tuple[Reply, ...]
    flags: tuple[str, ...] = ("--yolo",)
    prompt: str = "go"
    setup: Callable[[Place], None] = lambda place: None
    prompts_before: int = 0
    """How many prompts must be answered first."""
    length_s: float = 0.15
    """Up to so long after the prompt the cancel comes."""


def add_hook(place: Place) -> None:
    """Let a hook run for ever."""
    place.config += '\n[[hooks]]\nevent = "UserPromptSubmit"\ncommand = "sleep 60"\ntimeout = 60\n'


def add_server(**options: object) -> Callable[[Place], None]:
    """Return what configures an MCP server with these options."""

    def add(place: Place) -> None:
        (place.share / "mcp.json").write_text(config(mute=raw_entry(**options)), encoding="utf-8")

    return add


MUTE = Reply(fault="mute")
CONNECTED = (calling("slow", {"text": "0"}), text_reply("connected"), calling("slow", {}))
STATES: Sequence[State] = (
    State("streaming", (Reply(text_events(*["x"] * 5000), event_delay_s=0.002),)),
    State("mute provider", (MUTE,)),
    State("command", (calling("Shell", {"command": "trap '' TERM INT; sleep 60"}),)),
    State("approval", (calling("Shell", {"command": "true"}),), flags=()),
    State("question", (calling("AskUserQuestion", QUESTION),), flags=()),
    State("external tool", (calling("ext", {}),)),
    State("MCP call", CONNECTED, setup=add_server(tools=["slow"]), prompts_before=1),
    State("MCP connection", (MUTE,), setup=add_server(silent=True)),
    State("retry", (error_reply(429),)),
    State("compaction", (*[text_reply("said")] * 5, MUTE), prompt="/compact", prompts_before=5),
    State("hook", (MUTE,), setup=add_hook),
    State("subagent", (calling("Agent", {"description": "x", "prompt": "x"}), MUTE) * 1000),
)


def storm(kimi: WireProcess, state: State, source: random.Random) -> list[float]:
    """Cancel prompts at random moments; return how long each took to be answered, in seconds."""
    took: list[float] = []
    for _ in range(CANCELS):
        prompt = kimi.call("prompt", {"user_input": state.prompt})
        if source.random() < 0.9:
            time.sleep(source.uniform(0, state.length_s))
        kimi.lines.clear()
        began = time.monotonic()
        cancel = kimi.call("cancel")
        result: Json = kimi.response(prompt)["result"]
        took.append(time.monotonic() - began)
        assert result == {"status": "cancelled"}
        assert any(line.get("id") == cancel and line.get("result") == {} for line in kimi.lines)
    return took


@pytest.mark.spec("R-243")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_cancel_is_answered_at_once_in_every_state(place: Place, state: State) -> None:
    state.setup(place)
    with loopback(*state.replies) as server:
        place.provider(server.base_url)
        with place.wire(*state.flags) as kimi:
            kimi.initialize(capabilities={"supports_question": True}, external_tools=[tool("ext")])
            for _ in range(state.prompts_before):
                assert kimi.prompt("first")["result"] == {"status": "finished"}
            pace = slowdown()
            took = sorted(storm(kimi, state, random.Random(7)))
            p99 = took[int(len(took) * 0.99)]
            print(f"{state.name}: {len(took)} cancels, p50 {took[len(took) // 2]:.3f} s, p99 {p99:.3f} s, x{pace:.1f}")
            assert p99 < P99_S * max(pace, slowdown()) * (1 if LONG else 2)
            assert "result" in kimi.response(kimi.call("set_plan_mode", {"enabled": False}))
            assert kimi.finish() == 0
