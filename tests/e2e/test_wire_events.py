"""Events: their order, their fields, retries (wire spec 4, 7)."""

from __future__ import annotations

import random
import time

import pytest

from tests.support.program.wire_process import Json, Place, WireProcess
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import (
    Reply,
    call_delta,
    chunk,
    end_events,
    error_reply,
    text_events,
    text_reply,
)
from tests.support.providers.scripts import answer, call, error_of, shell, step, tool, tool_answer

NONE_CHANGED = {
    "context_usage": None, "context_tokens": None, "max_context_tokens": None, "token_usage": None,
    "message_id": None, "plan_mode": None, "mcp_status": None,
}  # fmt: skip


@pytest.mark.spec("W-90")
def test_one_status_update_is_sent_per_step(place: Place) -> None:
    place.script(
        step("id: m1", "usage: input_other=10 output=5 input_cache_read=3 input_cache_creation=2", call("c1", "Nope")),
        step("usage: input_other=20 output=7", "text: a"),
        step("id: m3", "text: b"),
    )
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("known")
        kimi.prompt("unknown")
        steps = [name for name in kimi.types if name in ("StepBegin", "StatusUpdate", "TurnEnd")]
        assert steps == [*["StepBegin", "StatusUpdate"] * 2, "TurnEnd", "StepBegin", "StatusUpdate", "TurnEnd"]
        first, second, third = kimi.payloads("StatusUpdate")
        usage: Json = {"input_other": 10, "output": 5, "input_cache_read": 3, "input_cache_creation": 2}
        assert first == NONE_CHANGED | {
            "context_usage": 0.00015, "context_tokens": 15, "max_context_tokens": 100_000, "token_usage": usage,
            "message_id": "m1", "plan_mode": False,
        }  # fmt: skip
        assert second["token_usage"] == {
            "input_other": 20,
            "output": 7,
            "input_cache_read": 0,
            "input_cache_creation": 0,
        }
        assert (second["context_tokens"], second["context_usage"]) == (20, 0.0002)
        assert third == NONE_CHANGED | {"message_id": "m3", "plan_mode": False}


def interleaved() -> Reply:
    """Two calls whose argument pieces come alternately."""
    texts = ['{"command":"echo first"}', '{"command":"echo second"}']
    pieces = [[text[start : start + 5] for start in range(0, len(text), 5)] for text in texts]
    events = [call_delta(index, "", call_id=f"c{index}", name="Shell") for index in (0, 1)]
    for one, two in zip(*pieces, strict=True):
        events += [call_delta(0, one), call_delta(1, two)]
    return Reply([*text_events("a", "b"), *events, *end_events("tool_calls")])


@pytest.mark.spec("W-91")
def test_parts_of_parallel_calls_do_not_interleave(place: Place) -> None:
    with loopback(interleaved(), text_reply("done")) as server:
        place.provider(server.base_url)
        with place.wire("--yolo") as kimi:
            kimi.initialize()
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            arguments: dict[str, str] = {}
            latest = ""
            for line in (line for line in kimi.lines if "method" in line):
                payload: Json = line["params"]["payload"]
                if payload.get("type") == "function":
                    latest = payload["id"]
                    assert latest not in arguments
                    arguments[latest] = payload["function"]["arguments"] or ""
                elif set(payload) == {"arguments_part"}:
                    arguments[latest] += payload["arguments_part"] or ""
            assert arguments == {"c0": '{"command":"echo first"}', "c1": '{"command":"echo second"}'}
            results = {item["tool_call_id"]: item["return_value"]["output"] for item in kimi.payloads("ToolResult")}
            assert results == {"c0": "first\n", "c1": "second\n"}


@pytest.mark.spec("W-92", "R-83", "R-80")
def test_retries_are_announced(place: Place) -> None:
    place.config = "[loop_control]\nmax_retries_per_step = 2\n"
    think_only = Reply([chunk({"reasoning_content": "hm"}), *end_events()])
    faults: list[tuple[Reply, str, int | None]] = [
        (error_reply(429, "slow down"), "APIStatusError", 429),
        (think_only, "APIEmptyResponseError", None),
        (Reply(fault="refuse"), "APIConnectionError", None),
    ]
    replies = [reply for fault, _, _ in faults for reply in (fault, text_reply("ok"))]
    with loopback(*replies, error_reply(429, "still"), error_reply(429, "at last")) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.initialize(capabilities={})
            for _, name, status in faults:
                assert kimi.prompt("go")["result"] == {"status": "finished"}, name
                retry = kimi.payloads("StepRetry")[-1]
                assert 0.3 <= retry["wait_s"] < 0.8
                assert retry == {
                    "n": 1, "next_attempt": 2, "max_attempts": 2, "wait_s": retry["wait_s"], "error_type": name,
                    "status_code": status,
                }  # fmt: skip
            assert len(kimi.payloads("StepRetry")) == len(faults)
            code, message = error_of(kimi.prompt("fails"))
            assert (code, "at last" in message) == (-32003, True)
            assert len(kimi.payloads("StepRetry")) == len(faults) + 1
            assert kimi.types[-2:] == ["StepInterrupted", "TurnEnd"]


