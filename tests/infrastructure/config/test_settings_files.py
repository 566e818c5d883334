"""Sources of the configuration: files and text, bad ones, and what the first start writes (runtime spec 2)."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.settings.flags import Flags
from kimi.domain.errors import ConfigError, UsageError
from kimi.infrastructure.config.migration import encode_toml, ensure_default_file
from kimi.infrastructure.config.settings_files import load_settings
from tests.support.settings_loading import load, load_share, one_model


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.spec("R-40")
def test_file_extension_selects_the_format_and_text_is_tried_as_both(tmp_path: Path) -> None:
    (tmp_path / "a.JSON").write_text('{"default_yolo": true}')
    (tmp_path / "a.conf").write_text("default_yolo = true")
    for name in ("a.JSON", "a.conf"):
        assert load_share(tmp_path, config_file=str(tmp_path / name)).yolo
    (tmp_path / "b.json").write_text("default_yolo = true")
    (tmp_path / "b.toml").write_text('{"default_yolo": true}')
    for name in ("b.json", "b.toml"):
        with pytest.raises(ConfigError):
            load_share(tmp_path, config_file=str(tmp_path / name))
    assert load('{"default_yolo": true}').yolo
    assert load("default_yolo = true").yolo


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\xef\xbb\xbfdefault_yolo = true")
    assert load_share(tmp_path).yolo


TEXT = "Invalid configuration text: "


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("{", TEXT + "Expecting property name enclosed in double quotes"),
        ("a b", TEXT + "Expecting value: line 1 column 1 (char 0); Expected '=' after a key"),
        ("null", TEXT + "the configuration must be an object"),
        ("[1]", TEXT + "the configuration must be an object"),
        ('{"theme": "blue"}', TEXT + "theme: must be 'dark' or 'light'"),
        ('default_model = "X"', TEXT + "default_model: Default model X not found in models"),
    ],
)
def test_bad_configuration_text_is_a_usage_error(text: str, report: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(text)
    assert str(caught.value).startswith(report)
    assert caught.value.hint == "--config"


@pytest.mark.parametrize(
    ("name", "content", "report"),
    [
        ("c.json", b"{", "Invalid JSON in configuration file {path}: Expecting property name"),
        ("c.toml", b"a b", "Invalid TOML in configuration file {path}: Expected '='"),
        ("c.json", b"null", "Invalid configuration file {path}: the configuration must be an object"),
        ("c.toml", b'theme = "blue"', "Invalid configuration file {path}: theme: "),
        ("c.toml", b"\xff", "Invalid configuration file {path}: byte 0 is not UTF-8 text"),
        ("c.json", b"[" * 100_000, "Invalid JSON in configuration file {path}: "),
    ],
)
def test_invalid_file_is_an_error_naming_the_file(tmp_path: Path, name: str, content: bytes, report: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_share(tmp_path, config_file=str(file))
    assert str(caught.value).startswith(report.format(path=file))


def test_a_default_file_that_is_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(ConfigError, match="Cannot read configuration file"):
        load_share(tmp_path)


@pytest.mark.parametrize(
    ("content", "report"),
    [
        ("{", "Invalid JSON in legacy configuration file: "),
        ('{"theme": 1}', "Invalid legacy configuration file: theme"),
    ],
)
def test_a_bad_legacy_file_is_an_error_and_stays(tmp_path: Path, content: str, report: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_share(tmp_path)
    assert str(caught.value).startswith(report)
    assert os.listdir(tmp_path) == ["config.json"]


def test_configuration_written_during_first_start_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("default_yolo = true\n")  # it was not there when the start looked
    ensure_default_file(str(tmp_path), str(path))
    assert path.read_text() == "default_yolo = true\n"
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.spec("R-42")
def test_the_first_start_writes_a_file_that_loads_or_migrates_the_old_one(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    first = load_share(fresh)
    written = (fresh / "config.toml").read_text()
    assert load_share(fresh) == first
    assert (fresh / "config.toml").read_text() == written
    assert tomllib.loads(written)["loop_control"]["max_steps_per_turn"] == 1000
    assert 'default_model = ""\n' in written.partition("[loop_control]")[0]

    old = tmp_path / "old"
    old.mkdir()
    content = {**one_model(), "loop_control": {"max_steps_per_run": 12}, "unknown": {"kept": [1, {"a": None}]}}
    (old / "config.json").write_text(json.dumps(content))
    migrated = load_share(old)
    assert migrated.loop.max_steps_per_turn == 12
    assert migrated.model is not None
    assert migrated.model.model == "m-1"
    assert sorted(os.listdir(old)) == ["config.json.bak", "config.toml"]
    assert json.loads((old / "config.json.bak").read_text()) == content
    assert tomllib.loads((old / "config.toml").read_text())["unknown"] == {"kept": [1, {}]}
    assert load_share(old) == migrated


def test_configuration_files_are_private_to_the_owner(tmp_path: Path) -> None:
    load_share(tmp_path / "share")
    assert mode(tmp_path / "share") == 0o700
    assert mode(tmp_path / "share" / "config.toml") == 0o600
    old = tmp_path / "old"
    old.mkdir()
    (old / "config.json").write_text("{}")
    (old / "config.json").chmod(0o644)
    load_share(old)
    assert mode(old / "config.toml") == 0o600
    assert mode(old / "config.json.bak") == 0o600


def test_share_directory_that_cannot_be_created_is_tolerated(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert load_share(tmp_path / "file" / "share").loop.max_steps_per_turn == 1000


def test_explicit_configuration_leaves_the_share_directory_alone(tmp_path: Path) -> None:
    load_share(tmp_path, config="{}")
    assert os.listdir(tmp_path) == []


SCALARS = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text())
TABLES = st.dictionaries(
    st.text(),
    st.recursive(SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner))),
    max_size=4,
)


@given(TABLES)
def test_toml_writer_output_round_trips(table: dict[str, Any]) -> None:
    assert tomllib.loads(encode_toml(table)) == table


def test_endless_file_is_not_read_forever() -> None:
    with pytest.raises(ConfigError, match="it has more than 4000000 characters"):
        load_settings(Flags(work_dir="/tmp", config_file="/dev/zero"), {"KIMI_SHARE_DIR": "/nonexistent"})


@pytest.mark.spec("W-141")
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("loop_control = 3", "loop_control: must be a table"),
        ("[models.m]\nprovider = 'p'", "models.m.model: is missing"),
        (
            "[approval]\nrules = [{decision = 'deny', tol = 'x'}]",
            "approval.rules.0: unknown key tol; a rule has the keys",
        ),
        ("[approval]\nrules = [3]", "approval.rules.0: must be a table"),
        ("[[hooks]]\nevent = 'Stop'\ncommand = 'x'\nmatcher = '('\non_failure = 'block'", "hooks.0: 'matcher' must be"),
        ("default_yolo = 'perhaps'", "default_yolo: must be true or false"),
        ("extra_skill_dirs = 'x'", "extra_skill_dirs: must be a list"),
    ],
)
def test_an_error_of_the_configuration_has_no_words_of_a_library(text: str, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(text)
    assert rule in str(caught.value)
    for word in ("Value error", "Input should", "Assertion", "Field required", "dictionary", "instance of", "tuple"):
        assert word not in str(caught.value)
