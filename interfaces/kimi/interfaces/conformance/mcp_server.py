"""A program: an MCP server over stdio with one or more tools, for the items about MCP servers.

Its arguments are the names of the tools, and `--late SECONDS` before it answers.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main(arguments: list[str]) -> None:
    """Serve until the input ends."""
    if arguments and arguments[0] == "--late":
        time.sleep(float(arguments[1]))
        arguments = arguments[2:]
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], **_respond(message, arguments)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _respond(message: dict[str, Any], names: list[str]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "kit", "version": "1"}
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
        case "tools/list":
            schema: dict[str, Any] = {"type": "object", "properties": {}}
            return {"result": {"tools": [{"name": name, "description": "d", "inputSchema": schema} for name in names]}}
        case "tools/call":
            text = f"called {message['params']['name']}"
            return {"result": {"content": [{"type": "text", "text": text}], "isError": False}}
        case "ping":
            return {"result": {}}
        case name:
            return {"error": {"code": -32601, "message": f"no {name}"}}


if __name__ == "__main__":
    main(sys.argv[1:])
