"""The sandbox of a conversation: when it confines, and what it leaves behind (runtime spec 7.10)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kimi.application.settings.settings import SandboxSettings
from kimi.domain.errors import ConfigError
from kimi.domain.permissions.confinement import Confinement
from kimi.domain.permissions.path_rules import PathScopes
from kimi.infrastructure.sandbox.bubblewrap import find_bubblewrap, wrap_by_bubblewrap
from kimi.infrastructure.sandbox.mechanisms import Mechanism, require_mechanism
from kimi.infrastructure.sandbox.sandbox import Sandbox
from tests.support.sandboxes import SandboxPlace, find_any_mechanism, find_named_mechanism, run_bare, run_in

pytestmark = pytest.mark.anyio

ARGV = ("/bin/true",)


def say_confinement(confinement: Confinement, argv: Sequence[str]) -> tuple[str, ...]:
    return (confinement.mode, "on" if confinement.network else "off", *argv)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[SandboxPlace]:
    with SandboxPlace(tmp_path.resolve(), Mechanism("fake", say_confinement, (), needs_places=True)) as place:
        yield place


async def confined(place: SandboxPlace, *, read_only: bool = False, **settings: Any) -> tuple[str, ...] | None:
    sandbox = place.sandbox(**settings)
    command = await sandbox.confine(ARGV, read_only=read_only)
    sandbox.close()
    return command and command.argv


@pytest.mark.spec("R-188")
async def test_modes_and_readers_decide_on_the_confinement(place: SandboxPlace) -> None:
    assert await confined(place, mode="off") is None
    assert await confined(place, mode="off", read_only=True) == ("read-only", "on", *ARGV)
    assert await confined(place, mode="workspace") == ("workspace", "off", *ARGV)
    assert await confined(place, mode="workspace", network=True) == ("workspace", "on", *ARGV)
    assert await confined(place, mode="workspace", read_only=True) == ("read-only", "off", *ARGV)
    assert await confined(place, mode="read-only") == ("read-only", "off", *ARGV)


@pytest.mark.spec("R-188")
async def test_without_a_mechanism_readers_run_as_before(place: SandboxPlace) -> None:
    place.mechanism = None
    assert await confined(place, mode="off", read_only=True) is None


async def test_without_a_mechanism_a_chosen_mode_refuses_commands(place: SandboxPlace) -> None:
    place.mechanism = None
    for mode in ("workspace", "read-only"):
        with pytest.raises(ConfigError, match="none works here"):
            await confined(place, mode=mode)
    with pytest.raises(ConfigError, match=r"bubblewrap|Only on Linux"):
        require_mechanism(None)


async def test_places_that_were_made_disappear_but_not_what_was_there(place: SandboxPlace) -> None:
    sandbox = place.sandbox()
    confined = await sandbox.confine(ARGV, read_only=False)
    assert confined is not None
    assert [path for path in confined.confinement.protected if not os.path.exists(path)] == []
    (place.home / "extra/.kimi/skills").mkdir()
    sandbox.close()
    assert not (place.work / ".kimi").exists()
    assert (place.home / "extra/.kimi/skills").exists()
    assert (place.work / ".git/config").exists()
    assert not os.path.exists(confined.confinement.temp_dir)
    sandbox.close()


@pytest.mark.skipif(sys.platform != "linux", reason="commands are confined on Linux only")
def test_bubblewrap_is_taken_from_trusted_directories_only_if_it_starts(tmp_path: Path) -> None:
    assert find_bubblewrap([str(tmp_path)]) is None
    fake = tmp_path / "bwrap"
    for script in ("exit 1", "exit 0", 'shift 99 2>/dev/null; echo "$@"'):
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        assert find_bubblewrap([str(tmp_path)]) is None, script


@pytest.mark.skipif(sys.platform != "linux", reason="commands are confined on Linux only")
async def test_io_uring_does_not_lead_around_the_filter(tmp_path: Path) -> None:
    place = SandboxPlace(tmp_path.resolve(), find_named_mechanism("landlock"))
    program = (
        "import ctypes, errno; l = ctypes.CDLL(None, use_errno=True); "
        "print(l.syscall(425, 4, (ctypes.c_char * 240)()), ctypes.get_errno() == errno.EPERM)"
    )
    done = await place.run(f"{os.path.realpath(sys.executable)} -I -S -c '{program}'", network=True)
    assert done.stdout == "-1 True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="commands are confined on Linux only")
async def test_landlock_says_why_a_command_was_not_run(tmp_path: Path) -> None:
    place = SandboxPlace(tmp_path.resolve(), find_named_mechanism("landlock"))
    sandbox = place.sandbox()
    command = await sandbox.confine(("/no/such/program",), read_only=False)
    assert command is not None
    done = run_bare(command.argv, "/")
    sandbox.close()
    assert done.returncode == 126
    assert done.stderr.startswith("sandbox: the command was not run: ")


def test_a_vanished_path_is_no_mount(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    confinement = Confinement("workspace", "/", str(tmp_path), protected=(gone,), hidden=(f"{gone}2",))
    argv = wrap_by_bubblewrap(("bwrap",), confinement, ARGV)
    assert gone not in argv
    assert f"{gone}2" not in argv
    assert argv[-2:] == ("--", *ARGV)


@pytest.mark.skipif(sys.platform != "linux", reason="commands are confined on Linux only")
@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
async def test_the_root_of_all_files_can_be_the_work_directory(name: str, tmp_path: Path) -> None:
    place = SandboxPlace(tmp_path.resolve(), find_named_mechanism(name))
    assert place.mechanism is not None
    kept = str(place.home / "other")
    confinement = Confinement(
        "workspace", "/", str(place.home / "extra"), writable=("/", str(place.work)), protected=(kept, "/.git")
    )
    line = (
        f"echo x > {place.work}/sub/a.txt; echo x > {kept}/notes.txt; test -e /proc/self/status && echo up > /dev/null"
    )
    done = run_bare(place.mechanism.wrap(confinement, ("/bin/bash", "-c", line)), "/")
    assert done.returncode == 0, done.stderr
    assert (place.work / "sub/a.txt").read_text() == "x\n"
    assert (place.home / "other/notes.txt").read_text() == "notes"


async def test_a_work_directory_that_is_a_link_is_entered(tmp_path: Path) -> None:
    place = SandboxPlace(tmp_path.resolve(), find_any_mechanism())
    link = tmp_path.resolve() / "link"
    link.symlink_to("work")

    async def load_scopes() -> PathScopes:
        return PathScopes((str(link), str(place.work)))

    settings = SandboxSettings(mode="workspace")
    sandbox = Sandbox(settings, str(link), str(place.home / "share"), load_scopes, lambda: place.mechanism)
    done = await run_in(sandbox, "echo x > sub/a.txt")
    sandbox.close()
    assert done.returncode == 0, done.stderr
    assert (place.work / "sub/a.txt").read_text() == "x\n"
