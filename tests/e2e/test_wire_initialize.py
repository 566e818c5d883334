"""The handshake: what is answered, what is refused, what it changes (wire spec 2, 3.1)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.support.program.wire_process import Json, Place, WireProcess
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, text_reply
from tests.support.providers.scripts import call, error_of, step, tool, tool_answer

REFUSED = (-32602, "Invalid parameters for method `initialize`")
HOOK_EVENTS = [
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop", "StopFailure", "SessionStart",
    "SessionEnd", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Notification",
]  # fmt: skip
KEYS = ["protocol_version", "server", "slash_commands", "hooks", "capabilities"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[WireProcess, None, None]:
    """One process for all tests that need no model."""
    place = Place(tmp_path_factory.mktemp("initialize")).script("text: ok", "text: ok")
    with place.wire() as kimi:
        yield kimi


@pytest.mark.spec("W-38")
def test_every_version_gets_the_same_answer(served: WireProcess) -> None:
    for version in ("1.0", "1", "1.10", "9.9", "zzz", "", "1.٣", "9" * 400 + ".1"):
        assert served.initialize(protocol_version=version)["protocol_version"] == "1.10"


def nulls(value: Any) -> bool:
    """Is there a null anywhere?"""
    if isinstance(value, dict):
        return any(nulls(item) for item in value.values())  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return any(nulls(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return value is None


@pytest.mark.spec("W-40", "W-41", "W-42", "R-126")
def test_initialize_result_has_the_documented_shape(served: WireProcess) -> None:
    plain = served.initialize()
    assert list(plain) == KEYS
    assert plain["server"]["name"] == "Kimi Code CLI"
    assert sorted(plain["server"]) == ["name", "version"]
    assert plain["capabilities"] == {"supports_question": True}
    assert list(served.initialize(external_tools=[])) == KEYS
    offered = served.initialize(external_tools=[tool("shape")])
    assert set(offered) == {*KEYS, "external_tools"}
    assert offered["external_tools"] == {"accepted": ["shape"], "rejected": []}
    refused = served.initialize(external_tools=[tool("Shell")])
    assert refused["external_tools"]["accepted"] == []
    assert not any(nulls(result) for result in (plain, offered, refused))
    assert plain["slash_commands"]
    for command in plain["slash_commands"]:
        assert list(command) == ["name", "description", "aliases"]
        assert all(isinstance(alias, str) for alias in command["aliases"])
        assert not command["name"].startswith("/")
    assert {"name": "clear", "description": "Clear the context", "aliases": ["reset"]} in plain["slash_commands"]
    names = [command["name"] for command in plain["slash_commands"]]
    agent_level = ["init", "compact", "clear", "yolo", "edits", "afk", "plan", "add-dir", "export", "import", "mcp"]
    assert sorted(name for name in names if name in agent_level) == sorted(agent_level)


@pytest.mark.spec("W-43", "W-44", "W-46")
def test_hooks_are_counted_and_null_members_accepted(served: WireProcess) -> None:
    absent: Json = {"client": None, "external_tools": None, "hooks": None, "capabilities": None}
    result = served.initialize(**absent)
    assert result["hooks"] == {"supported_events": HOOK_EVENTS, "configured": {}}
    assert "external_tools" not in result
    hooks = [
        {"id": "a", "event": "PreToolUse", "matcher": "Shell", "timeout": 5},
        {"id": "b", "event": "PreToolUse"},
        {"id": "c", "event": "Stop"},
        {"id": "d", "event": "NoSuchEvent"},
    ]
    assert served.initialize(hooks=hooks)["hooks"]["configured"] == {"PreToolUse": 2, "Stop": 1}
    assert served.initialize()["hooks"]["configured"] == {"PreToolUse": 2, "Stop": 1}
    assert served.initialize(hooks=hooks[:1])["hooks"]["configured"] == {"PreToolUse": 1}
    assert served.initialize(hooks=[])["hooks"]["configured"] == {}
    assert served.initialize(client={"name": "n", "version": None})["protocol_version"] == "1.10"


def each(*values: object) -> tuple[object, ...]:
    """Values of any types."""
    return values


WRONG: list[Json] = [
    *({"protocol_version": value} for value in each(1.1, 1, None, [], {}, True)),
    *({"client": value} for value in each("n", 1, [], {}, {"version": "1"}, {"name": 1}, {"name": None})),
    *({"client": {"name": "n", "version": value}} for value in each(1, [], {})),
    *({"external_tools": value} for value in each("n", 1, {}, ["t"], [None], [tool("good"), 1], [["nested"]])),
    *({"external_tools": [tool("good"), tool("bad") | {key: 1}]} for key in ("name", "description", "parameters")),
    *(
        {"external_tools": [{name: value for name, value in tool("t").items() if name != key}]}
        for key in ("name", "description", "parameters")
    ),
    *({"external_tools": [tool("t") | {"parameters": value}]} for value in each(None, [], "{}", True)),
    *({"capabilities": value} for value in each("yes", 1, [], True)),
    *({"capabilities": {"supports_question": value}} for value in each("yes", 1, 0, [], {}, None)),
    *({"capabilities": {"supports_plan_mode": value}} for value in each("yes", 1, [])),
    *({"hooks": value} for value in each("h", 1, {}, ["h"], [None], [{"id": "h"}], [{"event": "Stop"}])),
    *({"hooks": [{"id": 1, "event": "Stop"}]}, {"hooks": [{"id": "h", "event": 1}]}),
    *({"hooks": [{"id": "h", "event": "Stop", "matcher": value}]} for value in each(1, [], {})),
    *({"hooks": [{"id": "h", "event": "Stop", "timeout": value}]} for value in each("5", [], True, 1.5)),
]


@pytest.mark.spec("W-39", "W-45")
def test_wrong_types_are_refused_as_a_whole(served: WireProcess) -> None:
    before = served.initialize(hooks=[{"id": "kept", "event": "StopFailure"}])
    for wrong in WRONG:
        found = served.response(served.call("initialize", {"protocol_version": "1.10", **wrong}))
        assert error_of(found) == REFUSED, wrong
    assert error_of(served.response(served.call("initialize", {"client": None}))) == REFUSED
    assert error_of(served.response(served.call("initialize"))) == REFUSED
    for params in each([], "x", 1, None, True):
        served.send({"id": "p", "method": "initialize", "params": params})
        assert error_of(served.response("p")) == REFUSED
    assert served.initialize() == before
    assert served.initialize(external_tools=[tool("good")])["external_tools"]["accepted"] == ["good"]
    assert served.prompt("hi")["result"] == {"status": "finished"}


@pytest.mark.spec("W-47")
def test_a_repeated_handshake_replaces_tools_and_subscriptions(place: Place) -> None:
    place.script(call("c1", "ext", {"a": 1}), "text: ok", call("c2", "ext", {"a": 1}), "text: ok")
    hooks = [{"id": "h", "event": "PreToolUse", "matcher": "ext"}]
    needs = tool("ext", properties={"a": {"type": "string"}})
    with place.wire() as kimi:
        for offer in (needs, tool("ext")):
            for _ in range(2):
                result = kimi.initialize(external_tools=[offer], hooks=hooks)
                assert result["hooks"]["configured"] == {"PreToolUse": 1}
                assert result["external_tools"]["accepted"] == ["ext"]
            prompt = kimi.call("prompt", {"user_input": "go"})
            hook = kimi.until("HookRequest")
            kimi.send({"id": hook["id"], "result": {"request_id": hook["id"], "action": "allow"}})
            if offer is not needs:
                kimi.until("ToolCallRequest")
                kimi.send({"id": "c2", "result": tool_answer("c2")})
            assert kimi.response(prompt)["result"] == {"status": "finished"}
        assert len(kimi.payloads("HookRequest")) == 2
        assert [item["hook_count"] for item in kimi.payloads("HookTriggered")] == [1, 1]
        assert [item["return_value"]["is_error"] for item in kimi.payloads("ToolResult")] == [True, False]


@pytest.mark.spec("W-48")
def test_handshake_during_turn_changes_nothing(place: Place) -> None:
    place.script(call("c1", "ext"), call("c2", "late"), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        first = kimi.call("prompt", {"user_input": "go"})
        kimi.until("ToolCallRequest")
        offer = {"protocol_version": "1.10", "external_tools": [tool("late")]}
        refused = kimi.response(kimi.call("initialize", offer))
        assert error_of(refused) == (-32000, "An agent turn is already in progress")
        malformed = kimi.response(kimi.call("initialize", {"protocol_version": 1}))
        assert error_of(malformed) == REFUSED  # wrong parameters come before the state
        kimi.send({"id": "c1", "result": tool_answer("c1")})
        assert kimi.response(first)["result"] == {"status": "finished"}
        assert "not found" in kimi.payloads("ToolResult")[1]["return_value"]["message"]


def offered(server_request: Any) -> dict[str, Any]:
    """The tools that a request to the provider offers, by name."""
    return {item["function"]["name"]: item["function"] for item in server_request.json["tools"]}


@pytest.mark.spec("W-119", "W-49")
def test_later_handshake_replaces_tool_of_same_name_and_capabilities(place: Place) -> None:
    with loopback(text_reply("ok")) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.initialize(external_tools=[tool("one", "First."), tool("two", "")])
            kimi.prompt("a")
            second = kimi.initialize(
                external_tools=[tool("one", "Second.", properties={"x": {"type": "integer"}})],
                capabilities={"supports_question": True},
            )
            assert second["external_tools"] == {"accepted": ["one"], "rejected": []}
            kimi.prompt("b")
            kimi.initialize(capabilities={"supports_question": True, "supports_plan_mode": True})
            kimi.prompt("c")
        first, then, last = (offered(request) for request in server.requests)
        plan = {"EnterPlanMode", "ExitPlanMode"}
        assert not {"AskUserQuestion", *plan} & set(first)
        assert {"AskUserQuestion", *plan} & set(then) == {"AskUserQuestion"}
        assert {"AskUserQuestion", *plan} <= set(last)
        assert first["one"]["description"] == "First."
        assert first["two"]["description"] == "No description provided."
        assert then["one"]["description"] == "Second."
        assert then["one"]["parameters"] == {"type": "object", "properties": {"x": {"type": "integer"}}}
        assert then["two"] == first["two"]
        assert {name: last[name] for name in then} == then


@pytest.mark.spec("W-51")
@pytest.mark.parametrize("kind", ["kimi", "openai_legacy"])
def test_any_client_name_makes_valid_requests(place: Place, kind: str) -> None:
    names = ["plain", "a\r\nX-Injected: 1\r\n\r\n", "näme 漢字 \u2028", "\x00\x7f", "", "long " * 100, "\ud800"]
    with loopback(text_reply("ok")) as server:
        place.provider(server.base_url, kind)
        with place.wire() as kimi:
            for name in names:
                kimi.initialize(client={"name": name, "version": "1\n2"})
                assert kimi.prompt("hi")["result"] == {"status": "finished"}
        for request in server.requests:
            assert request.json["stream"] is True
            agent = request.headers["user-agent"]
            assert agent.isascii()
            assert agent.isprintable()
            assert len(agent) < 260
            assert "x-injected" not in request.headers
        if kind == "kimi":
            assert server.requests[0].headers["user-agent"].endswith(" (plain 12)")


def test_handshake_does_not_wait_for_the_provider(place: Place) -> None:
    with loopback(Reply(fault="mute")) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.initialize()
            prompt = kimi.call("prompt", {"user_input": "hi"})
            kimi.until("StepBegin")
            kimi.call("cancel")
            assert kimi.response(prompt)["result"] == {"status": "cancelled"}
            kimi.initialize()
        assert all(request.path.endswith("chat/completions") for request in server.requests)


@pytest.mark.spec("W-100")
@pytest.mark.parametrize("variable", ["", "1", "0"])
def test_strict_profile_hides_events_unknown_to_old_clients(place: Place, variable: str) -> None:
    """Every turn has a retry, which the Go client does not know."""
    known: Json = {"protocol_version": "1.10"}
    clients: list[tuple[Json, bool]] = [
        (known, True),
        ({"protocol_version": "1.1"}, False),
        ({**known, "client": {"name": "n"}}, False),
        ({**known, "capabilities": {}}, False),
    ]
    if variable:
        place.environ["KIMI_WIRE_STRICT"] = variable
        clients = [(clients[1 if variable == "1" else 0][0], variable == "1")]
    place.script(*["error: 429", step("text: ok", "usage: output=1")] * len(clients))
    with place.wire() as kimi:
        for params, strict in clients:
            kimi.initialize(**params)
            before = len(kimi.lines)
            assert kimi.prompt("hi")["result"] == {"status": "finished"}
            names = {line["params"]["type"] for line in kimi.lines[before:] if "method" in line}
            expected = {"TurnBegin", "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd"}
            assert names == (expected if strict else expected | {"StepRetry"})


def test_strict_profile_sends_no_requests_the_client_cannot_read(place: Place) -> None:
    """Nobody would ever answer: the turn would hang."""
    place.environ["KIMI_WIRE_STRICT"] = "1"
    question = {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}
    place.script(call("c1", "AskUserQuestion", {"questions": [question]}), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(capabilities={"supports_question": True, "supports_plan_mode": True})
        assert kimi.prompt("hi")["result"] == {"status": "finished"}
        assert "QuestionRequest" not in kimi.types
