"""Hooks through the real process: of the configuration and of the client (runtime spec 7.5, wire spec 4.5)."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path

import pytest

from tests.support.program.processes import all_gone
from tests.support.program.wire_process import Answer, Json, Place, WireProcess, approve, eventually
from tests.support.providers.scripts import answer, call, shell, step, tool, tool_answer

TOUCH = "touch made.txt"
FRAME = ["ToolCall", "StatusUpdate", "HookTriggered", "HookRequest", "HookResolved", "ToolResult"]


def hook_table(event: str, command: str, **more: object) -> str:
    """A `[[hooks]]` table."""
    keys = {"event": event, "command": command, **more}
    return "\n[[hooks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def deciding(action: str, reason: str = "") -> Answer:
    """Answer every hook in the same way; approve everything else."""

    def decide(params: Json) -> Json | None:
        if params["type"] != "HookRequest":
            return approve(params)
        return {"request_id": params["payload"]["id"], "action": action, "reason": reason}

    return decide


def told(place: Place, name: str = "told") -> list[Json]:
    """What commands were told that log their stdin, in order."""
    path = place.work / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


LOGGING = "cat >> told; echo >> told"


def without_times(payloads: list[Json]) -> list[Json]:
    """HookResolved payloads without their durations, which are checked."""
    assert all(type(payload["duration_ms"]) is int and payload["duration_ms"] >= 0 for payload in payloads)
    return [{key: value for key, value in payload.items() if key != "duration_ms"} for payload in payloads]


# --- the client's hooks -----------------------------------------------------------------------------------------


def settle(kimi: WireProcess, **members: object) -> None:
    """Answer the next hook request with these members of a response."""
    answer(kimi, kimi.until("HookRequest")["id"], **members)


SETTLING: dict[str, tuple[dict[str, object], str, str]] = {
    "allow": ({"result": {"request_id": "x", "action": "allow", "reason": "fine"}}, "allow", ""),
    "nothing said": ({"result": {}}, "allow", ""),
    "block": ({"result": {"action": "block", "reason": "no shells"}}, "block", "no shells"),
    "block, no reason": ({"result": {"action": "block"}}, "block", ""),
    "error": ({"error": {"code": 1, "message": "hook broke"}}, "allow", ""),
    "error text": ({"error": "hook broke"}, "allow", ""),
    "unknown action": ({"result": {"action": "ask"}}, "allow", ""),
    "wrong reason": ({"result": {"action": "block", "reason": 1}}, "allow", ""),
    "null": ({"result": None}, "allow", ""),
    "neither": ({}, "allow", ""),
}


@pytest.mark.spec("W-113")
def test_client_hook_answers_decide_the_call(tmp_path: Path) -> None:
    """Allow, block, error, wrong shapes, silence; what comes before and after."""
    cases: dict[str, tuple[dict[str, object], str, str]] = {**SETTLING, "silence": ({}, "allow", "")}
    place = Place(tmp_path)
    place.script(*(text for name in cases for text in (shell(name, f"touch '{name}'"), "text: ok")))
    with place.wire("--yolo") as kimi:
        for name, (members, action, reason) in cases.items():
            patience = 1 if name == "silence" else 60
            kimi.initialize(client={"name": "t"}, hooks=[{"id": "mine", "event": "PreToolUse", "timeout": patience}])
            kimi.lines.clear()
            started = time.monotonic()
            call_id = kimi.call("prompt", {"user_input": "go"})
            if name == "silence":
                kimi.until("HookResolved")
                assert time.monotonic() - started >= 1
            else:
                settle(kimi, **members)
            assert kimi.response(call_id)["result"] == {"status": "finished"}
            start = kimi.types.index("ToolCall")
            assert kimi.types[start : start + 6] == FRAME, name
            assert kimi.payloads("HookTriggered") == [{"event": "PreToolUse", "target": "Shell", "hook_count": 1}]
            resolved = {"event": "PreToolUse", "target": "Shell", "action": action, "reason": reason}
            assert without_times(kimi.payloads("HookResolved")) == [resolved], name
            check_request(kimi, place, name)
            assert (place.work / name).exists() is (action == "allow"), name
            value = kimi.payloads("ToolResult")[0]["return_value"]
            if action == "block":
                assert value["message"] == (reason or "Blocked by PreToolUse hook")
                assert (value["is_error"], value["output"]) == (True, "")
                assert value["display"] == [{"type": "brief", "text": "Hook blocked"}]
        assert kimi.finish() == 0


def check_request(kimi: WireProcess, place: Place, name: str) -> None:
    """The hook request of the turn, whole."""
    [line] = [line for line in kimi.lines if line.get("method") == "request"]
    payload = line["params"]["payload"]
    assert line["id"] == payload["id"]
    assert re.fullmatch("[0-9a-f]{12}", payload["id"])
    assert payload == {
        "id": payload["id"],
        "subscription_id": "mine",
        "event": "PreToolUse",
        "target": "Shell",
        "input_data": {
            "hook_event_name": "PreToolUse",
            "session_id": place.session_dirs()[0].name,
            "cwd": str(place.work),
            "tool_name": "Shell",
            "tool_input": {"command": f"touch '{name}'"},
            "tool_call_id": name,
        },
    }


@pytest.mark.spec("W-113")
def test_cancel_and_end_of_input_resolve_a_hook(tmp_path: Path) -> None:
    for end in ("cancel", "eof"):
        place = Place(tmp_path / end).script(shell("c1", TOUCH))
        with place.wire("--yolo") as kimi:
            kimi.initialize(client={"name": "t"}, hooks=[{"id": "mine", "event": "PreToolUse"}])
            call_id = kimi.call("prompt", {"user_input": "go"})
            kimi.until("HookRequest")
            started = time.monotonic()
            if end == "cancel":
                kimi.call("cancel")
                assert kimi.response(call_id)["result"] == {"status": "cancelled"}
                kimi.end_input()
            else:
                kimi.end_input()
                assert kimi.rest()[-1]["result"] == {"status": "cancelled"}
            assert kimi.wait() == 0
            assert time.monotonic() - started < 2
            assert kimi.types[-4:] == ["HookResolved", "ToolResult", "StepInterrupted", "TurnEnd"]
            assert kimi.payloads("HookResolved")[0]["action"] == "allow"
        assert not (place.work / "made.txt").exists()


@pytest.mark.spec("W-114")
def test_blocked_prompt_is_not_sent_to_the_model(tmp_path: Path) -> None:
    place = Place(tmp_path).script("text: the only script")
    with place.wire() as kimi:
        kimi.initialize(client={"name": "t"}, hooks=[{"id": "p", "event": "UserPromptSubmit", "matcher": "secret"}])
        for reason, said in (("", "Prompt blocked by hook."), ("not that", "not that")):
            kimi.lines.clear()
            assert kimi.prompt("tell the secret", deciding("block", reason))["result"] == {"status": "finished"}
            assert kimi.types == [
                "TurnBegin", "HookTriggered", "HookRequest", "HookResolved", "ContentPart", "TurnEnd",
            ]  # fmt: skip
            assert kimi.payloads("ContentPart") == [{"type": "text", "text": said}]
            assert kimi.payloads("HookRequest")[0]["input_data"]["prompt"] == "tell the secret"
        kimi.lines.clear()
        assert kimi.prompt("hi", deciding("block"))["result"] == {"status": "finished"}
        assert kimi.text == "the only script"
        assert "HookTriggered" not in kimi.types
    assert "secret" not in str(place.context())


@pytest.mark.spec("R-142")
@pytest.mark.parametrize("side", ["client", "command"])
def test_prompt_in_parts_is_checked_by_hooks(tmp_path: Path, side: str) -> None:
    place = Place(tmp_path)
    if side == "command":
        place.config = hook_table("UserPromptSubmit", f"{LOGGING}; echo caught >&2; exit 2", matcher="secret")
    place.script("text: never")
    parts = [{"type": "text", "text": "tell the"}, {"type": "text", "text": "secret"}]
    with place.wire() as kimi:
        hooks = [{"id": "p", "event": "UserPromptSubmit", "matcher": "secret"}] if side == "client" else []
        kimi.initialize(client={"name": "t"}, hooks=hooks)
        assert kimi.prompt(parts, deciding("block", "caught"))["result"] == {"status": "finished"}
        assert kimi.text == "caught"
        data = kimi.payloads("HookRequest")[0]["input_data"] if side == "client" else told(place)[0]
        assert data["prompt"] == "tell the secret"


@pytest.mark.spec("W-115", "R-143")
def test_stop_hook_continues_once(tmp_path: Path) -> None:
    place = Place(tmp_path).script("text: done", "text: tested", "text: never")
    with place.wire() as kimi:
        kimi.initialize(client={"name": "t"}, hooks=[{"id": "s", "event": "Stop"}])
        assert kimi.prompt("go", deciding("block", "run the tests"))["result"] == {"status": "finished"}
        assert kimi.text == "donetested"
        fired = ["HookTriggered", "HookRequest", "HookResolved"]
        loop = ["StepBegin", "ContentPart", "StatusUpdate"]
        assert [name for name in kimi.types if name != "StatusUpdate"] == [
            "TurnBegin", *loop[:2], *fired, *loop[:2], *fired, "TurnEnd",
        ]  # fmt: skip
        assert [payload["n"] for payload in kimi.payloads("StepBegin")] == [1, 1]
        asked = kimi.payloads("HookRequest")
        assert [request["input_data"]["stop_hook_active"] for request in asked] == [False, True]
        assert [request["target"] for request in asked] == ["", ""]
        assert [payload["action"] for payload in kimi.payloads("HookResolved")] == ["block", "block"]
        assert kimi.finish() == 0
    said = [record for record in place.context() if record["role"] == "user"]
    assert [str(record["content"]).count("run the tests") for record in said] == [0, 1]


@pytest.mark.spec("W-116")
def test_an_invalid_matcher_never_matches(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.config = hook_table("PreToolUse", "exit 2", matcher="*Shell")
    place.script(shell("c1", TOUCH), "text: ok")
    with place.wire("--yolo") as kimi:
        result = kimi.initialize(
            client={"name": "t"},
            hooks=[{"id": "a", "event": "PreToolUse", "matcher": "("}, {"id": "b", "event": "Stop", "matcher": "["}],
        )
        assert result["hooks"]["configured"] == {"PreToolUse": 2, "Stop": 1}
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert not {"HookTriggered", "HookRequest", "HookResolved"} & set(kimi.types)
    assert (place.work / "made.txt").exists()


@pytest.mark.spec("W-47")
def test_a_repeated_initialize_replaces_tools_and_hooks(tmp_path: Path) -> None:
    place = Place(tmp_path).script(*["text: ok", step(call("c1", "mine", {"n": 1})), "text: ok", "text: ok"])
    with place.wire() as kimi:
        both = {"client": {"name": "t"}, "hooks": [{"id": "h", "event": "Stop"}]}
        for description in ("First.", "Second.", "Third."):
            result = kimi.initialize(external_tools=[tool("mine", description)], **both)
            assert result["external_tools"] == {"accepted": ["mine"], "rejected": []}
            assert result["hooks"]["configured"] == {"Stop": 1}
        assert kimi.prompt("go", deciding("allow"))["result"] == {"status": "finished"}
        assert kimi.payloads("HookTriggered") == [{"event": "Stop", "target": "", "hook_count": 1}]
        assert len(kimi.payloads("HookRequest")) == 1
        assert kimi.initialize(client={"name": "t"})["hooks"]["configured"] == {"Stop": 1}
        assert kimi.initialize(client={"name": "t"}, hooks=[])["hooks"]["configured"] == {}
        kimi.lines.clear()
        kimi.prompt("go", lambda params: tool_answer(params["payload"]["id"]))
        assert [request["name"] for request in kimi.payloads("ToolCallRequest")] == ["mine"]
        assert "HookRequest" not in kimi.types


def test_hook_subscriptions_are_ignored_only_in_the_strict_profile(tmp_path: Path) -> None:
    place = Place(tmp_path).script("text: ok")
    with place.wire() as kimi:
        kimi.initialize(hooks=[{"id": "s", "event": "Stop"}])
        assert kimi.prompt("go", deciding("allow"))["result"] == {"status": "finished"}
        assert "HookRequest" in kimi.types
    place.environ["KIMI_WIRE_STRICT"] = "1"
    place.script("text: ok")
    with place.wire() as kimi:
        assert kimi.initialize(hooks=[{"id": "s", "event": "Stop"}])["hooks"]["configured"] == {}
        started = time.monotonic()
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert time.monotonic() - started < 10
        assert not {"HookTriggered", "HookRequest", "HookResolved"} & set(kimi.types)


def test_hook_events_are_recorded_without_requests(tmp_path: Path) -> None:
    place = Place(tmp_path).script(shell("c1", TOUCH), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(client={"name": "t"}, hooks=[{"id": "h", "event": "PreToolUse"}])
        assert kimi.prompt("go", deciding("allow"))["result"] == {"status": "finished"}
        assert {"HookRequest", "ApprovalRequest", "ApprovalResponse"} <= set(kimi.types)
        assert kimi.finish() == 0
    recorded = [line["message"]["type"] for line in place.recorded()[1:]]
    assert not {"HookRequest", "ApprovalRequest", "ApprovalResponse"} & set(recorded)
    assert {"HookTriggered", "HookResolved"} <= set(recorded)


# --- commands of the configuration ------------------------------------------------------------------------------


@pytest.mark.spec("R-141")
def test_hook_commands_run_in_order_and_are_counted(tmp_path: Path) -> None:
    """A turn with a call that works, one that fails, and a turn that fails, between start and end of the session."""
    place = Place(tmp_path)
    events = (
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd",
    )  # fmt: skip
    place.config = "".join(hook_table(event, f"cat > told-{event}") for event in events)
    place.config += hook_table("StopFailure", "cat > told-StopFailure")
    place.script(shell("c1", "echo out"), shell("c2", "echo oops; exit 3"), "text: ok")
    with place.wire("--yolo") as kimi:
        result = kimi.initialize(client={"name": "t"}, hooks=[{"id": "s", "event": "Notification"}])
        configured = dict.fromkeys((*events, "StopFailure", "Notification"), 1)
        assert result["hooks"]["configured"] == configured
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert "error" in kimi.prompt("exhausted")
        assert kimi.types[-1] == "TurnEnd"
        assert kimi.finish() == 0
    common = {"session_id": place.session_dirs()[0].name, "cwd": str(place.work)}
    expected: dict[str, Json] = {
        "SessionStart": {"source": "startup"},
        "PostToolUse": {
            "tool_name": "Shell", "tool_input": {"command": "echo out"}, "tool_call_id": "c1", "tool_output": "out\n",
        },
        "PostToolUseFailure": {
            "tool_name": "Shell", "tool_input": {"command": "echo oops; exit 3"}, "tool_call_id": "c2",
            "error": "Command failed with exit code: 3.",
        },
        "PreToolUse": {
            "tool_name": "Shell", "tool_input": {"command": "echo oops; exit 3"}, "tool_call_id": "c2",
        },
        "UserPromptSubmit": {"prompt": "exhausted"},
        "Stop": {"stop_hook_active": False},
        "SessionEnd": {"reason": "exit"},
    }  # fmt: skip
    for event, details in expected.items():
        assert told(place, f"told-{event}") == [{"hook_event_name": event, **common, **details}], event
    [failure] = told(place, "told-StopFailure")
    assert failure["hook_event_name"] == "StopFailure"
    assert failure["error_type"] == "APIStatusError" or failure["error_type"].endswith("Error")
    assert failure["error_message"]
    place.script("text: ok")
    with place.wire("--continue") as kimi:
        assert kimi.finish() == 0
    assert told(place, "told-SessionStart")[0]["source"] == "resume"


@pytest.mark.spec("R-141")
def test_hook_commands_run_for_subagents_and_compaction(tmp_path: Path) -> None:
    place = Place(tmp_path)
    events = ("SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "PreToolUse", "UserPromptSubmit", "Stop")
    place.config = "".join(hook_table(event, f"cat >> told-{event}; echo >> told-{event}") for event in events)
    report = "Nothing is out of order. " * 30
    order = {"description": "look", "prompt": "look around " * 60}
    place.script(
        call("p1", "Agent", order), shell("c1", "true"), f"text: {report}", "text: done", "text: summary", "text: again"
    )
    with place.wire("--yolo") as kimi:
        kimi.initialize(client={"name": "t"}, hooks=[{"id": "a", "event": "PreCompact", "matcher": "^manual$"}])
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        wrapped = [one["event"]["type"] for one in kimi.payloads("SubagentEvent")]
        assert wrapped.count("HookTriggered") == wrapped.count("HookResolved") == 1
        assert kimi.prompt("/compact", deciding("block", "ignored"))["result"] == {"status": "finished"}
        assert kimi.prompt("/compact mind the tests", deciding("block"))["result"] == {"status": "finished"}
        assert [request["target"] for request in kimi.payloads("HookRequest")] == ["manual"]
        assert kimi.finish() == 0
    common = {"session_id": place.session_dirs()[0].name, "cwd": str(place.work)}
    about = {**common, "agent_name": "coder"}
    start = {"hook_event_name": "SubagentStart", **about, "prompt": order["prompt"][:500]}
    assert told(place, "told-SubagentStart") == [start]
    [stop] = told(place, "told-SubagentStop")
    assert stop == {"hook_event_name": "SubagentStop", **about, "response": report[:500]}
    for event, key in (("PreCompact", "token_count"), ("PostCompact", "estimated_token_count")):
        payloads = told(place, f"told-{event}")
        assert [payload["trigger"] for payload in payloads] == ["manual", "manual-with-prompt"]
        for payload in payloads:
            assert type(payload.pop(key)) is int
            assert payload == {"hook_event_name": event, **common, "trigger": payload["trigger"]}
    assert [payload["tool_name"] for payload in told(place, "told-PreToolUse")] == ["Agent", "Shell"]
    assert len(told(place, "told-UserPromptSubmit")) == len(told(place, "told-Stop")) == 3


def denial(reason: str) -> str:
    """A command that denies by JSON."""
    said = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": reason}}
    return f"echo {shlex.quote(json.dumps(said))}"


@pytest.mark.spec("R-141")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (hook_table("PreToolUse", "echo by status >&2; exit 2"), "by status"),
        (hook_table("PreToolUse", "exit 2"), "Blocked by PreToolUse hook"),
        (hook_table("PreToolUse", denial("by JSON")), "by JSON"),
        (hook_table("PreToolUse", "exit 1") + hook_table("PreToolUse", "exit 2", matcher="^Sh.*l$"), "Blocked by"),
        (hook_table("PreToolUse", "exit 2", matcher="WriteFile"), None),
        (hook_table("PreToolUse", denial("x") + "; exit 1"), None),
        (hook_table("PreToolUse", "no-such-program"), None),
        (hook_table("PreToolUse", "sleep 60; exit 2", timeout=1), None),
        (hook_table("PreToolUse", "kill -9 $$"), None),
        (hook_table("PreToolUse", "exit 2", matcher="("), None),
        (
            hook_table("PreToolUse", "sleep 0.2; echo first >&2; exit 2")
            + hook_table("PreToolUse", "echo second >&2; exit 2"),
            "first",
        ),
    ],
)
def test_hook_commands_decide_the_call(tmp_path: Path, config: str, message: str | None) -> None:
    place = Place(tmp_path, config=config).script(shell("c1", TOUCH), "text: ok")
    with place.wire("--yolo") as kimi:
        kimi.initialize(client={"name": "t"})
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        value = kimi.payloads("ToolResult")[0]["return_value"]
        assert value["is_error"] is (message is not None)
        assert value["message"].startswith(message or "Command executed")
        assert kimi.finish() == 0
    assert (place.work / "made.txt").exists() is (message is None)


@pytest.mark.spec("R-141")
def test_commands_run_at_once_and_each_only_once(tmp_path: Path) -> None:
    """Each of the two waits for a file that the other one makes."""
    place = Place(tmp_path)
    wait = "touch {0}; for i in $(seq 200); do [ -e {1} ] && exit 2; sleep 0.02; done"
    commands = [wait.format("a", "b"), wait.format("b", "a"), "echo x >> once", "echo x >> once"]
    place.config = "".join(hook_table("UserPromptSubmit", command) for command in commands)
    place.script("text: never")
    with place.wire() as kimi:
        assert kimi.initialize(client={"name": "t"})["hooks"]["configured"] == {"UserPromptSubmit": 4}
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert kimi.text == "Prompt blocked by hook."
        assert kimi.payloads("HookTriggered")[0]["hook_count"] == 3
    assert (place.work / "once").read_text() == "x\n"


def test_hook_commands_do_not_inherit_api_keys(tmp_path: Path) -> None:
    place = Place(tmp_path, config=hook_table("UserPromptSubmit", "env > seen"))
    place.config += (
        '[providers.q]\ntype = "openai_legacy"\nbase_url = "http://127.0.0.1:9"\napi_key = "sk-configured"\n'
    )
    place.environ["OPENAI_API_KEY"] = "sk-from-the-environment"
    place.environ["PLAIN"] = "kept"
    place.script("text: ok")
    with place.wire() as kimi:
        kimi.initialize(client={"name": "t"})
        kimi.prompt("go")
        assert kimi.finish() == 0
    seen = (place.work / "seen").read_text()
    assert "PLAIN=kept" in seen
    assert "sk-" not in seen


@pytest.mark.parametrize("end", ["eof", "sigterm"])
def test_the_end_does_not_wait_long_for_commands(tmp_path: Path, end: str) -> None:
    mark = f"hooks-{tmp_path.name}"
    place = Place(tmp_path)
    stubborn = "trap '' TERM; touch began; sleep 60 & sleep 61"
    place.config = hook_table("SessionEnd", stubborn) + hook_table("SessionEnd", "echo x > ended")
    place.config += hook_table("PostToolUse", "sleep 62")
    place.environ["KIMI_TEST_MARK"] = mark
    place.script(shell("c1", "true"), "text: ok")
    with place.wire("--yolo") as kimi:
        kimi.initialize(client={"name": "t"})
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        started = time.monotonic()
        if end == "eof":
            assert kimi.finish() == 0
        else:
            kimi.process.terminate()
            assert kimi.wait() == -15
        assert time.monotonic() - started < 2.2
    assert (place.work / "began").exists()
    assert (place.work / "ended").exists()
    assert all_gone(mark)


def test_the_handshake_does_not_wait_for_the_start(tmp_path: Path) -> None:
    place = Place(tmp_path, config=hook_table("SessionStart", "sleep 1.5; touch started")).script("text: ok")
    with place.wire() as kimi:
        kimi.initialize(client={"name": "t"})
        assert not (place.work / "started").exists()
        assert eventually((place.work / "started").exists)
        assert kimi.types == []
        assert kimi.finish() == 0
    assert place.session_dirs() == []


@pytest.mark.spec("W-137")
def test_hook_commands_get_json_with_blanks_that_scripts_can_search(tmp_path: Path) -> None:
    searching = """grep -q '"tool_name": "Shell", "tool_input": {"command": "echo ü"}' && exit 2; exit 0"""
    place = Place(tmp_path, config=hook_table("PreToolUse", searching)).script(shell("c1", "echo ü"), "text: ok")
    with place.wire("--yolo") as kimi:
        kimi.initialize(client={"name": "t"})
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert kimi.payloads("ToolResult")[0]["return_value"]["message"] == "Blocked by PreToolUse hook"
        assert kimi.finish() == 0


# --- approving --------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-280")
def test_a_command_hook_approves_calls_and_rules_still_win(place: Place) -> None:
    verdict = {"permissionDecision": "allow", "permissionDecisionReason": "known good"}
    approving = f"echo {shlex.quote(json.dumps({'hookSpecificOutput': verdict}))}"
    place.config = hook_table("PreToolUse", approving, matcher="^Shell$")
    place.config += '\n[[approval.rules]]\ndecision = "deny"\ntool = "Shell"\nmatch = "touch never*"\n'
    place.config += '\n[[approval.rules]]\ndecision = "ask"\ntool = "Shell"\nmatch = "touch asked*"\n'
    lines = [shell("c1", TOUCH), shell("c2", "touch never.txt"), shell("c3", "touch asked.txt"), "text: done"]
    place.script(*lines)
    with place.wire() as kimi:
        assert kimi.prompt("go", approve)["result"] == {"status": "finished"}
        assert [one["tool_call_id"] for one in kimi.payloads("ApprovalRequest")] == ["c3"]
        reasons = {(one["action"], one["reason"]) for one in kimi.payloads("HookResolved")}
        assert reasons == {("allow", "known good")}
        assert kimi.finish() == 0
    made = sorted(path.name for path in place.work.glob("*.txt"))
    assert made == ["asked.txt", "made.txt"]
    log = (place.share / "logs" / "kimi.log").read_text()
    assert "call c1 of Shell: allow run command by hook" in log


def test_a_client_that_allows_does_not_approve(place: Place) -> None:
    place.script(shell("c1", TOUCH), "text: done")
    with place.wire() as kimi:
        kimi.initialize(hooks=[{"id": "mine", "event": "PreToolUse"}])
        kimi.prompt("go", deciding("allow"))
        assert [one["tool_call_id"] for one in kimi.payloads("ApprovalRequest")] == ["c1"]
        assert kimi.finish() == 0
