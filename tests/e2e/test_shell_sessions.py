"""Sessions in the shell: taken up again, chosen, undone, forked; commands of the shell; plain terminals."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.support.mcp.entries import raw_entry
from tests.support.program.shell_talk import ask, leave, say
from tests.support.program.terminal import CTRL_A, CTRL_C, CTRL_D, CTRL_O, DOWN, ENTER, ESCAPE, terminal
from tests.support.program.wire_process import Json, Place, eventually
from tests.support.providers.scripted_calls import call
from tests.support.providers.scripts import UNTIL_GO
from tests.support.stored_sessions import event, write_session


def printed(place: Place, prompt: str, *arguments: str) -> None:
    """One turn without a terminal, for a session that has something in it."""
    assert place.run("--print", *arguments, "-p", prompt).returncode == 0


def answers(count: int) -> list[str]:
    """Scripts that number their answers."""
    return [f"text: answer {number}" for number in range(count)]


@pytest.mark.spec("R-156")
def test_last_five_turns_are_shown_on_resume(place: Place) -> None:
    place.script(*answers(7))
    with terminal(place, "--session", "mine", "--yolo") as shown:
        ask(shown, *[(f"question {number}", f"answer {number}") for number in range(7)])
        leave(shown, "exit", ENTER)
    place.script("text: a short summary", "text: after the summary")
    with terminal(place, "-r", "mine", rows=50) as shown:
        text = shown.until("answer 6")
        assert [f"question {number}" in text for number in range(7)] == [False, False, *[True] * 5]
        ask(shown, ("/compact", "compacted"), ("question 7", "after the summary"))
        leave(shown, "/quit", ENTER)
    place.script("text: after the fork")
    with terminal(place, "-r", "mine", rows=60) as shown:
        text = shown.until("after the summary")
        assert "question 6" in text
        assert "answer 6" in text
        assert "a short summary" not in text
        assert "<system>" not in text
        say(shown, "/fork", "Forked.")
        text = shown.until(lambda text: text.count("question 7") == 2)
        assert "<system>" not in text
        ask(shown, ("question 8", "after the fork"))
        forked = leave(shown, "quit", ENTER)
        assert forked not in ("", "mine")


def test_session_without_log_is_shown_from_its_context(place: Place) -> None:
    place.script("text: an answer", "text: more")
    printed(place, "a question", "-S", "mine")
    (directory,) = place.session_dirs()
    (directory / "wire.jsonl").unlink()
    with terminal(place, "-r", "mine") as shown:
        text = shown.until("an answer")
        assert "› a question" in text
        assert "<system>" not in text


def test_turns_before_clear_are_not_shown_on_resume(place: Place) -> None:
    place.script("text: before", "text: since", "text: x")
    for prompt in ("old question", "/clear", "new question"):
        printed(place, prompt, "-S", "mine")
    with terminal(place, "-r", "mine") as shown:
        assert "old question" not in shown.until("› new question")


@pytest.mark.spec("R-11")
def test_session_options_select_a_session(place: Place) -> None:
    place.script(*answers(1))
    for number, option in enumerate(("--session", "-S", "--session", "-S")):
        done = place.run("--print", option, f"named-{number}", "-p", f"prompt {number}")  # unknown: created
        assert f"kimi -r named-{number}".encode() in done.stderr
    for option in ("-r", "--resume"):
        with terminal(place, option, "named-1") as shown:
            shown.until("› prompt 1")
            shown.type(CTRL_D)
            assert shown.wait() == 0
        with terminal(place, option, "named") as shown:
            assert shown.wait() == 2
            assert "Did you mean:" in shown.text
    with terminal(place, "--session", "named-1") as shown:
        shown.until("› prompt 1")
        shown.type(CTRL_D)
        shown.wait()
    chosen, left = (DOWN, ENTER), ((ESCAPE,), (CTRL_C,))
    for arguments, keys in (
        (("--session",), chosen),
        (("-S",), chosen),
        (("-r", "--yolo"), left[0]),
        (("--resume", " "), left[1]),
    ):
        with terminal(place, *arguments) as shown:
            text = shown.until("Sessions of this directory")
            titles = re.findall(r"prompt (\d) \(named-\d\)", text)
            assert titles == ["3", "2", "1", "0"], text  # newest first
            assert "just now" in text
            shown.type(*keys)
            if keys == chosen:
                shown.until("› prompt 2")
                shown.type(CTRL_D)
            assert shown.wait() == 0


def test_picker_shows_no_sessions_or_those_of_all_directories(place: Place) -> None:
    place.script(*answers(1))
    with terminal(place, "--session") as shown:
        assert shown.wait() == 0
        assert "There are no sessions of this directory yet." in shown.text
    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    printed(place, "said here", "-S", "here")
    printed(place, "said there", "-S", "there", "-w", str(elsewhere))
    with terminal(place, "--session", columns=120) as shown:
        text = shown.until("said here")
        assert "said there" not in text
        shown.type(CTRL_A)
        text = shown.until("said there")
        assert "said here" in text
        shown.type(ENTER)  # the newest
        assert shown.wait() == 0
        told = "".join(shown.text.split())  # where the lines are wrapped depends on the length of the path
        assert f"cd{elsewhere}&&kimi-rthere" in told


@pytest.mark.spec("R-157")
def test_shell_commands_show_their_results(place: Place) -> None:
    place.script(*answers(20))
    place.config = (
        "[models.other]\nprovider = 'p'\nmodel = 'other-model'\nmax_context_size = 50000\n"
        "[[hooks]]\nevent = 'PreToolUse'\nmatcher = 'Shell'\ncommand = 'true # my hook'\n"
    )
    place.script(*answers(20))
    with terminal(place, columns=110, rows=60) as shown:
        ask(shown, ("first prompt", "answer 0"), ("second prompt", "answer 1"))
        first = place.session_dirs()[-1].name
        text = say(shown, "/help", "/undo")
        assert "Ctrl-X" in shown.all_text
        say(shown, "/title A better   title", "Title: A better title")
        say(shown, "/theme light", "Theme: light")
        say(shown, "/editor my-editor --wait", "Editor: my-editor --wait")
        say(shown, "/hooks", "PreToolUse  Shell  true # my hook")
        say(shown, "/mcp", "No MCP servers are configured")
        text = say(shown, "/debug", "kimi.log")
        assert first in text
        say(shown, "/model", "❯ 1. m")
        shown.type("2")
        shown.until("Model: other")
        shown.until("/50.0k")
        say(shown, "/new", lambda text: "model      other" in text)
        ask(shown, ("third prompt", "answer"))
        say(shown, "/sessions", "❯ 1. third prompt")
        shown.type(DOWN, ENTER)
        shown.until("› second prompt")
        say(shown, "/undo", "Undo which turn")
        shown.type("1")
        text = shown.until("› second prompt\nother")  # it waits in the input
        assert "› first prompt" in text
        shown.type(CTRL_C)
        shown.until("›\nother")
        say(shown, "/fork", "Forked.")
        say(shown, "/title", "Title: Fork: Undo: A better title")
        leave(shown)
    configured = (place.share / "config.toml").read_text(encoding="utf-8")
    for line in ('theme = "light"', 'default_editor = "my-editor --wait"', 'default_model = "other"'):
        assert line in configured
    state = json.loads((place.share / "sessions").glob(f"*/{first}/state.json").__next__().read_text(encoding="utf-8"))
    assert state["custom_title"] == "A better title"
    assert len(place.session_dirs()) == 4  # two of the person's, one of /undo, one of /fork


def test_commands_that_write_the_configuration_refuse_a_given_one(place: Place) -> None:
    place.script("text: x")
    with terminal(place, "--config-file", str(place.share / "config.toml")) as shown:
        shown.until("context:")
        for command in ("/model m", "/login", "/logout"):
            say(shown, command, "not with --config")
            shown.idle()
            shown.type("\x0c")


def test_a_reload_reads_the_configuration_again(place: Place) -> None:
    place.script("text: x")
    with terminal(place, "-S", "mine", rows=40) as shown:
        ask(shown, ("hello", "x"))
        path = place.share / "config.toml"
        configured = path.read_text(encoding="utf-8")
        path.write_text("no = = toml", encoding="utf-8")
        say(shown, "/reload", "Invalid TOML")
        shown.until(lambda text: text.count("› hello") == 2)
        ask(shown, ("and still here", "x"))  # with the configuration from before
        path.write_text(configured.replace("100000", "77000"), encoding="utf-8")
        say(shown, "/reload", "/77.0k")
        assert leave(shown) == "mine"


def test_reloaded_key_is_masked_as_secret(place: Place) -> None:
    place.config = "[loop_control]\nmax_retries_per_step = 1\n"
    place.script("error: 401 not sk-another-secret")
    path = place.share / "config.toml"
    with terminal(place) as shown:
        shown.until("context:")
        path.write_text(path.read_text(encoding="utf-8").replace("sk-test-", "sk-another-"), encoding="utf-8")
        say(shown, "/reload", lambda text: text.count("kimi 2") == 2)
        say(shown, "go", "not ***")
        leave(shown)
    log = (place.share / "logs" / "kimi.log").read_text(encoding="utf-8")
    assert "not ***" in log
    assert "sk-another-secret" not in log


def test_chosen_settings_apply_to_next_session_and_broken_file_allows_exit(place: Place) -> None:
    place.config = "[models.other]\nprovider = 'p'\nmodel = 'other-model'\nmax_context_size = 50000\n"
    place.script(*answers(2))
    with terminal(place, rows=40) as shown:
        shown.until("context:")
        say(shown, "/editor no-such-editor", "Editor: no-such-editor")
        say(shown, "/new", lambda text: text.count("kimi 2") == 2)
        shown.type(CTRL_O)
        shown.until("The editor no-such-editor could not be run")
        say(shown, "/model other", "Model: other")
        ask(shown, ("hello", "answer 0"))
        (place.share / "config.toml").write_text("no = = toml", encoding="utf-8")
        assert leave(shown)
        assert "Invalid TOML" not in shown.text


@pytest.mark.spec("R-167")
def test_lost_model_of_a_resumed_session_is_told(place: Place) -> None:
    place.config = "[models.other]\nprovider = 'p'\nmodel = 'other-model'\nmax_context_size = 50000\n"
    place.script(*answers(1))
    printed(place, "hello", "-S", "mine")
    path = place.session_dirs()[-1] / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_alias": "other"}), encoding="utf-8")
    with terminal(place, "-r", "mine", rows=40) as shown:
        assert "no longer configured" not in shown.until(lambda text: "context:" in text and "other" in text)
        leave(shown)
    place.config = ""
    place.script(*answers(1))
    with terminal(place, "-r", "mine", rows=40) as shown:
        shown.until("The model 'other' of this session is no longer configured.")
        leave(shown)


@pytest.mark.spec("R-159")
def test_missing_terminal_or_editor_is_reported(place: Place) -> None:
    place.script("text: x")
    for arguments in ((), ("--session",), ("--continue",)):
        done = place.run(*arguments, stdin=b"hello\n")
        assert done.returncode == 1
        assert done.stdout == b""
        assert done.stderr.startswith(b"The interactive shell needs a terminal")
        assert b"Traceback" not in done.stderr
    place.environ["KIMI_PLAIN"] = "1"
    place.environ["VISUAL"] = ""
    with terminal(place) as shown:  # features that need a screen, on a terminal without cursor movement
        shown.until("Model: m\n>")
        say(shown, "/sessions", "There are no sessions")
        for number, command in enumerate(("/theme", "/editor"), start=1):
            say(shown, command, lambda text, number=number: text.count("Type a number") == number)
            shown.type(ENTER)
            shown.until(lambda text: text.endswith("\n>"))
        say(shown, "/undo", "nothing to undo")
    place.environ.pop("KIMI_PLAIN")
    place.environ["PATH"] = str(place.root)  # no editor anywhere
    with terminal(place) as shown:
        shown.until("context:")
        shown.type("text", CTRL_O)
        shown.until("There is no editor: set one with /editor.")


def test_a_plain_terminal_gets_lines_only(place: Place) -> None:
    place.script(
        "think: hmm\ntext: I **will** look.\n" + call("c1", "Shell", command="echo plain"),
        "text: It says plain.",
        call("c2", "Shell", command="echo no"),
        "text: Not then.",
        call("c3", "Shell", command="sleep 20"),
        "text: never",
    )
    place.environ["TERM"] = "dumb"
    with terminal(place, rows=80) as shown:
        shown.until("Directory: ")
        say(shown, "look", "Type a number")
        text = say(shown, "1", "It says plain.")
        assert "Tool Shell echo plain: done" in text
        say(shown, "again", lambda text: text.count("Type a number") == 2)
        say(shown, "4", "In your own words")
        say(shown, "use cat", "Not then.")
        say(shown, "sleep", lambda text: text.count("Type a number") == 3)
        shown.type("1", ENTER)
        os.killpg(shown.process.pid, 2)  # what the terminal does at Ctrl-C
        shown.until("Interrupted.")
        shown.type("/exit", ENTER)
        assert shown.wait() == 0
        assert b"\x1b" not in shown.raw


def test_no_color_disables_colours(place: Place) -> None:
    place.script("text: # Title\ntext: \n")
    place.script(call("c1", "WriteFile", path=str(place.work / "a"), content="x\n"), "text: **done** `code`")
    place.environ["NO_COLOR"] = "1"
    with terminal(place, "--yolo") as shown:
        ask(shown, ("go", "done"))
        colours = re.findall(rb"\x1b\[([0-9;]*)m", bytes(shown.raw))
        used = {code for group in colours for code in group.split(b";")}
        assert not {code for code in used if code and 30 <= int(code) <= 107}


def test_first_run_reports_missing_model_and_offers_a_demo(place: Place) -> None:
    with terminal(place, rows=50) as shown:
        shown.until("No model is configured yet.")
        assert "Set up a provider" in shown.text
        shown.type("2")
        shown.until("This is the demo model")
        shown.idle()
        say(shown, "hello you", "4. Reject")
        shown.type("1")
        text = shown.until("When you are ready for a real model")
        assert "Hello from the demo" in text
        shown.idle()
        leave(shown)
    with terminal(place) as shown:
        shown.until("No model is configured yet.")
        shown.type("3")
        shown.until_gone("No model is configured yet.")
        say(shown, "hello", "/login")
        assert "Traceback" not in shown.all_text
        shown.type(CTRL_D)
        assert shown.wait() == 0


def test_the_last_lines_of_the_log_hold_no_traceback_of_a_quiet_run(place: Place) -> None:
    place.script(*answers(1))
    with terminal(place) as shown:
        ask(shown, ("hi", "answer 0"))
        leave(shown)
    log = Path(place.share / "logs" / "kimi.log")
    assert eventually(log.exists)
    assert "Traceback" not in log.read_text(encoding="utf-8")


def test_session_in_use_returns_to_the_previous_session(place: Place) -> None:
    place.script(*answers(3))
    with terminal(place, "-S", "used") as other:
        ask(other, ("in use", "answer 0"))
        with terminal(place, "-S", "mine", rows=40) as shown:
            ask(shown, ("my own", "answer 0"))
            say(shown, "/sessions", "2. in use")
            shown.type("2")
            shown.until("✗")
            shown.until(lambda text: text.count("› my own") == 2)
            ask(shown, ("still here", "› still here"))
            assert leave(shown) == "mine"


def test_side_question_is_answered_during_a_turn(place: Place) -> None:
    place.script(call("c1", "Shell", command=UNTIL_GO), "text: beside it", "text: the work is done")
    with terminal(place, "--yolo") as shown:
        shown.until("context:")
        say(shown, "work", f"Shell {UNTIL_GO}")
        say(shown, "/btw what is this?", "beside it")
        (place.work / "go").touch()
        shown.until("the work is done")
    assert "what is this" not in str(place.context())


def test_background_task_is_viewed_and_stopped(place: Place) -> None:
    background = call("c1", "Shell", command="echo far; sleep 60", run_in_background=True, description="a nap")
    place.script(background, "text: started")
    with terminal(place, "--yolo", columns=120) as shown:
        ask(shown, ("go", "started"))
        shown.until("1 in background")
        for choice in ("1", "2"):
            say(shown, "/task", "a nap\n↑↓")
            shown.type("1")
            shown.until("2. Stop it")
            assert "1 in background" in shown.text
            shown.type(choice)
            shown.until_gone("2. Stop it")
        shown.until("is asked to stop.")
        shown.until_gone("1 in background")


@pytest.mark.spec("R-147")
def test_background_task_end_is_shown_between_turns(place: Place) -> None:
    background = call("c1", "Shell", command=UNTIL_GO, run_in_background=True, description="a nap")
    place.script(background, "text: started", "text: and on it goes")
    with terminal(place, "--yolo", columns=120) as shown:
        ask(shown, ("go", "started"))
        shown.until("1 in background")
        (place.work / "go").touch()
        shown.until("Background task completed: a nap (bash-")
        shown.until_gone("1 in background")
        shown.until("and on it goes")
        shown.idle()
        say(shown, "/task", "Background tasks")
        shown.type(ESCAPE)


def test_a_subagent_works_and_asks_inside_its_call(place: Place) -> None:
    place.script(
        call("c1", "Agent", description="look around", prompt="look", subagent_type="coder"),
        "text: I look\n" + call("s1", "Shell", command="touch made.txt"),
        "text: I have looked around and found everything as it should be, which took " + "a while " * 30,
        "text: all is well",
    )
    with terminal(place, columns=100) as shown:
        shown.until("context:")
        text = say(shown, "go", "4. Reject")
        assert "Agent look around" in text
        assert "└ Shell touch made.txt" in text
        assert "subagent coder" in text
        shown.type("1")
        text = shown.until("all is well")
        assert "1 calls" in text
    assert (place.work / "made.txt").exists()


def test_a_plan_is_shown_and_approved(place: Place) -> None:
    place.script("text: x")
    with terminal(place, "-S", "p") as shown:
        shown.until("context:")
        say(shown, "/plan on", "Plan mode ON.")
        shown.idle()
        leave(shown)
    state = json.loads((place.session_dirs()[-1] / "state.json").read_text(encoding="utf-8"))
    path = place.share / "plans" / f"{state['plan_slug']}.md"
    place.script(
        call("c1", "WriteFile", path=str(path), content="# The plan\n\n1. do it\n"),
        call("c2", "ExitPlanMode"),
        "text: now I do it",
    )
    with terminal(place, "-S", "p", rows=40) as shown:
        shown.until("PLAN")
        say(shown, "plan it", "The plan")
        shown.until("❯ 1. Approve")
        shown.type("1")
        shown.until("now I do it")
        shown.until_gone("PLAN")


def test_mcp_servers_are_listed_with_failures(place: Place) -> None:
    place.script("text: x")
    mcp = {"mcpServers": {"good": raw_entry(tools=["echo"]), "bad": {"command": "no-such-program"}}}
    (place.share / "mcp.json").write_text(json.dumps(mcp), encoding="utf-8")
    with terminal(place, columns=200) as shown:  # in the status bar the path of the work dir comes first
        shown.until("mcp 1/2")
        text = say(shown, "/mcp", "    echo")
        assert "good  connected" in text
        assert "bad  failed: " in text
        say(shown, "/mcp reload", "is tried again")
        leave(shown)


def test_plain_mode_runs_commands(place: Place) -> None:
    place.environ["KIMI_PLAIN"] = "1"
    with terminal(place, rows=40) as shown:
        shown.until("No model is configured yet.")
        shown.until("or nothing to cancel")
        say(shown, "1", "in another terminal, then type /reload.")
        say(shown, "!echo from the $((40 + 2))", "from the 42")
        say(shown, "/help", "/undo")
        shown.type(CTRL_D)
        assert shown.wait() == 0
        assert b"\x1b" not in shown.raw


def test_long_session_resumes_quickly(place: Place) -> None:
    place.script("text: x")
    context: list[Json] = [{"role": "_system_prompt", "content": "be brief"}]
    events: list[Json] = []
    for number in range(5_000):
        question, answer = f"question {number} " + "x" * 250, f"answer {number} " + "y" * 250
        context += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        events += [
            event("TurnBegin", {"user_input": question}),
            event("StepBegin", {"n": 1}),
            event("ContentPart", {"type": "text", "text": answer}),
            event("TurnEnd", {}),
        ]
    write_session(place, "0b5ce6f2-2d1d-4c5e-9f7a-3c1f0e9d8b7a", context=context, events=events)
    began = time.monotonic()
    with terminal(place, "-r", "0b5ce6f2-2d1d-4c5e-9f7a-3c1f0e9d8b7a") as shown:
        shown.until("answer 4999")
        assert time.monotonic() - began < 5
