"""A remote MCP server with OAuth on the loopback interface, in a thread and with the standard library only.

It has one tool. Its authorization server is the same host; tokens come from a path that no client can guess.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

Json: TypeAlias = dict[str, Any]

TOOL: Json = {"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}}
TOKEN_PATH = "/oauth/access_token"


@dataclass
class McpSite:
    """The state of the server, and its requests: paths with their method, in order."""

    base: str = ""
    open_to_all: bool = False
    access: set[str] = field(default_factory=set[str])
    """The access tokens that are valid now."""
    refresh: set[str] = field(default_factory=set[str])
    rotates: bool = True
    """Whether a renewed login gets a new refresh token."""
    each_once: bool = False
    """Whether a refresh token is valid only once. Access tokens stay valid then."""
    deny: bool = False
    """Whether the user refuses the login."""
    registers: bool = True
    """Whether any client may register."""
    redirects: list[str] = field(default_factory=list[str])
    """The redirect URLs that the client has registered."""
    asked: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The headers of the requests to the MCP endpoint."""

    @property
    def url(self) -> str:
        """The URL of the MCP endpoint."""
        return f"{self.base}/mcp"

    def grant(self) -> Json:
        """Return new tokens."""
        number = len(self.asked)
        if self.each_once:
            self.access, self.refresh = {*self.access, f"access-{number}"}, {f"refresh-{number}"}
        else:
            self.access, self.refresh = {f"access-{number}"}, self.refresh or {f"refresh-{number}"}
        tokens: Json = {"access_token": f"access-{number}", "token_type": "Bearer", "expires_in": 3600}
        return tokens | ({"refresh_token": next(iter(self.refresh))} if self.rotates else {})

    def metadata(self, path: str) -> Json | None:
        """Return the metadata that OAuth clients request first; None for other paths."""
        if path.startswith("/.well-known/oauth-protected-resource"):
            return {"resource": self.url, "authorization_servers": [self.base]}
        if path == "/.well-known/oauth-authorization-server":
            return {
                "issuer": self.base,
                "authorization_endpoint": f"{self.base}/authorize",
                "token_endpoint": f"{self.base}{TOKEN_PATH}",
                "registration_endpoint": f"{self.base}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
        return None


def mcp_answer(message: Json) -> Json | None:
    """Return the answer to a message of the client; None for a notification."""
    if "id" not in message:
        return None
    results: dict[str, Json] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        },
        "tools/list": {"tools": [TOOL]},
        "ping": {},
    }
    reply: Json = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in results:
        return reply | {"result": results[message["method"]]}
    return reply | {"error": {"code": -32601, "message": "Method not found"}}


class _Handler(BaseHTTPRequestHandler):
    site: McpSite
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        self.site.asked.append(f"GET {split.path}")
        if split.path == "/authorize":
            query = {key: values[0] for key, values in parse_qs(split.query).items()}
            if query["redirect_uri"] not in self.site.redirects:
                return self._send(400, {"error": "invalid_redirect_uri"})
            outcome = "error=access_denied" if self.site.deny else "code=the-code"
            return self._send(302, None, Location=f"{query['redirect_uri']}?{outcome}&state={query['state']}")
        found = self.site.metadata(split.path)
        return self._send(404 if found is None else 200, found)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        self.site.asked.append(f"POST {self.path}")
        if self.path == "/register" and self.site.registers:
            registered = json.loads(body)
            self.site.redirects = registered["redirect_uris"]
            return self._send(201, registered | {"client_id": "the-client"})
        if self.path == TOKEN_PATH:
            form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
            good = form["grant_type"] == "authorization_code" or form.get("refresh_token") in self.site.refresh
            return self._send(200, self.site.grant()) if good else self._send(400, {"error": "invalid_grant"})
        if self.path == "/mcp":
            return self._mcp(json.loads(body))
        return self._send(404, None)

    def do_DELETE(self) -> None:
        self._send(405, None)

    def _mcp(self, message: Json) -> None:
        self.site.headers.append({key.lower(): value for key, value in self.headers.items()})
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if not self.site.open_to_all and token not in self.site.access:
            where = f'Bearer resource_metadata="{self.site.base}/.well-known/oauth-protected-resource/mcp"'
            return self._send(401, {"error": "invalid_token"}, **{"WWW-Authenticate": where})
        answer = mcp_answer(message)
        return self._send(202 if answer is None else 200, answer)

    def _send(self, status: int, content: Json | None, **headers: str) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: stderr is for the tests."""


@contextmanager
def mcp_site(**state: Any) -> Generator[McpSite, None, None]:
    """Run the server while the context is open."""
    site = McpSite(**state)
    handler = type("Handler", (_Handler,), {"site": site})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        site.base = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join(5)
