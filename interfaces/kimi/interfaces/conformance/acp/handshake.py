"""The handshake and authentication (acp spec 1.3, 1.4, 5.2)."""

from __future__ import annotations

import time
from typing import Any

from kimi.interfaces.conformance.acp.client import check_error, start, start_ready
from kimi.interfaces.conformance.ledger import expect, expect_equal
from kimi.interfaces.conformance.peer import Json, dig
from kimi.interfaces.conformance.scenario import Stage, scenario

WITHOUT_KEY = """default_model = "kit"
[providers.kit]
type = "openai_legacy"
base_url = "https://api.example.invalid/v1"
api_key = ""
[models.kit]
provider = "kit"
model = "kit-model"
max_context_size = 100000
"""


@scenario("acp", "A-21 A-22 A-23 A-24 A-26 A-28 A-29 A-31 A-112")
async def the_handshake(stage: Stage) -> None:
    """What `initialize` takes and returns, and that each advertised capability works."""
    peer = await start(stage)
    with stage.check("A-21", "A-24"):
        for version in (0, 1, 2, 99):
            result = await peer.result("initialize", {"protocolVersion": version, "clientCapabilities": {}})
            expect_equal(result["protocolVersion"], 1, f"the answer to version {version}")
    with stage.check("A-23"):
        wrong: tuple[Any, ...] = (None, "bogus", {"fs": "bogus"}, {"terminal": 7})
        await peer.result("initialize", {"protocolVersion": 1})
        for capabilities in wrong:
            await peer.result("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})
    with stage.check("A-26"):
        for capabilities, kind in (({}, None), ({"auth": {"terminal": True}}, "terminal")):
            methods = (await peer.initialize(**capabilities))["authMethods"]
            expect_equal([one.get("type") for one in methods], [kind], f"the types with {capabilities}")
            expect(dig(methods[0], "_meta", "terminal-auth"), "_meta has no terminal-auth")
    result = await peer.initialize()
    with stage.check("A-28"):
        session = await peer.open_session()
    with stage.check("A-22"):
        expect_equal(result["agentCapabilities"].get("loadSession"), True, "loadSession")
        place: Json = {"sessionId": session, "cwd": str(stage.home.work), "mcpServers": []}
        for name in dig(result, "agentCapabilities", "sessionCapabilities") or ():
            if name != "additionalDirectories":
                params: Json = {} if name == "list" else place
                response = await peer.request(f"session/{name}", params)
                expect(response.get("error", {}).get("code") != -32601, f"session/{name} is advertised and unknown")
    with stage.check("A-29"):
        expect_equal((await peer.request("authenticate", {"methodId": "login"})).get("result"), {}, "the result")
        check_error(await peer.request("authenticate", {"methodId": "nonsense"}), -32602)
    with stage.check("A-31"):
        expect(dig(result, "agentCapabilities", "auth", "logout") is None, "logout is advertised")
        check_error(await peer.request("logout"), -32601)


@scenario("acp", "A-27 A-29 A-30", needs_process=True)
async def without_credentials(stage: Stage) -> None:
    """An agent without a key, and a key that is set meanwhile."""
    path = stage.home.share / "config.toml"
    whole = path.read_text(encoding="utf-8")
    stage.home.write_config(WITHOUT_KEY)
    peer = await start_ready(stage)
    place: Json = {"cwd": str(stage.home.work), "mcpServers": []}
    with stage.check("A-27"):
        error = check_error(await peer.request("session/new", place), -32000)
        expect(dig(error, "data", "authMethods"), "the error has no authMethods")
        for method in ("load", "resume", "fork"):
            check_error(await peer.request(f"session/{method}", {**place, "sessionId": "x"}), -32000)
        expect("result" in await peer.request("session/list"), "session/list was refused")
    with stage.check("A-29"):
        begin = time.monotonic()
        check_error(await peer.request("authenticate", {"methodId": "login"}), -32000)
        expect(time.monotonic() - begin < stage.allow(3), "authenticate took too long")
    with stage.check("A-30"):
        path.write_text(whole, encoding="utf-8")
        await peer.open_session()
