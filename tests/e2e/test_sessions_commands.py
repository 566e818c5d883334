"""`kimi sessions` and `kimi -r` through the real process (runtime spec 1.6, 4.5)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.program.terminal import terminal
from tests.support.program.wire_process import Json, Place, approval
from tests.support.providers.scripts import call, shell
from tests.support.stored_sessions import event, sessions_dir, write_session

PARSER, BUILD = "0b5ce6f2-2d1d-4c5e-9f7a-3c1f0e9d8b7a", "9a5ce6f2-2d1d-4c5e-9f7a-3c1f0e9d8b7a"
USAGE = "usage: input_other=10 output=5"
Done = subprocess.CompletedProcess[bytes]


def session(place: Place, session_id: str, *prompts: str, work_dir: Path | None = None, at: int = 0) -> Path:
    """A stored session with these prompts, written `at` seconds after a fixed time; its directory is known."""
    work = work_dir or place.work
    work.mkdir(exist_ok=True)
    events: list[Json] = [{"type": "metadata", "protocol_version": "1.10"}]
    for number, text in enumerate(prompts):
        events += [event("TurnBegin", {"user_input": text}, 1_760_000_000.0 + number), event("TurnEnd", {}, 1.0)]
    context: list[Json] = [{"role": "user", "content": text} for text in prompts]
    directory = sessions_dir(place, str(work)) / session_id
    directory.mkdir(parents=True)
    for name, records in (("context.jsonl", context), ("wire.jsonl", events)):
        (directory / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))
    os.utime(directory / "context.jsonl", (1_760_000_000 + at, 1_760_000_000 + at))
    registry = place.share / "kimi.json"
    known: Json = json.loads(registry.read_text()) if registry.exists() else {"work_dirs": []}
    if all(entry["path"] != str(work) for entry in known["work_dirs"]):
        known["work_dirs"].append({"path": str(work), "kaos": "local", "last_session_id": None})
    registry.write_text(json.dumps(known))
    return directory


def sessions(place: Place, *arguments: str, stdin: bytes = b"") -> Done:
    return place.run("sessions", *arguments, stdin=stdin)


def last_session_of(place: Place, work_dir: Path) -> str | None:
    known = json.loads((place.share / "kimi.json").read_text())["work_dirs"]
    return next(entry["last_session_id"] for entry in known if entry["path"] == str(work_dir))


def ids(done: Done) -> list[str]:
    """The ids in a listing as JSON."""
    assert (done.returncode, done.stderr) == (0, b"")
    return [one["id"] for one in json.loads(done.stdout)["sessions"]]


def words(text: bytes) -> str:
    """What stands in the box of a usage error, on one line."""
    return " ".join(re.sub("[╭─╮│╰╯]", " ", text.decode()).split())


# --- list and search --------------------------------------------------------------------------------------------


@pytest.mark.spec("R-282")
def test_sessions_are_listed_and_found_by_words_and_directory(place: Place) -> None:
    other = place.root / "other"
    session(place, PARSER, "fix the parser", "and the LEXER, please", at=10)
    session(place, "user:4711", "look at the build", at=20)
    session(place, BUILD, "why is the build slow?", work_dir=other, at=30)
    session(place, "deep", "in a package", work_dir=other / "package", at=5)
    write_session(place, "silent", context=[{"role": "_system_prompt", "content": "x"}], state={"custom_title": "x"})
    before = sorted((path, path.stat().st_mtime_ns) for path in place.share.rglob("*"))
    assert ids(sessions(place, "list", "--json")) == ["user:4711", PARSER]
    assert ids(sessions(place, "list", "--json", "--all")) == [BUILD, "user:4711", PARSER, "deep"]
    assert ids(sessions(place, "list", "--json", "parser", "lexer")) == [PARSER]
    assert ids(sessions(place, "list", "--json", "parser", "build")) == []
    assert ids(sessions(place, "list", "--json", "--all", "BUILD")) == [BUILD, "user:4711"]
    assert ids(sessions(place, "list", "--json", "-d", str(other))) == [BUILD, "deep"]
    assert ids(sessions(place, "list", "--json", "-d", "../other/package/.")) == ["deep"]
    assert ids(place.run("-w", str(other), "sessions", "list", "--json")) == [BUILD]
    one = json.loads(sessions(place, "list", "--json", "slow", "--all").stdout)["sessions"]
    updated = "2025-10-09T08:53:50+00:00"
    assert one == [{"id": BUILD, "title": "why is the build slow?", "directory": str(other), "updated_at": updated}]
    rows = sessions(place, "list", "--all").stdout.decode().splitlines()
    assert [row.split()[0] for row in rows] == [BUILD, "user:4711", PARSER, "deep"]
    assert all(row.endswith(str(path)) for row, path in zip(rows, [other, place.work, place.work], strict=False))
    after = sorted((path, path.stat().st_mtime_ns) for path in place.share.rglob("*") if "logs" not in path.parts)
    assert after == before


def test_an_empty_listing_says_where_to_look_next(place: Place) -> None:
    done = sessions(place, "list")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == f"There are no sessions of {place.work}; --all looks in every directory.\n"
    assert ids(sessions(place, "list", "--json")) == []


def test_a_listing_shows_no_control_sequence(place: Place) -> None:
    session(place, "id\u202e", "\x1b]0;title\x07 red \x1b[31m alert")
    for arguments in (("list",), ("show", "id\u202e")):
        shown = sessions(place, *arguments).stdout.decode()
        assert "alert" in shown
        assert not set(shown) & {"\x1b", "\x07", "\u202e"}


# --- show -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-282")
def test_a_session_is_shown_with_its_prompts(place: Place) -> None:
    other = place.root / "other"
    directory = session(place, PARSER, "fix the parser", "and\nthe lexer", work_dir=other)
    told = json.loads(sessions(place, "show", PARSER, "--json").stdout)
    assert told["prompts"] == ["fix the parser", "and\nthe lexer"]
    assert (told["directory"], told["path"], told["open"]) == (str(other), str(directory), False)
    assert told["size"] == sum(path.stat().st_size for path in directory.iterdir())
    shown = sessions(place, "show", PARSER).stdout.decode().splitlines()
    assert shown[0] == "fix the parser"
    assert "    1  and the lexer" in shown
    assert shown[-1] == f"Resume it: kimi -w {other} -r {PARSER}"


@pytest.mark.parametrize("command", ["show", "delete", "fork"])
def test_an_unknown_or_unsafe_id_is_an_error_that_names_what_is_near(place: Place, command: str) -> None:
    session(place, PARSER, "fix the parser")
    more = ("--yes",) if command == "delete" else ()
    for wrong in (PARSER[:8], PARSER.replace("2d1d", "2d1e"), "parser"):
        done = sessions(place, command, wrong, *more)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.decode().startswith(f"Error: There is no session '{wrong}'.\nDid you mean:\n{PARSER} (fix")
    for wrong in ("../../work", "a/b", ".."):
        done = sessions(place, command, wrong, *more)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"A session id must not" in done.stderr
    assert sessions_dir(place).is_dir()


# --- delete -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-283")
def test_deleting_removes_all_of_a_session_and_nothing_else(place: Place) -> None:
    other = place.root / "other"
    directory = session(place, "user:4711", "fix it", work_dir=other)
    kept = session(place, PARSER, "keep me", work_dir=other)
    (directory / "subagents" / "a1").mkdir(parents=True)
    (directory / "output").mkdir()
    (directory / "state.json").write_text(json.dumps({"plan_slug": "calm-keen-otter"}))
    precious = place.root / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (directory / "subagents" / "a1" / "linked").symlink_to(precious)
    plans = place.share / "plans"
    plans.mkdir()
    for name in ("calm-keen-otter.md", "another.md"):
        (plans / name).write_text("plan")
    known: Json = {"work_dirs": [{"path": str(other), "kaos": "local", "last_session_id": "user:4711"}], "mine": 1}
    (place.share / "kimi.json").write_text(json.dumps(known))
    done = sessions(place, "delete", "user:4711")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"Error: nobody is there to confirm; say --yes to delete the session.\n"
    assert directory.is_dir()
    done = sessions(place, "delete", "user:4711", "--yes")
    assert (done.returncode, done.stderr) == (0, b"")
    assert not directory.exists()
    assert (kept / "context.jsonl").is_file()
    assert (precious / "file").is_file()
    assert [path.name for path in plans.iterdir()] == ["another.md"]
    stored = json.loads((place.share / "kimi.json").read_text())
    assert (stored["work_dirs"][0]["last_session_id"], stored["mine"]) == (None, 1)


@pytest.mark.spec("R-283")
@pytest.mark.parametrize("slug", ["../config", "/etc/x", "a/../../config"])
def test_a_plan_name_that_leads_elsewhere_removes_nothing(place: Place, slug: str) -> None:
    directory = session(place, PARSER, "fix it")
    (place.share / "config.md").write_text("mine")
    (directory / "state.json").write_text(json.dumps({"plan_slug": slug}))
    assert sessions(place, "delete", PARSER, "--yes").returncode == 0
    assert (place.share / "config.md").is_file()


@pytest.mark.spec("R-283")
def test_a_session_that_is_open_or_works_is_not_deleted(place: Place) -> None:
    place.script("text: hi")
    with place.wire("--session", "mine") as kimi:
        kimi.prompt("go")
        began = time.monotonic()
        done = sessions(place, "delete", "mine", "--yes")
        assert time.monotonic() - began < 4  # the lock is not waited for, which would take five seconds
        assert (done.returncode, done.stdout) == (1, b"")
        assert f"session 'mine' is open in process {kimi.process.pid}".encode() in done.stderr
        assert json.loads(sessions(place, "show", "mine", "--json").stdout)["process"] == kimi.process.pid
        assert kimi.finish() == 0
    (directory,) = place.session_dirs()
    task = directory / "tasks" / "bash-1"
    task.mkdir(parents=True)
    (task / "heartbeat").touch()
    (task / "runtime.json").write_text('{"status": "running"}')
    done = sessions(place, "delete", "mine", "--yes")
    assert (done.returncode, done.stderr) == (
        1, b"Error: A background task of session mine still runs; stop it and try again.\n",
    )  # fmt: skip
    (task / "runtime.json").write_text('{"status": "completed"}')
    assert sessions(place, "delete", "mine", "--yes").returncode == 0
    assert place.session_dirs() == []


@pytest.mark.spec("R-283")
@pytest.mark.parametrize(("answer", "is_deleted"), [("y", True), ("n", False), ("", False)])
def test_deleting_asks_on_a_terminal(place: Place, answer: str, is_deleted: bool) -> None:
    directory = session(place, PARSER, "fix the parser")
    with terminal(place, "sessions", "delete", PARSER) as shown:
        shown.until("[y/N]")
        assert "Delete fix the parser" in shown.text
        shown.type(f"{answer}\r")
        assert shown.wait() == (0 if is_deleted else 1)
    assert directory.exists() is not is_deleted


# --- fork -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-282")
def test_a_session_is_forked_up_to_a_prompt(place: Place) -> None:
    other = place.root / "other"
    source = session(place, PARSER, "one", "two", work_dir=other)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    done = sessions(place, "fork", PARSER, "--turn", "0")
    assert (done.returncode, done.stderr) == (0, b"")
    new = done.stdout.decode().strip()
    assert json.loads(sessions(place, "show", new, "--json").stdout)["prompts"] == ["one"]
    whole = json.loads(sessions(place, "fork", PARSER, "--json").stdout)
    assert whole["directory"] == str(other)
    assert json.loads(sessions(place, "show", whole["id"], "--json").stdout)["prompts"] == ["one", "two"]
    done = sessions(place, "fork", PARSER, "--turn", "7")
    assert (done.returncode, done.stderr) == (1, b"Error: There is no turn 7: the session has turns 0 to 1.\n")
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    assert len(list(source.parent.iterdir())) == 3


# --- kimi -r ----------------------------------------------------------------------------------------------------


def resumed(place: Place, *arguments: str) -> Done:
    return place.run("-r", *arguments, "-p", "go on")


@pytest.mark.spec("R-281")
def test_an_unknown_session_is_not_resumed_but_its_neighbours_are_named(place: Place) -> None:
    place.script("text: hi")
    session(place, PARSER, "fix the parser")
    for wrong in (PARSER[:-1] + "b", PARSER[:6], "nothing like it"):
        done = resumed(place, wrong)
        assert (done.returncode, done.stdout) == (2, b"")
        said = words(done.stderr)
        assert f"Invalid value for --resume: There is no session '{wrong}'." in said
        assert (f"Did you mean: {PARSER} (fix the parser, {place.work})" in said) is (wrong != "nothing like it")
    assert [path.name for path in place.session_dirs()] == [PARSER]
    done = place.run("--print", "--session", "made-up", "-p", "hi")  # `--session` still makes one
    assert done.returncode == 0


@pytest.mark.spec("R-281")
def test_a_session_of_another_directory_is_found_and_goes_on_there_or_here(place: Place) -> None:
    place.script("text: one", "text: two", "text: three")
    other = place.root / "other"
    directory = session(place, "user:4711", "fix it", work_dir=other)
    done = resumed(place, "user:4711")
    assert (done.returncode, done.stdout) == (2, b"")
    said = words(done.stderr)
    assert f"Session 'user:4711' belongs to {other}." in said
    assert f"kimi -w {other} -r user:4711" in said
    assert "kimi -r user:4711 --here" in said
    assert not (directory / "state.json").exists()
    done = place.run("-w", str(other), "-r", "user:4711", "-p", "go on")
    assert (done.returncode, done.stderr) == (0, b"\nTo resume this session: kimi -r user:4711\n")
    for expected in (4, 5):  # turns of the model's context; the directory is told once
        assert resumed(place, "user:4711", "--here").returncode == 0
        records = [json.loads(line) for line in (directory / "context.jsonl").read_text().splitlines()]
        users = [one["content"] for one in records if one["role"] == "user"]
        assert len(users) == expected
        assert f"The working directory is now {place.work}, and no longer {other}" in users[2]
    assert last_session_of(place, other) == "user:4711"
    assert not sessions_dir(place).exists()


def test_here_needs_a_session_to_resume(place: Place) -> None:
    for arguments in (("--here",), ("--session", "x", "--here"), ("-r", "x", "--here", "--wire")):
        done = place.run(*arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert "--here is for --resume with a session ID" in words(done.stderr)
    assert "Cannot combine --session, --resume." in words(place.run("-S", "a", "-r", "b").stderr)


def test_a_host_may_make_up_an_id_with_either_option(place: Place) -> None:
    place.script("text: hi")
    with place.wire("-r", "made-up") as kimi:
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    assert [path.name for path in place.session_dirs()] == ["made-up"]


@pytest.mark.spec("R-284")
def test_an_id_with_a_colon_works_in_every_command(place: Place) -> None:
    place.script("text: one")
    made = place.run("--print", "--session", "user:4711", "-p", "hi")
    assert (made.returncode, made.stderr) == (0, b"\nTo resume this session: kimi -r user:4711\n")
    assert place.script("text: two").run("-r", "user:4711", "-p", "again").returncode == 0
    assert place.script("text: three").run("--continue", "-p", "and again").returncode == 0
    assert json.loads(sessions(place, "show", "user:4711", "--json").stdout)["prompts"] == ["hi", "again", "and again"]
    assert place.run("export", "user:4711").stdout.decode() == f"{place.work}/session-user:4711.zip\n"
    with place.script("text: four").wire("--session", "user:4711") as kimi:
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    fork = sessions(place, "fork", "user:4711").stdout.decode().strip()
    assert [path.name for path in place.session_dirs()] != [fork]
    assert sessions(place, "delete", "user:4711", "-y").returncode == 0
    assert [path.name for path in place.session_dirs()] == [fork]


@pytest.mark.spec("R-455")
def test_stats_count_what_the_sessions_of_a_directory_did(place: Place) -> None:
    place.script(
        f"{call('c1', 'ReadFile', {'path': 'missing'})}\n{USAGE}",
        f"{shell('c2', 'true')}\n{USAGE}",
        f"text: done\n{USAGE}",
    )
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("go", lambda request: approval(request, "reject"))
        kimi.finish()
    session(place, BUILD, "elsewhere", work_dir=place.root / "other")
    found = json.loads(sessions(place, "stats", "--json").stdout)
    assert (found["sessions"], found["turns"], found["steps"]) == (1, 1, 2)
    assert found["tools"] == {"ReadFile": {"calls": 1, "failures": 1}, "Shell": {"calls": 1, "failures": 1}}
    assert (found["tokens"]["input_other"], found["tokens"]["output"]) == (20, 10)
    assert 0 <= found["turn_seconds"]["median"] <= found["turn_seconds"]["p95"] < 60
    assert json.loads(sessions(place, "stats", "--all", "--json").stdout)["sessions"] == 2
    text = sessions(place, "stats").stdout.decode()
    assert re.search(r"ReadFile +1 +1", text)
    assert sessions(place, "stats", "-d", str(place.home)).stdout.startswith(b"sessions   0 ")


@pytest.mark.spec("R-455")
def test_stats_tell_the_calls_of_subagents_apart(place: Place) -> None:
    """Two subagents at once may use the same id, as ids of calls are unique in a conversation only."""

    def told(agent: str, kind: str, payload: dict[str, object]) -> str:
        wrapped = {"agent_id": agent, "event": {"type": kind, "payload": payload}}
        return json.dumps({"timestamp": 1.0, "message": {"type": "SubagentEvent", "payload": wrapped}}) + "\n"

    def called(agent: str, tool: str) -> str:
        return told(agent, "ToolCall", {"type": "function", "id": "0", "function": {"name": tool, "arguments": "{}"}})

    def answered(agent: str, is_error: bool) -> str:
        return told(agent, "ToolResult", {"tool_call_id": "0", "return_value": {"is_error": is_error}})

    place.script("text: ok")
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("go")
        kimi.finish()
    with (place.session_dirs()[0] / "wire.jsonl").open("a", encoding="utf-8") as log:
        log.write(called("a", "Grep") + called("b", "Glob") + answered("b", False) + answered("a", True))
    found = json.loads(sessions(place, "stats", "--json").stdout)
    assert found["tools"] == {"Grep": {"calls": 1, "failures": 1}, "Glob": {"calls": 1, "failures": 0}}


def test_what_cannot_be_read_of_a_log_is_told_in_the_program_log_only(place: Place) -> None:
    place.script("text: ok")
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("go")
        kimi.finish()
    with (place.session_dirs()[0] / "wire.jsonl").open("a", encoding="utf-8") as log:
        log.write("no event\n" * 50)
    answered = sessions(place, "stats")
    assert (answered.returncode, answered.stderr) == (0, b"")
    assert "cannot be read" in (place.share / "logs" / "kimi.log").read_text(encoding="utf-8")
