"""A real process with patterns and schemas that explode: it keeps answering, and a cancel is prompt."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.mcp.entries import config, raw_entry
from tests.support.patterns.bombs import EXPLOSIVE_EXPRESSIONS, EXPLOSIVE_GLOBS, LONG_NAME, build_reference_bomb
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Json, Place
from tests.support.providers.scripts import call, step, tool

ROUNDS = 8
MATCHERS = ("(a|a)*!$", "(a+)+!$", ".*" * 24 + "!")
"""Matchers that are not found, so that nobody is asked."""

TEXT = "a" * 60 + "!"
LARGE = {"a": [{"b": "a" * 50, "c": [1, 2, 3]}] * 3_000}
BOMB: Json = dict(build_reference_bomb())
PATTERNS: Json = {
    "type": "object",
    "properties": {"a": {"allOf": [{"pattern": one} for one in EXPLOSIVE_EXPRESSIONS]}},
    "patternProperties": {pattern: {} for pattern in EXPLOSIVE_EXPRESSIONS},
    "additionalProperties": False,
}
DOUBLING: Json = {
    "type": "object",
    "properties": {"a": {"items": {"$ref": "#/$defs/d36"}, "uniqueItems": True}},
    "$defs": BOMB["$defs"],
}
CALLS: dict[str, list[tuple[str, Any]]] = {
    "references": [("refs", {"a": TEXT})],
    "patterns": [("patterns", {"a": TEXT, TEXT: 1})],
    "large arguments": [("doubling", LARGE), ("refs", LARGE)],
    "external tool": [("of-client", {"a": TEXT}), ("of-client", LARGE)],
    "globs": [("Glob", {"pattern": pattern}) for pattern in EXPLOSIVE_GLOBS],
    "ignore file": [("Glob", {"pattern": "**/*b*"}), ("Glob", {"pattern": "**/x/*"})],
    "search": [("Grep", {"pattern": "(a|a)*$"}), ("Grep", {"pattern": "(a+)+$", "glob": "*a" * 40 + "b"})],
}


def described(name: str, schema: Json) -> Json:
    return {"name": name, "description": "Explodes.", "inputSchema": schema}


@pytest.fixture
def hostile(place: Place) -> Place:
    """A place with a hostile server, and a work directory with a hostile ignore file and long names."""
    tools = [described("refs", BOMB), described("patterns", PATTERNS), described("doubling", DOUBLING)]
    tools.append(described("root", {"$ref": "#/$defs/d0", "$defs": BOMB["$defs"]}))
    (place.share / "mcp.json").write_text(config(bad=raw_entry(tools=[*tools, "fine"])), encoding="utf-8")
    (place.work / ".git").mkdir()
    rules = [f"{'a*' * 14}{number}b" for number in range(2_000)] + list(EXPLOSIVE_GLOBS)
    (place.work / ".gitignore").write_text("\n".join(rules), encoding="utf-8")
    for number in range(300):
        (place.work / f"d{number}").mkdir()
        (place.work / f"d{number}" / LONG_NAME).mkdir()
    return place


def prompt_times(place: Place, name: str) -> list[float]:
    """Seconds from each cancel, a moment after a prompt, to the end of the turn."""
    place.script(
        *(step("text: x", *(call(f"c{n}-{at}", *one) for at, one in enumerate(CALLS[name]))) for n in range(500))
    )
    times: list[float] = []
    hooks = [{"id": "h", "event": "UserPromptSubmit", "matcher": pattern} for pattern in MATCHERS]
    with place.wire("--yolo") as kimi:
        parameters = {"a": {"anyOf": [{"pattern": "(a|a)*$"}, {"$ref": "#/$defs/d0"}]}}
        offers = [tool("of-client", properties=parameters, **{"$defs": BOMB["$defs"]})]
        found = kimi.initialize(client={"name": "t"}, external_tools=offers, hooks=hooks)
        assert found["external_tools"]["accepted"] == ["of-client"]
        for number in range(ROUNDS):
            prompt = kimi.call("prompt", {"user_input": "x" + "a" * 5_000})
            kimi.until("StepBegin")
            time.sleep(0.02 * number)
            began = time.monotonic()
            kimi.call("cancel")
            kimi.response(prompt)
            times.append(time.monotonic() - began)
    return times


@pytest.mark.spec("R-210", "R-211", "R-212", "R-214")
@pytest.mark.parametrize("name", CALLS)
def test_a_cancel_is_prompt_whatever_is_being_matched(hostile: Place, name: str) -> None:
    worst: list[float] = []
    while len(worst) < 3 and (not worst or min(worst) >= 0.2):  # a match that blocks would do so each time
        times = prompt_times(hostile, name)
        print(name, [round(one, 3) for one in sorted(times)])
        worst.append(max(times) / slowdown())
    assert min(worst) < 0.2, worst


def test_a_hostile_server_costs_its_own_tools_only(hostile: Place) -> None:
    hostile.script(
        step("text: x", call("c1", "refs", {"a": 1}), call("c2", "fine", {"text": "x"}), call("c3", "root", {})),
        "text: ok",
    )
    with hostile.wire("--yolo") as kimi:
        kimi.initialize(client={"name": "t"})
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        results = {item["tool_call_id"]: item["return_value"] for item in kimi.payloads("ToolResult")}
    assert "takes too many steps" in results["c1"]["message"]
    assert not results["c2"]["is_error"]
    assert "not found" in results["c3"]["message"], "a tool whose schema explodes by itself is left out"
