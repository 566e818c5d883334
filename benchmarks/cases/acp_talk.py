"""An ACP client that costs little: it looks at the head of each line and parses only answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.client import Json, WireClient
from benchmarks.worlds import World

_UPDATE = b'{"jsonrpc":"2.0","method":"session/update"'
_CHUNK = b'"agent_message_chunk"'
_PIECE = b"piece number"
_SESSION = b'"sessionId":"'


class AcpClient(WireClient):
    """A `kimi acp` process. `sent` is how many bytes it has written; `on_update` sees each of its updates."""

    sent = 0
    on_update: Callable[[bytes], None] | None = None

    def shake_hands(self) -> float:
        """`initialize`; seconds since the process was started."""
        self.answer(self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}}))
        return time.perf_counter() - self.began

    def new_session(self, cwd: Path) -> str:
        """A new session; its id."""
        return self.answer(self.ask("session/new", {"cwd": str(cwd), "mcpServers": []}))["sessionId"]

    def prompt_in(self, session_id: str, text: str = "go") -> int:
        """Send a prompt; the id of the request."""
        return self.ask("session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]})

    def ask(self, method: str, params: Json) -> int:
        """Send a request; its id."""
        self._next_id += 1
        self._send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        return self._next_id

    def answer(self, call_id: int) -> Json:
        """Read to the answer to this request; its result. Raises RuntimeError for an error."""
        return self.answers([call_id])[call_id]

    def answers(self, call_ids: Sequence[int], on_answer: Callable[[int], None] | None = None) -> dict[int, Json]:
        """Read to the answers to all of these requests; their results by id."""
        found: dict[int, Json] = {}
        while len(found) < len(call_ids):
            for line in self._lines_now():
                self.sent += len(line) + 1
                if line.startswith(_UPDATE):
                    if self.on_update is not None:
                        self.on_update(line)
                    continue
                message = json.loads(line)
                if "result" not in message:
                    raise RuntimeError(f"not an answer: {line[:500]!r}")
                if message["id"] in call_ids:
                    found[message["id"]] = message["result"]
                    if on_answer is not None:
                        on_answer(message["id"])
        return found

    def settle(self, seconds: float = 1.5) -> None:
        """Let it import what it imports behind the first answers."""
        time.sleep(seconds)
        self.answer(self.ask("session/list", {}))


class Fairness:
    """When each session had its first chunk, how many pieces came, and when each was done."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.first: dict[bytes, float] = {}
        self.pieces = 0
        self.done: list[float] = []

    def update(self, line: bytes) -> None:
        """An update of some session."""
        if _CHUNK in line:
            start = line.index(_SESSION) + len(_SESSION)
            session_id = line[start : line.index(b'"', start)]
            self.first.setdefault(session_id, self.now())
            self.pieces += line.count(_PIECE)

    def ended(self, call_id: int) -> None:
        """A prompt was answered."""
        self.done.append(self.now())

    def now(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began


def acp_in(place: World, command: Sequence[str]) -> AcpClient:
    """Start the program as the agent of an editor."""
    return AcpClient([*command, "acp"], place.work, place.environ)
