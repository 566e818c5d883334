"""Tokens and costs of a turn and of its session, as clients of the wire and the stored session have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program.shell_talk import ask, leave, say
from tests.support.program.terminal import terminal
from tests.support.program.wire_process import Json, Place
from tests.support.providers.scripts import call

PRICES = "\n[models.m.prices]\ninput = 1000\noutput = 10000\ncache_read = 100\n"
USAGE = "usage: input_other=10 output=5 input_cache_read=100"
COST = 0.01 + 0.05 + 0.01


def total(calls: int, cost: float | None) -> Json:
    """What a client reads of this many calls."""
    counts = {"input_other": 10, "output": 5, "input_cache_read": 100, "input_cache_creation": 0}
    known = None if cost is None else {"amount": round(cost, 8), "currency": "USD"}
    return {**{name: count * calls for name, count in counts.items()}, "cost": known}


def state(place: Place) -> Json:
    found: Json = json.loads((place.session_dirs()[0] / "state.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.spec("W-140", "R-323", "R-327")
def test_client_that_asks_for_it_gets_the_usage_of_turn_and_session(tmp_path: Path) -> None:
    place = Place(tmp_path, config=PRICES)
    place.script(f"{call('c1', 'SetTodoList', {'todos': []})}\n{USAGE}", *[f"text: ok\n{USAGE}"] * 3)
    wanting = {"client": {"name": "t"}, "capabilities": {"supports_usage": True}}
    with place.wire() as kimi:
        kimi.initialize(**wanting)
        for _ in range(2):
            assert kimi.prompt("go")["result"] == {"status": "finished"}
        found = [update["usage"] for update in kimi.payloads("StatusUpdate")]
        assert found == [
            {"turn": total(1, COST), "session": total(1, COST)},
            {"turn": total(2, 2 * COST), "session": total(2, 2 * COST)},
            {"turn": total(1, COST), "session": total(3, 3 * COST)},
        ]
        assert kimi.finish() == 0
    assert state(place)["usage"] == {**total(3, 3 * COST), "calls": 3}
    recorded = (place.session_dirs()[0] / "wire.jsonl").read_text(encoding="utf-8")
    assert '"usage"' not in recorded
    place.script(f"text: ok\n{USAGE}")
    with place.wire("--continue") as kimi:
        kimi.initialize(**wanting)
        assert kimi.prompt("more")["result"] == {"status": "finished"}
        assert kimi.payloads("StatusUpdate")[0]["usage"] == {"turn": total(1, COST), "session": total(4, 4 * COST)}
        assert kimi.finish() == 0


@pytest.mark.spec("W-140")
@pytest.mark.parametrize("capabilities", [{}, {"supports_usage": False}, {"supports_question": True}])
def test_client_that_does_not_ask_for_usage_sees_none(tmp_path: Path, capabilities: Json) -> None:
    place = Place(tmp_path, config=PRICES).script(f"text: ok\n{USAGE}")
    with place.wire() as kimi:
        kimi.initialize(client={"name": "t"}, capabilities=capabilities)
        kimi.prompt("go")
        [update] = kimi.payloads("StatusUpdate")
        assert update["token_usage"]["output"] == 5
        assert "usage" not in update
        assert kimi.finish() == 0


@pytest.mark.spec("R-323", "R-327")
def test_a_session_that_was_not_counted_from_its_beginning_has_no_cost(tmp_path: Path) -> None:
    place = Place(tmp_path).script(f"text: ok\n{USAGE}")
    with place.wire() as kimi:
        kimi.initialize(client={"name": "t"}, capabilities={"supports_usage": True})
        kimi.prompt("go")
        assert kimi.payloads("StatusUpdate")[0]["usage"]["turn"] == total(1, None)
        assert kimi.finish() == 0
    place.config += PRICES
    place.script(f"text: ok\n{USAGE}")
    with place.wire("--continue") as kimi:
        kimi.initialize(client={"name": "t"}, capabilities={"supports_usage": True})
        kimi.prompt("go")
        assert kimi.payloads("StatusUpdate")[0]["usage"] == {"turn": total(1, COST), "session": total(2, None)}
        assert kimi.finish() == 0


@pytest.mark.spec("R-326")
def test_stream_json_ends_a_turn_with_a_record_of_what_was_used(tmp_path: Path) -> None:
    place = Place(tmp_path, config=PRICES).script(*[f"text: ok\n{USAGE}"] * 2, "text: silent")
    prompts = "\n".join(json.dumps({"role": "user", "content": text}) for text in ("one", "two", "three"))
    formats = ("--input-format", "stream-json", "--output-format", "stream-json")
    done = place.run("--print", *formats, stdin=prompts.encode())
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    told = [(line["role"], line.get("type")) for line in lines if line.get("type") in (None, "usage")]
    assert told == [("assistant", None), ("meta", "usage"), ("assistant", None), ("meta", "usage"), ("assistant", None)]
    found = [line for line in lines if line.get("type") == "usage"]
    assert found[1] == {"role": "meta", "type": "usage", "turn": total(1, COST), "session": total(2, 2 * COST)}


@pytest.mark.spec("R-326")
@pytest.mark.parametrize(
    ("config", "options", "told"), [(PRICES, (), True), ("", (), False), (PRICES, ("--quiet",), False)]
)
def test_text_output_tells_a_known_cost_on_stderr(
    tmp_path: Path, config: str, options: tuple[str, ...], told: bool
) -> None:
    place = Place(tmp_path, config=config).script(f"text: ok\n{USAGE}")
    done = place.run(*(options or ("--print",)), "-p", "go")
    assert done.stdout.decode().endswith("ok\n")
    assert ("Tokens of this session: 110 in, 5 out, 0.0700 USD\n" in done.stderr.decode()) is told


@pytest.mark.spec("R-326")
def test_shell_shows_the_cost_of_the_session(tmp_path: Path) -> None:
    place = Place(tmp_path, config=PRICES).script(*[f"text: answer\n{USAGE}"] * 2)
    with terminal(place, columns=110, rows=40) as shown:
        ask(shown, ("one", "answer"), ("two", "0.1400 USD"))
        say(shown, "/usage", lambda text: "last turn  110 in, 5 out, 0.0700 USD" in text)
        assert "session    220 in, 10 out, 0.1400 USD" in shown.text
        leave(shown)
