"""Skills, flows and the repetition of prompts through the process (runtime spec 5.6, 7.3, 7.4; wire spec 7.12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi.infrastructure.definitions.skill_files import BUILTIN_SKILLS
from tests.support.program.wire_process import Json, Place, WireProcess, approve
from tests.support.providers.scripts import call, error_of, step

FLOW = """---
name: ship
description: Test and ship
type: flow
---
Ship it.

```mermaid
flowchart TD
  A([BEGIN]) --> B[Run the tests]
  B --> C{All green?}
  C -->|yes| Z([END])
  C -->|no| B
```
"""
YES, NO = "text: <choice>yes</choice>", "text: <choice>no</choice>"
GO_ON, STOP = "text: <choice>CONTINUE</choice>", "text: <choice>STOP</choice>"


def write_skill(root: Path, name: str, text: str) -> Path:
    """A skill of the project or the person whose directory this is."""
    path = root / ".kimi/skills" / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def balanced(types: list[str]) -> bool:
    """Does every turn end, and are they two deep at most?"""
    depth = 0
    for name in types:
        depth += {"TurnBegin": 1, "TurnEnd": -1}.get(name, 0)
        if depth not in (0, 1, 2):
            return False
    return depth == 0


def turns(kimi: WireProcess) -> list[str]:
    """The first lines of what began each turn."""
    return [str(payload["user_input"]).split("\n")[0] for payload in kimi.payloads("TurnBegin")]


@pytest.mark.spec("R-126")
def test_skills_and_flows_are_commands_and_listed_to_the_model(place: Place) -> None:
    path = write_skill(place.work, "tidy", "---\ndescription: Tidy up\n---\nTidy everything.\n")
    write_skill(place.home, "ship", FLOW)
    write_skill(place.home, "broken", "---\ntype: flow\ndescription: Cannot be drawn\n---\n```d2\nBEGIN -> a\n```\n")
    read = call("c1", "ReadFile", {"path": str(place.home / ".kimi/skills/ship/SKILL.md")})
    place.script("text: tidied", read, "text: read")
    with place.wire() as kimi:
        commands = kimi.initialize()["slash_commands"]
        assert all(set(command) == {"name", "description", "aliases"} for command in commands)
        assert all(command["name"] and command["description"] for command in commands)
        assert {"init", "compact", "clear", "yolo"} <= {command["name"] for command in commands[:-6]}
        assert [command["aliases"] for command in commands if command["name"] == "clear"] == [["reset"]]
        assert [command["name"] for command in commands[-5:-2]] == [
            "skill:kimi-cli-help",
            "skill:ship",
            "skill:skill-creator",
        ]
        own = [command for command in commands[-6:] if command["name"].partition(":")[2] not in BUILTIN_SKILLS]
        assert own == [
            {"name": "skill:broken", "description": "Cannot be drawn", "aliases": []},
            {"name": "skill:ship", "description": "Test and ship", "aliases": []},
            {"name": "skill:tidy", "description": "Tidy up", "aliases": []},
            {"name": "flow:ship", "description": "Test and ship", "aliases": []},
        ]
        assert kimi.prompt("/skill:tidy the hall")["result"] == {"status": "finished"}
        asked = next(record for record in place.context() if record["role"] == "user")["content"]
        text = asked if isinstance(asked, str) else asked[0]["text"]
        assert text == "---\ndescription: Tidy up\n---\nTidy everything.\n\nUser request:\nthe hall"
        system = place.context()[0]["content"]
        assert f"### Project\n\n- tidy\n  - Path: {path}\n  - Description: Tidy up\n\n### User\n\n- broken\n" in system
        # their files lie outside of the work dir and may be read all the same
        assert kimi.prompt("read it")["result"] == {"status": "finished"}
        assert kimi.payloads("ToolResult")[-1]["return_value"]["is_error"] is False
        assert "ApprovalRequest" not in kimi.types
        kimi.lines.clear()
        kimi.prompt("/flow:broken")
        assert kimi.text == 'The flow "/flow:broken" cannot be run. Expected exactly one END node, found 0'
        assert kimi.finish() == 0


def test_option_and_configuration_add_skill_directories(place: Place) -> None:
    for root in ("given", "extra"):
        write_skill(place.root / root, f"in-{root}", "body")
    write_skill(place.home, "in-home", "body")
    place.script("text: ok")
    config, extra = place.share / "config.toml", f'extra_skill_dirs = ["{place.root}/extra/.kimi/skills"]\n'
    config.write_text(extra + config.read_text(encoding="utf-8"), encoding="utf-8")

    def listed(*arguments: str) -> list[str]:
        with place.wire(*arguments) as kimi:
            names = [command["name"] for command in kimi.initialize()["slash_commands"]]
        return [name for name in names if ":" in name and name.partition(":")[2] not in BUILTIN_SKILLS]

    assert listed() == ["skill:in-extra", "skill:in-home"]
    assert listed("--skills-dir", f"{place.root}/given/.kimi/skills") == ["skill:in-extra", "skill:in-given"]


@pytest.mark.spec("W-96")
def test_flow_is_nested_turns_even_when_a_node_fails(place: Place) -> None:
    write_skill(place.work, "ship", FLOW)
    place.script(step("id: m1", "text: failed"), NO, "text: passed", YES, "text: begun")
    with place.wire() as kimi:
        kimi.initialize(client={"name": "test"})
        response = kimi.prompt("/flow:ship")
        assert response["result"] == {"status": "finished"}
        node = ["TurnBegin", "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd"]
        live = kimi.types
        assert live == ["TurnBegin", *node * 4, "TurnEnd"]
        assert kimi.lines[-1] == response
        assert turns(kimi) == ["/flow:ship", "Run the tests", "All green?", "Run the tests", "All green?"]

        kimi.lines.clear()
        assert "error" in kimi.prompt("/flow:ship")  # the script ends in the second node
        assert turns(kimi) == ["/flow:ship", "Run the tests", "All green?"]
        assert kimi.types[-3:] == ["StepInterrupted", "TurnEnd", "TurnEnd"]
        assert balanced(kimi.types)
        failed = kimi.types

        kimi.lines.clear()
        kimi.response(kimi.call("replay"))
        assert kimi.types == live + failed
        assert kimi.finish() == 0


@pytest.mark.spec("W-100")
def test_the_strict_profile_shows_a_flow_as_one_turn(place: Place) -> None:
    write_skill(place.work, "ship", FLOW)
    place.script("text: passed", YES)
    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("/flow:ship")
        step_types = ["StepBegin", "ContentPart", "StatusUpdate"]
        shown = ["TurnBegin", *step_types * 2, "TurnEnd"]
        assert kimi.types == shown
        kimi.lines.clear()
        kimi.response(kimi.call("replay"))
        assert kimi.types == shown


def test_cancel_ends_a_flow_with_both_of_its_turns(place: Place) -> None:
    write_skill(place.work, "ship", FLOW)
    place.script(call("c1", "Shell", {"command": "sleep 30"}), "text: again")
    with place.wire("--yolo") as kimi:
        kimi.initialize(client={"name": "test"})
        prompt = kimi.call("prompt", {"user_input": "/flow:ship"})
        kimi.until("StatusUpdate")
        kimi.call("cancel")
        assert kimi.response(prompt)["result"] == {"status": "cancelled"}
        assert balanced(kimi.types)
        assert kimi.types.count("ToolResult") == 1
        assert kimi.prompt("again")["result"] == {"status": "finished"}


def notices(kimi: WireProcess) -> list[str]:
    """What was said outside of the steps of the model."""
    return [part["text"] for part in kimi.payloads("ContentPart") if part["text"].startswith("The loop ends")]


@pytest.mark.spec("R-107")
def test_the_loop_repeats_prompts_only_and_its_end_is_no_error(place: Place) -> None:
    report = "text: " + "All is well. " * 30
    place.script(
        *("text: begun", GO_ON, STOP),  # stops by itself
        *("text: begun", GO_ON, GO_ON),  # is stopped
        call("c1", "WriteFile", {"path": "AGENTS.md", "content": "Notes.\n"}), "text: written",  # /init
        call("p1", "Agent", {"description": "look", "prompt": "look"}), report, "text: reported", STOP,
    )  # fmt: skip
    with place.wire("--max-ralph-iterations", "2", "--yolo") as kimi:
        kimi.initialize(client={"name": "test"})
        assert kimi.prompt("mend it")["result"] == {"status": "finished"}
        assert turns(kimi) == ["mend it"] * 4
        assert notices(kimi) == []
        assert balanced(kimi.types)

        kimi.lines.clear()
        assert kimi.prompt("mend more")["result"] == {"status": "finished"}
        assert turns(kimi) == ["mend more"] * 4
        assert notices(kimi) == ["The loop ends: the prompt was repeated 2 times, its limit."]

        kimi.lines.clear()
        assert kimi.prompt("/init")["result"] == {"status": "finished"}
        assert turns(kimi) == ["/init"]
        assert (place.work / "AGENTS.md").read_text() == "Notes.\n"

        kimi.lines.clear()
        assert kimi.prompt("delegate", approve)["result"] == {"status": "finished"}
        assert turns(kimi) == ["delegate"] * 3
        inner: list[Json] = [payload["event"] for payload in kimi.payloads("SubagentEvent")]
        assert [event["type"] for event in inner if event["type"].startswith("Turn")] == ["TurnBegin", "TurnEnd"]
        assert kimi.finish() == 0


def test_without_a_model_a_flow_fails_as_a_prompt_does(place: Place) -> None:
    write_skill(place.work, "ship", FLOW)
    with place.wire() as kimi:
        kimi.initialize(client={"name": "test"})
        assert error_of(kimi.prompt("/flow:ship")) == (-32001, "LLM is not set")
        assert kimi.types == ["TurnBegin", "TurnBegin", "TurnEnd", "TurnEnd"]
