"""Where plugins are looked for (tools spec 3.18)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kimi.application.settings.settings import Settings
from kimi.interfaces.bootstrap.tools.toolset import find_plugin_directory, load_plugins
from tests.support.plugins.plugin_directories import write_plugin


def test_plugins_are_those_of_the_share_directory_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plugin(tmp_path / "share/plugins")
    write_plugin(tmp_path / "work/plugins", "of-the-project")
    monkeypatch.chdir(tmp_path / "work")
    loaded = load_plugins(Settings(share_dir=str(tmp_path / "share"), work_dir=str(tmp_path / "work")))
    assert loaded is not None
    assert [plugin.name for plugin in loaded.plugins] == ["hello"]
    assert find_plugin_directory(Settings(share_dir="", work_dir=str(tmp_path / "work"))) is None


def test_without_a_directory_of_plugins_nothing_of_them_is_imported(tmp_path: Path) -> None:
    program = f"""
import sys
from kimi.application.settings.settings import Settings
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.tools.toolset import load_plugins
assert load_plugins(Settings(share_dir={str(tmp_path)!r}, work_dir={str(tmp_path)!r})) is None
print([name for name in sys.modules if "plugin" in name and name.startswith("kimi")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"
