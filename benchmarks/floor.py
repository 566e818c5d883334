"""The floor: what the work costs when nothing but the unavoidable is done. A program of its own, standard library only.

It speaks just enough of the wire protocol to serve the benchmarks: hard-coded answers, one blocking socket, no
checks, no approvals but the one that a benchmark asks for. Its input and output are the same as those of the real
program, appends to context.jsonl and wire.jsonl included. Nothing here is meant to be correct in general.

Environment: FLOOR_URL (base URL of the provider), FLOOR_DIR (where the two files are, or will be).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    def quoted(text: str) -> str: ...
else:
    from json.encoder import encode_basestring_ascii as quoted

BLOCK = 1 << 20
INITIALIZED = b'{"jsonrpc":"2.0","id":%b,"result":{"protocol_version":"1.10","server":{},"slash_commands":[]}}\n'


class Provider:
    """One kept-alive connection to the provider."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
        self.address = (host, int(port))
        self.head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: %d\r\n\r\n"
        self.socket: socket.socket | None = None

    def stream(self, messages: list[bytes]) -> Iterator[bytes]:
        """Blocks of a response; each holds whole events, for the provider frames them one by one."""
        if self.socket is None:
            self.socket = socket.create_connection(self.address)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = b'{"model":"m","stream":true,"messages":[' + b",".join(messages) + b"]}"
        self.socket.sendall((self.head % len(body)).encode() + body)
        rest = b""
        while True:
            block = rest + self.socket.recv(262_144)
            end = block.rfind(b"\n") + 1
            yield block[:end]
            if block.endswith(b"0\r\n\r\n"):
                return
            rest = block[end:]


