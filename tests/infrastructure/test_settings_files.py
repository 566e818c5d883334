"""Sources, keys, bounds and reports of the configuration (runtime spec 2)."""

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

from kimi.application.flags import Flags
from kimi.application.open_session import policy_for
from kimi.application.settings import ServiceSettings, Settings, SkillSettings, WebSettings
from kimi.domain.errors import ConfigError, UsageError
from kimi.domain.hook import CommandHook
from kimi.domain.session import SessionState
from kimi.infrastructure.config_migration import toml_text
from kimi.infrastructure.config_schema import Configuration, validated
from kimi.infrastructure.settings_files import load_settings

SECRET = "sk-1234567890"
PROVIDER: dict[str, Any] = {"type": "kimi", "base_url": "http://127.0.0.1:1/v1", "api_key": SECRET}
MODEL: dict[str, Any] = {"provider": "p", "model": "m-1", "max_context_size": 1000}


def one_model(*, provider: dict[str, Any] | None = None, model: dict[str, Any] | None = None) -> dict[str, Any]:
    """A configuration with the model `m` of the provider `p`, chosen by default."""
    return {
        "default_model": "m",
        "providers": {"p": {**PROVIDER, **(provider or {})}},
        "models": {"m": {**MODEL, **(model or {})}},
    }


