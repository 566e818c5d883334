"""The schema of the wire's messages against what the server really writes and reads."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from jsonschema import Draft202012Validator

from kimi.application.codec.envelope import encode_event
from kimi.application.codec.payloads import decode_content_part, decode_display
from kimi.application.conversation.event_channel import Delivery
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart
from kimi.domain.events import event as ev
from kimi.domain.events import request as rq
from kimi.domain.tools import tool as tl
from kimi.domain.turn import Cost, TokenUsage, UsageFigures, UsageTotal
from kimi.interfaces.rpc.messages import RpcReply
from kimi.interfaces.rpc.wire_answers import decode_answer
from kimi.interfaces.rpc.wire_calls import decode_initialize_params, decode_plan_mode_params, decode_prompt_params
from kimi.interfaces.rpc.wire_events import encode_delivery
from kimi.interfaces.rpc.wire_shapes import ANSWERS, CALLS
from kimi.interfaces.schema import versions
from kimi.interfaces.schema.messages import build_messages_schema, close_objects
from tests.interfaces.rpc.test_wire_events import GOLDEN

Json: TypeAlias = dict[str, Any]

GOLDEN_TRAFFIC = sorted((Path(__file__).parents[2] / "e2e" / "golden").glob("*.jsonl"))
SCHEMA = build_messages_schema()
CLOSED = close_objects(SCHEMA)


QUESTION = rq.Question("q", options=(rq.QuestionOption("a"), rq.QuestionOption("b", "d")))
EVENTS: list[ev.Event] = [
    *(event for event, _, _ in GOLDEN),
    ImagePart(MediaUrl("u", "i")),
    rq.ApprovalRequest("i", "c", "s", "a", "d"),
    rq.ApprovalRequest("i", "c", "s", "a", "d", "background_agent", "s", "a", "t", "d", (tl.ShellBlock("bash", "ls"),)),
    rq.ToolCallRequest("i", "n", "{}"),
    rq.ToolCallRequest("i", "n", None),
    rq.QuestionRequest("i", "c", (QUESTION,)),
    rq.HookRequest("i", "s", "Stop", "", {"stop_hook_active": False}),
]
each_event = pytest.mark.parametrize("event", EVENTS, ids=[f"{type(one).__name__}-{n}" for n, one in enumerate(EVENTS)])


def validator(name: str) -> Draft202012Validator:
    """Return a validator of one definition, to which members that are not declared are errors."""
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": CLOSED["$defs"]})


def is_valid(name: str, value: Any) -> bool:
    return not any(True for _ in validator(name).iter_errors(value))  # pyright: ignore[reportUnknownMemberType]


def sent(event: ev.Event, *, with_usage: bool = False) -> Json:
    line = encode_delivery(Delivery(event, None), with_usage=with_usage)
    assert line is not None
    return json.loads(line)


def objects(value: object) -> Iterator[Json]:
    """Yield every object within a value."""
    if isinstance(value, dict):
        source = cast("Json", value)
        yield source
        for item in source.values():
            yield from objects(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from objects(item)


def test_every_document_is_a_valid_json_schema() -> None:
    for version in range(versions.NEWEST + 1):
        Draft202012Validator.check_schema(build_messages_schema(version))


@pytest.mark.spec("R-400")
@pytest.mark.parametrize("path", GOLDEN_TRAFFIC, ids=lambda path: path.stem)
def test_every_line_of_the_golden_traffic_is_valid_and_has_nothing_undeclared(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines
    for line in lines:
        message = json.loads(line.replace('"<wait>"', "0.5"))  # a random pause is masked there
        assert is_valid("ServerMessage", message), line


@each_event
def test_every_event_that_the_encoder_writes_is_valid(event: ev.Event) -> None:
    assert is_valid("ServerMessage", sent(event))


def test_the_checked_events_are_of_every_class() -> None:
    assert {type(event) for event in EVENTS} == set(ev.EVENT_TYPES)


@each_event
def test_a_missing_or_foreign_member_is_seen(event: ev.Event) -> None:
    message = sent(event)
    kind = "RequestMessage" if "id" in message else "EventNotification"
    bare = json.loads(encode_event(event))["payload"]
    for member in bare:
        broken = copy.deepcopy(message)
        del broken["params"]["payload"][member]
        assert not is_valid(kind, broken), f"without {member}"
    message["params"]["payload"]["foreign"] = 1
    assert not is_valid(kind, message)


def test_the_schema_has_every_type_of_the_encoder_and_no_other() -> None:
    names = {
        option["properties"]["type"]["const"]
        for kind in ("Event", "Request")
        for option in SCHEMA["$defs"][kind]["anyOf"]
    }
    assert names == set(ev.EVENT_TYPES.values()) == set(versions.EVENTS)


def test_status_updates_with_totals_are_valid() -> None:
    known = UsageTotal(TokenUsage(1, 2, 3, 4), Cost(0.25, "USD"), 1)
    figures = UsageFigures(known, UsageTotal())
    for event in (ev.StatusUpdate(usage=figures), ev.StatusUpdate()):
        message = sent(event, with_usage=True)
        assert "usage" in message["params"]["payload"]
        assert is_valid("EventNotification", message)


def test_nested_events_are_valid_down_to_the_innermost() -> None:
    inner = ev.SubagentEvent("p", "a", "coder", TextPart("x"))
    message = sent(ev.SubagentEvent("p", None, None, inner))
    assert is_valid("EventNotification", message)
    message["params"]["payload"]["event"]["payload"]["event"]["payload"]["text"] = 1
    assert not is_valid("EventNotification", message)


# --- what clients write -------------------------------------------------------------------------------------------


class Watched(dict[str, Any]):
    """An object that knows which of its members were asked for."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        super().__init__(value)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


