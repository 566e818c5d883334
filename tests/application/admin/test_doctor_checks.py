"""What each check of `kimi doctor` finds and advises, over probes that answer at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from kimi.application.admin.doctor_checks import (
    DoctorProbes,
    FoundSandbox,
    TerminalKind,
    check_endpoint,
    check_files,
    check_key,
    check_libraries,
    check_mcp_server,
    check_model,
    check_proxy,
    check_ripgrep,
    check_sandbox,
    check_terminal,
)
from kimi.application.ports import ChatModel
from kimi.application.settings.settings import McpServer, ModelSettings
from kimi.domain.content.parts import TextPart
from kimi.domain.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APITimeoutError,
    AuthExpired,
    ConfigError,
    McpUnauthorized,
)
from tests.support.fakes import FakeModel, Script, forever

pytestmark = pytest.mark.anyio

KEY_VARIABLES = {"openai_legacy": "OPENAI_API_KEY"}
REMOTE = "https://user:password@provider.test:1/v1"
CHECK_URL = "Check its url in the MCP configuration, and the network."
LOCAL = "http://127.0.0.1:1/v1"


def model(url: str = REMOTE, type_: str = "openai_legacy", **more: object) -> ModelSettings:
    return ModelSettings(provider_name="p", type=type_, model="m", base_url=url).model_copy(update=more)


@dataclass
class World:
    """What the checks find outside: each is an answer, or the error that is raised instead of one."""

    script: Script = (TextPart("ok"),)
    proxy: str | ConfigError | None = None
    tools: int | Exception = 0
    ripgrep: str | None = None
    sandbox: FoundSandbox = field(default_factory=FoundSandbox)
    disk_error: OSError | None = None
    public_files: Sequence[str] = ()

    @property
    def probes(self) -> DoctorProbes:
        return DoctorProbes(
            self._try_write,
            self.public_files.__contains__,
            self._resolve_proxy,
            self._open_model,
            self._count_tools,
            self._find_ripgrep,
            lambda: self.sandbox,
        )

    def _try_write(self, directory: str) -> None:
        if self.disk_error is not None:
            raise self.disk_error

    def _resolve_proxy(self, url: str) -> str | None:
        if isinstance(self.proxy, ConfigError):
            raise self.proxy
        return self.proxy

    def _open_model(self) -> AbstractAsyncContextManager[ChatModel | None]:
        @asynccontextmanager
        async def open_model() -> AsyncGenerator[ChatModel | None, None]:
            yield FakeModel([self.script])

        return open_model()

    async def _count_tools(self, server: McpServer) -> int:
        await anyio.lowlevel.checkpoint()
        if isinstance(self.tools, Exception):
            raise self.tools
        return self.tools

    async def _find_ripgrep(self) -> str | None:
        await anyio.lowlevel.checkpoint()
        return self.ripgrep


# --- configuration, model, key ---------------------------------------------------------------------------------


def test_private_configuration_is_valid() -> None:
    found = check_files("/c.toml", "/share", World().probes)
    assert (found.status, found.message) == ("ok", "/c.toml is valid.")


def test_configuration_of_others_is_a_warning() -> None:
    found = check_files("/c.toml", "/share", World(public_files=["/c.toml"]).probes)
    assert (found.status, found.advice) == ("warning", "Run: chmod 600 /c.toml")


def test_full_disk_is_a_failure_with_its_reason() -> None:
    full = OSError(28, "No space left on device")
    found = check_files("/c.toml", "/share", World(disk_error=full, public_files=["/c.toml"]).probes)
    assert (found.status, found.message) == ("failed", "/share cannot be written: No space left on device.")


def test_model_without_a_provider_is_a_failure() -> None:
    assert check_model(None).advice == "Run 'kimi setup'."
    assert check_model(model("")).status == "failed"
    assert check_model(model()).message == "m of provider 'p' (openai_legacy)."


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (None, "skipped"),
        (model(), "failed"),
        (model(type_="anthropic"), "failed"),
        (model(oauth=True), "failed"),
        (model(custom_headers={"X-Api-Key": "sk"}), "ok"),
        (model(type_="vertexai", has_machine_credentials=True), "ok"),
        (model("http://localhost:1/v1"), "ok"),
        (model("http://127.0.0.2/v1"), "ok"),
        (model("http://[::1"), "failed"),
        (model(type_="_echo"), "skipped"),
        (model(""), "skipped"),
    ],
)
def test_key_is_required_only_by_some_providers(given: ModelSettings | None, status: str) -> None:
    assert check_key(given, KEY_VARIABLES, {}).status == status


def test_advice_about_the_key_names_the_variable_of_the_type() -> None:
    found = check_key(model(key_variable="OPENAI_API_KEY"), KEY_VARIABLES, {})
    assert (found.message, found.advice) == (
        "Provider 'p' has no API key.",
        "Run 'kimi setup', or set OPENAI_API_KEY.",
    )
    assert check_key(model(type_="anthropic"), KEY_VARIABLES, {}).advice == "Run 'kimi setup'."


def test_source_of_the_key_is_named() -> None:
    given = model(api_key="sk")
    assert check_key(given, KEY_VARIABLES, {"OPENAI_API_KEY": "sk"}).message.endswith("the variable OPENAI_API_KEY.")
    assert check_key(given, KEY_VARIABLES, {"OPENAI_API_KEY": "other"}).message == "Taken from the file."


# --- proxy and endpoint ----------------------------------------------------------------------------------------


def test_proxy_before_a_local_server_is_a_warning() -> None:
    probes = World(proxy="http://proxy:1").probes
    assert check_proxy(model(LOCAL), probes.resolve_proxy).advice == "Set NO_PROXY=localhost,127.0.0.1"
    assert check_proxy(model(), probes.resolve_proxy).message == "http://proxy:1 is used."
    assert check_proxy(None, probes.resolve_proxy).status == "skipped"


def test_unusable_proxy_is_a_failure() -> None:
    found = check_proxy(model(), World(proxy=ConfigError("No such scheme.")).probes.resolve_proxy)
    assert (found.status, found.message) == ("failed", "No such scheme.")


async def test_endpoint_answers_without_its_password() -> None:
    found = await check_endpoint(model(), KEY_VARIABLES, World().probes)
    assert (found.status, found.message) == ("ok", "provider.test:1 answers.")


async def test_model_for_tests_is_not_asked() -> None:
    for given in (None, model(type_="_echo"), model("")):
        found = await check_endpoint(given, KEY_VARIABLES, World([RuntimeError()]).probes)
        assert found.status == "skipped"


async def test_silent_endpoint_is_a_failure() -> None:
    found = await check_endpoint(model(), KEY_VARIABLES, World([forever]).probes, 0.01)
    assert (found.status, found.message) == ("failed", "provider.test:1 gave no answer within 0.01 s.")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (AuthExpired(401, "x"), "Enter an API key with 'kimi setup'."),
        (APIStatusError(401, "x"), "Enter another key with 'kimi setup', or correct OPENAI_API_KEY."),
        (APIStatusError(404, "x"), f"Check base_url '{REMOTE}' and the id of the model, 'm'."),
        (APIStatusError(429, "x"), "Wait, or look at the limits of your account."),
        (APIStatusError(500, "x"), "The provider has trouble: try again later."),
        (APIStatusError(400, "x"), "Check the provider and the model in the configuration."),
        (APIConnectionError("x"), "Check base_url and the network."),
        (APITimeoutError("x"), "Check base_url and the network."),
        (APIEmptyResponseError("x"), "Try another model."),
        (ConfigError("x"), "Check the provider and the model in the configuration."),
    ],
)
async def test_endpoint_failure_has_advice(error: Exception, advice: str) -> None:
    found = await check_endpoint(model(), KEY_VARIABLES, World([error]).probes)
    assert (found.status, found.message, found.advice) == ("failed", "provider.test:1: x", advice)


async def test_advice_without_a_connection_depends_on_the_way() -> None:
    broken: Script = [APIConnectionError("x")]
    found = await check_endpoint(model(LOCAL), KEY_VARIABLES, World(broken).probes)
    assert found.advice == "Start the server."
    found = await check_endpoint(model(LOCAL), KEY_VARIABLES, World(broken, proxy="http://proxy:1").probes)
    assert found.advice.startswith("Check the proxy that the environment names")


# --- MCP servers, ripgrep, terminal ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "status", "message", "advice"),
    [
        (1, "ok", "Connected, 1 tool.", ""),
        (2, "ok", "Connected, 2 tools.", ""),
        (McpUnauthorized("x"), "failed", "It wants you to log in.", "Run: kimi mcp auth s"),
        (ConfigError("x"), "failed", "x", "Correct its entry in the MCP configuration."),
        (OSError("x"), "failed", "OSError: x", CHECK_URL),
        (TimeoutError("x"), "failed", "No answer within 15 s.", CHECK_URL),
    ],
)
async def test_mcp_server_is_tried(tools: int | Exception, status: str, message: str, advice: str) -> None:
    server = McpServer(name="s", url="https://h.test", transport="http")
    found = await check_mcp_server(server, 30_000, World(tools=tools).probes.count_tools)
    assert (found.name, found.status, found.message, found.advice) == ("mcp s", status, message, advice)


async def test_disabled_mcp_server_is_skipped() -> None:
    server = McpServer(name="s", command="x", enabled=False)
    found = await check_mcp_server(server, 1, World(tools=RuntimeError()).probes.count_tools)
    assert found.status == "skipped"


async def test_mcp_server_has_the_time_of_its_configuration() -> None:
    async def count_tools(server: McpServer) -> int:
        await anyio.sleep_forever()
        return 0

    server = McpServer(name="s", command="x", connect_timeout_ms=10)
    found = await check_mcp_server(server, 60_000, count_tools)
    assert found.message == "No answer within 0.01 s."
    assert found.advice.startswith("Check its command in the MCP configuration")


def test_missing_libraries_are_named_with_their_use() -> None:
    found = check_libraries(["pillow (scaling pictures)", "aiohttp-socks (SOCKS proxies)"])
    assert (found.status, found.message) == (
        "warning",
        "Missing: pillow (scaling pictures); aiohttp-socks (SOCKS proxies).",
    )


async def test_missing_ripgrep_is_a_warning() -> None:
    assert (await check_ripgrep(World().probes.find_ripgrep)).status == "warning"
    assert (await check_ripgrep(World(ripgrep="/rg").probes.find_ripgrep)).message == "/rg is used."


@pytest.mark.parametrize(
    ("terminal", "status"),
    [
        (None, "skipped"),
        (TerminalKind("xterm", "utf-8"), "ok"),
        (TerminalKind("dumb", "utf-8"), "warning"),
        (TerminalKind("", "utf-8"), "warning"),
        (TerminalKind("xterm", "ascii"), "warning"),
        (TerminalKind("", "utf-8", is_windows=True), "ok"),
    ],
)
def test_terminal_must_draw_and_know_utf8(terminal: TerminalKind | None, status: str) -> None:
    assert check_terminal(terminal).status == status


# --- sandbox ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-187")
async def test_a_sandbox_is_reported_with_what_it_does_not_close() -> None:
    probes = World(sandbox=FoundSandbox("Landlock (version 7)", ("one end", "another"))).probes
    found = await check_sandbox("workspace", probes.find_sandbox)
    message = "Landlock (version 7) works; the mode is workspace. It does not close everything: one end; another."
    assert (found.status, found.message) == ("ok", message)


@pytest.mark.spec("R-187")
@pytest.mark.parametrize(("mode", "status"), [("off", "skipped"), ("workspace", "failed"), ("read-only", "failed")])
async def test_a_missing_sandbox_fails_only_if_it_was_asked_for(mode: str, status: str) -> None:
    found = await check_sandbox(mode, World(sandbox=FoundSandbox(advice="Install it.")).probes.find_sandbox)
    assert (found.status, found.advice) == (status, "Install it.")
