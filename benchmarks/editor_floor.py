"""The floor of an editor's agent: one session, hard-coded answers, and text over the same provider as `floor.py`.

It writes the same lines to the same two files as that one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # a script finds its own directory only

from benchmarks.floor import Floor, quoted

_CHUNK = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%s}}'
_UPDATE = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"floor","update":%s}}\n'


class EditorFloor(Floor):
    """One session of an editor."""

    def serve(self) -> None:
        """Until the end of the input."""
        while line := self.line():
            message = json.loads(line)
            result = '{"protocolVersion":1,"agentCapabilities":{}}'
            if message["method"] == "session/new":
                result = '{"sessionId":"floor"}'
            elif message["method"] == "session/prompt":
                self.turn(message["params"]["prompt"][0]["text"])
                result = '{"stopReason":"end_turn"}'
            os.write(1, f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{result}}}\n'.encode())

    def emit(self, kind: bytes, payload: bytes) -> None:
        """Log an event, of which the editor is not told."""
        self.log_line(b'{"type":"%b","payload":%b}' % (kind, payload))

    def step(self) -> list[tuple[str, str, str]]:
        """One model call: texts out as they come."""
        texts: list[str] = []
        for block in self.provider.stream(self.messages):
            lines: list[str] = []
            for line in block.split(b"\n"):
                choices = json.loads(line[6:])["choices"] if line.startswith(b"data: {") else ()
                if choices and (text := choices[0]["delta"].get("content")):
                    texts.append(text)
                    lines.append(_UPDATE % (_CHUNK % quoted(text)))
            os.write(1, "".join(lines).encode())
        self.log_part("".join(texts))
        self.store(json.dumps({"role": "assistant", "content": "".join(texts)}).encode())
        return []


if __name__ == "__main__":
    EditorFloor().serve()
