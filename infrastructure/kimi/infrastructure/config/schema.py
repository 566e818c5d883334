"""The schema of a configuration file (runtime spec 2.3, 2.4, 7.5; own keys: tools spec 2, 3, 4.1, 5.6).

Unknown keys are ignored at every level, and values are coerced laxly ("5" is 5, "on" is true). Sections of features
that this version does not have are validated all the same, so that a file that loads today loads tomorrow.

Annotations are not postponed here, because pydantic would compile each of them at the start.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticKnownError

from kimi.application.settings.settings import (
    AcpSettings,
    ApprovalSettings,
    BackgroundSettings,
    FileSettings,
    LoopSettings,
    ObservabilitySettings,
    SandboxSettings,
    SessionSettings,
    ShellSettings,
    ThinkingEffort,
    ToolSettings,
    WireSettings,
)
from kimi.domain.content.parts import Capability
from kimi.domain.hook import FailureVerdict, HookEvent
from kimi.infrastructure.models.provider_types import PROVIDER_TYPES, TYPE_BY_ALIAS

_RULE_WORDS = (
    ("Value error, ", ""),
    ("Assertion failed, ", ""),
    ("Field required", "is missing"),
    ("Input should have", "must have"),
    ("Input should be ", "must be "),
    (", unable to parse string as an integer", ""),
    (", unable to parse string as a number", ""),
    (", unable to interpret input", ""),
    ("a valid dictionary", "a table"),
    ("a valid tuple", "a list"),
    ("a valid list", "a list"),
    ("a valid frozenset", "a list"),
    ("a valid string", "a text"),
    ("a valid boolean", "true or false"),
    ("a valid integer", "a whole number"),
    ("a valid number", "a number"),
)
"""What the library says, and what this program says, in the order in which they are replaced."""
_CLASS_OF_TABLE = re.compile(r"a (?:dictionary|table) or (?:an )?(?:instance of|object to extract fields from) \w+")

CAPABILITIES: frozenset[str] = frozenset(get_args(Capability))


class ConfigSection(BaseModel):
    """The root of all tables. Errors never quote the input, because it may be a secret."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


def _check_type(name: Any) -> Any:
    """A known type, under its present name. The error is that of pydantic for a choice of literals."""
    if isinstance(name, str) and (known := TYPE_BY_ALIAS.get(name, name)) in PROVIDER_TYPES:
        return known
    *others, last = (repr(known) for known in PROVIDER_TYPES)
    raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})


def _normalize_capabilities(value: Any) -> Any:
    """Return a list unchanged; of an object of booleans, which the Go SDK writes, the names of the true ones (R-10)."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        switches = cast(Mapping[str, Any], value)
        return [name for name, switched_on in switches.items() if switched_on]
    return value


def _normalize_names(value: Any) -> Any:
    """Copy `max_steps_per_run` to its new name, unless that is set as well (R-38)."""
    if isinstance(value, Mapping) and "max_steps_per_run" in value:
        section = cast(Mapping[str, Any], value)
        return {"max_steps_per_turn": section["max_steps_per_run"], **section}
    return cast(Any, value)


class OAuthReference(ConfigSection):
    """The storage of a login token."""

    storage: Literal["file", "keyring"] = "file"
    key: str


class ProviderConfig(ConfigSection):
    """`providers.<name>`."""

    type: Annotated[str, BeforeValidator(_check_type)]
    base_url: str
    api_key: Annotated[str, Field(repr=False)]
    env: Annotated[dict[str, str], Field(repr=False)] = {}
    custom_headers: Annotated[dict[str, str], Field(repr=False)] = {}
    reasoning_key: str | None = None
    extra_body: Annotated[dict[str, Any], Field(repr=False)] = {}
    omit_fields: tuple[str, ...] = ()
    oauth: OAuthReference | None = None


class PricesConfig(ConfigSection):
    """`models.<name>.prices`: for a million tokens, up to `max_input` tokens of input in one call."""

    input: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    output: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    cache_read: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    cache_write: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    max_input: Annotated[int | None, Field(ge=1)] = None


class ModelConfig(ConfigSection):
    """`models.<name>`; sizes are in tokens. `max_output_size` is the longest response to ask for."""

    provider: str
    model: str
    max_context_size: Annotated[int, Field(ge=1)]
    max_output_size: Annotated[int | None, Field(ge=1)] = None
    capabilities: Annotated[frozenset[Capability], BeforeValidator(_normalize_capabilities)] = frozenset()
    display_name: str | None = None
    thinking_effort: ThinkingEffort | None = None
    prices: PricesConfig | None = None


class NotificationsConfig(ConfigSection):
    """`[notifications]` (later version)."""

    claim_stale_after_ms: Annotated[int, Field(ge=1000)] = 15_000


class ServiceConfig(ConfigSection):
    """One of the vendor's `[services]`."""

    base_url: str
    api_key: Annotated[str, Field(repr=False)]
    custom_headers: Annotated[dict[str, str], Field(repr=False)] = {}
    oauth: OAuthReference | None = None