def load(config: dict[str, Any] | str | None = None, environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    """The settings of a process with this `--config`, environment and flags; no file is touched."""
    text = json.dumps(config) if isinstance(config, dict) else config or "{}"
    return load_settings(Flags(work_dir="/tmp", config=text, **flags), environ or {"KIMI_SHARE_DIR": "/nonexistent"})


def load_share(share: Path, environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    """The settings of a process with this share directory."""
    return load_settings(Flags(work_dir="/tmp", **flags), {"KIMI_SHARE_DIR": str(share), **(environ or {})})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- keys ------------------------------------------------------------------------------------------------------

DEFAULTS: dict[str, Any] = {
    "default_model": "",
    "default_thinking": False,
    "default_yolo": False,
    "default_plan_mode": False,
    "default_editor": "",
    "theme": "dark",
    "show_thinking_stream": True,
    "skip_afk_prompt_injection": False,
    "merge_all_available_skills": True,
    "extra_skill_dirs": (),
    "telemetry": True,
    "providers": {},
    "models": {},
    "loop_control.max_steps_per_turn": 1000,
    "loop_control.max_retries_per_step": 3,
    "loop_control.max_ralph_iterations": 0,
    "loop_control.reserved_context_size": 50_000,
    "loop_control.compaction_trigger_ratio": 0.85,
    "background.max_running_tasks": 4,
    "background.read_max_bytes": 30_000,
    "background.notification_tail_lines": 20,
    "background.notification_tail_chars": 3000,
    "background.wait_poll_interval_ms": 500,
    "background.worker_heartbeat_interval_ms": 5000,
    "background.worker_stale_after_ms": 15_000,
    "background.kill_grace_period_ms": 2000,
    "background.keep_alive_on_exit": False,
    "background.agent_task_timeout_s": 900,
    "background.print_wait_ceiling_s": 3600,
    "notifications.claim_stale_after_ms": 15_000,
    "services.moonshot_search": None,
    "services.moonshot_fetch": None,
    "mcp.client.tool_call_timeout_ms": 60_000,
    "hooks": (),
    "shell.default_timeout_s": 60,
    "shell.max_timeout_s": 300,
    "files.read_outside": "allow",
    "files.strict_edit": False,
    "files.glob_strict": False,
    "tools.ripgrep_path": None,
    "approval.session_scope": "action",
    "session.restore_yolo": False,
}

LOWEST_AND_BELOW: list[tuple[str, Any, Any]] = [
    ("loop_control.max_steps_per_turn", 1, 0),
    ("loop_control.max_steps_per_run", 1, -1),
    ("loop_control.max_retries_per_step", 1, -1),
    ("loop_control.max_ralph_iterations", -1, -2),
    ("loop_control.reserved_context_size", 1000, 999),
    ("loop_control.compaction_trigger_ratio", 0.5, 0.49),
    ("loop_control.compaction_trigger_ratio", 0.99, 1.0),
    ("background.max_running_tasks", 1, 0),
    ("background.read_max_bytes", 1024, 1023),
    ("background.notification_tail_lines", 1, 0),
    ("background.notification_tail_chars", 256, 255),
    ("background.wait_poll_interval_ms", 50, 49),
    ("background.worker_heartbeat_interval_ms", 100, 99),
    ("background.worker_stale_after_ms", 1000, 999),
    ("background.kill_grace_period_ms", 100, 99),
    ("background.agent_task_timeout_s", 60, 59),
    ("background.print_wait_ceiling_s", 1, 0),
    ("notifications.claim_stale_after_ms", 1000, 999),
    ("theme", "light", "blue"),
    ("files.read_outside", "deny", "never"),
    ("approval.session_scope", "prefix", "all"),
]


def nested(path: str, value: Any) -> dict[str, Any]:
    """`{"a": {"b": value}}` for "a.b"."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def at(configuration: Configuration, path: str) -> Any:
    value: Any = configuration
    for name in path.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.spec("R-37")
def test_every_key_has_its_default_bounds_and_lax_coercion() -> None:
    empty = validated({})
    assert {path: at(empty, path) for path in DEFAULTS} == DEFAULTS
    for path, lowest, below in LOWEST_AND_BELOW:
        current = path.replace("per_run", "per_turn")
        assert at(validated(nested(path, lowest)), current) == lowest
        with pytest.raises(ValueError, match=current.replace(".", r"\.")):
            validated(nested(path, below))
    for word, value in [("on", True), ("off", False), ("yes", True), ("no", False)]:
        assert validated({"default_yolo": word}).default_yolo is value
    assert validated(nested("background.read_max_bytes", "5000")).background.read_max_bytes == 5000
    full = validated({**one_model(), **FULL_TABLES})
    assert full.providers["p"].type == "openai_legacy"
    assert full.models["m"].capabilities == {"thinking", "always_thinking", "image_in", "video_in"}
    assert full.services.moonshot_search is not None
    assert full.hooks[0].timeout == 30
    for path, value, report in BAD_TABLES:
        with pytest.raises(ValueError, match=report):
            validated({**one_model(), **nested(path, value)})
    assert validated({"nobody": {"knows": 1}, "shell": {"nor": "this"}, "providers": {"p": {**PROVIDER, "x": 1}}})


FULL_TABLES: dict[str, Any] = {
    "providers": {
        "p": {
            **PROVIDER,
            "type": "openai_legacy",
            "env": {"A": "b"},
            "custom_headers": {"X-A": "b"},
            "reasoning_key": "",
            "oauth": {"key": "k"},
        }
    },
    "models": {
        "m": {
            **MODEL,
            "capabilities": ["thinking", "always_thinking", "image_in", "video_in"],
            "display_name": "M",
        }
    },
    "services": {"moonshot_search": {"base_url": "u", "api_key": "k", "custom_headers": {}, "oauth": {"key": "k"}}},
    "hooks": [{"event": "Stop", "command": "true"}],
}

BAD_TABLES: list[tuple[str, Any, str]] = [
    ("providers.p", {"type": "kimi", "api_key": ""}, r"providers\.p\.base_url"),
    ("providers.p", {"type": "kimi", "base_url": ""}, r"providers\.p\.api_key"),
    ("providers.p", {"base_url": "", "api_key": ""}, r"providers\.p\.type"),
    ("providers.p", {**PROVIDER, "type": "other"}, r"providers\.p\.type"),
    ("providers.p", {**PROVIDER, "oauth": {"storage": "cloud", "key": ""}}, r"providers\.p\.oauth\.storage"),
    ("models.m", {"model": "x", "max_context_size": 1}, r"models\.m\.provider"),
    ("models.m", {"provider": "p", "max_context_size": 1}, r"models\.m\.model"),
    ("models.m", {"provider": "p", "model": "x"}, r"models\.m\.max_context_size"),
    ("models.m", {**MODEL, "capabilities": ["sings"]}, r"models\.m\.capabilities\.0"),
    ("models.m", {**MODEL, "provider": "Q"}, "Provider Q not found in providers"),
    ("default_model", "X", "Default model X not found in models"),
    ("services.moonshot_fetch", {"base_url": ""}, r"services\.moonshot_fetch\.api_key"),
    ("hooks", [{"event": "Lunch", "command": "x"}], r"hooks\.0\.event"),
    ("hooks", [{"event": "Stop", "command": "x", "timeout": 601}], r"hooks\.0\.timeout"),
    ("hooks", [{"event": "Stop"}], r"hooks\.0\.command"),
    ("approval.rules", [{"decision": "perhaps"}], r"approval\.rules\.0"),
]


@pytest.mark.parametrize(
    "type_", ["kimi", "openai_legacy", "openai_responses", "anthropic", "gemini", "vertexai", "_echo", "_scripted_echo"]
)
def test_every_provider_type_loads(type_: str) -> None:
    settings = load(one_model(provider={"type": type_}))
    assert settings.model is not None
    assert settings.model.type == type_


@pytest.mark.spec("R-38")
def test_the_old_name_of_the_step_limit_is_accepted_and_the_new_one_wins() -> None:
    assert load({"loop_control": {"max_steps_per_run": 7}}).loop.max_steps_per_turn == 7
    both = {"max_steps_per_run": 7, "max_steps_per_turn": 8}
    assert load({"loop_control": both}).loop.max_steps_per_turn == 8
    assert load({"loop_control": dict(reversed(both.items()))}).loop.max_steps_per_turn == 8


@pytest.mark.spec("R-39")
def test_google_genai_is_gemini() -> None:
    settings = load(one_model(provider={"type": "google_genai"}))
    assert settings.model is not None
    assert settings.model.type == "gemini"


@pytest.mark.spec("T-101")
def test_our_own_tables_reach_their_slices() -> None:
    settings = load(
        """
        [shell]
        default_timeout_s = 5
        inherit_secrets = true
        [files]
        read_outside = "ask"
        sensitive = ["*.key"]
        [tools]
        external_timeout_s = 2.5
        [approval]
        session_scope = "exact"
        [[approval.rules]]
        tool = "Shell"
        match = "git *"
        decision = "allow"
        [session]
        restore_yolo = true
        [wire]
        max_line_bytes = 2048
        """
    )
    assert settings.shell.default_timeout_s == 5
    assert settings.shell.inherit_secrets
    assert settings.files.read_outside == "ask"
    assert settings.files.sensitive == ("*.key",)
    assert settings.tools.external_timeout_s == 2.5
    policy = policy_for(settings, SessionState(), resumed=False)
    assert settings.approval.session_scope == policy.scope == "exact"
    assert [rule.match for rule in policy.rules] == ["git *"]
    assert settings.session.restore_yolo
    assert settings.wire.max_line_bytes == 2048


@pytest.mark.spec("R-10")
def test_the_payload_of_the_go_sdk_loads() -> None:
    payload = one_model(model={"capabilities": {"image_in": True, "thinking": False, "unheard_of": False}})
    payload["loop_control"] = {"max_steps_per_run": 0, "max_retries_per_step": 0}
    payload["mcp"] = {"client": {"tool_call_timeout_ms": 0}}
    settings = load(payload)
    assert settings.model is not None
    assert settings.model.capabilities == {"image_in"}
    assert settings.loop.max_steps_per_turn == 1000
    assert settings.loop.max_retries_per_step == 3
    assert settings.mcp.tool_call_timeout_ms == 60_000
    with pytest.raises(UsageError, match=r"models\.m\.capabilities\.0"):
        load(one_model(model={"capabilities": {"unheard_of": True}}))


def test_a_zero_limit_in_a_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[loop_control]\nmax_retries_per_step = 0\n")
    with pytest.raises(ConfigError, match="max_retries_per_step"):
        load_share(tmp_path, config_file=str(file))


# --- sources ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-40")
def test_the_name_of_a_file_tells_its_form_and_text_is_tried_as_both(tmp_path: Path) -> None:
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


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
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
        ('{"theme": "blue"}', TEXT + "theme: "),
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
def test_a_bad_file_is_an_error_that_names_it(tmp_path: Path, name: str, content: bytes, report: str) -> None:
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


def test_configuration_files_are_for_their_owner_only(tmp_path: Path) -> None:
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


def test_a_share_directory_that_cannot_be_made_does_not_matter(tmp_path: Path) -> None:
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
def test_what_the_toml_writer_writes_reads_back(table: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(table)) == table


# --- the model -------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-43")
def test_variables_override_their_own_kind_of_provider_only() -> None:
    environ = {
        "KIMI_BASE_URL": "http://kimi",
        "KIMI_API_KEY": "kimi-key",
        "KIMI_MODEL_NAME": "kimi-k",
        "KIMI_MODEL_MAX_CONTEXT_SIZE": "777",
        "KIMI_MODEL_CAPABILITIES": "image_in, nonsense,thinking",
        "KIMI_MODEL_TEMPERATURE": "0.5",
        "KIMI_MODEL_TOP_P": "0.25",
        "KIMI_MODEL_MAX_COMPLETION_TOKENS": "99",
        "KIMI_MODEL_THINKING_KEEP": "all",
        "OPENAI_BASE_URL": "http://openai",
        "OPENAI_API_KEY": "openai-key",
    }
    kimi = load(one_model(model={"capabilities": ["video_in"]}), environ, model="m").model
    assert kimi is not None
    assert (kimi.base_url, kimi.api_key, kimi.model, kimi.max_context_size) == (
        "http://kimi",
        "kimi-key",
        "kimi-k",
        777,
    )
    assert kimi.capabilities == {"image_in", "thinking"}
    assert (kimi.temperature, kimi.top_p, kimi.max_completion_tokens, kimi.thinking_keep) == (0.5, 0.25, 99, "all")
    for type_ in ("openai_legacy", "openai_responses"):
        openai = load(one_model(provider={"type": type_}), environ).model
        assert openai is not None
        assert (openai.base_url, openai.api_key) == ("http://openai", "openai-key")
        assert (openai.model, openai.max_context_size) == ("m-1", 1000)
        assert (openai.temperature, openai.max_completion_tokens) == (None, None)
    other = load(one_model(provider={"type": "anthropic"}), environ).model
    assert other is not None
    assert (other.base_url, other.api_key, other.model) == (PROVIDER["base_url"], SECRET, "m-1")


def test_empty_variables_count_as_unset() -> None:
    names = ("KIMI_BASE_URL", "KIMI_API_KEY", "KIMI_MODEL_NAME", "KIMI_MODEL_MAX_CONTEXT_SIZE", "KIMI_MODEL_TOP_P")
    assert load(one_model(), dict.fromkeys(names, "")).model == load(one_model()).model


@pytest.mark.parametrize(
    ("environ", "cap"),
    [
        ({"KIMI_MODEL_MAX_COMPLETION_TOKENS": "0"}, 0),
        ({"KIMI_MODEL_MAX_TOKENS": "5"}, 5),
        ({"KIMI_MODEL_MAX_COMPLETION_TOKENS": "-1", "KIMI_MODEL_MAX_TOKENS": "5"}, -1),
        ({"KIMI_MODEL_MAX_COMPLETION_TOKENS": "many"}, None),
    ],
)
def test_the_completion_cap_of_the_environment(environ: dict[str, str], cap: int | None) -> None:
    model = load(one_model(), environ).model
    assert model is not None
    assert model.max_completion_tokens == cap


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KIMI_MODEL_MAX_CONTEXT_SIZE", "128k"),
        ("KIMI_MODEL_MAX_CONTEXT_SIZE", "0"),
        ("KIMI_MODEL_TEMPERATURE", "warm"),
        ("KIMI_MODEL_TOP_P", "nan"),
    ],
)
def test_a_variable_that_is_no_number_is_named_with_its_value(variable: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(one_model(), {variable: value})
    assert variable in str(caught.value)
    assert f"'{value}'" in str(caught.value)


def test_without_a_model_only_the_environment_makes_one_usable() -> None:
    nothing = load().model
    assert nothing is not None
    assert (nothing.type, nothing.max_context_size, nothing.usable) == ("kimi", 100_000, False)
    complete = load(None, {"KIMI_BASE_URL": "http://x", "KIMI_MODEL_NAME": "k", "KIMI_API_KEY": "a"}).model
    assert complete is not None
    assert complete.usable


def test_the_model_flag_beats_the_default_model() -> None:
    config = one_model()
    config["models"]["n"] = {**MODEL, "model": "n-1"}
    chosen = load(config, model="n").model
    assert chosen is not None
    assert chosen.model == "n-1"


@pytest.mark.parametrize(("config", "listed"), [(one_model(), "choose one of: m"), ({}, "no models are configured")])
def test_an_unknown_model_lists_the_known_ones(config: dict[str, Any], listed: str) -> None:
    with pytest.raises(ConfigError, match="Unknown model 'nope'") as caught:
        load(config, model="nope")
    assert listed in str(caught.value)


@pytest.mark.parametrize(
    ("model", "capabilities"),
    [
        ("Kimi-K2-Thinking", {"thinking", "always_thinking"}),
        ("deepseek-REASONer", {"thinking", "always_thinking"}),
        ("kimi-for-coding", {"thinking", "image_in", "video_in"}),
        ("kimi-code", {"thinking", "image_in", "video_in"}),
        ("kimi-code-2", set[str]()),
    ],
)
def test_the_id_of_a_model_tells_capabilities(model: str, capabilities: set[str]) -> None:
    chosen = load(one_model(model={"model": model})).model
    assert chosen is not None
    assert chosen.capabilities == capabilities


@pytest.mark.parametrize(
    ("capabilities", "flag", "configured", "thinking"),
    [
        (["always_thinking"], False, False, True),
        (["thinking"], True, False, True),
        (["thinking"], False, True, False),
        (["thinking"], None, True, True),
        (["thinking"], None, False, False),
        ([], True, False, None),
        ([], False, True, False),
        ([], None, True, None),
        ([], None, False, None),
    ],
)
def test_thinking_is_decided_by_capability_flag_and_configuration(
    capabilities: list[str], flag: bool | None, configured: bool, thinking: bool | None
) -> None:
    config = {**one_model(model={"capabilities": capabilities}), "default_thinking": configured}
    model = load(config, thinking=flag).model
    assert model is not None
    assert model.thinking is thinking


# --- flags and switches ----------------------------------------------------------------------------------------


def test_flags_beat_the_configuration() -> None:
    config = {"loop_control": {"max_steps_per_turn": 5, "max_retries_per_step": 5, "max_ralph_iterations": 5}}
    settings = load(config, max_steps_per_turn=6, max_retries_per_step=7, max_ralph_iterations=-1)
    loop = settings.loop
    assert (loop.max_steps_per_turn, loop.max_retries_per_step, loop.max_ralph_iterations) == (6, 7, -1)
    kept = load(config).loop
    assert (kept.max_steps_per_turn, kept.max_retries_per_step, kept.max_ralph_iterations) == (5, 5, 5)


def test_modes_come_from_flags_or_configuration() -> None:
    assert not load().yolo
    assert load(yolo=True).yolo
    assert load({"default_yolo": True}).yolo
    assert load({"default_plan_mode": True}).default_plan_mode
    assert not load({"default_plan_mode": True}).plan_mode
    assert load(plan=True).plan_mode
    assert load(afk=True).afk


@pytest.mark.parametrize(("value", "strict"), [("1", True), ("0", False), ("", None), ("maybe", None)])
def test_the_strict_profile_of_the_environment(value: str, strict: bool | None) -> None:
    assert load(None, {"KIMI_WIRE_STRICT": value}).strict_profile is strict


def test_bad_json_of_an_mcp_option_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Invalid JSON: ") as caught:
        load(mcp_configs=("{",))
    assert caught.value.hint == "--mcp-config"
    (tmp_path / "mcp.json").write_text("{")
    with pytest.raises(UsageError, match="Invalid JSON: ") as caught:
        load(mcp_config_files=(str(tmp_path / "mcp.json"),))
    assert caught.value.hint == "--mcp-config-file"
    with pytest.raises(ConfigError, match="Invalid MCP config: "):
        load(mcp_configs=("[]",))
    load(mcp_configs=('{"mcpServers": {}}',))


def test_a_file_without_an_end_is_not_read_for_ever() -> None:
    with pytest.raises(ConfigError, match="it has more than 4000000 characters"):
        load_settings(Flags(work_dir="/tmp", config_file="/dev/zero"), {"KIMI_SHARE_DIR": "/nonexistent"})


def test_services_of_the_web_need_a_key(caplog: pytest.LogCaptureFixture) -> None:
    assert load().web == WebSettings()
    service = {"base_url": "https://search.test", "api_key": "k", "custom_headers": {"X-Own": "1"}}
    web = load({"services": {"moonshot_search": service, "fetch": {"allow_private": True, "ask": True}}}).web
    assert web.search == ServiceSettings.model_validate(service)
    assert (web.fetch, web.allow_private, web.ask) == (None, True, True)
    assert caplog.messages == []
    assert load({"services": {"moonshot_fetch": {"base_url": "https://fetch.test", "api_key": ""}}}).web.fetch is None
    assert [message.split("'")[1] for message in caplog.messages] == ["services.moonshot_fetch"]


def test_the_places_of_skills() -> None:
    config = {"extra_skill_dirs": ["~/mine", "shared"], "merge_all_available_skills": False}
    assert load(config, skills_dirs=("/a", "/b")).skills == SkillSettings(
        only=("/a", "/b"), extra=("~/mine", "shared"), merge=False
    )
    assert load().skills == SkillSettings()


def test_hooks_are_passed_on() -> None:
    table = {"event": "Stop", "command": "true"}
    assert load({"hooks": [table, table | {"matcher": "a|b", "timeout": 600}]}).hooks == (
        CommandHook("Stop", "true"),
        CommandHook("Stop", "true", "a|b", 600),
    )


# --- secrets ---------------------------------------------------------------------------------------------------


def test_variables_that_hold_our_keys_are_known() -> None:
    environ = {"KIMI_API_KEY": "a", "OPENAI_API_KEY": "b", "MY_KEY": SECRET, "HOME": "/tmp"}
    assert load(one_model(), environ).secret_variables == {"KIMI_API_KEY", "MY_KEY"}
    openai = one_model(provider={"type": "openai_legacy"})
    assert load(openai, environ).secret_variables == {"KIMI_API_KEY", "OPENAI_API_KEY", "MY_KEY"}


def test_every_secret_is_known_for_masking_and_shown_nowhere() -> None:
    config = one_model(
        provider={
            "base_url": "http://me:password-in-url@h/v1",
            "env": {"A": "env-secret"},
            "custom_headers": {"X": "header-secret", "Authorization": "Bearer bearer-secret"},
        }
    )
    config["services"] = {"moonshot_search": {"base_url": "", "api_key": "service-secret"}}
    settings = load(config, {"KIMI_API_KEY": "variable-secret"})
    secrets = {SECRET, "password-in-url", "env-secret", "header-secret", "service-secret", "variable-secret"}
    secrets |= {"Bearer bearer-secret", "bearer-secret"}
    assert settings.secret_values == secrets
    shown = repr(settings).replace("password-in-url", "")
    assert not any(secret in shown for secret in secrets - {"password-in-url"})


@pytest.mark.parametrize(
    "spoil",
    [
        {"type": 5},
        {"api_key": ["sk-1234567890"]},
        {"custom_headers": {"X": {"y": SECRET}}},
        {"env": {"X": [SECRET]}},
        {"env": SECRET},
        {"oauth": SECRET},
    ],
)
def test_reports_hold_no_values(spoil: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        load(one_model(provider=spoil))
    error: BaseException | None = caught.value
    assert SECRET not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_the_environment_of_a_provider_is_not_exported() -> None:
    settings = load(one_model(provider={"env": {"KIMI_TEST_ONLY": "x"}}))
    assert settings.model is not None
    assert settings.model.env == {"KIMI_TEST_ONLY": "x"}
    assert "KIMI_TEST_ONLY" not in os.environ
