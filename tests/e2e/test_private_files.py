"""Everything that may hold a secret is private, and secrets are nowhere else (runtime spec 2.6 to 2.8)."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
import zipfile
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from tests.support.mcp.http_server import mcp_site
from tests.support.mcp.logins import log_in
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import error_reply, text_reply

CONFIG = """
default_model = "main"
[providers.main]
type = "openai_legacy"
base_url = "BASE_URL"
api_key = "sk-main-secret"
custom_headers = { "X-Custom" = "custom-header-secret" }
[providers.other]
type = "vertexai"
base_url = ""
api_key = "sk-other-secret"
env = { "GOOGLE_THING" = "provider-env-secret" }
[models.main]
provider = "main"
model = "m"
max_context_size = 100000
"""
SECRETS = (
    *("sk-main-secret", "custom-header-secret", "sk-other-secret", "provider-env-secret"),
    *("mcp-env-secret", "mcp-referenced-secret", "mcp-header-secret", "mcp-bearer-secret"),
    *("oauth-access-secret", "oauth-refresh-secret"),
)
TELLTALE = "import os, sys; print(os.environ['KEY'], file=sys.stderr); sys.exit('no ' + os.environ['REF'])"
"""An MCP server that tells what it knows and fails."""


@pytest.fixture
def open_umask() -> Generator[None, None, None]:
    """Files of this process and its children are private only if they are made so."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.spec("R-47")
@pytest.mark.usefixtures("open_umask")
def test_files_that_may_hold_secrets_are_private(place: Place) -> None:
    place.share.rmdir()
    assert (
        place.run("mcp", "add", "-H", "X: mcp-header-secret", "-t", "http", "a", "http://127.0.0.1:9").returncode == 0
    )
    assert place.run("--wire").returncode == 0
    anyio.run(log_in, str(place.share), "http://127.0.0.1:9", "oauth-access-secret")
    files = {str(path.relative_to(place.share)): mode(path) for path in place.share.rglob("*") if path.is_file()}
    assert {"config.toml", "mcp.json", "logs/kimi.log"} < set(files)
    assert [name for name in files if name.startswith("mcp-oauth/")]
    assert {name: oct(bits) for name, bits in files.items() if bits & 0o077} == {}
    assert mode(place.share) == mode(place.share / "logs") == mode(place.share / "mcp-oauth") == 0o700


def configured(place: Place, base_url: str, login_url: str) -> None:
    """Every kind of secret there is, in its place."""
    (place.share / "config.toml").write_text(CONFIG.replace("BASE_URL", base_url))
    entries = {
        "telltale": {
            "command": sys.executable,
            "args": ["-S", "-c", TELLTALE],
            "env": {"KEY": "mcp-env-secret", "REF": "${MY_REFERENCE}"},
        },
        "headers": {"url": "http://127.0.0.1:9/mcp", "headers": {"X": "mcp-header-secret"}},
        "bearer": {"url": "http://127.0.0.1:9/mcp", "auth": "mcp-bearer-secret", "timeout": "mcp-bearer-secret"},
        "login": {"url": login_url, "auth": "oauth"},
    }
    place.environ = {"MY_REFERENCE": "mcp-referenced-secret"}
    (place.share / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    arguments = ("oauth-access-secret", "oauth-refresh-secret", time.time() - 60)
    anyio.run(log_in, str(place.share), login_url, *arguments)


def written(place: Place) -> str:
    """What the program wrote: everything but the files whose business secrets are."""
    private = {"config.toml", "mcp.json"}
    paths = [path for path in place.share.rglob("*") if path.is_file() and path.name not in private]
    return "\n".join(path.read_text(errors="replace") for path in paths if "mcp-oauth" not in path.parts)


@pytest.mark.spec("R-48")
def test_no_secret_is_in_a_log_an_export_or_an_error(place: Place) -> None:
    outputs: list[str] = []
    refusal = error_reply(401, "no access with sk-main-secret and custom-header-secret")
    with loopback(text_reply("hello"), refusal) as server, mcp_site(access={"another"}) as site:
        configured(place, server.base_url, site.url)
        with place.wire("--debug") as kimi:
            kimi.initialize()
            assert kimi.prompt("hi")["result"] == {"status": "finished"}
            refused = kimi.prompt("again")["error"]
            assert kimi.finish() == 0
        assert refused["code"] == -32003
        outputs += [kimi.stderr.decode(), b"".join(kimi.raw).decode()]
        for command in (["mcp", "test", "telltale"], ["mcp", "get", "telltale"], ["export", "--yes", "-o", "out.zip"]):
            done = place.run(*command)
            outputs += [done.stdout.decode(), done.stderr.decode()]
        broken = CONFIG.replace("max_context_size = 100000", 'max_context_size = "sk-main-secret"')
        outputs.append(place.run("--wire", "--debug", "--config", broken).stderr.decode())
    with zipfile.ZipFile(place.work / "out.zip") as archive:
        outputs += [archive.read(name).decode(errors="replace") for name in archive.namelist()]
        assert [name for name in archive.namelist() if name.startswith("logs/")]
    outputs.append(written(place))
    assert "telltale" in outputs[-1], "the server that fails is in the log"
    assert {secret for secret in SECRETS if any(secret in output for output in outputs)} == set()
