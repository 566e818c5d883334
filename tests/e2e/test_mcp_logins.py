"""Logins at MCP servers in sessions, which never ask for one (tools spec 4.4)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.mcp.http_server import McpSite, mcp_site
from tests.support.mcp.logins import log_in
from tests.support.program.wire_process import Place

SECRETS = ("good-access", "old-access", "good-refresh")


def remote(site: McpSite) -> dict[str, Any]:
    return {"url": site.url, "auth": "oauth"}


@pytest.mark.spec("T-135")
def test_a_session_uses_stored_logins_and_never_asks_for_one(place: Place, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    place.environ = {"BROWSER": f"touch {opened} %s"}
    place.script("text: ok")
    with mcp_site() as without, mcp_site(access={"good-access"}) as stored, mcp_site() as expired:
        sites = {"without": without, "stored": stored, "expired": expired}
        entries = {name: remote(site) for name, site in sites.items()}
        (place.share / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        anyio.run(log_in, str(place.share), stored.url, "good-access", "good-refresh")
        anyio.run(log_in, str(place.share), expired.url, "old-access", None, time.time() - 60)
        with place.wire() as kimi:
            kimi.initialize(client={"name": "test", "version": "1"})
            assert kimi.prompt("hi")["result"] == {"status": "finished"}
            last = [update["mcp_status"] for update in kimi.payloads("StatusUpdate") if update.get("mcp_status")][-1]
            assert kimi.finish() == 0
        states = {server["name"]: (server["status"], server["tools"]) for server in last["servers"]}
        assert states == {
            "without": ("unauthorized", []),
            "stored": ("connected", ["greet"]),
            "expired": ("unauthorized", []),
        }
        assert without.asked == []
        assert {headers["authorization"] for headers in stored.headers} == {"Bearer good-access"}
        assert "GET /authorize" not in expired.asked
        assert not opened.exists()
    log = (place.share / "logs" / "kimi.log").read_text()
    assert "kimi mcp auth without" in log
    assert "kimi mcp auth expired" in log
    assert not [secret for secret in SECRETS if secret in log]
