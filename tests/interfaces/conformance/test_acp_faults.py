"""Each fault of a broken agent of editors is found by the item that names it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kimi.interfaces.conformance.peer import dig
from tests.support.conformance.faults import (
    Change,
    Fault,
    Json,
    check_fault_is_found,
    drop_member,
    each,
    on_error,
    on_result,
    set_member,
)
from tests.support.conformance.warm import Mutate


def on_update(kind: str, change: Change) -> Callable[[], Mutate]:
    """Return the maker of a mutation of the updates of a kind; `change` gets the update."""

    def apply(message: Json) -> Json | list[Json] | None:
        if message.get("method") == "session/update" and message["params"]["update"]["sessionUpdate"] == kind:
            changed = change(message["params"]["update"])
            return changed if isinstance(changed, list) else None
        return None

    return each(apply)


def set_code(code: int) -> Change:
    def change(message: Json) -> None:
        message["error"]["code"] = code

    return change


def dropped(target: Json) -> list[Json]:
    del target
    return []


def ids_as_strings(message: Json) -> None:
    if "method" not in message:
        message["id"] = str(message["id"])


def drop_method(message: Json) -> None:
    message["error"].pop("data", None)


def ascii_only(update: Json) -> None:
    if update["content"]["type"] == "text":
        update["content"]["text"] = update["content"]["text"].encode("ascii", "replace").decode()


def commands_first() -> Mutate:
    """Let the list of commands come before the response that names its session."""
    held: list[Json] = []

    def change(message: Json) -> list[Json] | None:
        if "result" in message and "sessionId" in (message["result"] or {}):
            held.append(message)
            return []
        if held and message.get("method") == "session/update":
            return [message, held.pop()]
        return None

    return each(change)()


def add_logout(result: Json) -> None:
    result["agentCapabilities"].setdefault("auth", {})["logout"] = {}


def advertise_more(result: Json) -> None:
    result["agentCapabilities"]["sessionCapabilities"]["rewind"] = {}


def untitled_methods(result: Json) -> None:
    for method in result["authMethods"]:
        method.pop("_meta", None)


def stop_for(reason: str) -> Callable[[Json], None]:
    return lambda result: result.update(stopReason=reason)


def unknown_mode(result: Json) -> None:
    result["modes"]["currentModeId"] = "nonsense"


def drop_terminal_status(update: Json) -> None:
    if update.get("status") in ("completed", "failed"):
        del update["status"]


def skip_in_progress(update: Json) -> None:
    if update.get("status") == "in_progress":
        del update["status"]


def relative_locations(update: Json) -> None:
    for location in update.get("locations") or ():
        location["path"] = location["path"].rpartition("/")[2]


def empty_old_text(update: Json) -> None:
    for block in update.get("content") or ():
        if block["type"] == "diff":
            block.setdefault("oldText", "")


def never_cancel_requests(message: Json) -> list[Json] | None:
    return [] if message.get("method") == "$/cancel_request" else None


def ask_for_files(message: Json) -> list[Json] | None:
    if message.get("method") != "session/request_permission":
        return None
    params = {"sessionId": message["params"]["sessionId"], "path": "/etc/hosts"}
    return [{"jsonrpc": "2.0", "id": "fs", "method": "fs/read_text_file", "params": params}, message]


def forget_pages(result: Json) -> None:
    result["sessions"] = result["sessions"][1:]


def approve_all(message: Json) -> None:
    if dig(message, "result", "outcome") or dig(message, "error", "code") == -32601:
        message.pop("error", None)
        message["result"] = {"outcome": {"outcome": "selected", "optionId": "approve"}}


FAULTS = [
    Fault("broken JSON is ignored", "A-03", on_error(-32700, lambda _: [])),
    Fault("an array gets another code", "A-04", on_error(-32600, set_code(-32603))),
    Fault("ids come back as strings", "A-07", each(ids_as_strings)),
    Fault("the unknown method is not named", "A-09", on_error(-32601, drop_method)),
    Fault("the exit status is wrong", "A-10", status=lambda _: 3),
    Fault("text is reduced to ASCII", "A-17", on_update("agent_message_chunk", ascii_only)),
    Fault("the version is another", "A-21", on_result("protocolVersion", set_member(protocolVersion=2))),
    Fault("more is advertised than there is", "A-22", on_result("agentCapabilities", advertise_more)),
    Fault("a session before the handshake", "A-25", on_error(-32600, set_code(-32603))),
    Fault("old editors find no login", "A-26", on_result("authMethods", untitled_methods)),
    Fault("missing credentials are another error", "A-27", on_error(-32000, set_code(-32603))),
    Fault("logout is advertised", "A-31", on_result("agentCapabilities", add_logout)),
    Fault("the mode is not available", "A-33", on_result("sessionId", unknown_mode), scenario="many_sessions"),
    Fault("a relative directory gets another code", "A-35", on_error(-32602, set_code(-32603))),
    Fault("commands precede the session", "A-36", commands_first, scenario="many_sessions"),
    Fault("the list loses a session", "A-40", on_result("sessions", forget_pages)),
    Fault("thoughts are not replayed", "A-42", on_update("agent_thought_chunk", dropped)),
    Fault("an unknown session gets another code", "A-45", on_error(-32002, set_code(-32603))),
    Fault("the text is lost", "A-55", on_update("agent_message_chunk", dropped)),
    Fault("a picture for a blind model is another error", "A-58", on_error(-32602, set_code(-32603)),
          scenario="outcomes_of_prompts"),
    Fault("each end is end_turn", "A-60", on_result("stopReason", stop_for("end_turn")),
          scenario="outcomes_of_prompts"),
    Fault("a failing provider is another error", "A-61", on_error(-32603, set_code(-32000))),
    Fault("a wrong key is another error", "A-62", on_error(-32000, set_code(-32603))),
    Fault("usage is not told", "A-63", on_result("usage", drop_member("usage"))),
    Fault("a cancelled prompt has ended", "A-65", on_result("stopReason", stop_for("end_turn"))),
    Fault("an open permission is not taken back", "A-66", each(never_cancel_requests)),
    Fault("calls are not settled", "A-72", on_update("tool_call_update", drop_terminal_status)),
    Fault("calls are never in progress", "A-76", on_update("tool_call_update", skip_in_progress)),
    Fault("kinds are other", "A-77", on_update("tool_call", set_member(kind="other"))),
    Fault("locations are relative", "A-78", on_update("tool_call_update", relative_locations)),
    Fault("arguments are not told", "A-79", on_update("tool_call_update", drop_member("rawInput"))),
    Fault("a new file has an old text", "A-83", on_update("tool_call_update", empty_old_text)),
    Fault("the plan is not told", "A-84", on_update("plan", set_member(entries=[]))),
    Fault("broken answers approve", "A-87", inbound=each(approve_all)),
    Fault("an option is left out", "A-94", on_result("configOptions", lambda r: r["configOptions"].pop())),
    Fault("a wrong mode is another error", "A-95", on_error(-32602, set_code(-32603))),
    Fault("modes are not told", "A-97", on_update("current_mode_update", dropped)),
    Fault("files are asked of an editor without files", "A-99", each(ask_for_files)),
    Fault("a chunk has no content", "A-112", on_update("agent_message_chunk", drop_member("content")),
          scenario="messages_of_every_class"),
]  # fmt: skip


@pytest.mark.spec("R-407")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.item}: {fault.name}")
def test_the_item_that_names_a_fault_of_an_agent_finds_it(fault: Fault) -> None:
    check_fault_is_found("acp", fault, "acp")
