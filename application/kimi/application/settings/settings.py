"""Frozen settings slices. `settings_files` reads the files, the environment and the flags.

Annotations are not postponed here, because pydantic would compile each of them at the start.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kimi.domain.hook import CommandHook
from kimi.domain.permissions.approval import Rule, SessionScope
from kimi.domain.turn import ModelPrices

ThinkingEffort: TypeAlias = Literal["minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks, from little to much; each provider type has some of these levels."""


class SettingsSlice(BaseModel):
    """The root of all slices: immutable, unknown keys ignored (runtime spec 2.3)."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ShellSettings(SettingsSlice):
    """`[shell]`: timeouts in seconds, the shell, and the environment that commands inherit (tools spec 3.1)."""

    default_timeout_s: Annotated[int, Field(ge=1, le=300)] = 60
    max_timeout_s: Annotated[int, Field(ge=1, le=86_400)] = 300
    path: str | None = None
    inherit_secrets: bool = False
    kill_orphans: bool = False


class SandboxSettings(SettingsSlice):
    """`[sandbox]`: what commands are confined to (runtime spec 7.10). `writable` are further paths to be changed."""

    mode: Literal["off", "read-only", "workspace"] = "off"
    network: bool = False
    writable: tuple[str, ...] = ()


class FileSettings(SettingsSlice):
    """`[files]`: reads outside the workspace, strictness of edits and globs, the sensitive list (tools spec 2, 3)."""

    read_outside: Literal["allow", "ask", "deny"] = "allow"
    strict_edit: bool = False
    glob_strict: bool = False
    sensitive: tuple[str, ...] = ()
    not_sensitive: tuple[str, ...] = ()


class ToolSettings(SettingsSlice):
    """`[tools]`: the path of ripgrep if it is not on PATH; seconds to wait for an external tool, 0 without limit."""

    ripgrep_path: str | None = None
    external_timeout_s: Annotated[float, Field(ge=0)] = 0


def _refuse_unknown_keys(rule: Any) -> Any:
    """Check the keys of a rule: one that is misspelled and ignored would make the rule apply to everything."""
    known = ("decision", "tool", "action", "match")
    if isinstance(rule, dict) and (unknown := [key for key in cast("dict[Any, Any]", rule) if key not in known]):
        names = ", ".join(str(key) for key in unknown)
        raise ValueError(f"unknown key {names}; a rule has the keys {', '.join(known)}")
    return cast("Any", rule)


class ApprovalSettings(SettingsSlice):
    """`[approval]`: what approval for the session remembers, and the user's rules (tools spec 5.6)."""

    session_scope: SessionScope = "action"
    rules: tuple[Annotated[Rule, BeforeValidator(_refuse_unknown_keys)], ...] = ()


class SessionSettings(SettingsSlice):
    """`[session]`: whether a resumed session may restore auto-approval (tools spec 5.4)."""

    restore_yolo: bool = False


class SkillSettings(SettingsSlice):
    """The directories of skills (runtime spec 7.3).

    `only` are directories of the command line, which replace those of the project and of the user; `extra` are further
    directories. `merge` decides whether directories of all brands are used or only the first that exists.
    """

    only: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    merge: bool = True


class LoopSettings(SettingsSlice):
    """`[loop_control]` (runtime spec 2.3)."""

    max_steps_per_turn: Annotated[int, Field(ge=1)] = 1000
    max_retries_per_step: Annotated[int, Field(ge=1)] = 3
    max_ralph_iterations: Annotated[int, Field(ge=-1)] = 0
    reserved_context_size: Annotated[int, Field(ge=1000)] = 50_000
    compaction_trigger_ratio: Annotated[float, Field(ge=0.5, le=0.99)] = 0.85


class WireSettings(SettingsSlice):
    """`[wire]`: limits of the stdio protocol, in bytes (wire spec 1.1)."""

    max_line_bytes: Annotated[int, Field(ge=1024)] = 100 * 1024 * 1024
    max_queued_bytes: Annotated[int, Field(ge=65_536)] = 2 * 1024 * 1024


class BackgroundSettings(SettingsSlice):
    """`[background]`: limits and intervals of background tasks (runtime spec 2.3)."""

    max_running_tasks: Annotated[int, Field(ge=1)] = 4
    read_max_bytes: Annotated[int, Field(ge=1024)] = 30_000
    notification_tail_lines: Annotated[int, Field(ge=1)] = 20
    notification_tail_chars: Annotated[int, Field(ge=256)] = 3000
    wait_poll_interval_ms: Annotated[int, Field(ge=50)] = 500
    worker_heartbeat_interval_ms: Annotated[int, Field(ge=100)] = 5000
    worker_stale_after_ms: Annotated[int, Field(ge=1000)] = 15_000
    kill_grace_period_ms: Annotated[int, Field(ge=100)] = 2000
    keep_alive_on_exit: bool = False
    continue_in_shell: bool = True
    max_output_bytes: Annotated[int, Field(ge=65_536)] = 64 * 1024 * 1024
    agent_task_timeout_s: Annotated[int, Field(ge=60)] = 900
    print_wait_ceiling_s: Annotated[int, Field(ge=1)] = 3600


