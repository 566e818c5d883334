"""What there is beside the conversations: sessions, directories, files, status, options (wire spec 13.6)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest

from kimi.domain.content.message import Function, ToolCall
from kimi.domain.content.parts import TextPart
from tests.support.fakes import FakeModel
from tests.support.program.wire_process import Place
from tests.support.web.hosting import Closed, WebClient, hosting, play

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.write_config("_echo")
    return place


async def talk(web: WebClient, place: Place, text: str = "text: hello") -> str:
    """Have one turn in a new session; return its id."""
    session = await web.new_session(place)
    async with web.connect(session) as client:
        await client.response(await client.prompt(text))
    return session


async def list_ids(web: WebClient, query: str = "") -> list[str]:
    _, found = await web.ask("GET", f"/api/sessions{query}")
    return [one["id"] for one in found["sessions"]]


async def test_info_names_what_can_be_chosen(place: Place) -> None:
    async with hosting(place) as web:
        status, info = await web.ask("GET", "/api/info")
    assert status == 200
    assert info["models"][0] | {"capabilities": []} == {
        "name": "m", "model": "test-model", "thinking": False, "levels": [], "capabilities": [],
    }  # fmt: skip
    assert (info["default_model"], info["protocol_version"]) == ("m", "1.10")
    assert info["directories"] == [info["work_dir"]] == [str(place.work.resolve())]
    assert "sk-test-secret" not in json.dumps(info)


@pytest.mark.spec("W-168")
async def test_sessions_are_listed_searched_named_and_put_away(place: Place) -> None:
    async with hosting(place) as web:
        first, second = await talk(web, place, "text: about parsers"), await talk(web, place, "text: about lexers")
        assert set(await list_ids(web)) == {first, second}
        assert await list_ids(web, "?query=PARSERS") == [first]
        assert (await web.ask("PATCH", f"/api/sessions/{first}", {"title": "Grammar"}))[0] == 204
        assert await list_ids(web, "?query=grammar") == [first]
        assert (await web.ask("PATCH", f"/api/sessions/{first}", {"archived": True}))[0] == 204
        assert await list_ids(web) == [second]
        assert await list_ids(web, "?archived=true") == [first]
        assert (await web.ask("PATCH", f"/api/sessions/{first}", {"archived": False}))[0] == 204
        assert set(await list_ids(web)) == {first, second}
    async with hosting(place) as web:  # and in the next process, where they are not open
        _, found = await web.ask("GET", "/api/sessions?query=grammar")
        assert [(one["id"], one["title"], one["state"]) for one in found["sessions"]] == [(first, "Grammar", "closed")]
        assert (await web.ask("PATCH", f"/api/sessions/{first}", {"archived": True, "title": "Old"}))[0] == 204
        assert await list_ids(web) == [second]
        assert await list_ids(web, "?archived=true&query=old") == [first]


async def test_the_list_says_what_each_session_is_doing(place: Place) -> None:
    model = FakeModel([[ToolCall("c", Function("Shell", '{"command":"echo hi"}'))], [TextPart("done")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as client:
            await client.prompt("go")
            request = await client.until("ApprovalRequest")
            assert (await web.ask("GET", "/api/sessions"))[1]["sessions"][0]["state"] == "waiting"
            await client.answer(request["id"], {"request_id": request["id"], "response": "approve"})
            await client.until("PromptFinished")
            assert (await web.ask("GET", "/api/sessions"))[1]["sessions"][0]["state"] == "idle"


@pytest.mark.spec("W-168")
async def test_a_fork_goes_on_from_a_prompt_and_the_first_session_stays(place: Place) -> None:
    async with hosting(place) as web:
        session = await web.new_session(place)
        async with web.connect(session) as client:
            for word in ("one", "two"):
                await client.response(await client.prompt(f"text: {word}"))
            status, made = await web.ask("POST", f"/api/sessions/{session}/fork", {"turn": 0})
            assert status == 201
        async with web.connect(made["id"]) as copy:
            await copy.until("Current")
            assert copy.text == "one"
        async with web.connect(session) as again:
            await again.until("Current")
            assert again.text == "onetwo"
        assert (await web.ask("POST", f"/api/sessions/{session}/fork", {"turn": 9}))[0] == 409
        assert (await web.ask("POST", f"/api/sessions/{session}/fork", {"turn": "x"}))[0] == 400


@pytest.mark.spec("W-168")
async def test_a_deleted_session_is_gone_and_its_clients_are_told(place: Place) -> None:
    go = anyio.Event()
    model = FakeModel([[go.wait, TextPart("done")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as client:
            await client.prompt("go")
            await client.until("StepBegin")
            status, body = await web.ask("DELETE", f"/api/sessions/{session}")
            assert (status, body["error"]["code"]) == (409, "busy")
            go.set()
            await client.until("PromptFinished")
            assert (await web.ask("DELETE", f"/api/sessions/{session}"))[0] == 204
            with pytest.raises(Closed) as closed:
                await client.until("nothing")
            assert closed.value.code == 4410
        assert await list_ids(web) == []
        async with web.connect(session) as client:
            assert (await client.until("Refused"))["code"] == "unknown"
        assert (await web.ask("DELETE", f"/api/sessions/{session}"))[0] == 404
    assert place.session_dirs() == []


@pytest.mark.spec("W-169")
async def test_options_change_the_model_and_the_mode_for_all_clients(place: Place) -> None:
    place.config = '[models.other]\nprovider = "p"\nmodel = "other"\nmax_context_size = 5000\n'
    place.write_config("_echo")
    async with hosting(place) as web:
        session = await web.new_session(place)
        async with web.connect(session) as client:
            await client.until("Current")
            changed = await web.ask("PATCH", f"/api/sessions/{session}/options", {"model": "other", "mode": "edits"})
            assert changed[0] == 200
            assert await client.until("SessionChanged") == {}
        status = (await web.ask("GET", f"/api/sessions/{session}/status"))[1]
        assert status == changed[1]
        assert (status["model"], status["mode"], status["max_context_tokens"]) == ("other", "edits", 5000)
        assert status["modes"] == {"plan": False, "yolo": False, "afk": False, "edits": True}
        wrong: tuple[object, ...] = (
            {"model": "none"}, {"mode": "x"}, {"model": 5}, {"nope": 1}, {"thinking": "yes"}, [],
        )  # fmt: skip
        for body in wrong:
            code, answer = await web.ask("PATCH", f"/api/sessions/{session}/options", body)
            assert code in (400, 409), body
            assert answer["error"]["message"]
        assert (await web.ask("GET", f"/api/sessions/{session}/status"))[1] == changed[1]


async def test_background_tasks_are_shown_and_stopped(place: Place) -> None:
    command = '{"command":"echo begun; sleep 60","run_in_background":true,"description":"wait"}'
    model = FakeModel([[ToolCall("c", Function("Shell", command))], [TextPart("done")]])
    async with hosting(place, play(model)) as web:
        session = await web.new_session(place)
        async with web.connect(session) as client:
            await client.prompt("go")
            request = await client.until("ApprovalRequest")
            await client.answer(request["id"], {"request_id": request["id"], "response": "approve"})
            await client.until("PromptFinished")
        path = f"/api/sessions/{session}/tasks"
        with anyio.fail_after(10):
            while "begun" not in (task := (await web.ask("GET", path))[1]["tasks"][0])["output"]:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert (task["description"], task["active"]) == ("wait", True)
        assert (await web.ask("POST", f"{path}/{task['id']}/stop", {}))[0] == 204
        assert (await web.ask("POST", f"{path}/nothing/stop", {}))[0] == 404
        with anyio.fail_after(10):
            while (await web.ask("GET", path))[1]["tasks"][0]["active"]:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert (await web.ask("GET", path))[1]["tasks"][0]["status"] == "killed"


# --- directories and files ----------------------------------------------------------------------------------------


@pytest.mark.spec("W-170")
async def test_only_allowed_directories_are_opened_and_listed(place: Place, tmp_path: Path) -> None:
    (place.work / "inside" / "deep").mkdir(parents=True)
    (place.work / ".hidden").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (place.work / "link").symlink_to(outside)
    (place.work / "inner-link").symlink_to(place.work / "inside")
    (place.work / "file").write_text("x")
    async with hosting(place) as web:
        root = str(place.work.resolve())
        listed = (await web.ask("GET", "/api/directories"))[1]
        assert listed == {"path": root, "parent": None, "directories": ["inner-link", "inside"]}
        below = (await web.ask("GET", f"/api/directories?path={root}/inside"))[1]
        assert below == {"path": f"{root}/inside", "parent": root, "directories": ["deep"]}
        for path in (str(outside), f"{root}/link", f"{root}/..", "/", "inside", f"{root}x", "", "/etc", f"{root}/file"):
            status, body = await web.ask("POST", "/api/sessions", {"work_dir": path})
            assert (status, body["error"]["code"]) == (403, "forbidden"), path
        for path in (str(outside), f"{root}/link", f"{root}/inside/../../outside", "%00"):
            assert (await web.ask("GET", f"/api/directories?path={path}"))[0] == 403, path
        assert (await web.ask("POST", "/api/sessions", {"work_dir": f"{root}/inside"}))[0] == 201
        assert (await web.ask("POST", "/api/sessions", {"work_dir": 5}))[0] == 400


@pytest.mark.spec("W-170")
async def test_sessions_of_other_directories_are_there_unless_directories_are_named(place: Place) -> None:
    other = place.root / "other"
    other.mkdir()
    elsewhere = Place(place.root)
    async with hosting(place, directories=[str(other), str(place.work)]) as web:
        made = (await web.ask("POST", "/api/sessions", {"work_dir": str(other)}))[1]["id"]
        async with web.connect(made) as client:
            await client.response(await client.prompt("text: hi"))
    assert elsewhere.session_dirs()
    async with hosting(place) as web:
        assert await list_ids(web) == [made]
        async with web.connect(made) as client:
            assert await client.until("Attached") == {"mode": "replayed"}
        assert (await web.ask("POST", "/api/sessions", {"work_dir": str(other)}))[0] == 201
    async with hosting(place, directories=[str(place.work)]) as web:
        assert await list_ids(web) == []
        async with web.connect(made) as client:
            assert (await client.until("Refused"))["code"] == "forbidden"
            with pytest.raises(Closed) as closed:
                await client.next_line()
            assert closed.value.code == 4403
        asked: tuple[tuple[str, str, object], ...] = (
            ("GET", "/files?query=a", None),
            ("DELETE", "", None),
            ("POST", "/fork", {}),
        )
        for method, end, body in asked:
            assert (await web.ask(method, f"/api/sessions/{made}{end}", body))[0] == 403
        assert (await web.ask("POST", "/api/sessions", {"work_dir": str(other)}))[0] == 403


@pytest.mark.spec("W-183")
async def test_a_session_whose_directory_is_gone_can_be_ended_and_deleted(place: Place) -> None:
    gone = place.work / "gone"
    gone.mkdir()
    model = FakeModel([[ToolCall("c", Function("Shell", '{"command":"echo hi"}'))], [TextPart("done")]])
    async with hosting(place, play(model)) as web:
        session = (await web.ask("POST", "/api/sessions", {"work_dir": str(gone)}))[1]["id"]
        async with web.connect(session) as client:
            await client.prompt("go")
            await client.until("ApprovalRequest")
            gone.rmdir()
        async with web.connect(session, client.position) as back:  # it is open, so it can be answered
            request = await back.until("ApprovalRequest")
            await back.answer(request["id"], {"request_id": request["id"], "response": "reject"})
            await back.until("PromptFinished")
    async with hosting(place) as web:
        async with web.connect(session) as client:
            refusal = await client.until("Refused")
            assert (refusal["code"], "is gone" in refusal["message"]) == ("forbidden", True)
        assert (await web.ask("PATCH", f"/api/sessions/{session}", {"archived": True}))[0] == 204
        assert (await web.ask("DELETE", f"/api/sessions/{session}"))[0] == 204
        assert await list_ids(web, "?archived=true") == []


@pytest.mark.spec("W-170")
async def test_a_directory_that_has_become_a_link_is_not_opened(place: Place, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", place.work / "inside"
    outside.mkdir()
    inside.mkdir()
    async with hosting(place) as web:
        session = (await web.ask("POST", "/api/sessions", {"work_dir": str(inside)}))[1]["id"]
        inside.rmdir()
        inside.symlink_to(outside)
        async with web.connect(session) as client:
            assert (await client.until("Refused"))["code"] == "forbidden"


@pytest.mark.spec("W-184")
async def test_searches_for_files_that_take_long_do_not_hold_up_the_page(place: Place) -> None:
    programs = place.root / "programs"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nexec sleep 20\n")
    (programs / "git").chmod(0o755)
    place.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    async with hosting(place) as web, anyio.create_task_group() as tasks:
        session = await web.new_session(place)
        for number in range(60):
            tasks.start_soon(web.ask, "GET", f"/api/sessions/{session}/files?query=name{number}")
        await anyio.sleep(0.5)
        with anyio.fail_after(3):
            assert (await web.ask("GET", "/"))[0] == 200
        tasks.cancel_scope.cancel()


@pytest.mark.spec("W-170")
async def test_files_are_found_below_the_work_directory_only(place: Place, tmp_path: Path) -> None:
    (place.work / "src").mkdir()
    (place.work / "src" / "parser.py").write_text("x")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "parser.key").write_text("x")
    (place.work / "out").symlink_to(tmp_path / "secrets")
    async with hosting(place) as web:
        session = await web.new_session(place)

        async def find(query: str) -> list[str]:
            status, found = await web.ask("GET", f"/api/sessions/{session}/files?query={query}")
            assert status == 200
            return found["files"]

        assert "src/parser.py" in await find("parser")
        assert await find("src/") == ["src/parser.py"]
        for query in ("../", "../secrets/", "out/", "/etc/", "src/../../secrets/", "..%5c", "a%00b", "out/parser"):
            assert not [name for name in await find(query) if "key" in name or "passwd" in name], query


async def test_an_unknown_session_is_no_internal_error(place: Place) -> None:
    async with hosting(place) as web:
        asked: tuple[tuple[str, str, object], ...] = (
            ("GET", "/status", None), ("GET", "/files", None), ("PATCH", "", {"title": "x"}), ("DELETE", "", None),
            ("POST", "/fork", {}), ("PATCH", "/options", {}), ("GET", "/tasks", None), ("POST", "/tasks/x/stop", {}),
        )  # fmt: skip
        for method, end, body in asked:
            status, answer = await web.ask(method, f"/api/sessions/nobody{end}", body)
            assert (status, answer["error"]["code"]) == (404, "unknown"), (method, end)