class Floor:
    """One session."""

    def __init__(self) -> None:
        directory = os.environ["FLOOR_DIR"]
        os.makedirs(directory, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self.context = os.open(os.path.join(directory, "context.jsonl"), flags)
        self.log = os.open(os.path.join(directory, "wire.jsonl"), flags)
        self.provider = Provider(os.environ["FLOOR_URL"])
        self.messages = [
            line for line in os.read(self.context, 1 << 30).split(b"\n") if line and not line.startswith(b'{"role":"_')
        ]
        self.input = b""
        self.external: set[str] = set()
        self.asks = "--yolo" not in sys.argv

    def serve(self) -> None:
        """Until the end of the input."""
        while line := self.line():
            message = json.loads(line)
            call_id = quoted(message["id"]).encode()
            if message["method"] == "initialize":
                self.external = {tool["name"] for tool in message["params"].get("external_tools", ())}
                os.write(1, INITIALIZED % call_id)
            elif message["method"] == "replay":
                events = self.replay()
                result = b'{"status":"finished","events":%d,"requests":0}' % events
                os.write(1, b'{"jsonrpc":"2.0","id":' + call_id + b',"result":' + result + b"}\n")
            else:
                self.turn(message["params"]["user_input"])
                os.write(1, b'{"jsonrpc":"2.0","id":' + call_id + b',"result":{"status":"finished"}}\n')

    def replay(self) -> int:
        """The stored events again: read, splice, write."""
        count, block = 0, bytearray()
        with open(os.path.join(os.environ["FLOOR_DIR"], "wire.jsonl"), "rb") as log:
            for line in log:
                at = line.find(b'"message":')
                if at > 0:
                    count += 1
                    block += b'{"jsonrpc":"2.0","method":"event","params":%b}\n' % line[at + 10 : -2].lstrip()
                if len(block) > 65_536:
                    os.write(1, block)
                    block.clear()
        os.write(1, block)
        return count

    def line(self) -> bytes:
        """The next line of the input; empty at its end."""
        while b"\n" not in self.input:
            block = os.read(0, 65_536)
            if not block:
                return b""
            self.input += block
        line, _, self.input = self.input.partition(b"\n")
        return line

    def turn(self, text: str) -> None:
        """Steps until the model calls nothing."""
        self.emit(b"TurnBegin", b'{"user_input":' + quoted(text).encode() + b"}")
        self.store(b'{"role":"user","content":' + quoted(text).encode() + b"}")
        step = 0
        calls = [("", "", "")]
        while calls:
            step += 1
            self.emit(b"StepBegin", b'{"n":%d}' % step)
            calls = self.step()
            self.emit(b"StatusUpdate", b"{}")
            for call_id, name, arguments in calls:
                self.call(call_id, name, arguments)
        self.emit(b"TurnEnd", b"{}")

    def step(self) -> list[tuple[str, str, str]]:
        """One model call: parts out as they come; the calls it makes."""
        texts: list[str] = []
        calls: list[tuple[str, str]] = []
        pieces: list[list[str]] = []
        for block in self.provider.stream(self.messages):
            lines: list[str] = []
            for line in block.split(b"\n"):
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:])["choices"]
                    delta: dict[str, Any] = choices[0]["delta"] if choices else {}
                    if text := delta.get("content"):
                        texts.append(text)
                        lines.append('{"type":"ContentPart","payload":{"type":"text","text":' + quoted(text) + "}}")
                    for part in delta.get("tool_calls", ()):
                        lines.append(self.part(part, calls, pieces))
            os.write(1, "".join(map(self.event_line, lines)).encode())
        self.log_part("".join(texts))
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
        found = [(call_id, name, "".join(parts)) for (call_id, name), parts in zip(calls, pieces, strict=True)]
        if found:
            message["tool_calls"] = [
                {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in found
            ]
        self.store(json.dumps(message).encode())
        return found

    def event_line(self, envelope: str) -> str:
        """A streamed event as a line for the client."""
        return f'{{"jsonrpc":"2.0","method":"event","params":{envelope}}}\n'

    @staticmethod
    def part(part: dict[str, Any], calls: list[tuple[str, str]], pieces: list[list[str]]) -> str:
        """A piece of a call as an event."""
        function = part["function"]
        if "id" in part:
            calls.append((part["id"], function["name"]))
            pieces.append([function["arguments"]])
            payload = {"type": "function", "id": part["id"], "function": function}
            return '{"type":"ToolCall","payload":' + json.dumps(payload) + "}"
        pieces[-1].append(function["arguments"])
        return '{"type":"ToolCallPart","payload":{"arguments_part":' + quoted(function["arguments"]) + "}}"

    def call(self, call_id: str, name: str, text: str) -> None:
        """Run a call and announce its result."""
        arguments = json.loads(text)
        if name in self.external:
            output = self.ask("ToolCallRequest", {"id": call_id, "name": name, "arguments": text})["return_value"][
                "output"
            ]
        elif name == "Shell":
            if self.asks:
                self.ask("ApprovalRequest", {"id": call_id, "tool_call_id": call_id, "action": "run command"})
            output = shell(arguments["command"])
        elif name == "ReadFile":
            output = read_file(arguments)
        elif name == "Grep":
            output = first_lines(["rg", "--no-config", "-n", arguments["pattern"], arguments["path"]])
        elif name == "Glob":
            output = first_lines(["rg", "--no-config", "--files", "-g", arguments["pattern"]])
        else:
            output = "Tool not found"
        value: dict[str, Any] = {"is_error": False, "output": output, "message": "", "display": []}
        self.emit(b"ToolResult", json.dumps({"tool_call_id": call_id, "return_value": value}).encode())
        self.store(json.dumps({"role": "tool", "content": output, "tool_call_id": call_id}).encode())

    def ask(self, kind: str, payload: dict[str, str]) -> dict[str, Any]:
        """A request to the client and its answer."""
        params = json.dumps({"type": kind, "payload": payload}, separators=(",", ":"))
        self.log_line(params.encode())
        line = f'{{"jsonrpc":"2.0","method":"request","id":{quoted(payload["id"])},"params":{params}}}\n'
        os.write(1, line.encode())
        return json.loads(self.line())["result"]

    def emit(self, kind: bytes, payload: bytes) -> None:
        """Log an event, then send it."""
        envelope = b'{"type":"%b","payload":%b}' % (kind, payload)
        self.log_line(envelope)
        os.write(1, b'{"jsonrpc":"2.0","method":"event","params":%b}\n' % envelope)

    def log_part(self, text: str) -> None:
        """Log merged text."""
        if text:
            self.log_line(b'{"type":"ContentPart","payload":{"type":"text","text":' + quoted(text).encode() + b"}}")

    def log_line(self, envelope: bytes) -> None:
        """Append to wire.jsonl."""
        os.write(self.log, b'{"timestamp": 1.0, "message": %b}\n' % envelope)

    def store(self, message: bytes) -> None:
        """Append to context.jsonl and to the history."""
        os.write(self.context, message + b"\n")
        self.messages.append(message)


def shell(command: str) -> str:
    """Run a command; its last 30 000 bytes."""
    kept = b""
    with subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        output = process.stdout.fileno()
        while block := os.read(output, BLOCK):
            kept = (kept + block)[-30_000:]
    return kept.decode(errors="replace")


def read_file(arguments: dict[str, Any]) -> str:
    """One pass in blocks: count the lines, keep the first or the last 64 KiB."""
    lines, kept = 0, b""
    tail = arguments.get("line_offset", 1) < 0
    with open(arguments["path"], "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            lines += block.count(b"\n")
            kept = block if tail or not kept else kept
    window = kept[-65_536:] if tail else kept[:65_536]
    numbered = enumerate(window.split(b"\n")[: arguments.get("n_lines", 1000)], 1)
    return "".join(f"{number:6d}\t{line[:2000].decode(errors='replace')}\n" for number, line in numbered)


def first_lines(command: list[str]) -> str:
    """Run ripgrep to its end; keep the first 250 lines."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        output = process.stdout.fileno()
        kept = b""
        while block := os.read(output, BLOCK):
            kept = kept or block
    return b"\n".join(kept.split(b"\n")[:250]).decode(errors="replace")


if __name__ == "__main__":
    Floor().serve()
