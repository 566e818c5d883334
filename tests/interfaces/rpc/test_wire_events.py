"""Events as lines of the wire: one golden line for every type."""

from __future__ import annotations

import json

import pytest

from kimi.application.codec.envelope import encode_event
from kimi.application.conversation.event_channel import Delivery
from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import AudioPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.events import event as ev
from kimi.domain.events import request as rq
from kimi.domain.tools import tool as tl
from kimi.domain.tools.diff import ChangedText
from kimi.domain.turn import TokenUsage
from kimi.interfaces.rpc.wire_events import NestedTurnTracker, WireEventEncoder, encode_delivery

RESULT = tl.ToolReturnValue(
    False,
    (TextPart("t"),),
    "m",
    (
        tl.BriefBlock("b"),
        tl.DiffBlock("p", "o", "n"),
        tl.TodoBlock((tl.TodoItem("x", "done"),)),
        tl.ShellBlock("bash", "ls"),
        tl.BackgroundTaskBlock("i", "bash", "running", "d"),
        tl.UnknownBlock("x", {"k": 1}),
    ),
    {"e": 1},
)

GOLDEN: list[tuple[ev.Event, str, str]] = [
    (ev.TurnBegin("hi"), "TurnBegin", '{"user_input":"hi"}'),
    (
        ev.TurnBegin((ImagePart(MediaUrl("u")),)),
        "TurnBegin",
        '{"user_input":[{"type":"image_url","image_url":{"url":"u","id":null}}]}',
    ),
    (ev.TurnEnd(), "TurnEnd", "{}"),
    (ev.StepBegin(2), "StepBegin", '{"n":2}'),
    (ev.StepInterrupted(), "StepInterrupted", "{}"),
    (
        ev.StepRetry(1, 2, 3, 0.5, "APIStatusError", 429),
        "StepRetry",
        '{"n":1,"next_attempt":2,"max_attempts":3,"wait_s":0.5,"error_type":"APIStatusError","status_code":429}',
    ),
    (ev.SteerInput("s"), "SteerInput", '{"user_input":"s"}'),
    (ev.CompactionBegin(), "CompactionBegin", "{}"),
    (ev.CompactionEnd(), "CompactionEnd", "{}"),
    (
        ev.StatusUpdate(0.5, 5, 10, TokenUsage(1, 2, 3, 4), "m", False),
        "StatusUpdate",
        '{"context_usage":0.5,"context_tokens":5,"max_context_tokens":10,"token_usage":{"input_other":1,"output":2,'
        '"input_cache_read":3,"input_cache_creation":4},"message_id":"m","plan_mode":false,"mcp_status":null}',
    ),
    (
        ev.StatusUpdate(mcp_status=ev.McpStatus(True, 0, 1, 0, (ev.McpServerStatus("a", "connecting"),))),
        "StatusUpdate",
        '{"context_usage":null,"context_tokens":null,"max_context_tokens":null,"token_usage":null,"message_id":null,'
        '"plan_mode":null,"mcp_status":{"loading":true,"connected":0,"total":1,"tools":0,"servers":[{"name":"a",'
        '"status":"connecting","tools":[]}]}}',
    ),
    (ev.MCPLoadingBegin(), "MCPLoadingBegin", "{}"),
    (ev.MCPLoadingEnd(), "MCPLoadingEnd", "{}"),
    (
        ev.Notification("i", "task", "task.completed", "k", "s", "t", "b", "info", 1.5, {"a": 1}),
        "Notification",
        '{"id":"i","category":"task","type":"task.completed","source_kind":"k","source_id":"s","title":"t","body":"b",'
        '"severity":"info","created_at":1.5,"payload":{"a":1}}',
    ),
    (ev.PlanDisplay("c", "/p"), "PlanDisplay", '{"content":"c","file_path":"/p"}'),
    (ev.BtwBegin("i", "q"), "BtwBegin", '{"id":"i","question":"q"}'),
    (ev.BtwEnd("i", None, "e"), "BtwEnd", '{"id":"i","response":null,"error":"e"}'),
    (TextPart('a"\n'), "ContentPart", '{"type":"text","text":"a\\"\\n"}'),
    (ThinkPart("t"), "ContentPart", '{"type":"think","think":"t","encrypted":null}'),
    (AudioPart(MediaUrl("u", "i")), "ContentPart", '{"type":"audio_url","audio_url":{"url":"u","id":"i"}}'),
    (VideoPart(MediaUrl("u")), "ContentPart", '{"type":"video_url","video_url":{"url":"u","id":null}}'),
    (
        ToolCall("c", Function("F", None)),
        "ToolCall",
        '{"type":"function","id":"c","function":{"name":"F","arguments":null},"extras":null}',
    ),
    (ToolCallPart(None), "ToolCallPart", '{"arguments_part":null}'),
    (ToolCallPart('{"a'), "ToolCallPart", '{"arguments_part":"{\\"a"}'),
    (
        ev.ToolResult("c", RESULT),
        "ToolResult",
        '{"tool_call_id":"c","return_value":{"is_error":false,"output":[{"type":"text","text":"t"}],"message":"m",'
        '"display":[{"type":"brief","text":"b"},{"type":"diff","path":"p","old_text":"o","new_text":"n","old_start":1,'
        '"new_start":1,"is_summary":false},{"type":"todo","items":[{"title":"x","status":"done"}]},{"type":"shell",'
        '"language":"bash","command":"ls"},{"type":"background_task","task_id":"i","kind":"bash","status":"running",'
        '"description":"d"},{"type":"x","data":{"k":1}}],"extras":{"e":1}}}',
    ),
    (
        ev.ApprovalResponse("r", "reject", "no"),
        "ApprovalResponse",
        '{"request_id":"r","response":"reject","feedback":"no"}',
    ),
    (
        ev.SubagentEvent("c", "a1", "coder", ev.StepBegin(1)),
        "SubagentEvent",
        '{"parent_tool_call_id":"c","task_tool_call_id":"c","agent_id":"a1","subagent_type":"coder",'
        '"event":{"type":"StepBegin","payload":{"n":1}}}',
    ),
    (ev.HookTriggered("Stop", "", 1), "HookTriggered", '{"event":"Stop","target":"","hook_count":1}'),
    (
        ev.HookResolved("Stop", "", "allow", "", 3),
        "HookResolved",
        '{"event":"Stop","target":"","action":"allow","reason":"","duration_ms":3}',
    ),
]

