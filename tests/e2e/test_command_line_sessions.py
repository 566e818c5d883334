"""Options that choose a session, and places that variables choose, through the real process (runtime spec 1, 2)."""

from __future__ import annotations

import json
import time

import pytest

from kimi.infrastructure.definitions.skill_files import BUILTIN_SKILLS
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import call_reply, text_reply
from tests.support.stored_sessions import listed

PICKER = b"--session without a session ID is only supported for shell UI"
PROMPT = b'{"jsonrpc":"2.0","id":"1","method":"prompt","params":{"user_input":"x"}}\n'


@pytest.mark.parametrize("option", ["--session", "--resume", "-S", "-r"])
def test_session_option_accepts_a_value_or_none(place: Place, option: str) -> None:
    place.script("text: a", "text: b")
    joined = f"{option}=one" if option.startswith("--") else f"{option}one"
    for arguments in (["--wire", option, "one"], [joined, "--wire"]):
        done = place.run(
            *arguments, stdin=b'{"jsonrpc":"2.0","id":"1","method":"prompt","params":{"user_input":"x"}}\n'
        )
        assert done.returncode == 0
    assert [path.name for path in place.session_dirs()] == ["one"]
    for arguments in (["--wire", option], [option, "--wire"], ["--wire", option, " \t"]):
        done = place.run(*arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert PICKER in b" ".join(done.stderr.replace("│".encode(), b" ").split())
    assert [path.name for path in place.session_dirs()] == ["one"]


def test_another_share_directory_holds_other_sessions(place: Place) -> None:
    place.script("text: a", "text: b")
    with place.wire() as kimi:
        kimi.prompt("here")
        assert kimi.finish() == 0
    assert [one.brief for one in listed(place)] == ["here"]
    elsewhere = place.root / "elsewhere"
    place.environ = {"KIMI_SHARE_DIR": str(elsewhere)}
    config = str(place.share / "config.toml")
    assert place.run("--wire", "--continue", "--config-file", config).returncode == 2
    assert not (elsewhere / "sessions").exists()
    assert [one.brief for one in listed(place)] == ["here"]


@pytest.mark.spec("R-46")
def test_share_directory_holds_plans_and_home_stays_unchanged(place: Place) -> None:
    for root in (place.home / ".kimi", place.share):  # the share directory is no place for skills
        (root / "skills" / f"of-{root.name.strip('.')}").mkdir(parents=True)
        (root / "skills" / f"of-{root.name.strip('.')}" / "SKILL.md").write_text("Do it.")
    before = sorted(place.home.rglob("*"))
    with loopback() as server:
        place.provider(server.base_url)
        with place.wire("--yolo") as kimi:
            told = kimi.initialize(capabilities={"supports_plan_mode": True})
            named = [one["name"] for one in told["slash_commands"] if one["name"].startswith("skill:")]
            assert set(named) == {"skill:of-kimi", *(f"skill:{name}" for name in BUILTIN_SKILLS)}
            server.add(text_reply("hi"))
            kimi.prompt("begin")
            assert kimi.response(kimi.call("set_plan_mode", {"enabled": True}))["result"]["status"] == "ok"
            slug = json.loads((place.session_dirs()[0] / "state.json").read_text())["plan_slug"]
            plan = place.share / "plans" / f"{slug}.md"
            arguments = json.dumps({"path": str(plan), "content": "the plan"})
            server.replies.clear()
            server.add(call_reply(("c1", "WriteFile", arguments)), text_reply("planned"))
            assert kimi.prompt("plan it")["result"] == {"status": "finished"}
            assert kimi.finish() == 0
    assert plan.read_text() == "the plan"
    names = {path.name for path in place.share.iterdir()}
    assert names == {"config.toml", "kimi.json", "logs", "plans", "sessions", "skills"}
    assert sorted(place.home.rglob("*")) == before


@pytest.mark.spec("R-162")
@pytest.mark.parametrize("content", ["= not toml", "[models.m]\nprovider = 5\n"])
def test_a_bad_configuration_is_reported_in_half_a_second(place: Place, content: str) -> None:
    (place.share / "config.toml").write_text(content)
    times: list[float] = []
    while len(times) < 5 and (not times or min(times) >= 0.5):
        began = time.monotonic()
        done = place.run("--wire", cold=True)
        times.append((time.monotonic() - began) / slowdown())
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"config.toml" in done.stderr.splitlines()[0]
    assert min(times) < 0.5, times
