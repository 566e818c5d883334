"""Tools that the client runs (wire spec 5)."""

from __future__ import annotations

import json

import pytest

from kimi.application.toolset.foreign_schema import NO_OBJECT
from tests.support.dialects.script import Answer
from tests.support.dialects.table import ROWS
from tests.support.program.wire_process import Json, Place, WireProcess
from tests.support.providers.loopback import loopback
from tests.support.providers.scripts import answer, call, step, tool, tool_answer


def outputs(kimi: WireProcess) -> dict[str, object]:
    """The output of each result, by call id."""
    return {item["tool_call_id"]: item["return_value"]["output"] for item in kimi.payloads("ToolResult")}


@pytest.mark.spec("W-118", "T-114")
def test_invalid_external_tools_are_rejected(place: Place) -> None:
    place.script("text: ok")
    bad_type = {"type": "objekt"}
    offers: list[tuple[Json, str | None]] = [
        (tool("good"), None),
        (tool("Shell"), "conflicts with builtin tool"),
        (tool("AskUserQuestion"), "conflicts with builtin tool"),
        (tool("EnterPlanMode"), "conflicts with builtin tool"),
        (tool("broken") | {"parameters": bad_type}, "'objekt' is not valid under any of the given schemas"),
        (tool("") , "invalid tool name"),
        (tool("two words"), "invalid tool name"),
        (tool("new\nline"), "invalid tool name"),
        (tool("trailing\n"), "invalid tool name"),
        (tool("ünïcode"), "invalid tool name"),
        (tool("x" * 65), "invalid tool name"),
        (tool("x" * 64), None),
        (tool("empty-schema_1") | {"parameters": {}}, None),
        (tool("no-object") | {"parameters": {"type": "array"}}, NO_OBJECT),
        (tool("no-type-of-object") | {"parameters": {"type": ["string", "null"]}}, NO_OBJECT),
        (tool("Glob") | {"parameters": {"type": "array"}}, "conflicts with builtin tool"),
        (tool("object-or-null") | {"parameters": {"type": ["object", "null"]}}, None),
        (tool("of-JavaScript", properties={"a": {"pattern": "(?<year>[0-9]+)"}}), None),
        (tool("good", "again"), None),
    ]  # fmt: skip
    with place.wire() as kimi:
        found = kimi.initialize(external_tools=[offer for offer, _ in offers])["external_tools"]
        assert found["accepted"] == ["good", "x" * 64, "empty-schema_1", "object-or-null", "of-JavaScript"]
        reasons = {item["name"]: item["reason"] for item in found["rejected"]}
        wanted = [(offer["name"], reason) for offer, reason in offers if reason is not None]
        assert list(reasons.items()) == wanted
        assert all(list(item) == ["name", "reason"] for item in found["rejected"])
        again = kimi.initialize(external_tools=[tool("good", "new")])["external_tools"]
        assert again == {"accepted": ["good"], "rejected": []}
        assert kimi.prompt("hi")["result"] == {"status": "finished"}


@pytest.mark.spec("R-213")
@pytest.mark.parametrize("provider", ["openai_legacy", "anthropic"])
def test_a_provider_is_sent_schemas_of_objects_only(place: Place, provider: str) -> None:
    schemas: dict[str, Json] = {
        "none": {},
        "either": {"type": ["object", "null"], "properties": {"a": {"type": "string"}}},
        "list": {"type": "array"},
        "reference": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
    }
    row = next(row for row in ROWS if row.type == provider)
    with loopback(row.dialect.reply(Answer(text="ok"))) as server:
        place.provider(server.base_url, provider)
        with place.wire() as kimi:
            offers = [tool(name) | {"parameters": schema} for name, schema in schemas.items()]
            found = kimi.initialize(external_tools=offers)["external_tools"]
            assert found["accepted"] == ["none", "either", "reference"]
            assert found["rejected"] == [{"name": "list", "reason": NO_OBJECT}]
            assert kimi.prompt("hi")["result"] == {"status": "finished"}
        sent: list[Json] = json.loads(server.requests[0].body)["tools"]
    described = [item.get("function", item) for item in sent]
    types = {item["name"]: item.get("parameters", item.get("input_schema"))["type"] for item in described}
    assert {types[name] for name in ("none", "either", "reference")} == {"object"}
    assert "list" not in types


def test_a_schema_nested_too_deeply_is_refused_and_the_process_lives(place: Place) -> None:
    place.script("text: ok")
    schema: Json = {}
    for _ in range(150):
        schema = {"properties": {"a": schema}}
    with place.wire() as kimi:
        result = kimi.initialize(external_tools=[tool("deep") | {"parameters": schema}, tool("flat")])
        assert result["external_tools"] == {
            "accepted": ["flat"],
            "rejected": [{"name": "deep", "reason": "the schema is nested more than 64 levels deep"}],
        }
        assert kimi.prompt("hi")["result"] == {"status": "finished"}


