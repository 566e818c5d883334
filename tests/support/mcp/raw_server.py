"""A program: an MCP server over stdio, standard library only, that starts quickly and misbehaves on demand.

    python raw_server.py '{"tools": ["echo"], "noise": true}'

Keys: `tools` (names, or whole descriptions), `tools_after` (those after the first call of `grow`), `silent` (never
answers initialize), `exit` (status, at once), `garbage` (lines on stdout outside of the protocol), `noise`
(bytes on stderr), `stubborn` (ignores the end of its input and SIGTERM), `child` (starts a process that outlives it),
`delay` (seconds before initialize is answered), `pid` (file to which the process id is appended, one per line),
`dies_after` (with more lines in that file it exits at once), `errors` (tools and methods that fail), `modern`
(accepts the newer handshake only).

The tool's name decides what a call does: echo, env, where, crash, slow, big, wrong, fail, grow, ask (the user),
sample (the model), roots, and what `results` has.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, cast

OPTIONS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
ERRORS: dict[str, Any] = {
    "wrong": {"code": -32602, "message": "wrong in every way: it timed out"},
    **OPTIONS.get("errors", {}),
}
if OPTIONS.get("modern"):
    ERRORS["initialize"] = {"code": -32022, "message": "unsupported", "data": {"supported": ["2026-07-28"]}}
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def described(tool: Any) -> dict[str, Any]:
    """Return a tool in the protocol's form."""
    if isinstance(tool, dict):
        return {"inputSchema": SCHEMA} | cast("dict[str, Any]", tool)
    return {"name": tool, "description": f"Does {tool}.", "inputSchema": SCHEMA}


def send(message: dict[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words: str) -> dict[str, Any]:
    """Return a result of one text."""
    return {"content": [{"type": "text", "text": words}]}


def asked(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request and return the client's answer; its other messages meanwhile are dropped."""
    send({"id": "q1", "method": method, "params": params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "q1":
            return message
    return {}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call."""
    if name in OPTIONS.get("results", {}):
        return OPTIONS["results"][name]
    if name == "crash":
        os._exit(3)
    if name in ("slow", "sleep"):
        time.sleep(float(arguments.get("text", "30")))
    if name == "big":
        return text("x" * int(arguments["text"]))
    if name == "env":
        return text(json.dumps(dict(os.environ)))
    if name == "where":
        return text(os.getcwd())
    if name == "fail":
        return {**text("it went wrong"), "isError": True}
    if name == "ask":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        answer = asked("elicitation/create", {"message": "Who are you?", "requestedSchema": schema})["result"]
        return text(" ".join([answer["action"], *answer.get("content", {}).values()]))
    if name == "sample":
        said = {"role": "user", "content": {"type": "text", "text": "hi"}}
        return text(json.dumps(asked("sampling/createMessage", {"messages": [said], "maxTokens": 5})))
    if name == "roots":
        return text(json.dumps(asked("roots/list", {})["result"]["roots"]))
    if name == "grow":
        OPTIONS["tools"] = OPTIONS["tools_after"]
        send({"method": "notifications/tools/list_changed"})
    return text(arguments.get("text", f"{name} was called"))


def answer(message: dict[str, Any]) -> None:
    """Answer a request; ignore a notification."""
    method = message.get("method")
    params: dict[str, Any] = message.get("params") or {}
    if "id" not in message:
        return
    if method in ERRORS:
        send({"id": message["id"], "error": ERRORS[method]})
        return
    if method == "initialize":
        if OPTIONS.get("silent"):
            return
        time.sleep(OPTIONS.get("delay", 0))
        result: dict[str, Any] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
    elif method == "server/discover" and OPTIONS.get("modern"):
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result = {"tools": [described(tool) for tool in OPTIONS.get("tools", ["echo"])]}
    elif method == "tools/call":
        if params["name"] in ERRORS:
            send({"id": message["id"], "error": ERRORS[params["name"]]})
            return
        result = called(params["name"], params.get("arguments") or {})
    else:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        return
    send({"id": message["id"], "result": {**MODERN, **result} if OPTIONS.get("modern") else result})


def main() -> None:
    """Serve until the end of the input."""
    if "pid" in OPTIONS:
        with open(OPTIONS["pid"], "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        with open(OPTIONS["pid"], encoding="utf-8") as file:
            if "dies_after" in OPTIONS and len(file.readlines()) > OPTIONS["dies_after"]:
                sys.exit(1)
    if "exit" in OPTIONS:
        sys.exit(OPTIONS["exit"])
    if OPTIONS.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if OPTIONS.get("child"):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=subprocess.DEVNULL)
    sys.stderr.write("n" * int(OPTIONS.get("noise", 0)) + "\n")
    sys.stderr.flush()
    for line in OPTIONS.get("garbage", []):
        sys.stdout.write(line + "\n")
    for line in sys.stdin:
        answer(json.loads(line))
    if OPTIONS.get("stubborn"):
        time.sleep(60)


if __name__ == "__main__":
    main()
