"""Changing a configuration file without touching the rest of it."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.admin.configuration import ConfigChanges
from kimi.domain.errors import ConfigError
from kimi.infrastructure.config.edit import edit_configuration
from kimi.infrastructure.config.migration import ensure_default_file

PROVIDER: ConfigChanges = {
    ("default_model",): "new/model",
    ("providers", "new", "type"): "kimi",
    ("providers", "new", "base_url"): "https://x/v1",
    ("providers", "new", "api_key"): "sk-new",
    ("models", "new/model", "provider"): "new",
    ("models", "new/model", "model"): "new/model",
    ("models", "new/model", "max_context_size"): 1000,
    ("models", "new/model", "capabilities"): ["thinking"],
}

BY_HAND = """\
# mine, all mine
default_model = 'old'   # the old one
from_the_future = 7     # unknown

[providers.old]         # first
type = "kimi"
base_url = ""
api_key = "sk-old" # secret
[models.old]
provider = "old"
model = "m"
max_context_size = 1
colour = "blue"  # unknown, too

[loop_control]
max_steps_per_turn = 5

[providers.other]
type = "kimi"
base_url = ""
api_key = ""

[[hooks]]
event = "Stop"
command = "true"
# the end
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(BY_HAND)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def top_level_default(text: str) -> list[str]:
    """What clients find that look for the line before the first section with a pattern (runtime spec 2.7)."""
    return re.findall(r'^default_model\s*=\s*"([^"]*)"', text.partition("\n[")[0], re.MULTILINE)


@pytest.mark.spec("R-49")
def test_edit_changes_only_the_given_keys(file: Path) -> None:
    edit_configuration(str(file), {**PROVIDER, ("loop_control", "max_steps_per_turn"): 9})
    text = file.read_text()
    assert top_level_default(text) == ["new/model"]
    kept = [line for line in BY_HAND.splitlines() if not line.startswith(("default_model", "max_steps"))]
    remaining = iter(text.splitlines())
    assert all(line in remaining for line in kept)  # in their order, with new ones in between
    assert "# the old one" in text
    expected: dict[str, Any] = tomllib.loads(BY_HAND)
    expected["default_model"] = "new/model"
    expected["loop_control"]["max_steps_per_turn"] = 9
    expected["providers"]["new"] = {"type": "kimi", "base_url": "https://x/v1", "api_key": "sk-new"}
    expected["models"]["new/model"] = {
        "provider": "new", "model": "new/model", "max_context_size": 1000, "capabilities": ["thinking"],
    }  # fmt: skip
    assert tomllib.loads(text) == expected


@pytest.mark.spec("R-49")
def test_the_default_file_keeps_its_explanations(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    ensure_default_file(str(tmp_path), str(path))
    before = path.read_text()
    edit_configuration(str(path), PROVIDER)
    text = path.read_text()
    assert top_level_default(text) == ["new/model"]
    lines = [line for line in before.splitlines() if not line.startswith("default_model")]
    assert [line for line in text.splitlines() if line in lines][: len(lines)] == lines


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but a remark",
        "[loop_control]\nmax_steps_per_turn = 3\n",
        'theme = "dark"\r\n[providers]\r\n[models]\r\n',
        'providers = {a = {type = "kimi", base_url = "", api_key = ""}}\nmodels = {}\n',
        '[providers]\na = {type = "kimi", base_url = "", api_key = ""}\n',
        '[providers.new]\n# key\napi_key = "x" # y\ntype = "anthropic"\nbase_url = ""\nextra = 1\n',
    ],
)
def test_every_toml_spelling_can_be_edited(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(text.encode())
    edit_configuration(str(path), PROVIDER)
    changed = path.read_bytes().decode()
    assert top_level_default(changed) == ["new/model"]
    assert tomllib.loads(changed)["providers"]["new"]["api_key"] == "sk-new"
    for remark in re.findall(r"#.*", text):
        assert remark in changed


def test_spelling_that_cannot_be_edited_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text := 'providers.a.type = "kimi"\nproviders.a.base_url = ""\nproviders.a.api_key = ""\n')
    with pytest.raises(ConfigError, match=r"set these keys by hand: default_model, providers\.new\.type") as refused:
        edit_configuration(str(path), PROVIDER)
    assert "sk-new" not in str(refused.value)
    assert path.read_text() == text


