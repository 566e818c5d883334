"""Settings of a process: configuration text or file, command line, environment (runtime spec 2.2 to 2.6).

Priority: environment, then command line, then configuration, then defaults.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from kimi.application.settings.flags import Flags, share_directory
from kimi.application.settings.settings import (
    BackgroundSettings,
    InterfaceSettings,
    LoopSettings,
    McpServer,
    McpSettings,
    SandboxSettings,
    ServiceSettings,
    Settings,
    SkillSettings,
    WebSettings,
)
from kimi.domain.errors import UsageError
from kimi.domain.hook import CommandHook
from kimi.infrastructure.config.file import load_configuration_file
from kimi.infrastructure.config.model_choice import choose_model, find_key_for, resolve_named_models
from kimi.infrastructure.config.schema import (
    Configuration,
    ProviderConfig,
    ServiceConfig,
    validate_configuration,
)
from kimi.infrastructure.http.headers import validate_headers
from kimi.infrastructure.models.provider_types import ENVIRONMENT_TYPE, PROVIDER_TYPES

_log = logging.getLogger("kimi.settings")

_GO_LIMITS = (
    ("loop_control", "max_steps_per_run"),
    ("loop_control", "max_retries_per_step"),
    ("mcp", "client", "tool_call_timeout_ms"),
)
"""The keys that the Go SDK always writes into `--config`, as 0 if its user set nothing (runtime spec 1.5)."""

_SHORTEST_RECOGNISABLE_KEY = 8
"""In characters. What is a word of letters or a path must be the whole value of a variable: it is in many by chance."""
_NEEDED_VARIABLES = frozenset(
    (
        *("HOME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER"),
        *("APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "SYSTEMDRIVE", "SYSTEMROOT", "USERNAME", "USERPROFILE"),
    )
)
"""Without these, commands do not work; no key is kept in them."""
_PATH_VARIABLES = frozenset(name for row in PROVIDER_TYPES.values() for name in row.path_variables)
"""Variables of a provider's `env` that name a file: an error about the file must be able to show it."""


def load_settings(flags: Flags, environ: Mapping[str, str]) -> Settings:
    """Load the settings of the process.

    Without `--config` and `--config-file`, the default file is made if it is missing.

    Raises:
        UsageError: `--config` cannot be used, or MCP servers are not written in JSON (exit 2).
        ConfigError: a file, a variable or the name of a model cannot be used (exit 1).
    """
    share = share_directory(environ)
    configuration = _load_configuration(flags, share)
    mcp = _make_mcp_settings(configuration, flags, share)
    values = (*_find_secret_values(configuration), *_find_mcp_secrets(mcp.servers, environ, share))
    variables = _find_secret_variables(configuration, mcp.servers, values, environ)
    return Settings(
        share_dir=share,
        work_dir=flags.work_dir,
        model=choose_model(configuration, flags, environ),
        is_model_requested=flags.model is not None,
        requested_thinking=flags.thinking,
        models=resolve_named_models(configuration, flags, environ),
        subagent_model=configuration.subagent_model or None,
        title_model=configuration.title_model or None,
        yolo=flags.yolo or configuration.default_yolo,
        afk=flags.afk,
        edits=flags.edits or configuration.default_edits,
        plan_mode=flags.plan,
        default_plan_mode=configuration.default_plan_mode,
        slash_commands=not flags.no_slash_commands,
        additional_dirs=flags.add_dirs,
        own_files=(*filter(None, [flags.config_file]), *flags.mcp_config_files),
        agent=flags.agent or "default",
        agent_file=flags.agent_file,
        loop=_make_loop_settings(configuration.loop_control, flags),
        skills=_make_skill_settings(configuration, flags),
        shell=configuration.shell,
        sandbox=_make_sandbox_settings(configuration.sandbox, flags),
        files=configuration.files,
        tools=configuration.tools,
        approval=configuration.approval,
        session=configuration.session,
        wire=configuration.wire,
        acp=configuration.acp,
        observability=configuration.observability,
        mcp=mcp,
        web=_make_web_settings(configuration, environ),
        background=_make_background_settings(configuration.background),
        interface=_make_interface_settings(configuration),
        hooks=tuple(
            CommandHook(hook.event, hook.command, hook.matcher, hook.timeout, hook.on_failure)
            for hook in configuration.hooks
        ),
        secret_variables=variables,
        secret_values=frozenset((*values, *(environ[name] for name in variables))),
        strict_profile={"1": True, "0": False}.get(environ.get("KIMI_WIRE_STRICT", "")),
    )