class McpServer(SettingsSlice):
    """One MCP server: stdio if it has a `command`, else remote (tools spec 4.1). Times are in milliseconds.

    Values are kept as they were written: `${VAR}` is expanded when the server is connected, so that a missing variable
    fails only this server. `config_error` says in one sentence why the entry cannot be used at all; the other fields
    are then ignored.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Annotated[dict[str, str], Field(repr=False)] = {}
    cwd: str | None = None
    url: str | None = None
    transport: Literal["stdio", "http", "sse"] = "stdio"
    headers: Annotated[dict[str, str], Field(repr=False)] = {}
    auth: Annotated[str | None, Field(repr=False)] = None
    """`oauth`, or a bearer token."""
    enabled: bool = True
    required: bool = False
    enabled_tools: tuple[str, ...] | None = None
    disabled_tools: tuple[str, ...] = ()
    timeout_ms: Annotated[int | None, Field(ge=1)] = None
    """The timeout of one call; None takes that of `McpSettings`."""
    connect_timeout_ms: Annotated[int | None, Field(ge=1)] = None
    sse_read_timeout_s: Annotated[float | None, Field(gt=0)] = None
    approval: Literal["ask", "allow", "read_only_allow"] = "ask"
    trust_annotations: bool = False
    subagents: Literal["none", "inherit"] = "none"
    config_error: str | None = None


class McpSettings(SettingsSlice):
    """`[mcp]` and `[mcp.client]`, with the servers of `mcp.json` and the command line (tools spec 4.1)."""

    servers: tuple[McpServer, ...] = ()
    """Unique by name, in the order in which they were first named."""
    tool_call_timeout_ms: Annotated[int, Field(ge=1)] = 60_000
    connect_timeout_ms: Annotated[int, Field(ge=1)] = 30_000
    first_turn_wait_ms: Annotated[int, Field(ge=0)] = 10_000
    max_output_chars: Annotated[int, Field(ge=1000)] = 100_000
    max_message_bytes: Annotated[int, Field(ge=65_536)] = 16 * 1024 * 1024
    always_qualify: bool = False


class AcpSettings(SettingsSlice):
    """`[acp]`: sessions of editors (tools spec 4.1)."""

    load_user_mcp: bool = True
    """Whether sessions have the configured MCP servers beside those that the editor brings."""


class ObservabilitySettings(SettingsSlice):
    """`[observability]`: whether spans and metrics are reported (runtime spec 2.9)."""

    enabled: bool = False


class ServiceSettings(SettingsSlice):
    """A service of the vendor: its address and its key (runtime spec 2.3)."""

    base_url: str
    api_key: Annotated[str, Field(repr=False)]
    custom_headers: Annotated[dict[str, str], Field(repr=False)] = {}


class WebSettings(SettingsSlice):
    """`[services]`: the search service, the fetch service, and what FetchURL may reach (tools spec 3.10, 3.11)."""

    search: ServiceSettings | None = None
    fetch: ServiceSettings | None = None
    allow_private: bool = False
    ask: bool = False
    """Whether the user is asked about each address."""


class ModelSettings(SettingsSlice):
    """The chosen model with its provider, everything resolved (runtime spec 2.4, 2.5).

    `max_completion_tokens` is the cap of the environment or of the model: None for the computed one, 0 or less for no
    cap. `extra_body` and `omit_fields` change the body of chat completions: fields to add, fields never to send.
    `thinking` is True or False if it was decided, None if neither a flag nor the configuration decides it.
    """

    alias: str = ""
    """Its key in the configuration; empty if only the environment describes it."""
    provider_name: str
    type: str
    model: str
    base_url: str = ""
    api_key: Annotated[str, Field(repr=False)] = ""
    max_context_size: int = 100_000
    capabilities: frozenset[str] = frozenset()
    thinking: bool | None = None
    thinking_effort: ThinkingEffort | None = None
    """How much it thinks, where it thinks; None leaves that to the adapter."""
    effort_levels: tuple[ThinkingEffort, ...] = ()
    """The levels of `thinking_effort` that its provider type has."""
    thinking_keep: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_completion_tokens: int | None = None
    custom_headers: Annotated[dict[str, str], Field(repr=False)] = {}
    env: Annotated[dict[str, str], Field(repr=False)] = {}
    reasoning_key: str | None = None
    extra_body: Annotated[dict[str, Any], Field(repr=False)] = {}
    omit_fields: tuple[str, ...] = ()
    prices: ModelPrices | None = None
    oauth: bool = False
    """Whether the configuration refers to an account login of kimi-cli, of which nothing is used here."""
    key_variable: str = ""
    """The variable whose key is used instead of the configured one; empty for a type without."""
    key_page: str = ""
    """The page on which keys for this endpoint are made; empty for an endpoint that is not known to want one."""
    has_machine_credentials: bool = False
    """Whether requests are signed with credentials of the machine, so that no key is needed."""

    @property
    def is_configured(self) -> bool:
        """Whether it is known where to send requests: a test provider, or base URL and model are known."""
        return self.type.startswith("_") or bool(self.base_url and self.model)

    @property
    def has_credentials(self) -> bool:
        """Whether there is something to authenticate with: a key, a header that replaces it, or the machine's own."""
        if self.api_key or self.type.startswith("_") or self.has_machine_credentials:
            return True
        return bool({name.lower() for name in self.custom_headers} & KEY_HEADERS)

    @property
    def lacks_key(self) -> bool:
        """Whether the endpoint wants a key and there is none: nothing is sent to it then (runtime spec 2.4)."""
        return not self.has_credentials and (self.oauth or bool(self.key_page))

    @property
    def is_usable(self) -> bool:
        """Whether requests can be made."""
        return self.is_configured and not self.lacks_key


