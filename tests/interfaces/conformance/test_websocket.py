"""The kit over WebSocket, against a bridge to a server over stdio."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import anyio
import pytest

from kimi.interfaces.conformance.home import Home
from kimi.interfaces.conformance.ledger import Mismatch
from kimi.interfaces.conformance.model_server import ModelServer
from kimi.interfaces.conformance.run import SuiteReport, probe_server, run_suite
from kimi.interfaces.conformance.scenario import Target
from kimi.interfaces.conformance.websocket import websocket_server
from tests.support.conformance.bridge import bridge
from tests.support.conformance.warm import warm_server
from tests.support.program.program import kimi_command
from tests.support.program.wire_process import Place

TOKEN = "t0ken"
LONG = os.environ.get("KIMI_LONG_TESTS") == "1"
"""Whether every item that needs no process is judged."""


async def run(root: Path, *items: str, path: str = "", token: str = TOKEN) -> SuiteReport:
    """Run items against a bridge."""
    model = ModelServer()
    await model.start()
    home = Home(root, model.base_url)
    home.prepare()
    try:
        async with bridge(warm_server("--wire"), home.full_environ(), TOKEN) as served:
            opening = websocket_server(f"ws://127.0.0.1:{served.port}{path}", token)
            target = Target("wire", opening, has_process=False, timeout_s=30)
            return await run_suite(target, only=items, model=model)
    finally:
        await model.stop()


@pytest.mark.spec("R-408")
def test_items_pass_over_websocket_and_those_of_a_process_are_skipped(tmp_path: Path) -> None:
    wanted = ("W-05", "W-25", "W-54", "W-68", "W-102", "W-122")
    report = anyio.run(run, tmp_path, *(() if LONG else wanted))
    assert [result for result in report.results if result.outcome == "failed"] == []
    found = {result.item.id: result.outcome for result in report.results}
    assert {item: found[item] for item in wanted} == {
        "W-05": "passed", "W-25": "skipped", "W-54": "passed", "W-68": "skipped", "W-102": "passed",
        "W-122": "passed",
    }  # fmt: skip
    assert all("the kit starts" in result.note for result in report.results if result.outcome == "skipped")


@pytest.mark.spec("R-408")
@pytest.mark.timeout(180)
def test_every_item_that_can_be_judged_passes_on_kimi_web(tmp_path: Path) -> None:
    """The kit as a program, which starts the server and opens a session for each connection."""
    token = "0123456789abcdef0123456789abcdef"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    report = tmp_path / "report.json"
    judged = Place(tmp_path).run(
        *("conformance", "--quiet", "--timeout", "60", "--json", str(report)),
        *("--url", f"ws://127.0.0.1:{port}", "--token", token),
        *("--", "env", f"KIMI_WEB_TOKEN={token}", *kimi_command(), "web", "--no-open", "--port", str(port)),
        timeout=150,
    )
    outcomes = [item["outcome"] for item in json.loads(report.read_text(encoding="utf-8"))["items"]]
    assert outcomes.count("passed") >= 100, judged.stdout.decode()
    assert outcomes.count("failed") == 0, judged.stdout.decode()
    assert judged.returncode == 0


def test_a_url_with_a_path_is_connected_to_as_it_is(tmp_path: Path) -> None:
    async def act() -> SuiteReport:
        return await run(tmp_path, "W-05", path="/plain")

    assert [result.outcome for result in anyio.run(act).results] == ["passed"]


def test_a_wrong_token_is_told(tmp_path: Path) -> None:
    async def act() -> None:
        await run(tmp_path, "W-05", token="wrong")

    with pytest.raises(Mismatch, match="401"):
        anyio.run(act)


def test_a_server_that_is_not_there_is_told() -> None:
    async def act() -> None:
        await probe_server(Target("wire", websocket_server("ws://127.0.0.1:1", None), has_process=False))

    with pytest.raises(Mismatch, match="cannot be connected to"):
        anyio.run(act)
