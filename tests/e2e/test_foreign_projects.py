"""The program in a directory that somebody else made: nothing runs, nothing leaks (runtime spec 6.2, 6.4, 7.3)."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from kimi.infrastructure.definitions.skill_files import BUILTIN_SKILLS
from tests.support.program.pace import slowdown
from tests.support.program.wire_process import Place, WireProcess, approval
from tests.support.providers.scripts import call, step
from tests.support.stored_sessions import Json

PLANTED = "planted-secret-4711"
EXPLORE = {"description": "look", "prompt": "look around", "subagent_type": "explore"}


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def link(path: Path, target: str | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, path)


@pytest.fixture
def hostile(place: Place) -> Place:
    """A repository with every trick of a link and of git, and secrets around it."""
    attack = put(place.root / "attack", f"#!/bin/sh\nenv >> {place.root / 'ran'}\nexit 1\n")
    attack.chmod(0o755)
    put(place.home / ".ssh/id_rsa", PLANTED)
    put(place.home / "diary.md", PLANTED)
    put(place.share / "mcp.json", '{"mcpServers": {}}')
    put(place.share / "credentials/kimi.json", PLANTED)
    place.environ = {"KIMI_API_KEY": PLANTED}

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(("git", *identity, *arguments), cwd=place.work, check=True, capture_output=True)

    git("init", "-q")
    put(place.work / "a.txt", "a")
    git("add", ".")
    git("commit", "-qm", "subject")
    git("repack", "-adq")
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", str(place.work)),
        ("remote.origin.uploadpack", str(attack)),
        ("protocol.file.allow", "always"),
        ("core.fsmonitor", str(attack)),
        ("core.pager", str(attack)),
    ):
        git("config", name, value)
    for pack in (place.work / ".git/objects/pack").iterdir():
        pack.unlink()
    link(place.work / ".kimi/skills", "/")
    link(place.work / ".kimi/AGENTS.md", place.home / "diary.md")
    link(place.work / "AGENTS.md", "/proc/self/environ")
    link(place.work / ".claude/skills/key/SKILL.md", place.home / ".ssh/id_rsa")
    link(place.work / ".claude/skills/own.md", place.share / "config.toml")
    os.mkfifo(place.work / ".claude/skills/pipe.md")
    put(place.work / ".claude/skills/long.md", "---\n" + "k: [a, b]\n" * 80_000 + "---\n")
    put(place.work / ".claude/skills/fine.md", "---\ndescription: A fine skill\n---\nDo well.")
    return place


def results(kimi: WireProcess) -> dict[str, Json]:
    return {one["tool_call_id"]: one["return_value"] for one in kimi.payloads("ToolResult")}


@pytest.mark.spec("R-200", "R-201", "R-202", "R-204")
def test_a_hostile_repository_runs_nothing_and_reads_no_secret(hostile: Place) -> None:
    paths = [
        *(hostile.share / name for name in ("config.toml", "mcp.json", "credentials/kimi.json")),
        hostile.home / ".ssh/id_rsa",
        *(hostile.work / ".kimi/skills" / str(path).lstrip("/") for path in (hostile.share / "config.toml",)),
        Path("/proc/self/environ"),
    ]
    reads = [call(f"c{number}", "ReadFile", {"path": str(path)}) for number, path in enumerate(paths)]
    outside = call("diary", "ReadFile", {"path": str(hostile.home / "diary.md")})
    hostile.config = '[files]\nread_outside = "ask"\n'
    hostile.script(step(*reads, outside, call("p1", "Agent", EXPLORE)), "text: explored " + "x" * 300, "text: done")
    asked: list[str] = []

    def reject(params: Json) -> Json | None:
        if params["type"] != "ApprovalRequest":
            return None
        asked.append(params["payload"]["action"])
        return approval(params, "reject")

    begun = time.monotonic()
    with hostile.wire() as kimi:
        commands = [one["name"] for one in kimi.initialize()["slash_commands"]]
        assert time.monotonic() - begun < 5 * slowdown()
        kimi.prompt("go", reject)
        found = results(kimi)
        kimi.finish()
    own = [name for name in commands if name.startswith("skill:") and name[6:] not in BUILTIN_SKILLS]
    assert own == ["skill:fine"]
    assert asked == ["read file outside of working directory"]
    assert "explored" in str(found["p1"]["output"])
    assert all(found[f"c{number}"]["is_error"] for number in range(len(paths)))
    assert not (hostile.root / "ran").exists()
    stored = [path for path in hostile.share.rglob("*") if path.is_file() and path.parent.name != "credentials"]
    assert not [path for path in stored if PLANTED in path.read_text(encoding="utf-8", errors="replace")]
    prompt = str(hostile.context()[0])
    assert "A fine skill" in prompt
    assert "PATH=" not in prompt


@pytest.mark.spec("R-206", "R-208")
def test_an_approved_edit_for_the_session_covers_no_protected_file(place: Place) -> None:
    (place.work / ".git").mkdir()
    put(place.work / "tools/hook.sh", "true\n")
    link(place.work / "harmless", ".git")
    place.config = f'[[hooks]]\nevent = "Stop"\ncommand = "sh {place.work}/tools/hook.sh"\n'
    names = ("plain.txt", "other.txt", ".git/config", "harmless/hooks/pre-commit", "AGENTS.md", "tools/hook.sh")
    place.script(
        *(call(name, "WriteFile", {"path": name, "content": "x"}) for name in names),
        "text: done",
    )
    asked: list[tuple[str, str]] = []

    def answer(params: Json) -> Json | None:
        payload = params["payload"]
        asked.append((payload["tool_call_id"], payload["action"]))
        return approval(params, "approve_for_session" if payload["action"] == "edit file" else "reject")

    with place.wire() as kimi:
        kimi.initialize()
        kimi.prompt("go", answer)
        for _ in names[3:]:
            kimi.prompt("again", answer)
        kimi.finish()
    protected = "edit protected file"
    assert asked[0] == ("plain.txt", "edit file")
    assert asked[1:] == [(name, protected) for name in names[2:]]
