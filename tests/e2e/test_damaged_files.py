"""Any file of a session's directory, damaged in any way: the session opens, or one sentence says why not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.program.processes import all_gone
from tests.support.program.wire_process import Json, OutputEnded, Place, approve, eventually
from tests.support.providers.scripts import call, shell, step

NESTED = 100_000


def nest_objects(_: bytes) -> bytes:
    return b'{"a":' * NESTED + b"1" + b"}" * NESTED


def tear(content: bytes) -> bytes:
    """Return the first half, which ends in the middle of a line, as after a crash of the machine."""
    return content[: len(content) // 2]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "torn": tear,
    "zeros": lambda content: b"\0" * len(content),
    "nested arrays": lambda _: b"[" * NESTED + b"]" * NESTED,
    "nested objects": nest_objects,
    "never closed": lambda _: b"[" * NESTED,
    "another type": lambda _: b"[1, null]\n",
    "a number": lambda _: b"1e999999\n",
    "null": lambda _: b"null\n",
    "not utf-8": lambda content: b"\xff\xfe" + content,
    "wrong values": lambda content: content.replace(b'":"', b'":[[{"x":').replace(b'": "', b'": -1, "x": "'),
    "nested lines": lambda content: content + b'{"role":"user","content":' + b"[" * NESTED + b"\n",
}


@pytest.fixture
def session(marked_place: Place) -> Path:
    """The directory of a session with a subagent, a task that has ended, a plan, todos and a long output."""
    long = shell("c2", "seq 200000")
    agent = call("a1", "Agent", {"description": "look", "prompt": "look", "subagent_type": "coder"})
    todo = call("t1", "SetTodoList", {"todos": [{"title": "x", "status": "pending"}]})
    task = shell("b1", "echo task", run_in_background=True, description="a task")
    marked_place.script(step("text: begin", task, long, todo, agent), "text: " + "seen " * 60, "text: done")
    with marked_place.wire("--yolo") as kimi:
        assert kimi.prompt("begin", approve)["result"] == {"status": "finished"}
        (directory,) = marked_place.session_dirs()
        assert eventually(
            lambda: b'"completed"' in b"".join(path.read_bytes() for path in directory.rglob("runtime.json"))
        )
        assert kimi.finish() == 0
    marked_place.script("text: goes on")
    return directory


def files_of(directory: Path) -> list[Path]:
    return sorted(path.relative_to(directory) for path in directory.rglob("*") if path.is_file())


def go_on(place: Place, session: Path) -> str:
    """Open the session and send a prompt; return the sentence of the refusal, empty if there was none."""
    with place.wire("--session", session.name) as kimi:
        answer: Json | None = None
        with suppress(OutputEnded, BrokenPipeError):  # a program that refuses its session may end before it reads
            answer = kimi.response(kimi.call("prompt", {"user_input": "go on"}))
        status = kimi.finish() if answer is not None else kimi.wait()
    assert b"Traceback" not in kimi.stderr
    if answer is None:
        assert status == 1, (status, kimi.stderr)
        return kimi.stderr.decode()
    if "error" in answer:
        return answer["error"]["message"]
    assert answer["result"] == {"status": "finished"}
    return ""


@pytest.mark.timeout(180)
@pytest.mark.spec("R-265")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_session_opens_whatever_one_of_its_files_holds(
    marked_place: Place, word: str, session: Path, damage: str
) -> None:
    kept = marked_place.root / "kept"
    shutil.copytree(session, kept)
    names = files_of(kept)
    assert {"context.jsonl", "wire.jsonl", "state.json"} <= {name.name for name in names}
    assert len(names) >= 8
    for name in names:
        shutil.rmtree(session)
        shutil.copytree(kept, session)
        (session / name).write_bytes(DAMAGES[damage]((kept / name).read_bytes()))
        assert go_on(marked_place, session) == "", f"{name} makes the session impossible to open"
    assert all_gone(word)


@pytest.mark.timeout(180)
@pytest.mark.spec("R-265")
@pytest.mark.parametrize("instead", ["nothing", "directory", "dangling link", "link to itself"])
def test_what_stands_in_place_of_a_file_never_hangs_a_session(
    marked_place: Place, word: str, session: Path, instead: str
) -> None:
    kept = marked_place.root / "kept"
    shutil.copytree(session, kept)
    for name in files_of(kept):
        shutil.rmtree(session)
        shutil.copytree(kept, session)
        path = session / name
        path.unlink()
        if instead == "directory":
            path.mkdir()
        elif instead == "dangling link":
            path.symlink_to("nowhere/at/all")
        elif instead == "link to itself":
            path.symlink_to(path.name)
        refusal = go_on(marked_place, session)
        assert refusal == "" or path.name in refusal or str(session) in refusal
    assert all_gone(word)
