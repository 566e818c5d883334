"""The interactive shell on a real terminal: prompt, answer, approval, interrupt, leaving."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.program.processes import all_gone
from tests.support.program.shell_talk import say
from tests.support.program.terminal import (
    CTRL_C,
    CTRL_D,
    CTRL_E,
    CTRL_J,
    CTRL_S,
    CTRL_T,
    CTRL_X,
    DOWN,
    ENTER,
    ESCAPE,
    SHIFT_TAB,
    UP,
    terminal,
)
from tests.support.program.wire_process import Place, eventually
from tests.support.providers.scripted_calls import call
from tests.support.providers.scripts import UNTIL_GO

USAGE = "usage: input_other=4200 output=5"
SLEEP = call("c1", "Shell", command="sleep 30")


def tool_results(place: Place) -> str:
    """What the model was given back by tools, as text."""
    return "\n".join(str(one["content"]) for one in place.context() if one["role"] == "tool")


@pytest.mark.spec("R-151")
def test_user_prompts_interrupts_and_exits(place: Place) -> None:
    place.script(f"text: Hello **there**, reader.\n{USAGE}", f"text: wait\n{SLEEP}", "text: Here again.")
    with terminal(place, "--yolo") as shown:
        shown.until("context: 0.0%")
        shown.type("hi", CTRL_J, "and more", ENTER)
        shown.until("Hello there, reader.")
        text = shown.until("context: 4.2% (4.2k/100.0k)")
        assert "› hi\n  and more" in text
        say(shown, "sleep", "Shell sleep 30")
        shown.type(CTRL_C)
        shown.until("Interrupted.")
        say(shown, "and now?", "Here again.")
        shown.idle()
        shown.type("half a line", CTRL_C)
        shown.until_gone("half a line")
        shown.type(CTRL_D)
        assert shown.wait() == 0
        assert "To resume this session: kimi -r" in shown.text
    with terminal(place) as shown:
        shown.until("context:")
        shown.type(CTRL_C)
        shown.until("Press Ctrl-C again to leave.")
        shown.type(CTRL_C)
        assert shown.wait() == 0
        assert "To resume" not in shown.text  # nothing was said: the session left nothing behind


@pytest.mark.parametrize(
    ("end", "plain"), [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGHUP, True)], ids=str
)
def test_signal_or_closed_window_ends_the_shell_cleanly(place: Place, end: signal.Signals, plain: bool) -> None:
    place.script(f"text: wait\n{SLEEP}")
    if plain:
        place.environ["KIMI_PLAIN"] = "1"
    with terminal(place, "--yolo", "-S", "mine") as shown:
        shown.until("Directory:" if plain else "context:")
        shown.type("sleep", ENTER)
        if plain:
            shown.until("wait")
            assert eventually(lambda: "ToolCall" in str(place.recorded()))
        else:
            shown.until("Shell sleep 30")
        if end == signal.SIGHUP:
            shown.hang_up()
        else:
            os.kill(shown.process.pid, end)
        assert shown.wait() == -end
    assert "cancelled" in tool_results(place)
    assert "Traceback" not in (place.share / "logs" / "kimi.log").read_text(encoding="utf-8")


def test_a_signal_leaves_the_hooks_of_the_end_little_time(place: Place) -> None:
    hook = "sleep 30 & trap '' TERM; touch ended; sleep 30"
    place.config = f'[[hooks]]\nevent = "SessionEnd"\ncommand = "{hook}"\ntimeout = 30\n'
    place.script("text: hello")
    with terminal(place) as shown:
        shown.until("context:")
        say(shown, "hi", "hello")
        shown.idle()
        began = time.monotonic()
        os.kill(shown.process.pid, signal.SIGTERM)
        assert shown.wait() == -signal.SIGTERM
        assert time.monotonic() - began < 4  # without a signal they have five seconds
    assert (place.work / "ended").exists()
    assert all_gone(str(place.root))


def test_signal_ends_picker_panel_and_running_turn(place: Place) -> None:
    place.script(SLEEP)
    place.run("--print", "-S", "one", "--yolo", "-p", "/yolo off")
    with terminal(place, "-r") as shown:
        shown.until("Sessions of this directory")
        os.kill(shown.process.pid, signal.SIGTERM)
        assert shown.wait() == -signal.SIGTERM
    with terminal(place) as shown:
        shown.until("context:")
        shown.type(CTRL_X, "sleep 30 & trap '' TERM; echo it has begun; sleep 30; sleep 30", ENTER)
        shown.until("\nit has begun")
        os.kill(shown.process.pid, signal.SIGTERM)
        assert shown.wait() == -signal.SIGTERM
    assert all_gone(str(place.root))  # with what it had started, and although it would not hear
    with terminal(place, "--yolo", "-p", "sleep") as shown:
        shown.until("Working")
        shown.until("Shell sleep 30")
        os.kill(shown.process.pid, signal.SIGTERM)
        assert shown.wait() == -signal.SIGTERM
        assert "Interrupted." in shown.text


@pytest.mark.spec("R-152")
def test_approval_panel_accepts_keys(place: Place) -> None:
    first, again = Path("first.txt"), Path("again.txt")
    place.script(
        call("c1", "Shell", command=f"echo 1 > {first}"),
        "text: one",
        call("c2", "Shell", command="echo two > rejected.txt"),
        call("c3", "Shell", command="echo three > feedback.txt"),
        "text: heard",
        call("c4", "Shell", command="echo 4 > fourth.txt"),
        call("c5", "Shell", command=f"echo 5 > {again}"),
        "text: done",
    )
    with terminal(place) as shown:
        shown.until("context:")
        text = say(shown, "do it", "4. Reject, and say")
        assert "Shell wants to: run command" in text
        assert "$ echo 1 > first.txt" in text
        shown.resize(40, 8)
        shown.until(lambda text: "wants to: run command\n$ echo 1" in text and text.count("\n") < 8 and "❯ 1. " in text)
        shown.resize(80, 24)
        shown.until("4. Reject, and say")
        shown.type("1")
        shown.until("one")
        say(shown, "next", "two > rejected.txt\n❯ 1.")
        shown.type("3")
        shown.until("Rejected")
        shown.idle()
        say(shown, "next", "three > feedback.txt\n❯ 1.")
        shown.type("4")
        shown.until("Enter sends, Esc goes back")
        say(shown, "use a file of tests", "heard")
        say(shown, "next", "echo 4 > fourth.txt\n❯ 1.")
        shown.type("2")
        shown.until("done")
    assert (place.work / first).exists()
    assert (place.work / again).exists()  # without another question
    assert not (place.work / "rejected.txt").exists()
    assert not (place.work / "feedback.txt").exists()
    assert "The tool call is rejected by the user. User feedback: use a file of tests" in tool_results(place)


def test_approval_panel_accepts_arrows_and_shows_long_changes(place: Place) -> None:
    content = "".join(f"line {number}\n" for number in range(60))
    place.script(call("c1", "WriteFile", path=str(place.work / "long.txt"), content=content), "text: over")
    with terminal(place) as shown:
        shown.until("context:")
        text = say(shown, "write", "Ctrl-E shows all")
        assert "+60 -0" in text
        assert "line 59" not in text
        shown.type(CTRL_E)
        shown.until_gone("Ctrl-E shows all")
        shown.until("60 + line 59")
        shown.type(DOWN, DOWN, UP, DOWN, ENTER)
        shown.until("Rejected")
    assert not (place.work / "long.txt").exists()


def test_parallel_approval_requests_are_shown_one_at_a_time(place: Place) -> None:
    calls = [call(f"c{n}", "WriteFile", path=str(place.work / f"{n}.txt"), content=f"{n}\n") for n in range(3)]
    place.script("text: three files\n" + "\n".join(calls), "text: all settled")
    with terminal(place) as shown:
        shown.until("context:")
        shown.type("write", ENTER)
        for more in ("[2 more]", "[1 more]"):
            shown.until(more)
            shown.type("1")
            shown.until_gone(more)
        shown.until("❯ 1. Approve once")
        shown.type("1")
        shown.until("all settled")
    assert sorted(path.name for path in place.work.iterdir()) == ["0.txt", "1.txt", "2.txt"]


def test_cancelled_turn_closes_its_panel(place: Place) -> None:
    place.script(call("c1", "Shell", command="true"), "text: next")
    with terminal(place) as shown:
        shown.until("context:")
        say(shown, "go", "4. Reject")
        shown.type(CTRL_C)
        shown.until("Interrupted.")
        shown.until_gone("4. Reject")
        say(shown, "again", "next")


@pytest.mark.spec("R-155")
def test_input_typed_during_a_turn_is_queued_or_recalled(place: Place) -> None:
    place.script(call("c1", "Shell", command=UNTIL_GO), "text: first done", "text: second done", "text: third done")
    with terminal(place, "--yolo") as shown:
        shown.until("context:")
        say(shown, "one", f"Shell {UNTIL_GO}")
        say(shown, "two", "1 queued")
        say(shown, "three", "2 queued")
        shown.type(UP)
        text = shown.until("1 queued")
        assert "› three" in text
        say(shown, " and a half", "2 queued")
        (place.work / "go").touch()
        text = shown.until("third done")
        assert [line for line in shown.all_text.split("\n") if line.startswith("› ") and len(line) > 2] == [
            "› one",
            "› two",
            "› three and a half",
        ]
        assert "queued" not in text


@pytest.mark.spec("R-293")
def test_ctrl_s_on_an_empty_line_steers_with_the_oldest_message(place: Place) -> None:
    wait = call("c1", "Shell", command=UNTIL_GO)
    place.script(f"text: wait\n{wait}", "text: heard it", "text: and the rest")
    with terminal(place, "--yolo") as shown:
        shown.until("context:")
        say(shown, "work", f"Shell {UNTIL_GO}")
        shown.type("/title first", ENTER, "older", ENTER, "newer", ENTER)
        shown.until("3 queued")
        shown.type(CTRL_S)
        shown.until("2 queued")
        (place.work / "go").touch()
        shown.until("and the rest")
    words = [str(one["content"]) for one in place.context() if one["role"] in ("user", "assistant")]
    assert [word for word in words if word in ("older", "newer")] == ["older", "newer"]
    assert words.index("older") < next(n for n, word in enumerate(words) if "heard it" in word) < words.index("newer")


def test_queued_shell_command_stays_a_shell_command(place: Place) -> None:
    place.script(call("c1", "Shell", command=UNTIL_GO), "text: first done")
    with terminal(place, "--yolo") as shown:
        shown.until("context:")
        say(shown, "one", f"Shell {UNTIL_GO}")
        shown.type(CTRL_X, "echo $((40 + 2))", CTRL_S)
        shown.until("1 queued")
        shown.type(CTRL_X)
        shown.until_gone("SHELL")
        shown.type(UP)
        shown.until("$ echo $((40 + 2))")
        shown.until("SHELL")
        shown.type(ENTER)
        shown.until("1 queued")
        (place.work / "go").touch()
        shown.until("\n42")
    assert "echo" not in str(place.context())


def test_a_message_steers_the_running_turn(place: Place) -> None:
    place.script(call("c1", "Shell", command=UNTIL_GO), "text: heard you")
    with terminal(place, "--yolo") as shown:
        shown.until("context:")
        say(shown, "one", f"Shell {UNTIL_GO}")
        shown.type("use tabs")
        shown.until("use tabs")
        shown.type(CTRL_S)
        shown.until_gone("use tabs")
        (place.work / "go").touch()
        shown.until("» use tabs")
        shown.until("heard you")
    assert any("use tabs" in str(one["content"]) for one in place.context() if one["role"] == "user")


def test_thinking_is_folded_and_can_be_unfolded(place: Place) -> None:
    place.script("think: First I count the files. " + "Then I go on. " * 20 + "THE-END\ntext: done")
    with terminal(place) as shown:
        shown.until("context:")
        text = say(shown, "go", "done")
        assert "✻ Thought for" in text
        assert "THE-END" not in text
        shown.idle()
        shown.type(CTRL_T)
        shown.until("THE-END")


def test_plan_mode_is_switched_by_a_key(place: Place) -> None:
    place.script("text: x")
    with terminal(place) as shown:
        shown.until("context:")
        shown.type(SHIFT_TAB)
        shown.until("PLAN")
        shown.until("◇")
        shown.type(SHIFT_TAB)
        shown.until_gone("PLAN")


def test_questions_are_asked_in_tabs(place: Place) -> None:
    questions = [
        {"question": "Which colour?", "header": "Colour", "options": [{"label": "red"}, {"label": "blue"}]},
        {
            "question": "Which sizes?",
            "header": "Sizes",
            "multi_select": True,
            "options": [{"label": "small"}, {"label": "large"}],
        },
        {"question": "What else?", "header": "Rest", "options": [{"label": "nothing"}, {"label": "all"}]},
    ]
    place.script(call("c1", "AskUserQuestion", questions=questions), "text: thank you")
    with terminal(place) as shown:
        shown.until("context:")
        text = say(shown, "ask me", "Which colour?")
        assert "☐ Colour" in text
        assert "☐ Rest" in text
        shown.type(DOWN, " ")  # Space chooses, where there is one answer only
        shown.until("Which sizes?")
        shown.type(" ", DOWN, " ", ENTER)
        shown.until("What else?")
        shown.type("3")
        shown.until("Enter sends")
        say(shown, "some words", "thank you")
    answers = tool_results(place)
    for expected in ('"Which colour?": "blue"', '"Which sizes?": "small, large"', '"What else?": "some words"'):
        assert expected.replace('": "', '":"') in answers.replace('": "', '":"')


def test_dismissed_question_returns_no_answer(place: Place) -> None:
    question = {"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}
    place.script(call("c1", "AskUserQuestion", questions=[question]), "text: on I go")
    with terminal(place) as shown:
        shown.until("context:")
        say(shown, "ask", "Which?")
        shown.type(ESCAPE)
        shown.until("on I go")
    assert "dismissed" in tool_results(place)


@pytest.mark.spec("R-160")
def test_no_failure_of_a_turn_ends_the_shell(place: Place) -> None:
    place.config = "[loop_control]\nmax_retries_per_step = 1\n"
    place.script(
        "error: 401 no such key as sk-test-secret",
        "error: 403 quota is used up",
        "error: 500 broken",
        "error: connection gone",
        "nonsense that is no script",
        "text: still here",
    )
    with terminal(place, rows=50) as shown:
        shown.until("context:")
        for expected in (
            "The key was not accepted",
            "its quota is used up",
            "The provider has trouble",
            "Check the network",
            "Invalid echo DSL",
            "still here",
        ):
            say(shown, "go", expected)
            shown.idle()
        assert "no such key as ***" in shown.all_text
        assert "sk-test-secret" not in shown.all_text
        for command, said in (("/import /no/such/file", "no/such/file"), ("/nonsense", "Unknown slash command")):
            say(shown, command, said)
            shown.idle()
        shown.type(CTRL_D)
        assert shown.wait() == 0


def test_unwritable_disk_is_reported_and_shell_continues(place: Place) -> None:
    place.script("text: before", "text: unheard")
    with terminal(place) as shown:
        shown.until("context:")
        say(shown, "go", "before")
        shown.idle()
        (directory,) = place.share.glob("sessions/*")
        moved = directory.with_name("elsewhere")
        directory.rename(moved)
        directory.write_text("in the way", encoding="utf-8")
        say(shown, "/title new", "Check the disk")
        directory.unlink()
        moved.rename(directory)
        assert shown.process.poll() is None


def test_the_bell_rings_when_a_long_turn_ends(place: Place) -> None:
    place.environ["KIMI_BELL_AFTER_S"] = "1"
    place.script(call("c1", "Shell", command="sleep 1.2"), "text: over", "text: swift")
    with terminal(place, "--yolo") as shown:
        shown.until("context:")
        say(shown, "slow", "over")
        assert eventually(lambda: b"\a" in shown.raw)
        before = shown.raw.count(b"\a")
        say(shown, "again", "swift")
        shown.idle()
        time.sleep(0.1)
        assert shown.raw.count(b"\a") == before


@pytest.mark.parametrize(("answer", "status"), [("text: hello", 0), ("error: 400 no", 1)])
def test_a_single_prompt_runs_once(place: Place, answer: str, status: int) -> None:
    place.script(answer)
    with terminal(place, "-p", "say it") as shown:
        assert shown.wait() == status
        assert ("hello" if status == 0 else "✗") in shown.text


def test_failed_start_restores_the_terminal(place: Place) -> None:
    place.script("text: x")
    with terminal(place, "--continue") as shown:
        assert shown.wait() == 2
        assert "No previous session found" in shown.text
    (place.work / "agent.yaml").write_text("version: 1\nagent:\n  name: x\n", encoding="utf-8")
    with terminal(place, "--agent-file", "agent.yaml") as shown:
        assert shown.wait() == 1
        assert "The log is in" in shown.text
