"""What flags, switches and the tables of single parts make of the settings (runtime spec 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi.application.settings.settings import ServiceSettings, SkillSettings, WebSettings
from kimi.domain.errors import ConfigError, UsageError
from kimi.domain.hook import CommandHook
from tests.support.settings_loading import load


def test_flags_override_the_configuration() -> None:
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
def test_environment_sets_the_strict_profile(value: str, strict: bool | None) -> None:
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


def test_services_of_the_web_need_a_key(caplog: pytest.LogCaptureFixture) -> None:
    assert load().web == WebSettings()
    service = {"base_url": "https://search.test", "api_key": "k", "custom_headers": {"X-Own": "1"}}
    web = load({"services": {"moonshot_search": service, "fetch": {"allow_private": True, "ask": True}}}).web
    assert web.search == ServiceSettings.model_validate(service)
    assert (web.fetch, web.allow_private, web.ask) == (None, True, True)
    assert caplog.messages == []
    assert load({"services": {"moonshot_fetch": {"base_url": "https://fetch.test", "api_key": ""}}}).web.fetch is None
    assert [message.split("'")[1] for message in caplog.messages] == ["services.moonshot_fetch"]


def test_skill_directories_come_from_flags_and_configuration() -> None:
    config = {"extra_skill_dirs": ["~/mine", "shared"], "merge_all_available_skills": False}
    assert load(config, skills_dirs=("/a", "/b")).skills == SkillSettings(
        only=("/a", "/b"), extra=("~/mine", "shared"), merge=False
    )
    assert load().skills == SkillSettings()


def test_hooks_are_loaded_from_the_configuration() -> None:
    table = {"event": "Stop", "command": "true"}
    full = table | {"matcher": "a|b", "timeout": 600, "on_failure": "block"}
    assert load({"hooks": [table, full]}).hooks == (
        CommandHook("Stop", "true"),
        CommandHook("Stop", "true", "a|b", 600, "block"),
    )