KEY_HEADERS: Final = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key"})
"""The configured headers that replace a key, in lower case."""


def describe_missing_key(model: ModelSettings) -> tuple[str, str]:
    """Return what a model that lacks a key has instead, and what to do about it with the page where keys are made."""
    has_login = "has no API key, only an account login of kimi-cli, which is not used here"
    what = has_login if model.oauth else "has no API key"
    also = f", or set {model.key_variable}" if model.key_variable else ""
    page = f" (keys are made at {model.key_page})" if model.key_page else ""
    return f"Provider '{model.provider_name}' {what}", f"run 'kimi setup'{also}{page}"


def explain_missing_key(model: ModelSettings) -> str:
    """Return one sentence about a model that lacks a key."""
    return f"{': '.join(describe_missing_key(model))}."


@dataclass(frozen=True, slots=True)
class ProviderPreset:
    """What is known of a provider and need not be asked.

    An empty `base_url` or `model` has no sensible default; the context size is in tokens. `variables` are what the
    provider takes from its `env` table, with what they hold. Keys are made on `key_page`. `services` are the names and
    addresses of the search and fetch services that take the same key. A subscription may admit certain programs only.
    """

    name: str
    title: str
    type: str
    base_url: str = ""
    needs_key: bool = True
    model: str = ""
    context_size: int = 131_072
    capabilities: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    key_page: str = ""
    services: tuple[tuple[str, str], ...] = ()
    is_subscription: bool = False


class InterfaceSettings(SettingsSlice):
    """Appearance and editor of the interactive shell (runtime spec 2.3)."""

    theme: Literal["dark", "light"] = "dark"
    editor: str = ""
    show_thinking: bool = True


class Settings(SettingsSlice):
    """The whole configuration of one process."""

    share_dir: str
    work_dir: str
    model: ModelSettings | None = None
    is_model_requested: bool = False
    """Whether `model` was asked for at this start: a resumed session then takes it in place of the one it had."""
    requested_thinking: bool | None = None
    """Whether this start asks the model to think, in a resumed session too; None for no wish."""
    yolo: bool = False
    afk: bool = False
    edits: bool = False
    unattended: bool = False
    """Nobody attends this run of the program: like `afk`, but never stored with a session."""
    plan_mode: bool = False
    """Start in plan mode, also in a resumed session."""
    default_plan_mode: bool = False
    """Start new sessions in plan mode."""
    slash_commands: bool = True
    """Whether prompts may be slash commands; False for programs that pass on what others wrote."""
    adopted_sessions: tuple[tuple[str, str], ...] = ()
    """Sessions of other work directories that go on in this one: ids, with the directory that each is stored for."""
    additional_dirs: tuple[str, ...] = ()
    own_files: tuple[str, ...] = ()
    """Files named on the command line that may hold keys; tools cannot read them, like those of the share directory."""
    agent: str = "default"
    agent_file: str | None = None
    models: dict[str, ModelSettings] = {}
    """Every configured model by its alias, for subagents that use another one."""
    subagent_model: str | None = None
    """The alias of the model of subagents that name none; without it they use that of the conversation."""
    title_model: str | None = None
    """The alias of the model that writes titles; without it the first prompt is the title."""
    loop: LoopSettings = LoopSettings()
    skills: SkillSettings = SkillSettings()
    shell: ShellSettings = ShellSettings()
    sandbox: SandboxSettings = SandboxSettings()
    files: FileSettings = FileSettings()
    tools: ToolSettings = ToolSettings()
    approval: ApprovalSettings = ApprovalSettings()
    session: SessionSettings = SessionSettings()
    wire: WireSettings = WireSettings()
    mcp: McpSettings = McpSettings()
    acp: AcpSettings = AcpSettings()
    web: WebSettings = WebSettings()
    background: BackgroundSettings = BackgroundSettings()
    interface: InterfaceSettings = InterfaceSettings()
    observability: ObservabilitySettings = ObservabilitySettings()
    hooks: tuple[CommandHook, ...] = ()
    secret_variables: frozenset[str] = frozenset()
    """Names of environment variables that hold keys of this program; commands do not inherit them."""
    secret_values: Annotated[frozenset[str], Field(repr=False)] = frozenset()
    """Every secret of the configuration and of the variables above, for masking (R-48)."""
    strict_profile: bool | None = None
    """`KIMI_WIRE_STRICT`: True, False, or None to decide by the handshake (wire spec 2.4)."""
