"""Each fault of a broken server of the wire is found by the item that names it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.support.conformance.faults import (
    Change,
    Fault,
    Json,
    check_fault_is_found,
    drop_member,
    each,
    held_back,
    on_error,
    on_event,
    on_result,
    set_member,
    without,
)
from tests.support.conformance.warm import Mutate


def set_error(**members: object) -> Change:
    def change(message: Json) -> None:
        message["error"].update(members)

    return change


def no_answer(message: Json) -> list[Json]:
    del message
    return []


def twice(message: Json) -> list[Json]:
    return [message, message]


def carriage_return() -> Mutate:
    return lambda line: [line.removesuffix(b"\n") + b"\r\n"]


def two_in_a_line() -> Mutate:
    return lambda line: [line.removesuffix(b"\n") + b" " + line]


def raw_separators() -> Mutate:
    return lambda line: [line.replace(b"\\u2028", "\u2028".encode())]


def integers_as_strings(message: Json) -> None:
    if isinstance(message.get("id"), int):
        message["id"] = str(message["id"])


def envelope_id(message: Json) -> None:
    if message.get("method") == "request":
        message["id"] += "x"


def swap_answers() -> Mutate:
    held: list[Json] = []

    def change(message: Json) -> list[Json]:
        if "error" not in message:
            return [message]
        held.append(message)
        return [held.pop(), held.pop()] if len(held) == 2 else []

    return each(change)()


def answer_cancel_late() -> Mutate:
    held: list[Json] = []

    def change(message: Json) -> list[Json] | None:
        if message.get("result") == {}:
            held.append(message)
            return []
        return [message, *held] if message.get("result", {}).get("status") == "cancelled" else None

    return each(change)()


def swap_steers() -> Mutate:
    held: list[Json] = []

    def change(message: Json) -> list[Json] | None:
        if message.get("params", {}).get("type") != "SteerInput":
            return None
        held.append(message)
        return [held.pop(), held.pop()] if len(held) == 2 else []

    return each(change)()


def approve_whatever_is_said(message: Json) -> None:
    if "method" not in message:
        message.pop("error", None)
        message["result"] = {"response": "approve"}


def give_an_id(message: Json) -> None:
    if message.get("method") == "prompt":
        message.setdefault("id", "given")


def unknown_ids_get_an_error() -> Mutate:
    def change(message: Json) -> Json | None:
        return {"jsonrpc": "2.0", "id": "kx", "method": "nope"} if message.get("id") == "nobody" else None

    return each(change)()


def inject(kind: str, payload: Json, before: str) -> Callable[[], Mutate]:
    def change(message: Json) -> list[Json] | None:
        if message.get("params", {}).get("type") != before:
            return None
        return [{"jsonrpc": "2.0", "method": "event", "params": {"type": kind, "payload": payload}}, message]

    return each(change)


def succeed(message: Json) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "result": {}}


def change_first_tool(result: Json) -> None:
    for rejected in result["external_tools"]["rejected"]:
        rejected["reason"] = "no"


def reverse_hooks(result: Json) -> None:
    result["hooks"]["supported_events"].reverse()


def nest_old_id(payload: Json) -> None:
    payload["task_tool_call_id"] = None


def second_status(payload: Json) -> list[Json] | None:
    message = {"jsonrpc": "2.0", "method": "event", "params": {"type": "StatusUpdate", "payload": payload}}
    return [message, copy.deepcopy(message)]


def strip_input(payload: Json) -> None:
    if isinstance(payload["user_input"], str):
        payload["user_input"] = payload["user_input"].strip()


def other_value(**members: object) -> Change:
    def change(payload: Json) -> None:
        payload["return_value"].update(members)

    return change


def error_null(message: Json) -> None:
    if "result" in message:
        message["error"] = None


def drop_data(message: Json) -> None:
    message.get("error", {}).pop("data", None)


def drop_cancelled(message: Json) -> list[Json] | None:
    return [] if message.get("result", {}).get("status") == "cancelled" else None


def finish_replay(message: Json) -> None:
    if "events" in message.get("result", {}):
        message["result"]["status"] = "finished"


def drop_aliases(result: Json) -> None:
    for command in result["slash_commands"]:
        del command["aliases"]


def keep_plan_mode_off(payload: Json) -> None:
    payload["plan_mode"] = False if payload["plan_mode"] is not None else None


BTW = {"id": "x", "response": "", "error": None}

FAULTS = [
    Fault("lines end in CR LF", "W-01", carriage_return, scenario="messages_of_every_class"),
    Fault("two messages stand in a line", "W-01", two_in_a_line, scenario="messages_of_every_class"),
    Fault("broken JSON gets another code", "W-05", on_error(-32700, set_error(code=-32600))),
    Fault("broken JSON is not answered", "W-05", on_error(-32700, no_answer)),
    Fault("separators of lines are raw", "W-06", raw_separators),
    Fault("an array is answered for each member", "W-10", on_error(-32600, twice)),
    Fault("an object without method is not answered", "W-12", on_error(-32600, no_answer)),
    Fault("integer ids come back as strings", "W-13", each(integers_as_strings)),
    Fault("an unknown method is not named", "W-14", on_error(-32601, set_error(message="Method not found"))),
    Fault("notifications are served", "W-16", inbound=each(give_an_id)),
    Fault("a success has `error` null", "W-19", each(error_null),
          scenario="messages_of_every_class"),
    Fault("errors have no data", "W-19", each(drop_data),
          scenario="messages_of_every_class"),
    Fault("answers come in another order", "W-24", swap_answers),
    Fault("the exit status is wrong", "W-25", status=lambda _: 3),
    Fault("the input's end leaves the prompt unanswered", "W-26",
          each(drop_cancelled)),
    Fault("SIGTERM ends with status 0", "W-29", status=lambda status: max(status, 0)),
    Fault("the version is another", "W-38", on_result("protocol_version", set_member(protocol_version="1.9"))),
    Fault("a wrong version gets another code", "W-39", on_error(-32602, set_error(code=-32600))),
    Fault("the handshake has a foreign member", "W-40", on_result("server", set_member(extra=1))),
    Fault("a member of the handshake is null", "W-41", on_result("server", set_member(server={"name": None}))),
    Fault("commands have no aliases", "W-41",
          on_result("slash_commands", drop_aliases)),
    Fault("the server has another name", "W-42", on_result("server", set_member(server={"name": "x", "version": "1"}))),
    Fault("hook events are in another order", "W-43", on_result("hooks", reverse_hooks)),
    Fault("a handshake in a turn gets another text", "W-48", on_error(-32000, set_error(message="busy")),
          scenario="the_handshake"),
    Fault("steps are not announced", "W-53", without("StepBegin")),
    Fault("`steps` is always there", "W-57", on_result("status", set_member(steps=1)),
          scenario="a_client_without_handshake"),
    Fault("the echo of the input is stripped", "W-58", on_event("TurnBegin", strip_input)),
    Fault("wrong parameters get another text", "W-60", on_error(-32602, set_error(message="wrong"))),
    Fault("a missing capability is another error", "W-62", on_error(-32002, set_error(code=-32003))),
    Fault("a failed step is not interrupted", "W-63", without("StepInterrupted")),
    Fault("a second prompt gets another code", "W-66", on_error(-32000, set_error(code=-32603))),
    Fault("the limit of steps is not told", "W-68", on_result("steps", drop_member("steps"))),
    Fault("a cancel without a turn is not answered", "W-72", on_error(-32000, no_answer)),
    Fault("a cancel is answered after the prompt", "W-73", answer_cancel_late),
    Fault("a cancelled call has no result", "W-74", without("ToolResult")),
    Fault("steers come in another order", "W-79", swap_steers),
    Fault("plan mode is announced after the response", "W-83", held_back("StatusUpdate", "response")),
    Fault("plan mode takes no boolean", "W-84", on_error(-32602, succeed)),
    Fault("the plan is not shown", "W-86", without("PlanDisplay")),
    Fault("a rejected plan leaves plan mode", "W-87", on_event("StatusUpdate", keep_plan_mode_off)),
    Fault("a result comes after the next step", "W-88", held_back("ToolResult", "StepBegin"), scenario="approvals"),
    Fault("an approval is told after the result", "W-88", held_back("ApprovalResponse", "ToolResult"),
          scenario="approvals"),
    Fault("TurnEnd comes after the response", "W-88", held_back("TurnEnd", "response"), scenario="approvals"),
    Fault("a field that is null is left out", "W-89", on_event("StatusUpdate", drop_member("mcp_status")),
          scenario="approvals"),
    Fault("a number is sent as text", "W-89", on_event("StepBegin", set_member(n="1")), scenario="approvals"),
    Fault("figures come twice a step", "W-90", on_event("StatusUpdate", second_status)),
    Fault("a piece of the arguments is lost", "W-91", without("ToolCallPart", nth=2)),
    Fault("StepRetry counts from another number", "W-92", on_event("StepRetry", set_member(next_attempt=1))),
    Fault("CompactionEnd is missing", "W-93", without("CompactionEnd")),
    Fault("the text of /clear is another", "W-94", on_event("ContentPart", set_member(text="Cleared."))),
    Fault("nested events lack the old id", "W-95", on_event("SubagentEvent", nest_old_id)),
    Fault("a nested turn has no end", "W-96", without("TurnEnd", nth=2)),
    Fault("the end of a task has another severity", "W-97", on_event("Notification", set_member(severity="error"))),
    Fault("waiting for MCP servers has no end", "W-98", without("MCPLoadingEnd")),
    Fault("two calls share an id", "W-99", on_event("ToolCall", set_member(id="twin"))),
    Fault("strict clients get new events", "W-100", inject("BtwEnd", BTW, "TurnEnd")),
    Fault("requests have an id of their own", "W-101", each(envelope_id), scenario="approvals"),
    Fault("an approval is not told", "W-102", without("ApprovalResponse"), scenario="approvals"),
    Fault("a rejection has another text", "W-102", on_event("ToolResult", other_value(message="no"))),
    Fault("an error of the client approves", "W-105", inbound=each(approve_whatever_is_said)),
    Fault("a broken result has another text", "W-106", on_event("ToolResult", other_value(message="no"))),
    Fault("answers to nothing are answered", "W-111", inbound=unknown_ids_get_an_error),
    Fault("a dismissed question is an error", "W-112", on_event("ToolResult", other_value(is_error=True))),
    Fault("the end of a hook is not told", "W-113", without("HookResolved")),
    Fault("a refused tool has another reason", "W-118", on_result("external_tools", change_first_tool)),
    Fault("missing arguments are null", "W-121", on_event("ToolCallRequest", set_member(arguments=None))),
    Fault("display blocks are lost", "W-124", on_event("ToolResult", other_value(display=[]))),
    Fault("a replay counts wrong", "W-129", on_result("events", set_member(events=1))),
    Fault("a replay loses an event", "W-130", without("SubagentEvent")),
    Fault("a cancelled replay is finished", "W-134",
          each(finish_replay)),
    Fault("usage is not told", "W-140", on_event("StatusUpdate", drop_member("usage"))),
]  # fmt: skip


@pytest.mark.spec("R-407")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.item}: {fault.name}")
def test_the_item_that_names_a_fault_finds_it(fault: Fault) -> None:
    check_fault_is_found("wire", fault, "--wire")


def test_there_are_at_least_forty_faults_of_different_items() -> None:
    assert len(FAULTS) >= 40
    assert len({fault.item for fault in FAULTS}) >= 40
