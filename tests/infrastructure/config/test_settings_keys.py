"""Keys of the configuration: their defaults, bounds and forms (runtime spec 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kimi.application.sessions.open_session import build_policy
from kimi.domain.errors import ConfigError, UsageError
from kimi.domain.history.session import SessionState
from kimi.infrastructure.config.schema import Configuration, validate_configuration
from tests.support.settings_loading import MODEL, PROVIDER, load, load_share, one_model

DEFAULTS: dict[str, Any] = {
    "default_model": "",
    "default_thinking": False,
    "default_yolo": False,
    "default_edits": False,
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
    "background.continue_in_shell": True,
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
    ("background.max_output_bytes", 65_536, 65_535),
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
    empty = validate_configuration({})
    assert {path: at(empty, path) for path in DEFAULTS} == DEFAULTS
    for path, lowest, below in LOWEST_AND_BELOW:
        current = path.replace("per_run", "per_turn")
        assert at(validate_configuration(nested(path, lowest)), current) == lowest
        with pytest.raises(ValueError, match=current.replace(".", r"\.")):
            validate_configuration(nested(path, below))
    for word, value in [("on", True), ("off", False), ("yes", True), ("no", False)]:
        assert validate_configuration({"default_yolo": word}).default_yolo is value
    assert validate_configuration(nested("background.read_max_bytes", "5000")).background.read_max_bytes == 5000
    full = validate_configuration({**one_model(), **FULL_TABLES})
    assert full.providers["p"].type == "openai_legacy"
    assert full.models["m"].capabilities == {"thinking", "always_thinking", "image_in", "video_in"}
    assert full.services.moonshot_search is not None
    assert full.hooks[0].timeout == 30
    for path, value, report in BAD_TABLES:
        with pytest.raises(ValueError, match=report):
            validate_configuration({**one_model(), **nested(path, value)})
    assert validate_configuration(
        {"nobody": {"knows": 1}, "shell": {"nor": "this"}, "providers": {"p": {**PROVIDER, "x": 1}}}
    )


@pytest.mark.parametrize(("heartbeat", "stale", "used"), [(5000, 15_000, 15_000), (5000, 1000, 10_000)])
def test_a_worker_is_not_lost_before_two_heartbeats(heartbeat: int, stale: int, used: int) -> None:
    times = {"worker_heartbeat_interval_ms": heartbeat, "worker_stale_after_ms": stale}
    assert load({"background": times}).background.worker_stale_after_ms == used


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
    ("hooks", [{"event": "Stop", "command": "x", "on_failure": "explode"}], r"hooks\.0\.on_failure"),
    ("hooks", [{"event": "Stop", "command": "x", "on_failure": "block", "matcher": "("}], r"hooks\.0: .*'matcher'"),
    ("approval.rules", [{"decision": "perhaps"}], r"approval\.rules\.0"),
    ("approval.rules", [{"tool": "Shell"}], r"approval\.rules\.0\.decision"),
    ("approval.rules", [{"decision": "deny"}, {"decision": "allow", "path": "x"}], r"approval\.rules\.1.*key path; "),
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
def test_google_genai_is_loaded_as_gemini() -> None:
    settings = load(one_model(provider={"type": "google_genai"}))
    assert settings.model is not None
    assert settings.model.type == "gemini"


@pytest.mark.spec("T-101")
def test_native_tables_are_loaded_into_their_settings() -> None:
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
    policy = build_policy(settings, SessionState(), resumed=False)
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