def test_json_file_stays_json(tmp_path: Path) -> None:
    path = tmp_path / "C.JSON"
    path.write_text('\ufeff{"x": [1, "ü"], "default_model": ""}')
    edit_configuration(str(path), PROVIDER)
    raw = json.loads(path.read_text())
    assert list(raw) == ["x", "default_model", "providers", "models"]
    assert (raw["x"], raw["default_model"]) == ([1, "ü"], "new/model")
    edit_configuration(str(path), {("default_model",): "", ("models", "new/model"): None})
    assert json.loads(path.read_text())["models"] == {}


def test_keys_are_taken_away(file: Path) -> None:
    edit_configuration(str(file), {("models", "old", "colour"): None, ("models", "none", "x"): None, ("y",): None})
    text = file.read_text()
    assert "colour" not in text
    assert "max_context_size = 1\n" in text


@pytest.mark.spec("R-47")
def test_file_is_private_to_its_owner(file: Path, tmp_path: Path) -> None:
    file.chmod(0o644)
    edit_configuration(str(file), PROVIDER)
    assert mode(file) == 0o600
    fresh = tmp_path / "new" / "c.json"
    edit_configuration(str(fresh), PROVIDER)
    assert (mode(fresh), mode(fresh.parent)) == (0o600, 0o700)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "new"]


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    edit_configuration(str(link), PROVIDER)
    assert link.is_symlink()
    assert "sk-new" in file.read_text()


@pytest.mark.parametrize(
    ("text", "changes", "report"),
    [
        ("a b", PROVIDER, "Invalid TOML in configuration file"),
        (BY_HAND, {("default_model",): "nope"}, "default_model: Default model nope not found in models"),
        (BY_HAND, {("loop_control", "max_steps_per_turn"): 0}, "loop_control.max_steps_per_turn: "),
        (BY_HAND, {("providers", "old"): None}, "models.old.provider: Provider old not found"),
    ],
)
def test_invalid_resulting_configuration_is_not_written(
    file: Path, text: str, changes: ConfigChanges, report: str
) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(report)) as refused:
        edit_configuration(str(file), changes)
    assert str(file) in str(refused.value)
    assert "sk-" not in str(refused.value)
    assert file.read_text() == text


def test_invalid_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for text in ("{", "[]", "null"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="Invalid JSON in configuration file"):
            edit_configuration(str(path), PROVIDER)


def test_unwritable_file_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"Cannot write configuration file /proc/kimi\.json: "):
        edit_configuration("/proc/kimi.json", PROVIDER)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@given(words, words, st.dictionaries(words, words, max_size=3))
def test_any_names_and_values_survive(
    tmp_path_factory: pytest.TempPathFactory, alias: str, key: str, headers: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("c") / "config.toml"
    path.write_text(BY_HAND)
    way = ("providers", "old", "custom_headers")
    edit_configuration(
        str(path),
        {
            ("default_model",): alias,
            ("models", alias, "provider"): "old",
            ("models", alias, "model"): alias,
            ("models", alias, "max_context_size"): 1,
            ("providers", "old", "api_key"): key,
            **{(*way, name): value for name, value in headers.items()},
        },
    )
    raw = tomllib.loads(path.read_text())
    assert (raw["default_model"], raw["models"][alias]["model"]) == (alias, alias)
    assert raw["providers"]["old"]["api_key"] == key
    assert raw["providers"]["old"].get("custom_headers", {}) == headers
    assert "# mine, all mine" in path.read_text()


def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    keys = [f"key_{number}" for number in range(8)]

    def add(key: str) -> None:
        edit_configuration(str(path), {(key,): key})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, keys))
    assert sorted(tomllib.loads(path.read_text())) == keys
    assert [one.name for one in tmp_path.iterdir()] == ["config.toml"]