@pytest.mark.spec("W-120", "W-121")
def test_arguments_are_checked_before_the_client_is_asked(place: Place) -> None:
    needs = tool("needs", properties={"n": {"type": "integer"}}, required=["n"])
    bad = ["{", "[1]", '"text"', '{"n":"x"}', "{}", "5"]
    lines = [call(f"b{number}", "needs", text) for number, text in enumerate(bad)]
    lines += [call("n0", "free"), call("n1", "free", ""), call("n2", "free", "null"), call("g", "needs", '{ "n" :1 }')]
    place.script(step(*lines), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(external_tools=[needs, tool("free")])
        asked: dict[str, Json] = {}
        prompt = kimi.call("prompt", {"user_input": "go"})
        for _ in range(4):
            request = kimi.until("ToolCallRequest")
            asked[request["id"]] = request
            answer(kimi, request["id"], result=tool_answer(request["id"]))
        assert kimi.response(prompt)["result"] == {"status": "finished"}
        assert {name: item["arguments"] for name, item in asked.items()} == {
            "n0": "{}", "n1": "{}", "n2": "null", "g": '{ "n" :1 }',
        }  # fmt: skip
        values = {item["tool_call_id"]: item["return_value"] for item in kimi.payloads("ToolResult")}
        for number, text in enumerate(bad):
            kind = "parsing" if text == "{" else "validating"
            assert values[f"b{number}"]["message"].startswith(f"Error {kind} JSON arguments: "), text
            assert values[f"b{number}"]["display"] == [{"type": "brief", "text": "Invalid arguments"}]
        assert all(not values[name]["is_error"] for name in asked)


@pytest.mark.spec("W-122", "W-123")
def test_parallel_external_calls_can_be_answered_in_any_order(place: Place) -> None:
    place.script(
        step(*[call(f"c{number}", "ext", {"n": number}) for number in range(3)]),
        step(*[call(f"d{number}", "ext", {"same": True}) for number in range(2)]),
        "text: ok",
    )  # fmt: skip
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        prompt = kimi.call("prompt", {"user_input": "go"})
        for batch in (3, 2):
            requests = [kimi.until("ToolCallRequest") for _ in range(batch)]
            for request in reversed(requests):
                answer(kimi, request["id"], result=tool_answer(request["id"], f"for {request['id']}"))
        assert kimi.response(prompt)["result"] == {"status": "finished"}
        assert outputs(kimi) == {name: f"for {name}" for name in ("c0", "c1", "c2", "d0", "d1")}
        order = [item["tool_call_id"] for item in kimi.payloads("ToolResult")]
        assert order == ["c2", "c1", "c0", "d1", "d0"]
    stored = [record["tool_call_id"] for record in place.context() if record["role"] == "tool"]
    assert stored == ["c0", "c1", "c2", "d0", "d1"]


@pytest.mark.spec("W-124", "T-16")
def test_client_results_are_passed_through(place: Place) -> None:
    place.script(*[script for number in range(3) for script in (call(f"c{number}", "ext", {"n": number}), "text: ok")])
    parts: list[Json] = [
        {"type": "text", "text": "a\u2028b"},
        {"type": "think", "think": "t", "encrypted": None},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "id": None}},
        {"type": "audio_url", "audio_url": {"url": "https://example.test/a.mp3", "id": "a1"}},
        {"type": "video_url", "video_url": {"url": "https://example.test/v.mp4", "id": None}},
    ]
    display: list[Json] = [
        {"type": "brief", "text": "short"},
        {
            "type": "diff",
            "path": "p",
            "old_text": "a",
            "new_text": "b",
            "old_start": 3,
            "new_start": 4,
            "is_summary": True,
        },
        {"type": "todo", "items": [{"title": "t", "status": "in_progress"}]},
        {"type": "shell", "language": "powershell", "command": "dir"},
        {"type": "background_task", "task_id": "1", "kind": "k", "status": "s", "description": "d"},
    ]
    extras: Json = {"a": [1, 2.5, None, {"b": "\u2028é"}], "big": 2**60, "text": "x"}
    whole: Json = {"is_error": False, "output": parts, "message": "said", "display": display, "extras": extras}
    failed: Json = {"is_error": True, "output": "why", "message": "it failed", "display": [], "extras": None}
    odd = whole | {"display": [{"type": "chart", "points": [1], "title": None}, {"type": "unknown", "data": {"k": 1}}]}
    shown = [{"type": "chart", "data": {"points": [1], "title": None}}, {"type": "unknown", "data": {"k": 1}}]
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        for number, value in enumerate((whole, failed, odd)):
            prompt = kimi.call("prompt", {"user_input": "go"})
            kimi.until("ToolCallRequest")
            answer(kimi, f"c{number}", result={"tool_call_id": f"c{number}", "return_value": value})
            assert kimi.response(prompt)["result"] == {"status": "finished"}
        values = [item["return_value"] for item in kimi.payloads("ToolResult")]
        assert values == [whole, failed, odd | {"display": shown}]


def test_numbers_beyond_json_do_not_break_the_output(place: Place) -> None:
    place.script(call("c1", "ext"), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until("ToolCallRequest")
        line = json.dumps({"id": "c1", "result": tool_answer("c1", extras={"n": "NUMBER"})})
        kimi.send_bytes(line.replace('"NUMBER"', "1e999").encode() + b"\n")
        assert kimi.response(prompt)["result"] == {"status": "finished"}
        assert kimi.payloads("ToolResult")[0]["return_value"]["extras"] == {"n": None}
        assert b"Infinity" not in b"".join(kimi.raw)
    assert "Infinity" not in (place.session_dirs()[0] / "wire.jsonl").read_text(encoding="utf-8")


def test_a_tool_that_is_never_answered_times_out_when_configured(place: Place) -> None:
    place.config = "[tools]\nexternal_timeout_s = 0.1\n"
    place.script(call("c1", "ext"), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        value = kimi.payloads("ToolResult")[0]["return_value"]
        assert value["message"] == "External tool call failed: timed out"
        assert value["display"] == [{"type": "brief", "text": "External tool error"}]
