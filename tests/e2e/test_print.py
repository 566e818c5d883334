"""`kimi --print` from the outside: what is asked, what comes on stdout and stderr, how it ends (runtime spec 1.7)."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.program.program import Program, finished, kimi_command, start
from tests.support.program.unread import stalled
from tests.support.program.wire_process import Json, Place, eventually
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import error_reply, text_reply
from tests.support.providers.scripts import shell, step

HINT = "\nTo resume this session: kimi -r {}\n"


def lines(done: subprocess.CompletedProcess[bytes]) -> list[Json]:
    """The lines of stream-json without the record of the session at its end: every one of them parses."""
    found: list[Json] = [json.loads(line) for line in done.stdout.splitlines()]
    return found[:-1] if found and found[-1].get("type") == "session" else found


def text(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stdout.decode()


def hint(place: Place) -> str:
    return HINT.format(place.session_dirs()[-1].name)


# --- what is asked ----------------------------------------------------------------------------------------------


@pytest.mark.spec("R-25")
def test_the_answer_is_printed(place: Place) -> None:
    place.write_config("_echo")
    done = place.run("--print", "-p", "text: hello there")
    assert (done.returncode, text(done)) == (0, "text: hello there\n\nhello there\n")


@pytest.mark.spec("R-26")
def test_stdin_is_the_prompt_when_no_prompt_is_given(place: Place) -> None:
    place.write_config("_echo")
    done = place.run("--quiet", stdin="\ufeff  text: from stdin ü\n\n".encode())
    assert (done.returncode, text(done)) == (0, "from stdin ü\n")
    done = place.run("--quiet", "-p", "text: from the option", stdin=b"text: from stdin")
    assert (done.returncode, text(done)) == (0, "from the option\n")
    stored = place.session_dirs()
    for nothing in (b"", b" \n\t\n"):
        done = place.run("--print", stdin=nothing)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert place.session_dirs() == stored


def test_terminal_stdin_is_not_read_as_prompt(place: Place) -> None:
    place.write_config("_echo")
    leader, follower = pty.openpty()
    try:
        done = subprocess.run(
            [*kimi_command(), "--print"],
            stdin=follower,
            capture_output=True,
            cwd=place.work,
            env=place.full_environ(),
            timeout=20,
            check=False,
        )
    finally:
        os.close(leader)
        os.close(follower)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.spec("R-28")
def test_each_user_line_is_a_turn_of_one_session(place: Place) -> None:
    place.script("text: zero", "text: one", "text: two")
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    given = [
        "", "garbage", "[1]", "{}", '{"role": "user"}', '{"role": "user", "content": " "}',
        '{"role": "user", "content": [{"type": "smell"}]}',
        json.dumps({"role": "user", "content": "a"}),
        json.dumps({"role": "assistant", "content": "not me"}),
        json.dumps({"role": "user", "content": parts}),
    ]  # fmt: skip
    stdin = "\n".join(given).encode()
    done = place.run("--print", "--input-format", "stream-json", "--final-message-only", "-p", "first", stdin=stdin)
    assert (done.returncode, text(done)) == (0, "zero\none\ntwo\n")
    [session] = place.session_dirs()
    asked = [record["content"] for record in place.context() if record["role"] == "user"]
    assert asked == ["first", "a", "b\nc"]
    log = (place.share / "logs" / "kimi.log").read_text()
    assert log.count("a line of the input is skipped") == 8
    assert done.stderr.decode() == HINT.format(session.name)


@pytest.mark.spec("R-28")
def test_lines_are_answered_as_they_come(place: Place) -> None:
    place.script("text: one", "text: two")
    arguments = ["--print", "--input-format", "stream-json", "--output-format", "stream-json"]
    with started(place, *arguments) as kimi:
        assert kimi.stdin is not None
        assert kimi.stdout is not None
        for answer in ("one", "two"):
            kimi.stdin.write(b'{"role": "user", "content": "go"}\n')
            kimi.stdin.flush()
            assert json.loads(kimi.stdout.readline()) == {"role": "assistant", "content": answer}
        kimi.stdin.close()
        [session] = place.session_dirs()
        assert json.loads(kimi.stdout.read()) == {"role": "meta", "type": "session", "session_id": session.name}
        assert kimi.wait(20) == 0


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.spec("R-29", "R-31", "R-80")
def test_input_images_reach_a_model_with_image_support(place: Place) -> None:
    message = json.dumps({"role": "user", "content": [{"type": "text", "text": "what is it?"}, IMAGE]}).encode()
    arguments = ("--quiet", "--input-format", "stream-json")
    place.capabilities = ("image_in",)
    with loopback(text_reply("a cat")) as server:
        done = place.provider(server.base_url).run(*arguments, stdin=message)
        assert (done.returncode, text(done)) == (0, "a cat\n")
        [request] = server.requests
    asked = request.json["messages"][-1]
    assert asked["content"] == [{"type": "text", "text": "what is it?"}, IMAGE]
    place.capabilities = ()
    done = place.script("text: never").run(*arguments, stdin=message)
    assert done.returncode == 1
    assert text(done) == "LLM model 'scripted_echo' does not support required capability: image_in.\n"


# --- what is printed --------------------------------------------------------------------------------------------


@pytest.mark.spec("R-27")
def test_stream_json_has_the_messages_of_the_context(place: Place) -> None:
    place.script(
        step("think: hm", "text: Looking", shell("tc1", "echo hi")),
        step(shell("tc2", "true"), shell("tc3", "false")),
        "text: done",
    )
    done = place.run("--print", "--output-format", "stream-json", "-p", "go")
    assert done.returncode == 0
    first, hi, second, *results, last = lines(done)
    function = {"name": "Shell", "arguments": '{"command": "echo hi"}'}
    assert first == {
        "role": "assistant",
        "content": [{"type": "think", "think": "hm", "encrypted": None}, {"type": "text", "text": "Looking"}],
        "tool_calls": [{"type": "function", "id": "tc1", "function": function}],
    }
    assert hi == {
        "role": "tool",
        "content": [
            {"type": "text", "text": "<system>Command executed successfully.</system>"},
            {"type": "text", "text": "hi\n"},
        ],
        "tool_call_id": "tc1",
    }
    assert (second["content"], [call["id"] for call in second["tool_calls"]]) == ([], ["tc2", "tc3"])
    assert sorted(result["tool_call_id"] for result in results) == ["tc2", "tc3"]
    assert last == {"role": "assistant", "content": "done"}
    stored = [record for record in place.context() if record["role"] in ("assistant", "tool")]
    by_call = [*stored[:3], *sorted(stored[3:5], key=lambda record: record["tool_call_id"]), *stored[5:]]
    assert by_call == [first, hi, second, *sorted(results, key=lambda result: result["tool_call_id"]), last]
    assert b"null" not in b"".join(done.stdout.splitlines()[1:])


@pytest.mark.spec("R-27", "R-32")
def test_failed_attempt_is_absent_from_stream_json(place: Place) -> None:
    place.script("text: half an ans\nerror: 503 busy", "text: a whole answer")
    done = place.run("--print", "--output-format", "stream-json", "-p", "go")
    assert lines(done) == [{"role": "assistant", "content": "a whole answer"}]
    place.script("text: half an ans\nerror: 400 bad")
    done = place.run("--print", "--output-format", "stream-json", "-p", "go")
    assert lines(done) == [{"role": "meta", "type": "error", "message": "bad", "retryable": False}]


@pytest.mark.spec("R-30")
def test_final_message_only_prints_the_last_message(place: Place) -> None:
    script = (step("text: Looking", shell("tc1", "echo hi")), step("think: so", "text: the end"))
    plain = place.script(*script).run("--print", "--final-message-only", "-p", "go")
    assert (plain.returncode, text(plain)) == (0, "the end\n")
    quiet = place.script(*script).run("--quiet", "-p", "go")
    assert (quiet.returncode, quiet.stdout) == (plain.returncode, plain.stdout)
    spelled = place.script(*script).run("--print", "--output-format", "text", "--final-message-only", "-p", "go")
    assert (spelled.returncode, spelled.stdout) == (plain.returncode, plain.stdout)
    as_json = place.script(*script).run("--print", "--output-format", "stream-json", "--final-message-only", "-p", "go")
    assert (as_json.returncode, lines(as_json)) == (0, [{"role": "assistant", "content": "the end"}])
    silent = place.script(step("id: m1", shell("tc1", "echo hi")), "image_url: http://x/y.png").run(
        "--quiet", "-p", "go"
    )
    assert (silent.returncode, silent.stdout) == (0, b"")


@pytest.mark.spec("R-36")
def test_text_output_is_readable_and_escaped(place: Place) -> None:
    place.script(
        step("think: secret thoughts", "text: I look.", shell("c1", "echo hi;\necho ho"), shell("c2", "\x1b[J; false")),
        step("text: Done.", "usage: input_other=10 output=5"),
    )
    done = place.run("--print", "-p", "go")
    head, blank, said, *calls, last = text(done).splitlines()
    assert (head, blank, said, last) == ("go", "", "I look.", "Done.")
    assert len(calls) == 2
    assert "* Shell: echo hi; echo ho" in calls
    failed = next(line for line in calls if line != "* Shell: echo hi; echo ho")
    assert failed.startswith("* Shell: \\x1b[J; false (")
    assert failed.isprintable()


@pytest.mark.spec("R-35")
@pytest.mark.parametrize(
    "prompt",
    ["[x]", "[/x]", "[bold]b[/bold] {x} {0} {…}", "\x1b[31mred\x1b[0m", "100% %s %(x)d", "$x `x` \\n \\x1b {{}}"],
)
def test_prompt_is_echoed_unchanged(place: Place, prompt: str) -> None:
    place.script(f"text: {prompt}")
    done = place.run("--print", "-p", prompt)
    assert (done.returncode, text(done)) == (0, f"{prompt}\n\n{prompt}\n")


def test_output_escapes_terminal_control_sequences(place: Place) -> None:
    place.script("text: \x1b[31mred")
    leader, follower = pty.openpty()
    try:
        kimi = subprocess.Popen(
            [*kimi_command(), "--print", "-p", "\x1b]0;title\x07"],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=subprocess.DEVNULL,
            cwd=place.work,
            env=place.full_environ(),
        )
        seen = b""
        while b"red\r\n" not in seen:
            seen += os.read(leader, 1024)
        assert kimi.wait(20) == 0
    finally:
        os.close(leader)
        os.close(follower)
    assert seen == b"\\x1b]0;title\\x07\r\n\r\n\\x1b[31mred\r\n"


@pytest.mark.spec("R-34")
def test_calls_run_without_approval_and_without_a_trace_of_that(place: Place) -> None:
    place.script(shell("c1", "touch made"), "text: ok")
    done = place.run("--print", "-p", "go")
    assert done.returncode == 0
    assert (place.work / "made").exists()
    [session] = place.session_dirs()
    assert session_flags(session) == (False, False)
    place.script(shell("c2", "touch again"), "text: ok")
    with place.wire("--session", session.name) as kimi:
        kimi.initialize()
        kimi.call("prompt", {"user_input": "go on"})
        assert kimi.until("ApprovalRequest")["action"] == "run command"
    assert not (place.work / "again").exists()
    assert "Nobody is there" not in json.dumps(place.context())


def session_flags(session: Path) -> tuple[bool, bool]:
    """Is the stored session in yolo or away mode?"""
    approval = json.loads((session / "state.json").read_text())["approval"]
    return approval["yolo"], approval["afk"]


# --- how it ends ------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-31", "R-32", "R-82", "R-94", "R-80")
@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        *((f"error: {status} it said no", "it said no", 75) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
        ("error: connection lost it", "lost it", 75),
        ("error: timeout too slow", "too slow", 75),
        ("think: only", "The model only thought and then gave neither text nor a tool call.", 75),
        *((f"error: {status} it said no", "it said no", 1) for status in (400, 401, 403, 404)),
        (shell("c1", "true"), "Max number of steps reached: 1", 1),
    ],
)
def test_exit_status_tells_whether_to_retry(place: Place, error: str, message: str, code: int) -> None:
    place.script(error, error)
    limits = ("--max-retries-per-step", "1", "--max-steps-per-turn", "1")
    done = place.run("--print", "--output-format", "stream-json", *limits, "-p", "go")
    assert done.returncode == code
    assert lines(done)[-1] == {"role": "meta", "type": "error", "message": message, "retryable": code == 75}
    assert message.encode() not in done.stderr


@pytest.mark.spec("R-31")
def test_a_passing_failure_is_retried_first(place: Place) -> None:
    with loopback(error_reply(503, "busy")) as server:
        done = place.provider(server.base_url).run("--quiet", "--max-retries-per-step", "2", "-p", "go")
        assert len(server.requests) == 2
    assert done.returncode == 75
    assert "busy" in text(done)
    assert text(done).count("\n") == 1


@pytest.mark.spec("R-31", "R-32", "R-80")
def test_missing_model_prints_one_line(place: Place) -> None:
    (place.share / "config.toml").write_text("")
    for arguments, expected in (
        (("--print",), "go\n\nLLM not set\n"),
        (("--quiet",), "LLM not set\n"),
    ):
        done = place.run(*arguments, "-p", "go")
        assert (done.returncode, text(done)) == (1, expected)


@pytest.mark.spec("R-31", "R-33", "R-80")
def test_interrupt_cancels_the_running_turn(place: Place) -> None:
    place.script(shell("c1", "touch running; sleep 60"), "text: never")
    with started(place, "--print", "--output-format", "stream-json", "-p", "go") as kimi:
        assert eventually((place.work / "running").exists, 20)
        kimi.send_signal(signal.SIGINT)
        done = finished(kimi)
    assert done.returncode == 1
    call, result, error = lines(done)
    assert (call["role"], result["role"], result["tool_call_id"]) == ("assistant", "tool", "c1")
    assert error == {"role": "meta", "type": "error", "message": "Interrupted by user", "retryable": False}
    assert done.stderr.decode() == hint(place)


def test_interrupt_is_handled_after_the_first_output(place: Place) -> None:
    place.script(shell("c1", "sleep 60"), "text: never")
    with started(place, "--print", "-p", "go") as kimi:
        assert kimi.stdout is not None
        assert kimi.stdout.readline() == b"go\n"
        kimi.send_signal(signal.SIGINT)
        done = finished(kimi)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, b"Interrupted by user")


@pytest.mark.parametrize("mode", ["text", "stream-json"])
def test_interrupt_during_startup_prints_one_line(place: Place, mode: str) -> None:
    place.script(shell("c1", "touch running; sleep 60"))
    with started(place, "--print", "--session", "S", "-p", "first") as first:
        assert eventually((place.work / "running").exists, 20)
        with started(place, "--print", "--session", "S", "--output-format", mode, "-p", "go") as kimi:
            assert eventually(lambda: holds_file_of(kimi.pid, "eventpoll"), 20)
            kimi.send_signal(signal.SIGINT)
            done = finished(kimi)
        first.send_signal(signal.SIGTERM)
    assert done.returncode == 1
    said = json.loads(done.stdout)["message"] if mode == "stream-json" else done.stdout.decode().rstrip("\n")
    assert said == "Interrupted by user"


def test_an_interrupt_ends_the_reading_of_stdin(place: Place) -> None:
    place.write_config("_echo")
    with started(place, "--print") as kimi:
        assert eventually(lambda: catches(kimi.pid, signal.SIGHUP), 20)
        kimi.send_signal(signal.SIGINT)
        assert kimi.wait(20) == 1
        assert kimi.stdout is not None
        assert kimi.stdout.read() == b"Interrupted by user\n"


def test_an_interrupt_ends_in_time_although_nobody_reads_the_output(place: Place) -> None:
    place.script(step(*[f"text: {'x' * 200}"] * 20_000))
    with started(place, "--print", "-p", "go") as kimi:
        assert eventually(lambda: bool(place.session_dirs()) and stalled(kimi.pid), 20)
        began = time.monotonic()
        kimi.send_signal(signal.SIGINT)
        assert kimi.wait(20) == 1
        assert time.monotonic() - began < 4


def holds_file_of(pid: int, part: str) -> bool:
    """Has the process opened a file with this in its path? An event loop has `eventpoll`."""
    with suppress(FileNotFoundError):  # it may close one while we look
        return any(part in os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def catches(pid: int, number: signal.Signals) -> bool:
    """Has the process a handler for the signal?"""
    status = Path(f"/proc/{pid}/status").read_text()
    [mask] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_the_turn_cleanly(place: Place, number: signal.Signals) -> None:
    place.script(shell("c1", "touch running; sleep 60"), "text: never")
    with started(place, "--print", "-p", "go") as kimi:
        assert eventually((place.work / "running").exists, 20)
        kimi.send_signal(number)
        done = finished(kimi)
    assert done.returncode == -number
    assert done.stdout.decode().splitlines() == ["go", "", "* Shell: touch running; sleep 60 (Cancelled)"]
    assert place.context()[-1]["role"] == "tool"


def test_closed_stdout_ends_the_run(place: Place) -> None:
    place.script(shell("c1", "touch running; sleep 60"), "text: never")
    with started(place, "--print", "-p", "go") as kimi:
        assert kimi.stdout is not None
        assert kimi.stderr is not None
        assert eventually((place.work / "running").exists, 20)
        kimi.stdout.close()
        assert kimi.wait(20) == 1
        assert kimi.stderr.read().decode() == hint(place)


@pytest.mark.parametrize("mode", [["--quiet"], ["--print"], ["--print", "--output-format", "stream-json"]])
def test_an_answer_that_cannot_be_written_is_a_failure(place: Place, mode: list[str]) -> None:
    place.script("text: ok")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*kimi_command(), *mode, "-p", "go"],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=place.work,
            env=place.full_environ(),
            timeout=20,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"The output could not be written: No space left on device\n")


@pytest.mark.spec("R-33")
def test_resume_hint_is_printed_for_a_session_with_content(place: Place) -> None:
    done = place.script("text: ok").run("--print", "-p", "go")
    assert done.stderr.decode() == hint(place)
    session = place.session_dirs()[-1].name
    again = place.run("--print", "-r", session, stdin=b"")
    assert (again.returncode, again.stdout, again.stderr.decode()) == (0, b"", HINT.format(session))
    failed = place.script("error: 400 no").run("--print", "--continue", "-p", "go")
    assert (failed.returncode, failed.stderr.decode()) == (1, HINT.format(session))
    empty = place.run("--print", stdin=b" ")
    assert (empty.returncode, empty.stderr) == (0, b"")
    (place.share / "config.toml").write_text("")
    nothing = place.run("--print", "-p", "go")
    assert (nothing.returncode, nothing.stderr) == (1, b"")


def test_secrets_are_masked_in_failures(place: Place) -> None:
    with loopback(error_reply(400, "wrong key sk-test-secret")) as server:
        done = place.provider(server.base_url).run("--quiet", "-p", "go")
    assert done.returncode == 1
    assert b"***" in done.stdout
    assert b"sk-test-secret" not in done.stdout + done.stderr


@contextmanager
def started(place: Place, *arguments: str) -> Generator[Program, None, None]:
    """The program while it runs; leaving the context ends it."""
    kimi = start(arguments, place.work, place.full_environ())
    try:
        yield kimi
    finally:
        kimi.kill()
        kimi.wait()
        for stream in (kimi.stdin, kimi.stdout, kimi.stderr):
            assert stream is not None
            stream.close()
