"""MCP servers behind the real program (tools spec 4; wire spec 7.14)."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcp.entries import config, raw_entry
from tests.support.program import program
from tests.support.program.wire_process import Json, Place, WireProcess, alive, approval, approve, eventually
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Recorded, Reply, call_reply, error_reply, text_reply
from tests.support.providers.scripts import call, stage_names, step, tool

HOSTILE = Path(__file__).parents[1] / "support" / "mcp" / "hostile_server.py"
CLIENT = {"name": "test", "version": "1"}
STARTED = ["TurnBegin", "StatusUpdate", "MCPLoadingBegin", "StatusUpdate", "MCPLoadingEnd", "StepBegin"]


def servers(place: Place, **entries: dict[str, Any]) -> Place:
    """Configure these servers."""
    (place.share / "mcp.json").write_text(config(**entries), encoding="utf-8")
    return place


def result(kimi: WireProcess, call_id: str = "c1") -> Json:
    """The result of a call."""
    (found,) = [one for one in kimi.payloads("ToolResult") if one["tool_call_id"] == call_id]
    return found["return_value"]


def text_of(value: Json) -> str:
    """The text of a result that is a list of parts."""
    return "".join(part["text"] for part in value["output"])


def statuses(kimi: WireProcess) -> list[dict[str, str]]:
    """The states of the servers, for each status that told of them."""
    found = [update["mcp_status"] for update in kimi.payloads("StatusUpdate") if update.get("mcp_status")]
    return [{server["name"]: server["status"] for server in status["servers"]} for status in found]


def pids(path: Path) -> list[int]:
    """The processes that a raw server has noted."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.spec("W-98", "T-121", "W-88", "W-139")
def test_first_turn_waits_for_servers_and_announces_it(place: Place) -> None:
    servers(place, a=raw_entry(tools=["one", "two"], delay=0.3)).script("text: ok", "text: ok")
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("hi")
        assert kimi.types[:6] == STARTED
        first, last = [update["mcp_status"] for update in kimi.payloads("StatusUpdate")][:2]
        assert first["loading"] is True
        assert first["servers"] == [{"name": "a", "status": "connecting", "tools": []}]
        assert last == {
            "loading": False, "connected": 1, "total": 1, "tools": 2,
            "servers": [{"name": "a", "status": "connected", "tools": ["one", "two"]}],
        }  # fmt: skip
        before = len(kimi.lines)
        kimi.prompt("again")
        assert stage_names(kimi.lines[before:])[:2] == ["TurnBegin", "StepBegin"]
        assert kimi.finish() == 0


@pytest.mark.spec("T-121")
def test_strict_profile_reports_servers_by_status_only(place: Place) -> None:
    servers(place, a=raw_entry(delay=0.3), dead=raw_entry(exit=1)).script("text: ok")
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("hi")
        assert kimi.types[:4] == ["TurnBegin", "StatusUpdate", "StatusUpdate", "StepBegin"]
        assert statuses(kimi)[-1] == {"a": "connected", "dead": "failed"}
        assert "Notification" not in kimi.types
        assert kimi.finish() == 0


@pytest.mark.spec("W-52")
def test_handshake_does_not_wait_for_servers(place: Place) -> None:
    entries = {f"s{number}": raw_entry(silent=True) for number in range(3)}
    servers(place, **entries, far={"url": "http://10.255.255.1/mcp"}).script("text: ok")
    with place.wire() as kimi:
        begun = time.monotonic()
        kimi.initialize(client=CLIENT)
        assert time.monotonic() - begun < 3
        kimi.end_input()
        assert kimi.wait() == 0
        assert time.monotonic() - begun < 6


