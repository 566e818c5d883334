"""What a plain installation has: everything that people expect, loaded only where it is used."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from kimi.interfaces.bootstrap.admin import list_missing_libraries

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXPECTED = ("trafilatura", "pillow", "aiohttp-socks", "charset-normalizer")
START = "import sys, kimi.interfaces.wire.run, kimi.interfaces.bootstrap.containers; print(sorted(sys.modules))"


def required() -> dict[str, Requirement]:
    return {parsed.name: parsed for parsed in map(Requirement, PROJECT["dependencies"])}


@pytest.mark.spec("R-312")
def test_a_plain_installation_has_what_people_expect() -> None:
    assert {*EXPECTED, "ripgrep"} <= required().keys()
    assert all(required()[name].marker is None for name in EXPECTED)
    assert list_missing_libraries() == []
    started = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True, cwd=os.curdir)
    for module in ("trafilatura", "PIL", "aiohttp_socks", "charset_normalizer"):
        assert f"'{module}" not in started.stdout


@pytest.mark.parametrize(
    ("system", "machine", "has_wheel"),
    [
        ("linux", "x86_64", True),
        ("linux", "aarch64", True),
        ("linux", "riscv64", False),
        ("darwin", "arm64", True),
        ("darwin", "x86_64", True),
        ("win32", "AMD64", True),
        ("win32", "ARM64", False),
    ],
)
def test_ripgrep_is_installed_where_nothing_is_compiled(system: str, machine: str, has_wheel: bool) -> None:
    marker = required()["ripgrep"].marker
    assert marker is not None
    environment = {**default_environment(), "sys_platform": system, "platform_machine": machine}
    assert marker.evaluate({name: str(value) for name, value in environment.items()}) == has_wheel


def test_the_names_of_former_extras_still_install() -> None:
    assert {"all", "media", "search", "socks", "vertex", "web"} <= PROJECT["optional-dependencies"].keys()