def _make_skill_settings(configuration: Configuration, flags: Flags) -> SkillSettings:
    return SkillSettings(
        only=flags.skills_dirs,
        extra=configuration.extra_skill_dirs,
        merge=configuration.merge_all_available_skills,
    )


def _make_sandbox_settings(configured: SandboxSettings, flags: Flags) -> SandboxSettings:
    return configured if flags.sandbox is None else configured.model_copy(update={"mode": flags.sandbox})


def _make_background_settings(configured: BackgroundSettings) -> BackgroundSettings:
    """Raise the stale time to at least two heartbeats: with less, healthy tasks would be ended."""
    least = 2 * configured.worker_heartbeat_interval_ms
    if configured.worker_stale_after_ms >= least:
        return configured
    _log.warning("'background.worker_stale_after_ms' is less than two heartbeats of a worker: %d is used", least)
    return configured.model_copy(update={"worker_stale_after_ms": least})


def _make_interface_settings(configuration: Configuration) -> InterfaceSettings:
    return InterfaceSettings(
        theme=configuration.theme,
        editor=configuration.default_editor,
        show_thinking=configuration.show_thinking_stream,
    )


def _make_web_settings(configuration: Configuration, environ: Mapping[str, str]) -> WebSettings:
    services = configuration.services

    def find_key(url: str) -> str:
        return find_key_for(url, configuration, environ)

    return WebSettings(
        search=_make_service_settings("moonshot_search", services.moonshot_search, find_key),
        fetch=_make_service_settings("moonshot_fetch", services.moonshot_fetch, find_key),
        allow_private=services.fetch.allow_private,
        ask=services.fetch.ask,
    )


def _make_service_settings(
    name: str, configured: ServiceConfig | None, find_key: Callable[[str], str]
) -> ServiceSettings | None:
    """Return the settings of a usable service, or None.

    A service without a key of its own takes that of the provider at the same address (R-273).
    """
    if configured is None:
        return None
    key = configured.api_key or (find_key(configured.base_url) if configured.base_url else "")
    if not key:
        what = "it needs base_url and api_key, or a provider with a key at the same address"
        _log.warning("'services.%s' of the configuration has no effect: %s", name, what)
        return None
    headers = validate_headers(configured.custom_headers)
    return ServiceSettings(base_url=configured.base_url, api_key=key, custom_headers=headers)


def _make_loop_settings(configured: LoopSettings, flags: Flags) -> LoopSettings:
    stated = {
        "max_steps_per_turn": flags.max_steps_per_turn,
        "max_retries_per_step": flags.max_retries_per_step,
        "max_ralph_iterations": flags.max_ralph_iterations,
    }
    return configured.model_copy(update={name: value for name, value in stated.items() if value is not None})


# --- configuration ---------------------------------------------------------------------------------------------


def _load_configuration(flags: Flags, share_dir: str) -> Configuration:
    if flags.config is not None:
        return _parse_configuration(flags.config)
    if flags.config_file is not None:
        return load_configuration_file(flags.config_file)
    path = os.path.join(share_dir, "config.toml")
    if not os.path.exists(path):
        from kimi.infrastructure.config.migration import ensure_default_file  # start-up time: the first start only

        ensure_default_file(share_dir, path)
    return load_configuration_file(path) if os.path.exists(path) else Configuration()


def _parse_configuration(text: str) -> Configuration:
    try:
        return validate_configuration(_drop_zero_limits(_parse_text(text)))
    except ValueError as error:
        raise UsageError(f"Invalid configuration text: {error}", "--config") from None


def _parse_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as json_error:
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as toml_error:
            raise ValueError(f"{json_error}; {toml_error}") from None


def _drop_zero_limits(raw: Any) -> Any:
    """Remove the limits that the Go SDK writes as 0 to mean "default" (R-10). Changes and returns `raw`."""
    for *path, key in _GO_LIMITS:
        table = _find_table(raw, path)
        if table.get(key) == 0:
            del table[key]
    return raw