class FetchConfig(ConfigSection):
    """`[services.fetch]`: what FetchURL may do without a service."""

    allow_private: bool = False
    ask: bool = False


class ServicesConfig(ConfigSection):
    """`[services]`."""

    fetch: FetchConfig = FetchConfig()
    moonshot_search: ServiceConfig | None = None
    moonshot_fetch: ServiceConfig | None = None


class McpClientConfig(ConfigSection):
    """`[mcp.client]` (tools spec 4.1); a call timeout that is not above 0 means the default."""

    tool_call_timeout_ms: int = 60_000
    connect_timeout_ms: Annotated[int, Field(ge=1)] = 30_000
    first_turn_wait_ms: Annotated[int, Field(ge=0)] = 10_000
    max_output_chars: Annotated[int, Field(ge=1000)] = 100_000
    max_message_bytes: Annotated[int, Field(ge=65_536)] = 16 * 1024 * 1024


class McpConfig(ConfigSection):
    """`[mcp]` (tools spec 4.1, 4.8)."""

    client: McpClientConfig = McpClientConfig()
    always_qualify: bool = False


class HookConfig(ConfigSection):
    """One of `[[hooks]]`; the timeout is in seconds."""

    event: HookEvent
    command: str
    matcher: str = ""
    timeout: Annotated[int, Field(ge=1, le=600)] = 30
    on_failure: FailureVerdict = "allow"

    @model_validator(mode="after")
    def _check_matcher(self) -> Self:
        """Refuse a matcher that never matches where the hook must not be missed."""
        if self.on_failure == "block" and self.matcher:
            from kimi.infrastructure.linear_regex import search_expression  # start-up time

            if search_expression(self.matcher, "") != "invalid":
                return self
            raise ValueError("'matcher' must be a regular expression where 'on_failure' is \"block\"")
        return self


class Configuration(ConfigSection):
    """A whole configuration file."""

    default_model: str = ""
    default_thinking: bool = False
    subagent_model: str = ""
    title_model: str = ""
    default_yolo: bool = False
    default_edits: bool = False
    default_plan_mode: bool = False
    default_editor: str = ""
    theme: Literal["dark", "light"] = "dark"
    show_thinking_stream: bool = True
    skip_afk_prompt_injection: bool = False
    merge_all_available_skills: bool = True
    extra_skill_dirs: tuple[str, ...] = ()
    telemetry: bool = True
    providers: dict[str, ProviderConfig] = {}
    models: dict[str, ModelConfig] = {}
    loop_control: Annotated[LoopSettings, BeforeValidator(_normalize_names)] = LoopSettings()
    background: BackgroundSettings = BackgroundSettings()
    notifications: NotificationsConfig = NotificationsConfig()
    services: ServicesConfig = ServicesConfig()
    mcp: McpConfig = McpConfig()
    hooks: tuple[HookConfig, ...] = ()
    shell: ShellSettings = ShellSettings()
    sandbox: SandboxSettings = SandboxSettings()
    files: FileSettings = FileSettings()
    tools: ToolSettings = ToolSettings()
    approval: ApprovalSettings = ApprovalSettings()
    session: SessionSettings = SessionSettings()
    wire: WireSettings = WireSettings()
    acp: AcpSettings = AcpSettings()
    observability: ObservabilitySettings = ObservabilitySettings()


def validate_configuration(raw: object) -> Configuration:
    """Validate `raw`, which was parsed from JSON or TOML.

    Raises:
        ValueError: a report of everything that is wrong, "path: rule" each, never with a value (runtime spec 2.6).
    """
    from pydantic import ValidationError

    if not isinstance(raw, dict):
        raise ValueError("the configuration must be an object of keys and values")
    try:
        configuration = Configuration.model_validate(raw)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        report = "; ".join(f"{_format_location(item['loc'])}: {format_rule(item['msg'])}" for item in details)
        raise ValueError(report) from None
    dangling = _find_dangling_names(configuration)
    if dangling:
        raise ValueError("; ".join(dangling))
    return configuration


def format_rule(message: str) -> str:
    """Return the rule that a value breaks in the words of this program, from the message of the validating library."""
    for theirs, ours in _RULE_WORDS:
        message = message.replace(theirs, ours)
    return _CLASS_OF_TABLE.sub("a table", message)


def _format_location(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)


def _find_dangling_names(configuration: Configuration) -> list[str]:
    found: list[str] = []
    if configuration.default_model and configuration.default_model not in configuration.models:
        found.append(f"default_model: Default model {configuration.default_model} not found in models")
    for key, alias in (("subagent_model", configuration.subagent_model), ("title_model", configuration.title_model)):
        if alias and alias not in configuration.models:
            found.append(f"{key}: Model {alias} not found in models")
    for name, model in configuration.models.items():
        if model.provider not in configuration.providers:
            found.append(f"models.{name}.provider: Provider {model.provider} not found in providers")
    return found
