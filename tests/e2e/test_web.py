"""`kimi web` as a process: its link, its end, and the turns of the wire over WebSocket (wire spec 13)."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from functools import partial
from http.client import HTTPConnection

import pytest

from tests.e2e.test_wire_clients import GENERATIONS, Generation, play_every_turn
from tests.support.program.pace import slowdown
from tests.support.program.processes import marked
from tests.support.program.wire_process import Place, approval
from tests.support.providers.scripts import shell
from tests.support.web.bridge import web_program, wire_over_web

SPEAKING = [one for one in GENERATIONS if one.name in ("1.0", "1.9", "1.10")]


@pytest.fixture
def echo(place: Place) -> Place:
    place.write_config("_echo")
    return place


@pytest.mark.spec("W-150")
@pytest.mark.parametrize("generation", SPEAKING, ids=[one.name for one in SPEAKING])
def test_every_kind_of_turn_over_websocket_is_that_of_stdio(place: Place, generation: Generation) -> None:
    """The golden lines are those of `kimi --wire`."""
    play_every_turn(place, generation, partial(wire_over_web, place))


@pytest.mark.spec("R-360")
def test_the_link_is_printed_on_stderr_and_says_what_it_is(echo: Place) -> None:
    with web_program(echo) as web:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", web.base)
        assert len(web.token) == 43
        host, _, port = web.base.removeprefix("http://").rpartition(":")
        connection = HTTPConnection(host, int(port))
        connection.request("GET", f"/?token={web.token}")
        login = connection.getresponse()
        login.read()
        assert (login.status, login.headers["Location"]) == (303, "/")
        cookie = (login.headers["Set-Cookie"] or "").partition(";")[0]
        connection.request("GET", "/", headers={"Cookie": cookie})
        assert b"<!doctype html>" in connection.getresponse().read().lower()
        connection.close()


@pytest.mark.spec("R-360")
def test_the_page_and_its_answers_stay_closed_without_the_link(echo: Place) -> None:
    with web_program(echo) as web:
        for path in ("/", "/api/info"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(web.base + path)
            assert refused.value.code == 401
            refused.value.close()
        asked = urllib.request.Request(f"{web.base}/", headers={"Authorization": f"Bearer {web.token}"})
        with urllib.request.urlopen(asked) as page:
            assert b"<!doctype html>" in page.read().lower()
        assert web.token not in (echo.share / "logs" / "kimi.log").read_text("utf-8")


@pytest.mark.spec("R-365")
def test_a_chosen_token_is_taken_and_hidden_from_commands(place: Place) -> None:
    token = "chosen-0123456789abcdef0123456789"
    place.script(shell("c1", "env"), "text: done")
    place.environ["KIMI_WEB_TOKEN"] = token
    with wire_over_web(place) as kimi:
        assert kimi.prompt("go", lambda request: approval(request, "approve"))["result"] == {"status": "finished"}
        assert kimi.finish() == 0
    (result,) = kimi.payloads("ToolResult")
    assert "HOME=" in result["return_value"]["output"]
    assert token not in json.dumps(kimi.lines)
    place.environ["KIMI_WEB_TOKEN"] = "guessable"
    refused = place.run("web")
    assert refused.returncode == 2
    assert b"KIMI_WEB_TOKEN must have 32 to 256 letters" in refused.stdout + refused.stderr


@pytest.mark.spec("R-361")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_server_cleanly(echo: Place, number: signal.Signals) -> None:
    with web_program(echo) as web:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(web.base)  # it is served
        refused.value.close()
        web.process.send_signal(number)
        began = time.monotonic()
        assert web.process.wait(20) == 0
        assert time.monotonic() - began < 5


@pytest.mark.spec("R-361")
def test_a_signal_in_a_turn_ends_the_turn_and_what_it_started(marked_place: Place, word: str) -> None:
    marked_place.script('tool_call: {"id":"c","name":"Shell","arguments":"{\\"command\\":\\"sleep 60\\"}"}')
    with wire_over_web(marked_place) as kimi:
        prompt = kimi.call("prompt", {"user_input": "go"})
        request = kimi.until("ApprovalRequest")
        kimi.send(
            {"jsonrpc": "2.0", "id": request["id"], "result": {"request_id": request["id"], "response": "approve"}}
        )
        kimi.until("ApprovalResponse")
        time.sleep(0.3)
        kimi.process.send_signal(signal.SIGTERM)
        assert kimi.response(prompt)["result"] == {"status": "cancelled"}
        kimi.rest()
        assert kimi.wait() == 0
    assert list(marked(word)) == []
    assert marked_place.recorded()[-1]["message"]["type"] == "TurnEnd"


@pytest.mark.spec("R-362")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["web", "--port", "70000"], "--port"),
        (["web", "--host", "300.1.1.1"], "no address of this machine"),
        (["web", "--host", "a..b"], "no address of this machine"),
        (["web", "--host", "x" * 70], "no address of this machine"),
        (["web", "--allowed-host", "https://box.example"], "no name of a host"),
        (["web", "--allowed-host", "box.example:5494"], "no name of a host"),
        (["web", "--allowed-host", "*.example"], "no name of a host"),
        (["web", "--allowed-host", ""], "no name of a host"),
        (["web", "--directory", "/no/such"], "does not exist"),
        (["web", "--nonsense"], "No such option"),
        (["--session", "x", "web"], "sessions of its own"),
        (["-p", "hi", "web"], "sessions of its own"),
        (["--print", "web"], "Cannot combine"),
    ],
)
def test_options_that_cannot_be_served_are_refused_with_a_sentence(
    echo: Place, arguments: list[str], words: str
) -> None:
    done = echo.run(*arguments)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.decode().replace("│", " ").split())
    assert b"Traceback" not in done.stderr


@pytest.mark.spec("R-362")
def test_a_port_that_is_taken_is_named_or_the_next_one_is_used(echo: Place) -> None:
    with web_program(echo) as first:
        port = first.base.rpartition(":")[2]
        done = echo.run("web", "--no-open", "--port", port)
        assert done.returncode == 2
        assert f"Port {port} of 127.0.0.1 cannot be used".encode() in b" ".join(done.stderr.split())


@pytest.mark.spec("R-363")
def test_a_host_for_other_machines_says_what_that_means(echo: Place) -> None:
    with web_program(echo, "--host", "0.0.0.0") as web:
        while b"tunnel" not in web.printed:
            assert web.process.stderr is not None
            web.printed += os.read(web.process.stderr.fileno(), 65_536)
        assert b"without TLS" in web.printed
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{web.base}/api/info")
        refused.value.close()


@pytest.mark.spec("R-364")
def test_the_page_is_there_soon_after_the_start(echo: Place) -> None:
    attempts = [_time_to_page(echo) / slowdown()]
    while attempts[-1] >= 0.5 and len(attempts) < 5:
        attempts.append(_time_to_page(echo) / slowdown())
    assert min(attempts) < 0.5, attempts


def _time_to_page(place: Place) -> float:
    began = time.perf_counter()
    with web_program(place, cold=True) as web:
        host, _, port = web.base.removeprefix("http://").rpartition(":")
        connection = HTTPConnection(host, int(port))
        connection.request("GET", "/", headers={"Authorization": f"Bearer {web.token}"})
        assert connection.getresponse().read(1) == b"<"
        taken = time.perf_counter() - began
        connection.close()
    return taken
