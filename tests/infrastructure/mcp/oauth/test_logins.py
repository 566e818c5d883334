"""Stored logins of MCP servers: layout, modes, and that nothing but `kimi mcp auth` opens a browser."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from fastmcp import Client

from kimi.application.settings.settings import McpServer
from kimi.domain.errors import McpUnauthorized
from kimi.infrastructure.mcp.config.config_document import write_document
from kimi.infrastructure.mcp.config.server_secrets import find_server_secrets
from kimi.infrastructure.mcp.host_context import McpHostContext
from kimi.infrastructure.mcp.oauth.logins import (
    clear_tokens,
    create_browser_login,
    has_tokens,
    load_stored_login,
    oauth_directory,
)
from kimi.infrastructure.mcp.probe import list_offered_tools
from kimi.infrastructure.mcp.transport.remote import create_transport
from tests.support.mcp.http_server import TOKEN_PATH, McpSite, mcp_site
from tests.support.mcp.logins import log_in, stored_login

pytestmark = pytest.mark.anyio

UPSTREAM_URL = "https://mcp.linear.example/mcp"
UPSTREAM_FILES = {
    "S_mcp_oauth_token-3a009b34-info.json": {
        "collection": "mcp-oauth-token",
        "created_at": "2026-05-02T09:00:00.000000+00:00",
        "directory": "DIRECTORY/S_mcp_oauth_token-3a009b34",
        "version": 1,
    },
    "S_mcp_oauth_token-3a009b34/S_https_mcp_linear_example_mcp_tokens-d3e26122.json": {
        "created_at": "2026-05-02T09:00:00.000000+00:00",
        "expires_at": "2127-05-02T09:00:00.000000+00:00",
        "value": {
            "access_token": "upstream-access",
            "expires_in": 3600,
            "refresh_token": "upstream-refresh",
            "scope": None,
            "token_type": "Bearer",
        },
        "version": 1,
    },
}
"""A login as kimi-cli 1.49 leaves it behind: names and content of its files."""


@pytest.fixture
def share(tmp_path: Path) -> str:
    return str(tmp_path / "share")


@pytest.fixture
def site() -> Generator[McpSite, None, None]:
    with mcp_site() as running:
        yield running


async def tools_of(site: McpSite, share: str) -> list[tuple[str, str]]:
    server = McpServer(name="linear", url=site.url, transport="http", auth="oauth")
    place = McpHostContext(share, share, {}, "1", lambda schema: None, list, lambda secrets: None)
    return await list_offered_tools(server, place)


async def test_a_login_is_found_and_removed_without_the_library(share: str) -> None:
    url, other = "https://mcp.example.test/mcp/", "https://mcp.example.test/mcp2"
    assert not has_tokens(share, url)
    await log_in(share, url, "a")
    await log_in(share, other, "b")
    assert has_tokens(share, url)
    assert has_tokens(share, url.rstrip("/"))
    clear_tokens(share, url)
    assert not has_tokens(share, url)
    assert has_tokens(share, other)
    stored = stored_login(share, url)
    assert await stored.get_tokens() is None
    assert await stored.get_client_info() is None
    assert await stored.get_token_expiry() is None
    clear_tokens(share, url)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"value": {}}', '{"value": {"access_token": ""}}', "null"])
async def test_damaged_login_counts_as_missing(share: str, damage: str) -> None:
    await log_in(share, UPSTREAM_URL, "a")
    for path in Path(oauth_directory(share)).glob("S_mcp_oauth_token-*/*.json"):
        path.write_text(damage)
    assert not has_tokens(share, UPSTREAM_URL)


@pytest.mark.spec("T-137")
async def test_logins_of_kimi_cli_are_read(share: str) -> None:
    directory = Path(oauth_directory(share))
    for name, content in UPSTREAM_FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content).replace("DIRECTORY", str(directory)))
    assert has_tokens(share, f"{UPSTREAM_URL}/")
    login = load_stored_login(share, UPSTREAM_URL)
    assert login is not None
    found = await login.token_storage_adapter.get_tokens()
    assert found is not None
    assert (found.access_token, found.refresh_token) == ("upstream-access", "upstream-refresh")


async def test_a_login_moves_with_its_directory(share: str, site: McpSite) -> None:
    site.access = {"good"}
    await log_in(share, site.url, "good")
    moved = f"{share}-moved"
    os.rename(share, moved)
    assert await tools_of(site, moved) == [("greet", "Greets.")]
    os.makedirs(oauth_directory(share))
    await log_in(share, site.url, "other")
    assert await tools_of(site, moved) == [("greet", "Greets.")]


async def test_a_login_is_among_the_secrets(share: str) -> None:
    server = McpServer(name="a", url=f"{UPSTREAM_URL}/", transport="http", auth="oauth")
    assert list(find_server_secrets(server, {}, share)) == []
    await log_in(share, UPSTREAM_URL, "an-access-token", "a-refresh-token")
    assert set(find_server_secrets(server, {}, share)) == {"an-access-token", "a-refresh-token"}


async def test_server_without_login_sends_no_request(share: str, site: McpSite) -> None:
    assert load_stored_login(share, site.url) is None
    with pytest.raises(McpUnauthorized, match=r"run: kimi mcp auth linear$"):
        await tools_of(site, share)
    assert site.asked == []


async def test_a_stored_login_is_used(share: str, site: McpSite) -> None:
    site.access = {"good"}
    await log_in(share, site.url, "good")
    assert await tools_of(site, share) == [("greet", "Greets.")]
    assert {headers["authorization"] for headers in site.headers} == {"Bearer good"}


@pytest.mark.parametrize("rotates", [True, False])
async def test_expired_login_is_renewed_with_or_without_token_rotation(
    share: str, site: McpSite, rotates: bool
) -> None:
    site.refresh, site.rotates = {"again"}, rotates
    await log_in(share, site.url, "old", "again", expires_at=time.time() - 60)
    assert await tools_of(site, share) == [("greet", "Greets.")]
    assert f"POST {TOKEN_PATH}" in site.asked
    stored = await stored_login(share, site.url).get_tokens()
    assert stored is not None
    assert {stored.access_token} == site.access
    assert stored.refresh_token == "again"


async def test_login_renewed_by_another_process_is_used(share: str, site: McpSite) -> None:
    site.access, site.refresh = {"first"}, {"first-refresh"}
    await log_in(share, site.url, "first", "first-refresh")
    login = load_stored_login(share, site.url)
    server = McpServer(name="a", url=site.url, transport="http", auth="oauth")
    async with Client(create_transport(server, login)) as client:
        assert len(await client.list_tools()) == 1
        site.access, site.refresh = {"second"}, {"second-refresh"}
        await log_in(share, site.url, "second", "second-refresh")
        assert len(await client.list_tools(cache_mode="bypass")) == 1
        site.access, site.refresh = {"third"}, {"third-refresh"}
        await log_in(share, site.url, "third", "third-refresh")
        assert len(await client.list_tools(cache_mode="bypass")) == 1
    assert site.asked.count(f"POST {TOKEN_PATH}") == 2


@pytest.mark.parametrize("expired_s", [60, -3600])
async def test_login_is_renewed_by_one_client_at_a_time(share: str, site: McpSite, expired_s: float) -> None:
    site.refresh, site.each_once = {"the-refresh"}, True
    await log_in(share, site.url, "of no use", "the-refresh", expires_at=time.time() - expired_s)
    found: list[int] = []

    async def use() -> None:
        server = McpServer(name="a", url=site.url, transport="http", auth="oauth")
        async with Client(create_transport(server, load_stored_login(share, site.url))) as client:
            found.append(len(await client.list_tools()))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(use)
    assert found == [1, 1, 1]
    assert expired_s < 0 or site.asked.count(f"POST {TOKEN_PATH}") == 1
    assert not [name for name in os.listdir(oauth_directory(share)) if name.endswith(".lock")]


@pytest.mark.parametrize("refresh", [None, "refused"])
async def test_expired_login_never_opens_a_browser(
    share: str, site: McpSite, refresh: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    monkeypatch.setenv("BROWSER", f"touch {opened} %s")
    await log_in(share, site.url, "old", refresh, expires_at=time.time() - 60)
    assert has_tokens(share, site.url)
    with pytest.raises(McpUnauthorized, match=r"run: kimi mcp auth linear$"):
        await tools_of(site, share)
    assert "GET /authorize" not in site.asked
    assert not opened.exists()
    login = load_stored_login(share, site.url)
    assert login is not None
    with pytest.raises(McpUnauthorized):
        await login.redirect_handler(f"{site.base}/authorize")
    assert login.is_rejected


async def test_only_web_pages_are_opened_in_the_browser(
    share: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    monkeypatch.setenv("BROWSER", f"touch {opened} %s")
    login = create_browser_login(share, UPSTREAM_URL, lambda address: None)
    for address in ("file:///etc/passwd", "javascript:alert(1)", "--help", ""):
        with pytest.raises(McpUnauthorized, match="names no web page"):
            await login.redirect_handler(address)
    assert not opened.exists()


@pytest.mark.spec("T-136")
async def test_logins_and_servers_are_private(share: str) -> None:
    document = Path(share, "mcp.json")
    write_document(str(document), {"mcpServers": {}})
    document.chmod(0o644)
    write_document(str(document), {"mcpServers": {}})
    assert stat.S_IMODE(document.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(share).stat().st_mode) == 0o700
    await log_in(share, UPSTREAM_URL, "a")
    directory = Path(oauth_directory(share))
    directory.chmod(0o755)
    login = load_stored_login(share, UPSTREAM_URL)
    assert login is not None
    kept = await login.token_storage_adapter.get_tokens()
    assert kept is not None
    await login.token_storage_adapter.set_tokens(kept)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
