"""`kimi plugin` as a command (tools spec 3.18)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.plugins.plugin_directories import SKILL, write_plugin, zip_directory
from tests.support.program.command import Finished
from tests.support.program.command import kimi as run_kimi


@pytest.fixture
def share(tmp_path: Path) -> Path:
    return tmp_path / "share"


def plugin_command(share: Path, *arguments: str) -> Finished:
    return run_kimi("plugin", *arguments, share=share)


@pytest.mark.spec("R-304", "R-305", "R-307")
def test_a_plugin_is_installed_listed_and_removed(tmp_path: Path, share: Path) -> None:
    source = write_plugin(tmp_path, inject={"key": "api_key"}, config_file="config.json")
    (source / "SKILL.md").write_text(SKILL, encoding="utf-8")
    archive = zip_directory(source, tmp_path / "hello.zip")
    done = plugin_command(share, "install", str(archive), "--yes")
    assert (done.code, done.stderr) == (0, "")
    for shown in ("hello 1.0.0: Says hello", "tool greet: runs", "skill: SKILL.md", "write key in config.json"):
        assert shown in done.stdout
    listed = plugin_command(share, "list")
    assert "  hello 1.0.0: Says hello\n    tool greet: runs" in listed.stdout
    [plugin] = json.loads(plugin_command(share, "list", "--json").stdout)["plugins"]
    assert plugin["name"] == "hello"
    assert plugin["directory"] == str(share / "plugins/hello")
    assert plugin["skill"]
    assert [tool["name"] for tool in plugin["tools"]] == ["greet"]
    again = plugin_command(share, "install", str(source), "--yes")
    assert again.code == 1
    assert again.stderr == "A plugin 'hello' is installed already. Remove it first: kimi plugin remove hello\n"
    assert plugin_command(share, "remove", "hello").code == 0
    assert "No plugins are installed." in plugin_command(share, "list").stdout
    missing = plugin_command(share, "remove", "hello", "--json")
    assert (missing.code, missing.stderr) == (1, "No plugin 'hello' is installed. Installed: none.\n")


@pytest.mark.spec("R-305")
def test_without_a_terminal_a_plugin_is_installed_only_with_yes(tmp_path: Path, share: Path) -> None:
    done = run_kimi("plugin", "install", str(write_plugin(tmp_path)), share=share, stdin="y\n")
    assert done.code == 2
    assert "say --yes to install it" in done.message
    assert not (share / "plugins").exists()


@pytest.mark.spec("R-304")
def test_the_list_names_what_cannot_be_used_and_hides_nothing(share: Path) -> None:
    write_plugin(share / "plugins", "torn").joinpath("plugin.json").write_text("{", encoding="utf-8")
    write_plugin(share / "plugins", description="\x1b[31mred\u202e")
    done = plugin_command(share, "list")
    assert done.code == 0
    assert done.stderr == ""
    assert "torn [cannot be used: its plugin.json is no JSON" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    found = json.loads(plugin_command(share, "list", "--json").stdout)
    assert [one["name"] for one in found["unusable"]] == ["torn"]