def _find_table(raw: Any, path: Sequence[str]) -> dict[str, Any]:
    """Return the table at `path` itself, or an empty one if there is none."""
    for name in path:
        raw = cast(dict[str, Any], raw).get(name) if isinstance(raw, dict) else None
    return cast(dict[str, Any], raw) if isinstance(raw, dict) else {}


# --- MCP servers -----------------------------------------------------------------------------------------------


def _make_mcp_settings(configuration: Configuration, flags: Flags, share_dir: str) -> McpSettings:
    keys = configuration.mcp
    limits = keys.client.model_dump()
    if limits["tool_call_timeout_ms"] <= 0:
        del limits["tool_call_timeout_ms"]
    is_used = flags.ui != "acp" or configuration.acp.load_user_mcp
    servers = _load_mcp_servers(flags, share_dir) if is_used else ()
    return McpSettings(servers=servers, always_qualify=keys.always_qualify, **limits)


def _load_mcp_servers(flags: Flags, share_dir: str) -> tuple[McpServer, ...]:
    if not (flags.mcp_config_files or flags.mcp_configs or os.path.exists(os.path.join(share_dir, "mcp.json"))):
        return ()
    from kimi.infrastructure.mcp.config.server_config import load_configured_servers

    return load_configured_servers(share_dir, flags)


def _find_mcp_secrets(servers: Sequence[McpServer], environ: Mapping[str, str], share_dir: str) -> Iterator[str]:
    if servers:
        from kimi.infrastructure.mcp.config.server_secrets import find_server_secrets

        for server in servers:
            yield from find_server_secrets(server, environ, share_dir)


# --- secrets ---------------------------------------------------------------------------------------------------


def _find_secret_variables(
    configuration: Configuration, servers: Sequence[McpServer], values: Sequence[str], environ: Mapping[str, str]
) -> frozenset[str]:
    """Variables that hold a secret of ours: by their name, or because a secret is in their value.

    By name these are the keys of the provider types in use, what MCP servers take from the environment, and the
    headers for a collector of spans.
    """
    types = {provider.type for provider in configuration.providers.values()} | {ENVIRONMENT_TYPE}
    by_name = {PROVIDER_TYPES[type_].key_variable for type_ in types}
    by_name |= _find_mcp_variables(servers) - _NEEDED_VARIABLES
    by_name |= {"KIMI_WEB_TOKEN"}  # who has it approves what is asked
    if configuration.observability.enabled:
        by_name |= {name for name in environ if name.startswith("OTEL_") and name.endswith("_HEADERS")}
    keys = {value for value in values if len(value) >= _SHORTEST_RECOGNISABLE_KEY}
    contained = {key for key in keys if not key.isalpha() and not os.path.isabs(key)}

    def is_secret(name: str, value: str) -> bool:
        if name in by_name:
            return True
        return name not in _NEEDED_VARIABLES and (value in keys or any(key in value for key in contained))

    return frozenset(name for name, value in environ.items() if value and is_secret(name, value))


def _find_mcp_variables(servers: Sequence[McpServer]) -> frozenset[str]:
    if not servers:
        return frozenset()
    from kimi.infrastructure.mcp.config.variables import find_named_variables

    return frozenset(name for server in servers for name in find_named_variables(server))


def _find_secret_values(configuration: Configuration) -> Iterator[str]:
    for provider in configuration.providers.values():
        yield from _find_credentials(provider)
        yield from (value for name, value in provider.env.items() if value and name not in _PATH_VARIABLES)
    for service in (configuration.services.moonshot_search, configuration.services.moonshot_fetch):
        if service is not None:
            yield from _find_credentials(service)


def _find_credentials(endpoint: ProviderConfig | ServiceConfig) -> Iterator[str]:
    in_url = re.findall(r"://[^/@:]*:([^/@]+)@", endpoint.base_url)
    headers = endpoint.custom_headers.values()
    keys = [value.removeprefix("Bearer ") for value in headers]  # a server may repeat the key alone
    yield from filter(None, (endpoint.api_key, *in_url, *headers, *keys))
