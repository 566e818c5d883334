"""The program in a directory that somebody made to attack it: nothing of it runs, nothing secret is read unasked."""

from __future__ import annotations

import pytest

from tests.support.hostile_repository import BOMB, SECRET, STARS, HostileRepository, build_hostile_repository
from tests.support.program.acp_process import acp_process, choose
from tests.support.program.processes import all_gone
from tests.support.program.shell_talk import leave, say
from tests.support.program.terminal import CTRL_U, ESCAPE, terminal
from tests.support.program.wire_process import Json, Place, approval
from tests.support.providers.scripts import call, step

ENVIRONMENT_SECRET = "env-secret-55b0c1"
REPORT = "text: " + "The subagent has seen it. " * 10
LIKE_THE_SECRET = "hush.7f3a"
"""A pattern that matches the secret and does not hold it."""


@pytest.fixture
def repository(marked_place: Place) -> HostileRepository:
    """The work directory of the place, made by somebody hostile.

    The environment holds a key, and its search path begins with the work directory, as some users have it.
    """
    environ = marked_place.full_environ()
    marked_place.environ |= {"KIMI_API_KEY": ENVIRONMENT_SECRET, "PATH": f":{environ['PATH']}:."}
    return build_hostile_repository(marked_place.work, marked_place.root / "outside")


def reading_calls(repository: HostileRepository) -> list[str]:
    """Calls that read without a question, each aimed at what lies outside or at what never ends."""
    share = repository.outside.parent / "share"
    paths = [
        "AGENTS.md",
        "notes.txt",
        ".kimi/AGENTS.md",
        ".claude/skills/key/SKILL.md",
        f".kimi/skills{repository.outside}/.ssh/id_rsa",
        f".kimi/skills{share}/config.toml",
        f"{share}/config.toml",
        "/proc/self/environ",
        "/proc/self/task/../environ",
        "sub/AGENTS.md",
        "odd/pipe",
        "odd/socket",
        "loop",
    ]
    return [
        *(call(f"r{number}", "ReadFile", {"path": path}) for number, path in enumerate(paths)),
        call("g1", "Grep", {"pattern": LIKE_THE_SECRET, "path": ".", "output_mode": "content"}),
        call("g2", "Grep", {"pattern": LIKE_THE_SECRET, "path": f".kimi/skills{repository.outside}"}),
        call("g3", "Grep", {"pattern": BOMB, "path": "."}),
        call("g4", "Grep", {"pattern": "sk-tes[t]", "path": str(share), "output_mode": "count_matches"}),
        call("b1", "Glob", {"pattern": STARS}),
        call("b2", "Glob", {"pattern": "**/*.py"}),
    ]


def explore(call_id: str) -> str:
    """Start a subagent that is told the state of the repository."""
    return call(call_id, "Agent", {"description": "look", "prompt": "look around", "subagent_type": "explore"})


def refuse(params: Json) -> Json | None:
    """Refuse whatever is asked, as a careful user would."""
    return approval(params, "reject", "no")


def everything_stored(place: Place) -> str:
    """What the sessions of the place hold: all that a model was sent, and all that a client was shown."""
    return "\n".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in place.share.joinpath("sessions").rglob("*")
        if path.is_file()
    )


def assert_unharmed(repository: HostileRepository, before: dict[str, bytes], shown: str) -> None:
    """Nothing of the repository ran, nothing outside of it changed, and nothing secret was told."""
    assert repository.sprung() == []
    assert repository.outside_content() == before
    for secret in (SECRET, ENVIRONMENT_SECRET, "sk-test-secret"):
        assert secret not in shown


@pytest.mark.spec("R-260")
def test_a_wire_client_is_safe_in_a_hostile_repository(
    marked_place: Place, word: str, repository: HostileRepository
) -> None:
    calls = reading_calls(repository)
    marked_place.script(step("text: looking", *calls), step("text: more", explore("s1")), REPORT, "text: done")
    before = repository.outside_content()
    with marked_place.wire(cold=True) as kimi:
        kimi.initialize()
        assert kimi.prompt("look around", refuse)["result"] == {"status": "finished"}
        results = {one["tool_call_id"] for one in kimi.payloads("ToolResult")}
        shown = b"".join(kimi.raw).decode("utf-8", "replace")
        assert kimi.finish() == 0
        shown += kimi.stderr.decode("utf-8", "replace")
    assert {f"r{number}" for number in range(13)} | {"g1", "g2", "g3", "g4", "b1", "b2", "s1"} <= results
    assert_unharmed(repository, before, shown + everything_stored(marked_place))
    assert all_gone(word)


@pytest.mark.spec("R-260")
def test_an_editor_is_safe_in_a_hostile_repository(
    marked_place: Place, word: str, repository: HostileRepository
) -> None:
    calls = reading_calls(repository)
    marked_place.script(step("text: looking", *calls), step("text: more", explore("s1")), REPORT, "text: done")
    before = repository.outside_content()
    with acp_process(marked_place, cold=True) as kimi:
        kimi.shake_hands()
        session_id = kimi.new_session(marked_place)
        assert kimi.say(session_id, "look around", choose("reject"))["result"]["stopReason"] == "end_turn"
        shown = b"".join(kimi.raw).decode("utf-8", "replace")
        assert kimi.finish() == 0
        shown += kimi.stderr.decode("utf-8", "replace")
    assert_unharmed(repository, before, shown + everything_stored(marked_place))
    assert all_gone(word)


@pytest.mark.spec("R-260")
def test_the_shell_is_safe_in_a_hostile_repository(
    marked_place: Place, word: str, repository: HostileRepository
) -> None:
    marked_place.script(step("text: looking", explore("s1")), REPORT, "text: All done.")
    before = repository.outside_content()
    with terminal(marked_place) as shown:
        shown.until("context:")
        say(shown, "look around", "All done.")
        shown.idle()
        shown.type("@odd")
        shown.until("odd/")
        shown.type(ESCAPE, CTRL_U)
        leave(shown)
        seen = bytes(shown.raw).decode("utf-8", "replace")
    assert "title\x07" not in seen
    assert_unharmed(repository, before, seen + everything_stored(marked_place))
    assert all_gone(word)