REQUESTS: list[tuple[rq.Request, str, str]] = [
    (
        rq.ApprovalRequest("r", "c", "Shell", "run command", "Run", display=(tl.ShellBlock("bash", "ls"),)),
        "ApprovalRequest",
        '{"id":"r","tool_call_id":"c","sender":"Shell","action":"run command","description":"Run","source_kind":null,'
        '"source_id":null,"agent_id":null,"subagent_type":null,"source_description":null,"display":[{"type":"shell",'
        '"language":"bash","command":"ls"}]}',
    ),
    (rq.ToolCallRequest("c", "F", None), "ToolCallRequest", '{"id":"c","name":"F","arguments":"{}"}'),
    (
        rq.QuestionRequest("q", "c", (rq.Question("Why?", "H", (rq.QuestionOption("a"), rq.QuestionOption("b"))),)),
        "QuestionRequest",
        '{"id":"q","tool_call_id":"c","questions":[{"question":"Why?","header":"H","options":[{"label":"a",'
        '"description":""},{"label":"b","description":""}],"multi_select":false,"body":"","other_label":"",'
        '"other_description":""}]}',
    ),
    (
        rq.HookRequest("h", "s", "Stop", "", {"a": 1}),
        "HookRequest",
        '{"id":"h","subscription_id":"s","event":"Stop","target":"","input_data":{"a":1}}',
    ),
]


@pytest.mark.spec("W-89")
@pytest.mark.parametrize(
    ("event", "name", "payload"), GOLDEN, ids=[f"{n}-{name}" for n, (_, name, _) in enumerate(GOLDEN)]
)
def test_every_event_is_written_with_all_its_fields(event: ev.Event, name: str, payload: str) -> None:
    line = encode_delivery(Delivery(event, None))
    expected = f'{{"jsonrpc":"2.0","method":"event","params":{{"type":"{name}","payload":{payload}}}}}\n'
    assert line is not None
    assert line.decode() == expected
    assert encode_delivery(Delivery(event, encode_event(event))) == line


