"""Tool calls in the client: titles, kinds, places, the order of their states, and what their streaming costs."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.message import Function, ToolCall, ToolCallPart
from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart
from kimi.domain.events import event as ev
from kimi.domain.events.request import Question, QuestionOption, QuestionRequest
from kimi.domain.tools.tool import BackgroundTaskBlock, DiffBlock, TodoBlock, TodoItem, tool_error, tool_ok
from kimi.interfaces.acp.updates.tool_presentation import (
    ToolPresentation,
    format_title,
    make_absolute,
)
from tests.support.acp.playing import WORK_DIR, approval, call, find_builtin_presentation, pieces, play, translator
from tests.support.builtin_specs import builtin_specs

DONE = tool_ok(message="done")
BEGIN: list[ev.Event] = [ev.TurnBegin("go"), ev.StepBegin(1)]
STARTED = ev.ToolCallStarted(None, "c1")
LOOKS: list[tuple[ToolCall, str, str, list[Any]]] = [
    (
        call("ReadFile", path="a.py", line_offset=7),
        "read",
        "ReadFile: a.py",
        [{"path": "/home/u/proj/a.py", "line": 7}],
    ),
    (call("ReadMediaFile", path="/x/a.png"), "read", "ReadMediaFile: /x/a.png", [{"path": "/x/a.png"}]),
    (call("WriteFile", path="b/../c.py", content=""), "edit", "WriteFile: b/../c.py", [{"path": "/home/u/proj/c.py"}]),
    (
        call("StrReplaceFile", path="/home/u/proj/s/p.py", edit={"old": "a", "new": "b"}),
        "edit",
        "StrReplaceFile: s/p.py",
        [{"path": "/home/u/proj/s/p.py"}],
    ),
    (call("Glob", pattern="*.py", directory="src"), "search", "Glob: *.py", [{"path": "/home/u/proj/src"}]),
    (call("Glob", pattern="*.py"), "search", "Glob: *.py", []),
    (call("Grep", pattern="a+", path="/x"), "search", "Grep: a+", [{"path": "/x"}]),
    (call("Shell", command="ls\n-l"), "execute", "Shell: ls -l", []),
    (call("FetchURL", url="https://a.b/c"), "fetch", "FetchURL: https://a.b/c", []),
    (call("SearchWeb", query="cats"), "fetch", "SearchWeb: cats", []),
    (call("Think", thought="first\nsecond"), "think", "Think: first", []),
    (call("SetTodoList", todos=[]), "think", "SetTodoList", []),
    (call("Agent", description="Look", prompt="p"), "think", "Agent: Look", []),
    (call("Task", description="Look", prompt="p"), "think", "Task: Look", []),
    (call("AskUserQuestion", questions=[{"question": "Which?"}]), "other", "AskUserQuestion: Which?", []),
    (call("CreateSubagent", system_prompt="p"), "other", "CreateSubagent", []),
    (call("EnterPlanMode"), "switch_mode", "EnterPlanMode", []),
    (call("ExitPlanMode"), "switch_mode", "ExitPlanMode", []),
    (call("TaskList"), "read", "TaskList: active", []),
    (call("TaskList", active_only=False), "read", "TaskList: all", []),
    (call("TaskOutput", task_id="b1"), "read", "TaskOutput: b1", []),
    (call("TaskStop", task_id="b1"), "execute", "TaskStop: b1", []),
    (call("SendDMail", message="m", checkpoint_id=0), "other", "SendDMail", []),
    (call("nobody_knows", secret="x"), "other", "nobody_knows", []),
]


def folded(updates: list[Any]) -> dict[str, Any]:
    """What the client shows in the end of the only call."""
    shape: dict[str, Any] = {}
    for update in updates:
        if update["sessionUpdate"].startswith("tool_call"):
            shape |= update
    return shape


@pytest.mark.spec("A-77")
@pytest.mark.parametrize(("asked", "kind", "titled", "places"), LOOKS, ids=lambda value: str(value)[:30])
def test_every_tool_has_kind_title_and_locations(asked: ToolCall, kind: str, titled: str, places: list[Any]) -> None:
    shown = folded(play(translator(), [*BEGIN, asked, ev.ToolResult("c1", DONE)]))
    assert (shown["kind"], shown["title"], shown.get("locations", [])) == (kind, titled, places)
    assert shown["rawInput"] == json.loads(asked.function.arguments or "{}")


@pytest.mark.spec("T-34")
@pytest.mark.parametrize(("asked", "kind", "titled", "places"), LOOKS, ids=lambda value: str(value)[:30])
def test_titles_are_known_before_the_arguments_are_complete(
    asked: ToolCall, kind: str, titled: str, places: list[Any]
) -> None:
    """But for those that no single string says: they are called by their tool alone until then."""
    name, text = asked.function.name, asked.function.arguments or ""
    shown = folded(play(translator(), [*BEGIN, *pieces(name, text[:-1], 3), 9.0]))
    assert (shown["kind"], shown["title"]) == (
        kind,
        name if (look := find_builtin_presentation(name)) and look.find_title_argument else titled,
    )


def test_every_built_in_tool_has_a_presentation() -> None:
    assert builtin_specs().keys() == {asked.function.name for asked, *_ in LOOKS} - {"nobody_knows"}


@pytest.mark.spec("A-77")
@given(st.text(max_size=120), st.text(max_size=300))
def test_titles_are_one_short_line(tool: str, argument: str) -> None:
    shown = format_title(tool, argument)
    assert 0 < len(shown) <= 80
    assert not re.search(r"[\x00-\x1f\x7f\n\r\u2028\ud800-\udfff]", shown)


def test_long_arguments_are_cut_in_the_middle() -> None:
    shown = format_title("Shell", "a" * 60 + "z" * 60)
    assert shown == f"Shell: {'a' * 24}...{'z' * 23}"


def test_invalid_paths_have_no_location() -> None:
    assert make_absolute("", WORK_DIR) is None
    assert make_absolute("a\0b", WORK_DIR) is None
    assert make_absolute("~/a", WORK_DIR) != "/home/u/proj/~/a"


@pytest.mark.spec("A-76")
def test_approved_call_is_pending_then_in_progress_then_completed() -> None:
    subject = translator()
    asked = approval()
    before = play(subject, [*BEGIN, call("Shell", command="ls"), ev.StatusUpdate(plan_mode=False), asked, 10.0])
    assert [update["status"] for update in before if "status" in update] == ["pending"]
    params = subject.build_permission(asked)
    assert params["toolCall"]["status"] == "pending"
    assert params["toolCall"]["rawInput"] == {"command": "ls"}
    after = play(subject, [ev.ApprovalResponse(asked.id, "approve"), 10.0, ev.ToolResult("c1", DONE), 10.0])
    assert [update["status"] for update in after] == ["in_progress", "completed"]


@pytest.mark.spec("A-76")
def test_call_without_approval_is_in_progress_before_it_ends() -> None:
    at_once = play(translator(), [*BEGIN, call("Shell", command="ls"), ev.ToolResult("c1", DONE)])
    assert [update["status"] for update in at_once if "status" in update] == ["pending", "in_progress", "completed"]


def test_calls_are_in_progress_only_after_their_start() -> None:
    subject = translator()
    updates = play(subject, [*BEGIN, call("Shell", command="ls"), ev.StatusUpdate(), 9.0, 9.0])
    assert [update["status"] for update in updates if "status" in update] == ["pending"]
    assert [update["status"] for update in play(subject, [STARTED])] == ["in_progress"]
    assert play(subject, [STARTED]) == []


def test_start_of_a_call_leaves_the_next_one_streaming() -> None:
    subject = translator()
    one, *rest = pieces("Shell", '{"command":"ls"}', 4, "c2")
    updates = play(subject, [*BEGIN, call("ReadFile", path="a"), one, *rest[:2], STARTED, *rest[2:], ev.StatusUpdate()])
    shown = [(update["toolCallId"], update.get("status"), update.get("title")) for update in updates]
    assert shown[2:] == [("t1/c1", "in_progress", None), ("t1/c2", None, "Shell: ls")]


@pytest.mark.spec("A-76")
def test_late_approval_returns_the_call_to_pending() -> None:
    subject = translator()
    updates = play(subject, [*BEGIN, call("Shell", command="ls"), ev.StatusUpdate(), STARTED, approval()])
    assert [update["status"] for update in updates if "status" in update] == ["pending", "in_progress", "pending"]
    assert subject.build_permission(approval())["toolCall"]["status"] == "pending"


@pytest.mark.spec("A-78")
def test_location_is_known_before_the_content_is_complete() -> None:
    text = json.dumps({"path": "src/a.py", "content": "x" * 100_000})
    updates = play(translator(), [*BEGIN, *pieces("WriteFile", text, 12)[:2000]], tick=0.001)
    assert updates[-1]["title"] == "WriteFile: src/a.py"
    assert updates[-1]["locations"] == [{"path": "/home/u/proj/src/a.py"}]
    assert len(updates) == 2


def test_incomplete_path_has_no_location() -> None:
    updates = play(
        translator(), [*BEGIN, *pieces("WriteFile", '{"path":"/etc/passwd-of-mine","content":"', 3)[:6], 9.0]
    )
    assert [update["title"] for update in updates] == ["WriteFile"]


def test_streamed_command_extends_the_title() -> None:
    updates = play(translator(), [*BEGIN, *pieces("Shell", '{"command":"echo one two three four"}', 4)], tick=0.06)
    titles = [update["title"] for update in updates if "title" in update]
    assert titles[0] == "Shell"
    assert titles[-1] == "Shell: echo one two three four"
    assert 3 < len(titles) < 9
    assert all("{" not in shown for shown in titles)


@pytest.mark.spec("A-79")
@pytest.mark.parametrize("text", ['{"command": "ls"', "[[[", "nonsense"])
def test_arguments_that_are_no_json_are_shown_raw_and_end_failed(text: str) -> None:
    failed = ev.ToolResult("c1", tool_error("Error parsing JSON arguments: no", "Invalid arguments"))
    shown = folded(play(translator(), [*BEGIN, ToolCall(id="c1", function=Function("Shell", text)), failed]))
    assert shown["status"] == "failed"
    assert shown["rawInput"] == {"_raw": text}
    assert shown["content"][0]["content"]["text"] == "Error parsing JSON arguments: no"


def test_no_arguments_are_an_empty_object() -> None:
    empty = ToolCall(id="c1", function=Function("ExitPlanMode", None))
    assert folded(play(translator(), [*BEGIN, empty, ev.ToolResult("c1", DONE)]))["rawInput"] == {}


@pytest.mark.spec("A-80")
def test_a_large_call_in_many_pieces_is_cheap() -> None:
    text = json.dumps({"path": "a.txt", "content": "line of text\\n" * 15_000})
    steps = [*BEGIN, *pieces("WriteFile", text, max(1, len(text) // 17_000)), ev.ToolResult("c1", DONE)]
    assert len(steps) > 17_000
    subject, now, sent, updates = translator(), 0.0, 0, 0
    began = time.process_time()
    for event in steps:
        now += 0.0005
        found = list(subject.translate(event))
        if (at := subject.next_update_at()) is not None and at <= now:
            found += subject.collect_due_updates(now)
        updates += len(found)
        sent += sum(len(json.dumps(update)) for update in found)
    assert time.process_time() - began < 1
    assert sent < 2_000_000
    assert sent <= 20 * len(text)
    assert updates <= 12 * (now + 1)


@pytest.mark.spec("A-80")
def test_a_command_that_streams_gives_few_updates() -> None:
    text = json.dumps({"command": "x y " * 5_000})
    updates = play(translator(), [*BEGIN, *pieces("Shell", text, 2)], tick=0.005)
    seconds = len(text) / 2 * 0.005
    assert len(updates) <= 12 * seconds
    assert sum(len(json.dumps(update)) for update in updates) < 20 * len(text)


@pytest.mark.spec("A-81")
def test_parallel_calls_keep_their_titles() -> None:
    steps: list[Any] = [*BEGIN]
    for number in range(3):
        text = json.dumps({"command": f"echo {number}"})
        steps += [ToolCall(id=f"c{number}", function=Function("Shell", text[:5])), TextPart("…")]
        steps[-1:] = [ToolCallPart(text[at : at + 3]) for at in range(5, len(text), 3)]
    updates = play(translator(), [*steps, ev.StatusUpdate()], tick=0.2)
    titles = {update["toolCallId"]: update["title"] for update in updates if "title" in update}
    assert titles == {f"t1/c{number}": f"Shell: echo {number}" for number in range(3)}


@pytest.mark.spec("A-82")
def test_equal_ids_of_a_model_differ_between_turns_and_steps() -> None:
    one = [call("Shell", "call_0", command="a"), ev.ToolResult("call_0", DONE)]
    updates = play(translator(), [*BEGIN, *one, ev.StepBegin(2), *one, ev.TurnEnd(), *BEGIN, *one])
    ids = [update["toolCallId"] for update in updates if update["sessionUpdate"] == "tool_call"]
    assert ids == ["t1/call_0", "t1/call_0#2", "t2/call_0"]
    ended = [update["toolCallId"] for update in updates if update.get("status") == "completed"]
    assert ended == ids


@pytest.mark.spec("A-84")
def test_todo_list_is_sent_as_plan() -> None:
    items = (TodoItem("Read", "done"), TodoItem("Write", "in_progress"), TodoItem("Test"))
    listed = ev.ToolResult("c1", tool_ok("Todo list updated", display=(TodoBlock(items),)))
    updates = play(translator(), [*BEGIN, call("SetTodoList", todos=[]), listed])
    assert updates[-1] == {
        "sessionUpdate": "plan",
        "entries": [
            {"content": "Read", "priority": "medium", "status": "completed"},
            {"content": "Write", "priority": "medium", "status": "in_progress"},
            {"content": "Test", "priority": "medium", "status": "pending"},
        ],
    }
    assert "content" not in folded(updates)
    cleared = ev.ToolResult("c2", tool_ok(display=(TodoBlock(()),)))
    assert play(translator(), [*BEGIN, call("SetTodoList", "c2", todos=[]), cleared])[-1]["entries"] == []


@pytest.mark.spec("A-92")
def test_large_output_is_cut_for_the_client_alone() -> None:
    result = tool_ok("a" * 50_000 + "z" * 50_000)
    shown = folded(play(translator(), [*BEGIN, call("Shell", command="x"), ev.ToolResult("c1", result)]))
    text = shown["content"][0]["content"]["text"]
    assert len(text) <= 32 * 1024
    assert text.startswith("aaa")
    assert text.endswith("zzz")
    assert "bytes are not shown" in text
    assert len(shown["rawOutput"]["output"]) <= 32 * 1024
    assert len(result.output) == 100_000


@pytest.mark.spec("A-93")
def test_image_result_is_sent_as_image() -> None:
    output = (TextPart("looks so"), ImagePart(MediaUrl("data:image/png;base64,iVBORw0K")))
    shown = folded(
        play(translator(), [*BEGIN, call("ReadMediaFile", path="a.png"), ev.ToolResult("c1", tool_ok(output))])
    )
    assert shown["content"] == [
        {"type": "content", "content": {"type": "text", "text": "looks so"}},
        {"type": "content", "content": {"type": "image", "mimeType": "image/png", "data": "iVBORw0K"}},
    ]
    assert "iVBORw0K" not in json.dumps(shown["rawOutput"])


def test_oversized_image_is_linked() -> None:
    output = (ImagePart(MediaUrl("data:image/png;base64," + "A" * (5 * 1024 * 1024 + 4))),)
    shown = folded(
        play(translator(), [*BEGIN, call("ReadMediaFile", path="a.png"), ev.ToolResult("c1", tool_ok(output))])
    )
    assert shown["content"][0]["content"] == {
        "type": "resource_link",
        "uri": "file:///home/u/proj/a.png",
        "name": "a.png",
    }


@pytest.mark.parametrize(
    ("arguments", "output", "places"),
    [
        ({}, "a.py\nsub/b.py", [{"path": "/home/u/proj/a.py"}, {"path": "/home/u/proj/sub/b.py"}]),
        ({"output_mode": "content"}, "a.py:3:x\na.py-4-y\n--\nb.py:9:z", [("a.py", 3), ("b.py", 9)]),
        ({"output_mode": "count_matches"}, "a.py:3", [{"path": "/home/u/proj/a.py"}]),
        ({}, "\n".join(f"f{n}" for n in range(50)), [{"path": f"/home/u/proj/f{n}"} for n in range(20)]),
    ],
)
def test_search_lists_matching_files_as_locations(arguments: dict[str, Any], output: str, places: list[Any]) -> None:
    asked = call("Grep", pattern="x", **arguments)
    shown = folded(play(translator(), [*BEGIN, asked, ev.ToolResult("c1", tool_ok(output))]))
    expected: list[Any] = [p if isinstance(p, dict) else {"path": f"{WORK_DIR}/{p[0]}", "line": p[1]} for p in places]
    assert shown["locations"] == expected


def test_an_edit_points_at_its_first_changed_line() -> None:
    diff = DiffBlock("/home/u/proj/a.py", "one\ntwo\nthree\n", "one\n2\nthree\n", 10, 10)
    steps = [*BEGIN, call("StrReplaceFile", path="a.py"), ev.ToolResult("c1", tool_ok(display=(diff,)))]
    assert folded(play(translator(), steps))["locations"] == [{"path": "/home/u/proj/a.py", "line": 11}]


def test_a_terminal_is_not_replaced_by_text() -> None:
    subject = translator()
    play(subject, [*BEGIN, call("Shell", command="ls"), ev.StatusUpdate()])
    shown = subject.show_terminal("c1", "term-4")
    assert [update.get("status") for update in shown] == ["in_progress", None]
    assert shown[1]["content"] == [{"type": "terminal", "terminalId": "term-4"}]
    assert "content" not in play(subject, [ev.ToolResult("c1", tool_ok("output"))])[-1]
    assert subject.show_terminal("c1", "term-5") == []


def test_a_tool_of_a_server_is_shown_with_its_server() -> None:
    servers = (ev.McpServerStatus("gh", "connected", ("search", "mcp__gh__Shell")),)
    status = ev.StatusUpdate(mcp_status=ev.McpStatus(False, 1, 1, 2, servers))
    known = translator(find_presentation={"search": ToolPresentation("read")}.get)
    updates = play(known, [*BEGIN, status, call("search", q="x"), call("mcp__gh__Shell", "c2")])
    shown = [(update["title"], update["kind"]) for update in updates if update["sessionUpdate"] == "tool_call"]
    assert shown == [("gh: search", "read"), ("gh: Shell", "other")]


def test_open_calls_are_resolved_once() -> None:
    subject = translator()
    inner = ev.SubagentEvent("c1", "a1", "coder", call("Shell", "x1", command="ls"))
    play(
        subject, [*BEGIN, call("Agent", description="d"), inner, ToolCall(id="c2", function=Function("Shell", '{"co'))]
    )
    assert [update["toolCallId"] for update in subject.close_open_calls() if update["status"] == "failed"] == [
        "t1/c2",
        "t1/c1/x1",
        "t1/c1",
    ]
    assert subject.close_open_calls() == []
    assert play(subject, [ev.ToolResult("c1", DONE), ev.StepInterrupted()]) == []


def test_background_agent_continues_after_the_turn() -> None:
    subject = translator()
    started = tool_ok(display=(BackgroundTaskBlock("b1", "agent", "running", "d"),))
    inner = ev.SubagentEvent("c1", "a1", "coder", call("Shell", "x1", command="ls"))
    updates = play(subject, [*BEGIN, call("Agent", description="d"), inner, ev.ToolResult("c1", started), ev.TurnEnd()])
    assert updates[-1]["content"][0]["content"]["text"] == "b1 (agent, running): d"
    assert subject.close_open_calls() == []
    late = ev.SubagentEvent("c1", "a1", "coder", call("Shell", "x2", command="ls"))
    done = [ev.SubagentEvent("c1", "a1", "coder", ev.ToolResult(name, DONE)) for name in ("x1", "x2")]
    ids = {update["toolCallId"] for update in play(subject, [*BEGIN, late, *done])}
    assert ids == {"t1/c1/x1", "t1/c1/x2"}


def test_question_of_a_running_call_keeps_it_in_progress() -> None:
    subject = translator()
    asked = QuestionRequest("q", "c1", (Question("Who are you?", options=(QuestionOption("A"), QuestionOption("B"))),))
    play(subject, [*BEGIN, call("login"), ev.StatusUpdate()])
    updates = play(subject, [STARTED, asked, 9.0])
    assert [update["status"] for update in updates] == ["in_progress"]
    subject.parse_question_answer(asked, [])
    assert [update["status"] for update in play(subject, [ev.ToolResult("c1", DONE)])] == ["completed"]


def test_open_question_keeps_its_call_pending() -> None:
    subject = translator()
    asked = QuestionRequest("q", "c1", (Question("Which?", options=(QuestionOption("A"), QuestionOption("B"))),))
    updates = play(subject, [*BEGIN, call("AskUserQuestion", questions=[{"question": "Which?"}]), asked, 9.0, 9.0])
    assert [update["status"] for update in updates if "status" in update] == ["pending"]
    subject.parse_question_answer(asked, [])
    ended = play(subject, [ev.ToolResult("c1", DONE)])
    assert [update["status"] for update in ended] == ["in_progress", "completed"]