@pytest.mark.spec("R-81")
def test_attempts_are_requests_and_retry_after_is_honoured(place: Place) -> None:
    with loopback(error_reply(503, "busy", Retry_After="1"), error_reply(503, "busy")) as server:
        place.provider(server.base_url)
        with place.wire() as kimi:
            kimi.initialize(capabilities={})
            started = time.monotonic()
            assert error_of(kimi.prompt("go"))[0] == -32003
            waits = [item["wait_s"] for item in kimi.payloads("StepRetry")]
            assert [item["next_attempt"] for item in kimi.payloads("StepRetry")] == [2, 3]
            assert waits[0] == 1.0
            assert 0.6 <= waits[1] <= 1.1
            assert time.monotonic() - started >= sum(waits)
        assert len(server.requests) == 3


@pytest.mark.spec("W-99", "T-26")
def test_duplicate_call_ids_get_separate_results(place: Place) -> None:
    place.script(step(call("c1", "ext", {"n": 1}), call("c1", "ext", {"n": 2}), call("", "ext", {"n": 3})), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        prompt = kimi.call("prompt", {"user_input": "go"})
        for _ in range(3):
            request = kimi.until("ToolCallRequest")
            answer(kimi, request["id"], result=tool_answer(request["id"], request["arguments"]))
        assert kimi.response(prompt)["result"] == {"status": "finished"}
        calls = {item["id"]: item["function"]["arguments"] for item in kimi.payloads("ToolCall")}
        results = {item["tool_call_id"]: item["return_value"]["output"] for item in kimi.payloads("ToolResult")}
        assert results == calls
        assert len(results) == 3
        assert "" not in results
        assert "c1" in results


@pytest.mark.spec("T-22", "R-95")
def test_commands_of_one_step_run_at_the_same_time(place: Place) -> None:
    place.script(step(*[shell(f"c{number}", f"sleep {0.5 - number / 10}") for number in range(3)]), "text: ok")
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        prompt = kimi.call("prompt", {"user_input": "go"})
        kimi.until("StatusUpdate")
        started = time.monotonic()
        for _ in range(3):
            kimi.until("ToolResult")
        assert time.monotonic() - started < 1
        kimi.response(prompt)
        assert [item["tool_call_id"] for item in kimi.payloads("ToolResult")] == ["c2", "c1", "c0"]
    assert [record["tool_call_id"] for record in place.context() if record["role"] == "tool"] == ["c0", "c1", "c2"]


# --- random parallel turns ---------------------------------------------------------------------------------------

TURNS = 40


def random_step(source: random.Random, turn: int, number: int) -> str:
    """A model call with some text and up to six calls of tools that need an approval, an answer, or nothing."""
    lines = [f"text: {source.random()}" for _ in range(source.randrange(3))]
    for index in range(source.randint(1, 6)):
        call_id = source.choice([f"t{turn}s{number}c{index}", "same"])
        match source.randrange(5):
            case 0:
                lines.append(shell(call_id, f"echo {index} $((RANDOM))"))
            case 1:
                lines.append(call(call_id, "ReadFile", {"path": source.choice(["there.txt", "missing.txt"])}))
            case 2:
                lines.append(call(call_id, "WriteFile", {"path": f"w{index}.txt", "content": str(turn)}))
            case 3:
                lines.append(call(call_id, "ext", {"n": source.random()}))
            case _:
                lines.append(call(call_id, source.choice(["Nope", "ext"]), source.choice(["{", "[1]"])))
        lines += [f"tool_call_part: {part}" for part in source.choice([[], [" ", ""]])]
    if source.random() < 0.5:
        lines.append("usage: input_other=5 output=1")
    return step(*lines)


def random_script(source: random.Random) -> list[str]:
    """What the model says in all turns. A turn may end early; what it leaves over is said in the next one."""
    scripts: list[str] = []
    for turn in range(TURNS):
        scripts += [random_step(source, turn, number) for number in range(source.randint(1, 3))] + ["text: end"]
    return scripts


def random_answer(source: random.Random, line: Json) -> Json:
    """An answer of any kind to a request."""
    payload = line["params"]["payload"]
    if source.random() < 0.1:
        return {"error": source.choice(["text", {"code": 1, "message": "no"}, 5])}
    if line["params"]["type"] == "ToolCallRequest":
        return {"result": source.choice([tool_answer(payload["id"]), None, {"return_value": 1}])}
    response = source.choice(["approve", "approve", "approve", "reject"])
    feedback = source.choice(["", "do it better"])
    return {"result": {"request_id": payload["id"], "response": response, "feedback": feedback}}


def play_turn(kimi: WireProcess, source: random.Random) -> list[Json]:
    """One prompt with answers in random order, some turns cancelled; gives its lines."""
    before = len(kimi.lines)
    prompt = kimi.call("prompt", {"user_input": "go"})
    waiting: list[Json] = []
    ends = source.random() < 0.2
    while True:
        line = kimi.next_line()
        if "method" not in line and line["id"] == prompt:
            return kimi.lines[before:]
        if line.get("method") == "request":
            waiting.append(line)
        if ends and source.random() < 0.1:
            kimi.send({"method": "cancel"})
        # Holding one back lets others gather; when nothing else would come, one must be answered.
        while waiting and (source.random() < 0.6 or kimi.idle):
            chosen = waiting.pop(source.randrange(len(waiting)))
            answer(kimi, chosen["id"], **random_answer(source, chosen))


def check_order(lines: list[Json]) -> None:
    """The rules 1 to 3 of wire spec 4.6 for the lines of one turn; the others have tests of their own."""
    events = [line for line in lines if "method" in line]
    types = [line["params"]["type"] for line in events]
    assert lines[-1].get("id") is not None
    assert "method" not in lines[-1]
    assert (types[0], types[-1], types.count("TurnBegin"), types.count("TurnEnd")) == ("TurnBegin", "TurnEnd", 1, 1)
    state: dict[str, str] = {}
    approvals: dict[str, str] = {}
    order: dict[str, list[str]] = {}
    orders: list[list[str]] = []
    status = True
    for line in events:
        name, payload = line["params"]["type"], line["params"]["payload"]
        match name:
            case "StepBegin":
                assert "open" not in state.values()
                assert status
                status = False
                state.clear()  # another step may use an id again
            case "ContentPart" | "ToolCallPart":
                assert not status
            case "StatusUpdate":
                assert not status
                status = True
            case "ToolCall":
                assert not status
                assert payload["id"] not in state
                state[payload["id"]] = "open"
                order[payload["id"]] = [name]
                orders.append(order[payload["id"]])
            case "ApprovalRequest":
                assert state[payload["tool_call_id"]] == "open"
                approvals[payload["id"]] = payload["tool_call_id"]
                order[payload["tool_call_id"]].append(name)
            case "ToolCallRequest":
                assert state[payload["id"]] == "open"
                order[payload["id"]].append(name)
            case "ApprovalResponse":
                order[approvals[payload["request_id"]]].append(name)
            case "ToolResult":
                assert state[payload["tool_call_id"]] == "open"
                state[payload["tool_call_id"]] = "done"
                order[payload["tool_call_id"]].append(name)
            case _:
                assert name in ("TurnBegin", "TurnEnd", "StepInterrupted")
    asked = ["ToolCall", "ApprovalRequest", "ApprovalResponse", "ToolResult"]
    known = (["ToolCall", "ToolResult"], ["ToolCall", "ToolCallRequest", "ToolResult"], asked)
    assert all(sequence in known for sequence in orders)


def calls_of(record: Json) -> list[Json]:
    """The tool calls of a record of the context."""
    return record.get("tool_calls") or []


@pytest.mark.spec("W-88")
@pytest.mark.parametrize("seed", range(2))
def test_random_parallel_turns_keep_event_order(place: Place, seed: int) -> None:
    source = random.Random(seed)
    (place.work / "there.txt").write_text("there\n", encoding="utf-8")
    place.script(*random_script(source))
    with place.wire() as kimi:
        kimi.initialize(external_tools=[tool("ext")])
        turns = [play_turn(kimi, source) for _ in range(TURNS)]
        statuses = [turn[-1]["result"]["status"] for turn in turns]
        assert {"finished", "cancelled"} <= set(statuses)
        for lines in turns:
            check_order(lines)
        assert kimi.quiet(0.1)
        assert kimi.finish() == 0
    asked = [made["id"] for record in place.context() for made in calls_of(record)]
    answered = [record["tool_call_id"] for record in place.context() if record["role"] == "tool"]
    assert answered == asked