def watch(value: Any) -> Any:
    if isinstance(value, dict):
        return Watched({key: watch(item) for key, item in cast("Json", value).items()})
    return [watch(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


PARTS = [
    {"type": "text", "text": "t"},
    {"type": "think", "think": "t", "encrypted": "e"},
    {"type": "image_url", "image_url": {"url": "u", "id": None}},
    {"type": "audio_url", "audio_url": {"url": "u", "id": "i"}},
    {"type": "video_url", "video_url": {"url": "u", "id": "i"}},
]
DISPLAY = [
    {"type": "brief", "text": "b"},
    {"type": "diff", "path": "p", "old_text": "o", "new_text": "n", "old_start": 1, "new_start": 1, "is_summary": True},
    {"type": "todo", "items": [{"title": "t", "status": "done"}]},
    {"type": "shell", "language": "bash", "command": "ls"},
    {"type": "background_task", "task_id": "t", "kind": "bash", "status": "running", "description": "d"},
]
INITIALIZE: Json = {
    "protocol_version": "1.10",
    "client": {"name": "n", "version": "v"},
    "external_tools": [{"name": "n", "description": "d", "parameters": {}}],
    "capabilities": {"supports_question": True, "supports_plan_mode": True, "supports_usage": True},
    "hooks": [{"id": "h", "event": "Stop", "matcher": "m", "timeout": 5}],
    "slash_commands": False,
}
VALUE: Json = {"is_error": False, "output": PARTS, "message": "m", "display": DISPLAY, "extras": {}}
WRITTEN: list[tuple[str, str, Json]] = [
    ("initialize", "InitializeCall", INITIALIZE),
    ("prompt", "InputCall", {"user_input": PARTS}),
    ("set_plan_mode", "PlanModeCall", {"enabled": True}),
    ("ApprovalRequest", "ApprovalResult", {"request_id": "i", "response": "reject", "feedback": "f"}),
    ("ToolCallRequest", "ToolCallResult", {"tool_call_id": "i", "return_value": VALUE}),
    ("QuestionRequest", "QuestionResult", {"request_id": "i", "answers": {"q": "a"}}),
    ("HookRequest", "HookResult", {"request_id": "i", "action": "block", "reason": "r"}),
]
"""A value with every member, of everything that a client may write."""

REQUESTS: dict[str, rq.Request] = {
    "ApprovalRequest": rq.ApprovalRequest("i", "c", "s", "a", "d"),
    "ToolCallRequest": rq.ToolCallRequest("i", "n", None),
    "QuestionRequest": rq.QuestionRequest("i", "c", ()),
    "HookRequest": rq.HookRequest("i", "s", "e", "t", {}),
}
NOT_READ = {"HookResult": {"request_id"}}
"""Members that are part of the protocol and that this server does not look at."""


def decode_params(method: str, value: Any) -> None:
    match method:
        case "initialize":
            decode_initialize_params(value)
        case "prompt":
            decode_prompt_params(value)
        case _:
            decode_plan_mode_params(value)


def is_read(name: str, value: Any, log: pytest.LogCaptureFixture) -> bool:
    """Whether the server takes the value as what it stands for."""
    log.clear()
    try:
        if name in REQUESTS:
            decode_answer(REQUESTS[name], RpcReply("i", value, True, None))
        else:
            decode_params(name, value)
    except ValueError:
        return False
    return "wrong shape" not in log.text


def test_the_written_values_are_of_every_kind_and_full() -> None:
    kinds = {kind.__name__ for kind, _ in CALLS.values() if kind} | {kind.__name__ for kind in ANSWERS.values()}
    assert {kind for _, kind, _ in WRITTEN} == kinds
    members = {frozenset(value) for _, _, written in WRITTEN for value in objects(written)}
    for name in SCHEMA["$defs"]:
        schema = SCHEMA["$defs"][name]
        if name.endswith("Input") and "properties" in schema and name not in ("SteerInput", "UnknownBlockInput"):
            assert frozenset(schema["properties"]) in members, name


@pytest.mark.parametrize(("name", "kind", "value"), WRITTEN, ids=[row[0] for row in WRITTEN])
def test_the_server_reads_exactly_the_members_of_the_schema(name: str, kind: str, value: Json) -> None:
    assert is_valid(kind, value)
    watched = watch(value)
    if name in REQUESTS:
        decode_answer(REQUESTS[name], RpcReply("i", watched, True, None))
    else:
        decode_params(name, watched)
    assert watched.read | NOT_READ.get(kind, set()) == set(SCHEMA["$defs"][kind]["properties"])
    for inner in objects(watched):
        if isinstance(inner, Watched) and inner and inner is not watched and inner != {"q": "a"}:
            assert inner.read >= set(inner), f"{inner} is not read whole"


@pytest.mark.parametrize(("name", "kind", "value"), WRITTEN, ids=[row[0] for row in WRITTEN])
def test_the_server_takes_what_the_schema_allows_and_only_that(
    name: str, kind: str, value: Json, caplog: pytest.LogCaptureFixture
) -> None:
    seen = 0
    for broken in variants(value):
        allowed = is_valid(kind, broken)
        if allowed:
            seen += 1
            assert is_read(name, broken, caplog), broken
        elif not lenient(broken):
            assert not is_read(name, broken, caplog), broken
    assert seen or kind in ("InputCall", "PlanModeCall")


def variants(value: Any) -> Iterator[Any]:
    """Yield copies with one member gone, or of another JSON type, at every depth."""
    if isinstance(value, dict):
        source = cast("Json", value)
        for key, item in source.items():
            yield {other: kept for other, kept in source.items() if other != key}
            others: tuple[Any, ...] = (None, 7, *(["text"] if key != "request_id" else []), [], {})
            yield from ({**source, key: changed} for changed in others if changed != item)
            yield from ({**source, key: changed} for changed in variants(item))
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        for number, item in enumerate(items):
            yield from ([*items[:number], changed, *items[number + 1 :]] for changed in variants(item))


def lenient(value: Any) -> bool:
    """Whether the server reads more than the schema promises here: absent lists, and answers that name nobody."""
    found = list(objects(value))
    shows_nothing = any("return_value" in one and one["return_value"] for one in found) and any(
        one.get("display", ()) is None or (one.get("type") == "todo" and one.get("items") is None) for one in found
    )
    names_nobody = any("return_value" in one or "action" in one or "reason" in one for one in found)
    name = found[0].get("tool_call_id", found[0].get("request_id"))
    return shows_nothing or (names_nobody and not isinstance(name, str))


def test_parts_and_blocks_of_the_schema_are_those_of_the_decoder() -> None:
    for part in PARTS:
        assert is_valid("ContentPartInput", part)
        decode_content_part(part)
    for block in DISPLAY:
        assert is_valid("DisplayBlockInput", block)
        assert type(decode_display({"display": [block]})[0]).__name__ != "UnknownBlock"
    foreign = {"type": "x", "k": 1}
    assert is_valid("DisplayBlockInput", foreign)
    assert type(decode_display({"display": [foreign]})[0]).__name__ == "UnknownBlock"
    assert not is_valid("DisplayBlockInput", {"type": "brief"})