@pytest.mark.spec("W-101")
@pytest.mark.parametrize(("request_", "name", "payload"), REQUESTS, ids=[name for _, name, _ in REQUESTS])
def test_every_request_carries_the_id_of_its_payload(request_: rq.Request, name: str, payload: str) -> None:
    line = encode_delivery(Delivery(request_, None))
    head = f'{{"jsonrpc":"2.0","method":"request","id":"{request_.id}","params":'
    assert line is not None
    assert line.decode() == f'{head}{{"type":"{name}","payload":{payload}}}}}\n'


@pytest.mark.spec("W-89")
def test_no_event_type_is_without_a_golden_line() -> None:
    shown = {type(event) for event, _, _ in GOLDEN} | {type(request) for request, _, _ in REQUESTS} | {ImagePart}
    assert shown == set(ev.EVENT_TYPES)


def test_internal_events_have_no_line() -> None:
    encoder = WireEventEncoder()
    assert not set(ev.INTERNAL_TYPES) & set(ev.EVENT_TYPES)
    for event in (ev.ToolCallStarted(None, "c"), ev.FileChangePlanned(None, "c", ChangedText("/a", None, "x"))):
        assert [encoder.encode(Delivery(event, None), strict=strict) for strict in (False, True)] == [None, None]


def test_the_strict_profile_lets_only_the_known_names_through() -> None:
    passed = {name for event, name, _ in GOLDEN if encode_delivery(Delivery(event, None), strict=True) is not None}
    assert passed == {
        "TurnBegin", "TurnEnd", "StepBegin", "StepInterrupted", "CompactionBegin", "CompactionEnd", "StatusUpdate",
        "ContentPart", "ToolCall", "ToolCallPart", "ToolResult", "SubagentEvent", "ApprovalResponse",
    }  # fmt: skip
    asked = {name for request, name, _ in REQUESTS if encode_delivery(Delivery(request, None), strict=True) is not None}
    assert asked == {"ApprovalRequest", "ToolCallRequest"}
    nested = ev.SubagentEvent("c", "a", "coder", ev.StepRetry(1, 2, 3, 0.1, "x", None))
    assert encode_delivery(Delivery(nested, None), strict=True) is None


FLOW_TURN = "TurnBegin TurnBegin StepBegin TurnEnd TurnBegin StepBegin StepInterrupted TurnEnd TurnEnd"


def framing(names: str) -> list[int]:
    """The indexes of the events that begin or end a nested turn."""
    nested = NestedTurnTracker()
    return [index for index, name in enumerate(names.split()) if nested.is_nested_boundary(name)]


def test_nested_turns_are_recognised() -> None:
    plain = "TurnBegin StepBegin ContentPart TurnEnd"
    assert framing(f"{plain} {plain} TurnBegin TurnEnd {plain}") == []
    assert framing(FLOW_TURN) == [1, 3, 4, 7]
    assert framing(f"{plain} {FLOW_TURN} {plain} {FLOW_TURN}") == [5, 7, 8, 11, 18, 20, 21, 24]


def test_turn_without_end_hides_nothing_of_the_next() -> None:
    assert framing("TurnBegin StepBegin TurnBegin StepBegin TurnEnd TurnBegin TurnEnd") == []
    assert framing("TurnBegin TurnBegin StepBegin TurnBegin StepBegin TurnEnd TurnBegin TurnEnd") == [1]


def test_only_strict_profile_hides_nested_turn_frames_not_their_events() -> None:
    events = [ev.TurnBegin("/flow:x"), ev.TurnBegin("a"), ev.StepBegin(1), TextPart("t"), ev.TurnEnd(), ev.TurnEnd()]
    strict, full = WireEventEncoder(), WireEventEncoder()
    shown = [event for event in events if strict.encode(Delivery(event, None), strict=True) is not None]
    assert shown == [events[0], events[2], events[3], events[5]]
    assert all(full.encode(Delivery(event, None), strict=False) for event in events)


def test_a_lone_surrogate_in_an_event_is_replaced() -> None:
    line = encode_delivery(Delivery(ev.ToolResult("c", tl.tool_ok("a\ud800b")), None))
    assert line is not None
    assert json.loads(line)["params"]["payload"]["return_value"]["output"] == "a\ufffdb"