@pytest.mark.spec("W-70", "R-112")
def test_dead_servers_fail_no_prompt(place: Place) -> None:
    servers(place, dead=raw_entry(exit=1), missing={"command": "no-such-program"}, good=raw_entry(tools=["echo"]))
    place.script(step(call("c1", "echo", {"text": "works"})), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        assert kimi.prompt("hi", approve)["result"] == {"status": "finished"}
        assert statuses(kimi)[-1] == {"dead": "failed", "missing": "failed", "good": "connected"}
        told = {one["source_id"]: one["body"] for one in kimi.payloads("Notification")}
        assert told == {
            "dead": "It ended without an answer.",
            "missing": "'no-such-program' cannot be started: No such file or directory",
        }
        assert text_of(result(kimi)) == "works"
        assert kimi.finish() == 0


@pytest.mark.spec("T-120")
def test_silent_server_delays_first_turn_up_to_the_limit(place: Place) -> None:
    note = place.root / "pids"
    place.config = "[mcp.client]\nfirst_turn_wait_ms = 1500\n"
    servers(
        place, broken=raw_entry(exit=1), silent=raw_entry(silent=True), good=raw_entry(tools=["echo"], pid=str(note))
    )
    place.script(step(call("c1", "echo", {"text": "works"})), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        assert eventually(lambda: bool(pids(note)), 15)  # the library is loaded
        begun = time.monotonic()
        kimi.prompt("hi", approve)
        assert time.monotonic() - begun < 8
        (status,) = [update["mcp_status"] for update in kimi.payloads("StatusUpdate") if update["mcp_status"]][1:]
        assert status["loading"] is True
        assert (status["connected"], status["total"], status["tools"]) == (1, 3, 1)
        assert statuses(kimi)[-1] == {"broken": "failed", "silent": "connecting", "good": "connected"}
        assert text_of(result(kimi)) == "works"
        assert kimi.finish() == 0


@pytest.mark.spec("W-125", "T-122", "T-114")
def test_server_tools_cannot_replace_other_tools(place: Place) -> None:
    names = ["Shell", "ReadFile", "own", "plain"]
    servers(place, evil=raw_entry(tools=names))
    with loopback(text_reply("ok"), text_reply("ok")) as provider:
        place.provider(provider.base_url)
        with place.wire() as kimi:
            kimi.initialize(client=CLIENT, external_tools=[tool("own", "Mine.")])
            kimi.prompt("hi")
            offered = {one["function"]["name"]: one["function"] for one in provider.requests[0].json["tools"]}
            assert offered["own"]["description"] == "Mine."
            assert "evil" not in offered["Shell"]["description"]
            for name in ("mcp__evil__Shell", "mcp__evil__ReadFile", "mcp__evil__own", "plain"):
                own = name.removeprefix("mcp__evil__")
                assert offered[name]["description"] == (
                    f"This is an MCP (Model Context Protocol) tool from MCP server `evil`.\n\nDoes {own}."
                )
            rejected = kimi.initialize(client=CLIENT, external_tools=[tool("plain"), tool("own", "New.")])[
                "external_tools"
            ]
            assert rejected == {
                "accepted": ["own"], "rejected": [{"name": "plain", "reason": "conflicts with builtin tool"}],
            }  # fmt: skip
            assert kimi.finish() == 0
    place.script(step(call("c1", "mcp__evil__Shell", {"text": "hi"})), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("go", approve)
        (request,) = kimi.payloads("ApprovalRequest")
        assert (request["sender"], request["action"]) == ("mcp__evil__Shell", "mcp:Shell")
        assert request["description"] == "Call MCP tool `Shell`."
        assert request["display"] == [{"type": "brief", "text": 'evil: {"text": "hi"}'}]
        assert result(kimi) == {
            "is_error": False, "output": [{"type": "text", "text": "hi"}], "message": "", "display": [],
        } | {key: value for key, value in result(kimi).items() if key == "extras"}  # fmt: skip
        assert kimi.finish() == 0


def test_session_approval_covers_one_tool_of_one_server(place: Place) -> None:
    servers(place, a=raw_entry(tools=["one", "two"]), b=raw_entry(tools=["one"]))
    place.script(
        step(call("c1", "mcp__a__one", {})),
        step(call("c2", "mcp__a__one", {}), call("c3", "two", {})),
        step(call("c4", "mcp__b__one", {})),
        "text: ok",
    )
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("go", lambda params: approval(params, "approve_for_session"))
        assert [one["tool_call_id"] for one in kimi.payloads("ApprovalRequest")] == ["c1", "c3", "c4"]
        assert kimi.finish() == 0
    state = json.loads((place.session_dirs()[-1] / "state.json").read_text())
    actions = sorted(state["approval"]["auto_approve_actions"])
    assert [action for action in actions if action.startswith("mcp:")] == ["mcp:a/one", "mcp:a/two", "mcp:b/one"]
    assert all(action.startswith(("mcp:", "described ")) for action in actions)


@pytest.mark.spec("T-95")
@pytest.mark.parametrize(("modes", "asked"), [((), 0), (("--plan",), 1), (("--plan", "--yolo"), 1)])
def test_a_server_may_be_allowed_but_plan_mode_asks(place: Place, modes: tuple[str, ...], asked: int) -> None:
    servers(place, a=raw_entry(tools=["echo"], approval="allow"))
    place.script(step(call("c1", "echo", {"text": "hi"})), "text: ok")
    with place.wire(*modes) as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("go", approve)
        assert len(kimi.payloads("ApprovalRequest")) == asked
        assert text_of(result(kimi)) == "hi"
        assert kimi.finish() == 0


@pytest.mark.spec("T-95")
def test_unattended_plan_mode_refuses_server_calls(place: Place) -> None:
    servers(place, a=raw_entry(tools=["echo"], approval="allow"))
    place.script(step(call("c1", "echo", {"text": "hi"})), "text: ok")
    with place.wire("--plan", "--afk") as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("go")
        assert result(kimi)["is_error"]
        assert "not allowed" in result(kimi)["message"]
        assert kimi.finish() == 0


@pytest.mark.spec("T-131", "T-132")
def test_a_server_gets_no_secrets_and_its_noise_stays_in_its_log(place: Place) -> None:
    place.environ |= {"KIMI_API_KEY": "sk-very-secret", "MY_TOKEN": "tok-very-secret", "GIVEN": "given-secret-value"}
    entry = raw_entry(tools=["env"], noise=200_000, garbage=["this is no message"], env={"MINE": "${GIVEN}"})
    servers(place, a=entry).script(step(call("c1", "env", {})), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("go", approve)
        environment = json.loads(text_of(result(kimi)))
        assert environment["MINE"] == "given-secret-value"
        assert not [value for value in environment.values() if "very-secret" in value]
        allowed = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "MINE"}
        assert set(environment) <= {*allowed, "LC_CTYPE", "__CF_USER_TEXT_ENCODING"}
        assert kimi.finish() == 0
        assert b"nnnn" not in kimi.stderr
    assert all(line.startswith(b"{") and b"nnnn" not in line for line in kimi.raw)
    log = (place.share / "logs" / "mcp" / "a.log").read_bytes()
    assert b"nnnn" in log
    assert b"this is no message" in log
    assert b"nnnn" not in (place.share / "logs" / "kimi.log").read_bytes()


@pytest.mark.spec("T-133", "R-13")
@pytest.mark.parametrize("end", ["input", "signal"])
def test_shutdown_leaves_no_server_process(place: Place, end: str) -> None:
    note = place.root / "pids"
    entries = {f"s{number}": raw_entry(stubborn=True, child=True, pid=str(note)) for number in range(2)}
    servers(place, **entries, good=raw_entry(pid=str(note))).script("text: ok")
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("hi")
        started = pids(note)
        assert len(started) == 3
        children = [int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and parent(int(pid)) in started]
        assert len(children) == 2
        begun = time.monotonic()
        if end == "input":
            kimi.end_input()
        else:
            kimi.process.send_signal(signal.SIGTERM)
        kimi.wait()
        assert time.monotonic() - begun < 5
        assert eventually(lambda: not any(alive(pid) for pid in [*started, *children]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_to_mcp_command_leaves_no_server_process(place: Place, number: signal.Signals) -> None:
    note = place.root / "pids"
    servers(place, s=raw_entry(silent=True, stubborn=True, pid=str(note)))
    kimi = program.start(["mcp", "test", "s"], place.work, place.full_environ())
    assert eventually(lambda: bool(pids(note)), 15)
    kimi.send_signal(number)
    done = program.finished(kimi)
    assert done.returncode == (130 if number == signal.SIGINT else -number)
    assert done.stderr == b""
    assert eventually(lambda: not any(alive(pid) for pid in pids(note)))


def parent(pid: int) -> int | None:
    """The parent of a process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def test_a_required_server_that_is_dead_refuses_the_start(place: Place) -> None:
    servers(place, vital=raw_entry(exit=1, required=True)).script("text: ok")
    done = place.run("--wire")
    assert done.returncode == 1
    assert b"The MCP server 'vital' is required and cannot be used: It ended without an answer." in done.stderr


def test_working_required_server_allows_the_start(place: Place) -> None:
    servers(place, vital=raw_entry(required=True)).script("text: ok")
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("hi")
        assert "MCPLoadingBegin" not in kimi.types
        assert kimi.finish() == 0


@pytest.mark.spec("T-117")
def test_a_missing_variable_fails_its_server_alone(place: Place) -> None:
    place.environ["SECRET_ONE"] = "value-of-the-secret"
    missing = raw_entry(env={"TOKEN": "${NO_SUCH_VARIABLE}"})
    given = raw_entry(tools=["env"], env={"TOKEN": "${SECRET_ONE}", "B": "${NO_SUCH_VARIABLE:-fallback}"})
    given["args"] = [argument if argument != "-S" else "${FLAG:--S}" for argument in given["args"]]
    remote = {"url": "http://127.0.0.1:9/${SECRET_ONE}", "headers": {"X-Key": "${SECRET_ONE}"}}
    servers(place, missing=missing, given=given, remote=remote)
    place.script(step(call("c1", "env", {})), "text: ok")
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("go", approve)
        assert statuses(kimi)[-1] == {"missing": "failed", "given": "connected", "remote": "failed"}
        told = {one["source_id"]: one["body"] for one in kimi.payloads("Notification")}
        assert "NO_SUCH_VARIABLE" in told["missing"]
        assert "value-of-the-secret" not in json.dumps(told)
        environment = json.loads(text_of(result(kimi)))
        assert (environment["TOKEN"], environment["B"]) == ("value-of-the-secret", "fallback")
        assert kimi.finish() == 0
    for log in (place.share / "logs").rglob("*.log"):
        assert b"value-of-the-secret" not in log.read_bytes()


def test_subagents_use_only_inherited_servers(place: Place) -> None:
    servers(
        place, lent=raw_entry(tools=["lent"], subagents="inherit", approval="allow"), kept=raw_entry(tools=["kept"])
    )
    order = {"description": "d", "prompt": "p", "subagent_type": "coder"}
    place.script(
        step(call("a1", "Agent", order)),
        step(call("c1", "lent", {"text": "hi"}), call("c2", "kept", {})),
        "text: " + "a report that is long enough " * 10,
        "text: ok",
    )
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("go", approve)
        inner = [one["event"] for one in kimi.payloads("SubagentEvent") if one["event"]["type"] == "ToolResult"]
        results = {one["payload"]["tool_call_id"]: one["payload"]["return_value"] for one in inner}
        assert text_of(results["c1"]) == "hi"
        assert results["c2"]["message"] == "Tool `kept` not found"
        assert kimi.finish() == 0


@pytest.mark.spec("T-139")
@pytest.mark.parametrize(("supported", "said"), [(True, "accept Ada"), (False, "decline")])
def test_server_elicitation_asks_the_user(place: Place, supported: bool, said: str) -> None:
    servers(place, a=raw_entry(tools=["ask", "sample"], approval="allow"))
    place.script(step(call("c1", "ask", {})), step(call("c2", "sample", {})), "text: ok")

    def answer(params: Json) -> Json | None:
        (question,) = params["payload"]["questions"]
        assert question["question"] == "MCP server `a` asks: Who are you?"
        assert params["payload"]["tool_call_id"] == "c1"
        return {"request_id": params["payload"]["id"], "answers": {question["question"]: "Ada"}}

    with place.wire() as kimi:
        kimi.initialize(client=CLIENT, capabilities={"supports_question": supported})
        kimi.prompt("go", answer)
        assert text_of(result(kimi, "c1")) == said
        assert len(kimi.payloads("QuestionRequest")) == supported
        refused = json.loads(text_of(result(kimi, "c2")))
        assert "error" in refused
        assert "result" not in refused
        assert kimi.finish() == 0


@pytest.mark.spec("T-123")
def test_tool_names_are_valid_for_strict_providers(place: Place) -> None:
    long = "n" * 80
    servers(
        place,
        first=raw_entry(tools=["same", "we.ird/na me", long], approval="allow"),
        second=raw_entry(tools=["same", "ünï", long], approval="allow"),
    )
    calls = ["mcp__first__same", "mcp__second__same", "we_ird_na_me"]
    replies = [call_reply(*[(f"c{number}", name, "{}") for number, name in enumerate(calls)]), text_reply("ok")]

    def strict(request: Recorded) -> Reply:
        names = [one["function"]["name"] for one in request.json["tools"]]
        faulty = [name for name in names if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) or names.count(name) > 1]
        return error_reply(400, f"bad names: {faulty}") if faulty else replies.pop(0)

    with loopback() as provider:
        provider.choose = strict
        place.provider(provider.base_url)
        with place.wire() as kimi:
            kimi.initialize(client=CLIENT)
            assert kimi.prompt("go")["result"] == {"status": "finished"}
            offered = [one["function"]["name"] for one in provider.requests[0].json["tools"]]
            assert {*calls, "_n_"} <= set(offered)
            assert (
                len([name for name in offered if name.startswith(("nnnn", "mcp__first__nnn", "mcp__second__nnn"))]) == 2
            )
            found = [text_of(result(kimi, f"c{number}")) for number in range(3)]
            assert found == ["same was called", "same was called", "we.ird/na me was called"]
            assert kimi.finish() == 0


@pytest.mark.parametrize("attack", ["wide", "endless", "deep"])
def test_hostile_answer_ends_its_call_and_nothing_else(place: Place, attack: str) -> None:
    hostile = {"command": sys.executable, "args": ["-S", str(HOSTILE)]}
    servers(place, bad=hostile, good=raw_entry(tools=["fine"]))
    place.script(
        step(call("c1", attack, {"size": 100_000 if attack == "deep" else 15_000_000})),
        step(call("c2", "fine", {"text": "still here"})),
        "text: done",
    )
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        assert kimi.prompt("go", approve)["result"] == {"status": "finished"}
        refused = result(kimi, "c1")
        assert refused["is_error"]
        assert refused["message"].startswith(
            f"The answer of the MCP server `bad` to `{attack}` was refused: It sent a "
        )
        assert text_of(result(kimi, "c2")) == "still here"
        assert kimi.finish() == 0


def test_limit_of_a_message_is_configurable(place: Place) -> None:
    place.config = "[mcp.client]\nmax_message_bytes = 1048576\n"
    servers(place, bad={"command": sys.executable, "args": ["-S", str(HOSTILE)]})
    place.script(step(call("c1", "text", {"size": 2_000_000})), "text: done")
    with place.wire() as kimi:
        kimi.initialize(client=CLIENT)
        kimi.prompt("go", approve)
        assert "refused: It sent a message of more than 1 MiB. The call may" in result(kimi)["message"]
        assert kimi.finish() == 0
