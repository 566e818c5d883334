"""What editors send, line by line: the files of `handshakes` against a real agent.

Only the lines of acpx are a record. The others are written from what is publicly known of the client; their `note`
says what is assumed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.support.acp.editor import Editor, Refusal
from tests.support.acp.schema import AgentLines
from tests.support.program.acp_process import AcpProcess, acp_process
from tests.support.program.wire_process import Json, Place
from tests.support.providers.scripts import call, shell, step

CLIENTS = sorted(Path(__file__).with_name("handshakes").glob("*.json"))
UNKNOWN = -32002


def filled(value: Any, cwd: str, session_id: str) -> Any:
    """A line with the directory and the session in place of their placeholders."""
    text = json.dumps(value).replace("{cwd}", json.dumps(cwd)[1:-1]).replace("{session}", session_id)
    return json.loads(text)


class Player:
    """Plays the part of a client: its lines, and its answers to the agent."""

    def __init__(self, kimi: AcpProcess, portal: BlockingPortal) -> None:
        self.kimi = kimi
        self.check = AgentLines()
        self.answers: dict[str, list[Json]] = {}
        self.editor = Editor()
        self._portal = portal

    def play(self, line: Json) -> Json | None:
        """Send a line; give the answer to it, if it is a request."""
        self.check.sent(line)
        self.kimi.send(line)
        if "id" not in line:
            return None
        seen = len(self.kimi.lines)
        answer = self.kimi.answer_of(line["id"], self._serve)
        for told in self.kimi.lines[seen:]:
            self.check.received(told)
        assert type(answer["id"]) is type(line["id"])
        self.answers.setdefault(line["method"], []).append(answer)
        return answer

    def _serve(self, request: Json) -> Json:
        if request["method"] == "session/request_permission":
            option = request["params"]["options"][0]["optionId"]
            return {"result": {"outcome": {"outcome": "selected", "optionId": option}}}
        try:
            return {"result": self._portal.call(self.editor, request["method"], request["params"])}
        except Refusal as error:
            return {"error": {"code": -32603, "message": str(error)}}


@pytest.mark.parametrize("path", CLIENTS, ids=lambda path: path.stem)
def test_the_lines_of_a_client_are_understood(place: Place, path: Path) -> None:
    place.script(
        step("text: I look.", call("r1", "ReadFile", {"path": "a.txt"}), shell("s1", "echo hello")),
        step("text: Done."),
        step("text: Again."),
    )
    (place.work / "a.txt").write_text("one\n")
    session_id = "none"
    with acp_process(place) as kimi, start_blocking_portal("asyncio") as portal:
        player = Player(kimi, portal)
        for line in json.loads(path.read_text(encoding="utf-8"))["lines"]:
            answer = player.play(filled(line, str(place.work), session_id))
            if line["method"] == "session/new" and answer is not None:
                session_id = answer["result"]["sessionId"]
        prompts = [one["result"]["stopReason"] for one in player.answers.pop("session/prompt")]
        assert prompts == ["end_turn", "end_turn"]
        told = player.answers.pop("session/resume", [])
        assert [one["error"]["code"] for one in told] == [UNKNOWN] * len(told)
        assert all("result" in one for answers in player.answers.values() for one in answers), player.answers
        assert kimi.said.startswith("I look.Done.")
        able = path_abilities(path)
        used = {method for method in player.editor.methods() if method.startswith(("fs/", "terminal/"))}
        assert ("terminal/create" in used) == bool(able.get("terminal"))
        assert "fs/read_text_file" in used
        assert kimi.finish() == 0


def path_abilities(path: Path) -> Json:
    """What the client of a file can do."""
    lines = json.loads(path.read_text(encoding="utf-8"))["lines"]
    return lines[0]["params"]["clientCapabilities"]


def test_every_client_file_states_its_origin() -> None:
    for path in CLIENTS:
        told = json.loads(path.read_text(encoding="utf-8"))
        assert told["recorded"] is (path.stem == "acpx")
        assert told["note"]
        assert told["client"]
    assert {path.stem for path in CLIENTS} == {"acpx", "avante", "codecompanion", "jetbrains", "zed"}
