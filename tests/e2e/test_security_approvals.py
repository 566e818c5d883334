"""Who may say yes, for what and for how long (tools spec 5)."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.support.program.wire_process import Place, WireProcess, approval, eventually
from tests.support.providers.scripts import call, shell, step
from tests.support.stored_sessions import Json, register, write_session

NO_RULES = "not allowed by the user's approval rules"
TOUCH = shell("c1", "touch made; echo hi")


def turn(place: Place, *arguments: str, answer: str | None = None, text: str = "go") -> WireProcess:
    """One turn to its end; without `answer` a request would hang it."""

    def respond(params: Json) -> Json | None:
        return None if answer is None else approval(params, answer)

    with place.wire(*arguments) as kimi:
        assert kimi.prompt(text, respond)["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    return kimi


def asked(kimi: WireProcess) -> int:
    """How often the client was asked."""
    return len(kimi.payloads("ApprovalRequest"))


def result(kimi: WireProcess, call_id: str = "c1") -> Json:
    """The result of a call."""
    (found,) = [one for one in kimi.payloads("ToolResult") if one["tool_call_id"] == call_id]
    return found["return_value"]


@pytest.mark.spec("T-106")
@pytest.mark.parametrize("way", ["--yolo", "--yes", "-y", "--auto-approve", "default_yolo"])
def test_yolo_asks_nothing_but_hard_denials_apply(place: Place, way: str) -> None:
    (place.work / ".env").write_text("TOKEN=very-secret")
    place.config = '[[approval.rules]]\ntool = "Shell"\nmatch = "rm *"\ndecision = "deny"\n'
    place.script(
        step(
            TOUCH,
            call("c2", "ReadFile", {"path": ".env"}),
            shell("c3", "true && rm -rf made"),
            call("c4", "WriteFile", {"path": "new.txt", "content": "x"}),
            call("c5", "ReadFile", {"path": str(place.share / "config.toml")}),
        ),
        "text: done",
    )
    if way == "default_yolo":
        path = place.share / "config.toml"
        path.write_text("default_yolo = true\n" + path.read_text())
    kimi = turn(place, *([] if way == "default_yolo" else [way]))
    assert asked(kimi) == 0
    assert "ApprovalResponse" not in kimi.types
    assert (place.work / "made").exists()
    assert (place.work / "new.txt").exists()
    assert NO_RULES in result(kimi, "c3")["message"]
    assert [result(kimi, name)["is_error"] for name in ("c1", "c2", "c3", "c4", "c5")] == [
        False,
        True,
        True,
        False,
        True,
    ]
    assert b"very-secret" not in b"".join(kimi.raw)
    assert b"sk-test-secret" not in b"".join(kimi.raw)


def test_away_mode_approves_everything_and_dismisses_questions(place: Place) -> None:
    question = {"question": "Which?", "header": "w", "options": [{"label": "a"}, {"label": "b"}]}
    place.script(step(TOUCH, call("c2", "AskUserQuestion", {"questions": [question]})), "text: done")
    with place.wire("--afk") as kimi:
        kimi.initialize(capabilities={"supports_question": True})
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert not {"ApprovalRequest", "QuestionRequest"} & set(kimi.types)
        assert result(kimi)["is_error"] is False
        assert "ToolResult" in kimi.types
        assert kimi.finish() == 0
    assert json.loads((place.session_dirs()[0] / "state.json").read_text())["approval"]["afk"] is True


@pytest.mark.spec("T-108")
@pytest.mark.parametrize("mode", ["yolo", "afk"])
@pytest.mark.parametrize("origin", ["flag", "command", "file"])
def test_auto_approval_is_not_restored_without_consent(place: Place, mode: str, origin: str) -> None:
    place.script("text: hi")
    if origin == "flag":
        turn(place, f"--{mode}")
    elif origin == "command":
        turn(place, text=f"/{mode}")
    else:
        stored = {"version": 1, "approval": {mode: True}}
        write_session(place, "forged", context=[{"role": "user", "content": "x"}], state=stored)
        register(place, "forged")
    approvals = json.loads((place.session_dirs()[0] / "state.json").read_text())["approval"]
    assert approvals[mode] is True
    place.script(TOUCH, "text: done")
    kimi = turn(place, "--continue", answer="reject")
    assert (asked(kimi), result(kimi)["is_error"]) == (1, True)
    assert not (place.work / "made").exists()
    consents: list[tuple[list[str], str]] = [([f"--{mode}"], ""), ([], "[session]\nrestore_yolo = true\n")]
    for arguments, config in consents:
        place.config = config
        place.script(TOUCH, "text: done")
        assert asked(turn(place, "--continue", *arguments)) == 0
        (place.work / "made").unlink()


@pytest.mark.spec("T-108")
def test_session_approval_ends_with_the_session_and_covers_one_action(place: Place) -> None:
    place.script(TOUCH, "text: done")
    assert asked(turn(place, answer="approve_for_session")) == 1
    write = call("c2", "WriteFile", {"path": "new.txt", "content": "x"})
    outside = call("c3", "WriteFile", {"path": str(place.root / "outside.txt"), "content": "x"})
    place.script(step(shell("c1", "echo another command"), write, outside), "text: done")
    kimi = turn(place, "--continue", answer="approve")
    assert sorted(one["action"] for one in kimi.payloads("ApprovalRequest")) == [
        "edit file",
        "edit file outside of working directory",
    ]
    place.script(TOUCH, "text: done")
    assert asked(turn(place, answer="approve")) == 1  # a new session
    place.script(TOUCH, "text: done")
    assert asked(turn(place, "--continue", answer="approve")) == 1


@pytest.mark.spec("T-109")
def test_project_cannot_approve_and_deny_rule_overrides_yolo(place: Place) -> None:
    rules = 'default_yolo = true\n[session]\nrestore_yolo = true\n[[approval.rules]]\ndecision = "allow"\n'
    for name in ("config.toml", ".kimi/config.toml", ".kimi.toml", "kimi.toml", ".kimi/state.json", ".env"):
        path = place.work / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("KIMI_YOLO=1\n" if name == ".env" else rules)
    (place.work / "AGENTS.md").write_text("---\nyolo: true\n---\n" + rules)
    place.script(TOUCH, "text: done")
    assert asked(turn(place, answer="reject")) == 1
    place.config = '[[approval.rules]]\ndecision = "allow"\n[[approval.rules]]\nmatch = "touch *"\ndecision = "deny"\n'
    place.script(step(TOUCH, shell("c2", "echo allowed")), "text: done")
    for arguments in ([], ["--yolo"], ["--afk"]):
        kimi = turn(place, *arguments)
        assert asked(kimi) == 0
        assert NO_RULES in result(kimi)["message"]
        assert result(kimi, "c2")["output"] == "allowed\n"
    assert not (place.work / "made").exists()


RULES = """
[[approval.rules]]
decision = "deny"
tool = "Shell"
match = "rm *"
[[approval.rules]]
decision = "ask"
match = "touch *"
[[approval.rules]]
decision = "ask"
tool = "ReadFile"
match = "*/private.txt"
"""


@pytest.mark.spec("R-190", "R-193")
def test_ask_rules_ask_even_under_yolo_and_refuse_where_nobody_is(place: Place) -> None:
    place.config = RULES
    (place.work / "private.txt").write_text("between us")
    calls = step(TOUCH, call("c2", "ReadFile", {"path": "private.txt"}), shell("c3", "echo untouched"))
    place.script(calls, "text: done")
    kimi = turn(place, "--yolo", answer="approve")
    described = {one["tool_call_id"]: one["description"] for one in kimi.payloads("ApprovalRequest")}
    assert set(described) == {"c1", "c2"}
    assert "asked by the rule: ask match='touch *'" in described["c1"]
    assert [result(kimi, name)["is_error"] for name in ("c1", "c2", "c3")] == [False, False, False]
    (place.work / "made").unlink()

    place.script(calls, "text: done")
    kimi = turn(place, "--afk")
    assert asked(kimi) == 0
    assert "rules: ask match='touch *', and nobody can be asked" in result(kimi)["message"]
    assert "between us" not in json.dumps(result(kimi, "c2"))
    assert result(kimi, "c3")["output"] == "untouched\n"
    assert not (place.work / "made").exists()


@pytest.mark.spec("R-191")
@pytest.mark.parametrize(
    "line",
    ["# Let's clean up\nrm -f kept", "cat <<E\nit's\nE\nrm -f kept", "echo $'it\\'s'; rm -f kept", ">log rm -f kept"],
)
def test_denied_command_is_seen_behind_quotes_that_quote_nothing(place: Place, line: str) -> None:
    place.config = RULES
    (place.work / "kept").touch()
    place.script(shell("c1", line), "text: done")
    kimi = turn(place, "--yolo")
    assert "rules: deny tool='Shell' match='rm *'." in result(kimi)["message"]
    assert (place.work / "kept").exists()


@pytest.mark.spec("R-192")
def test_allow_rule_runs_no_command_beside_the_allowed_one(place: Place) -> None:
    place.config = '[[approval.rules]]\ndecision = "allow"\nmatch = "printf *"\n'
    lines = ["printf $[a[`touch made`]]", "printf -v 'a[$(touch made)]' x", "printf x | sh -c 'touch made'", "printf x"]
    place.script(step(*(shell(f"c{number}", line) for number, line in enumerate(lines))), "text: done")
    kimi = turn(place, answer="reject")
    assert {one["tool_call_id"] for one in kimi.payloads("ApprovalRequest")} == {"c0", "c1", "c2"}
    assert result(kimi, "c3")["output"] == "x"
    assert not (place.work / "made").exists()


@pytest.mark.spec("R-197")
def test_answer_that_names_another_request_is_a_rejection(place: Place) -> None:
    place.script(step(TOUCH, call("c2", "WriteFile", {"path": "new.txt", "content": "x"})), "text: done")
    with place.wire() as kimi:
        call_id = kimi.call("prompt", {"user_input": "go"})
        first, second = (kimi.until("ApprovalRequest") for _ in range(2))
        for request, named in ((first, second), (second, first)):
            answer = {"request_id": named["id"], "response": "approve_for_session"}
            kimi.send({"jsonrpc": "2.0", "id": request["id"], "result": answer})
        assert kimi.response(call_id)["result"] == {"status": "finished"}
        assert [one["response"] for one in kimi.payloads("ApprovalResponse")] == ["reject", "reject"]
        assert kimi.finish() == 0
    assert os.listdir(place.work) == []


@pytest.mark.spec("T-103")
@pytest.mark.parametrize(
    "reply",
    [
        {"error": {"code": -1, "message": "no"}},
        {"result": {"response": "yes please"}},
        {"result": "approve"},
        {"result": None},
        {"result": {"request_id": "x"}},
        {},
        "cancel",
        "end of input",
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGKILL,
    ],
)
def test_every_reply_other_than_approval_rejects(place: Place, reply: Json | str | signal.Signals) -> None:
    place.script(step(TOUCH, call("c2", "WriteFile", {"path": "new.txt", "content": "x"})), "text: done")
    with place.wire() as kimi:
        kimi.initialize()
        call_id = kimi.call("prompt", {"user_input": "go"})
        requests = [kimi.until("ApprovalRequest") for _ in range(2)]
        if isinstance(reply, signal.Signals):
            kimi.process.send_signal(reply)
        elif reply == "end of input":
            kimi.end_input()
        elif reply == "cancel":
            kimi.call("cancel")
            assert kimi.response(call_id)["result"] == {"status": "cancelled"}
        else:
            assert isinstance(reply, dict)
            for request in requests:
                kimi.send({"jsonrpc": "2.0", "id": request["id"], **reply})
            assert kimi.response(call_id)["result"] == {"status": "finished"}
        if kimi.process.poll() is None and (isinstance(reply, signal.Signals) or reply == "end of input"):
            kimi.wait()
    assert all(one["return_value"]["is_error"] for one in kimi.payloads("ToolResult"))
    assert os.listdir(place.work) == []


def test_call_pending_approval_at_kill_does_not_run_on_resume(place: Place) -> None:
    place.script(TOUCH, "text: done")
    with place.wire() as kimi:
        kimi.call("prompt", {"user_input": "go"})
        kimi.until("ApprovalRequest")
        kimi.process.kill()
    place.script("text: and now")
    with place.wire("--continue", "--yolo") as kimi:
        kimi.initialize()
        assert kimi.prompt("go on")["result"] == {"status": "finished"}
        assert not eventually((place.work / "made").exists, 0.2)
        assert kimi.types.count("ToolResult") == 0
        assert kimi.finish() == 0


def six_calls(place: Place) -> str:
    """Two calls that edits mode lets run, and four that it asks about."""
    return step(
        call("c1", "WriteFile", {"path": "new.txt", "content": "x"}),
        shell("c2", "ls -a"),
        shell("c3", "touch made"),
        call("c4", "WriteFile", {"path": ".env", "content": "x"}),
        call("c5", "WriteFile", {"path": ".git/hooks/pre-commit", "content": "x"}),
        call("c6", "WriteFile", {"path": str(place.work.parent / "outside.txt"), "content": "x"}),
    )


@pytest.mark.spec("R-290")
@pytest.mark.parametrize("way", ["--edits", "default_edits", "/edits"])
def test_edits_mode_asks_only_about_what_matters(place: Place, way: str) -> None:
    place.script(six_calls(place), "text: done")
    if way == "default_edits":
        path = place.share / "config.toml"
        path.write_text("default_edits = true\n" + path.read_text())
    with place.wire(*(["--edits"] if way == "--edits" else [])) as kimi:
        if way == "/edits":
            assert kimi.prompt("/edits on")["result"] == {"status": "finished"}
        kimi.prompt("go", lambda params: approval(params, "reject", feedback="no"))
        assert kimi.finish() == 0
    assert {one["tool_call_id"] for one in kimi.payloads("ApprovalRequest")} == {"c3", "c4", "c5", "c6"}
    assert (place.work / "new.txt").read_text() == "x"
    assert not (place.work / "made").exists()
    assert not (place.work / ".env").exists()
    (stored,) = place.share.glob("sessions/*/*/state.json")
    assert json.loads(stored.read_text())["approval"]["edits"] is True


def test_edits_mode_is_not_restored_and_yolo_off_ends_it(place: Place) -> None:
    place.script("text: one")
    turn(place, "--session", "mine", "--edits")
    place.script(six_calls(place), "text: done")
    with place.wire("--session", "mine") as kimi:
        kimi.prompt("go", lambda params: approval(params, "reject", feedback="no"))
        assert asked(kimi) == 6
        assert kimi.prompt("/edits on")["result"] == {"status": "finished"}
        assert kimi.prompt("/yolo off")["result"] == {"status": "finished"}
        assert kimi.prompt("/edits sideways")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    (stored,) = place.share.glob("sessions/*/*/state.json")
    assert "edits" not in json.loads(stored.read_text())["approval"]
