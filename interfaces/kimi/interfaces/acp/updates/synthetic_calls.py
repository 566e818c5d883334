"""What shows as a tool call although no model called one: waiting for MCP servers, compacting (acp spec 3.1)."""

from __future__ import annotations

from typing import Final

from kimi.domain.events.event import McpStatus
from kimi.interfaces.acp.updates.result_content import Json, text_content

LOADING_S: Final = 0.5
"""A shorter wait for MCP servers is not shown."""

_FAILED = ("failed", "unauthorized")
_ON_THE_WAY = ("pending", "connecting")


def _call(call_id: str, title: str, status: str, text: str | None = None) -> Json:
    shape: Json = {"sessionUpdate": "tool_call", "toolCallId": call_id, "title": title, "kind": "other"}
    shape["status"] = status
    return shape if text is None else shape | {"content": [text_content(text)]}


def _ended(call_id: str, status: str, text: str | None = None) -> Json:
    shape: Json = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}
    return shape if text is None else shape | {"content": [text_content(text)]}


class McpLoading:
    """The wait for MCP servers, and which of them could not be reached: each is named once."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self._servers: dict[str, str] = {}
        self._untold: dict[str, None] = {}
        self._told: set[str] = set()
        self._late: list[str] = []
        self._is_loading = False
        self._shown_id: str | None = None
        self._number = 0
        self.due_at: float | None = None

    def shown(self, tool: str) -> str:
        """How a tool that is not built in is called: with its server, where one is known to have it."""
        server = self._servers.get(tool)
        return tool if server is None else f"{server}: {tool.removeprefix(f'mcp__{server}__')}"

    def learn(self, status: McpStatus) -> None:
        """Take in which servers there are."""
        self._late = [server.name for server in status.servers if server.status in _ON_THE_WAY]
        for server in status.servers:
            self._servers |= dict.fromkeys(server.tools, server.name)
            if server.status in _FAILED and server.name not in self._told:
                self._untold[server.name] = None
            elif server.status == "connected":
                self._untold.pop(server.name, None)
                self._told.discard(server.name)

    def begin(self) -> None:
        """The turn waits; shown when it takes long."""
        self._is_loading = True
        self.due_at = None if self.silent else 0.0

    def due(self, now: float, turn_id: str) -> list[Json]:
        """Show the wait when it is time."""
        if self.due_at is None or self.due_at > now:
            return []
        if self.due_at == 0.0:
            self.due_at = now + LOADING_S
            return []
        self.due_at = None
        return [_call(self._new_id(turn_id), "Connecting MCP servers", "in_progress")]

    def end(self, turn_id: str) -> list[Json]:
        """The turn goes on, perhaps without some."""
        self._is_loading, self.due_at = False, None
        shown, self._shown_id = self._shown_id, None
        if shown is None:
            return self.untold(turn_id)
        missing = [self._names(), self._late_names()]
        return [_ended(shown, "completed", "\n".join(text for text in missing if text) or None)]

    def untold(self, turn_id: str) -> list[Json]:
        """Name servers that failed when nobody waited for them."""
        if self.silent or self._is_loading or not self._untold:
            return []
        shown = _call(self._new_id(turn_id), "Connecting MCP servers", "completed", self._names())
        self._shown_id = None
        return [shown]

    def settle(self) -> list[Json]:
        """Nobody waits any more."""
        shown, self._shown_id = self._shown_id, None
        self._is_loading, self.due_at = False, None
        return [_ended(shown, "failed")] if shown else []

    def _new_id(self, turn_id: str) -> str:
        self._number += 1
        self._shown_id = f"{turn_id}/mcp-{self._number}"
        return self._shown_id

    def _names(self) -> str | None:
        names = ", ".join(self._untold)
        self._told |= self._untold.keys()
        self._untold.clear()
        return f"These MCP servers could not be connected; their tools are missing: {names}" if names else None

    def _late_names(self) -> str | None:
        names = ", ".join(self._late)
        return f"These MCP servers have not answered yet; their tools are missing so far: {names}" if names else None


class Compactions:
    """Compaction as updates of its own where the client knows them, else as a tool call."""

    def __init__(self, *, with_updates: bool) -> None:
        self._with_updates = with_updates
        self._turn_id, self._number = "", 0
        self._open: str | None = None

    def begin(self, turn_id: str) -> list[Json]:
        """It starts."""
        found = self.settle()
        self._number = self._number + 1 if turn_id == self._turn_id else 1
        self._turn_id = turn_id
        if self._with_updates:
            self._open = f"{turn_id}-c{self._number}"
            return [*found, _update(self._open, "in_progress")]
        self._open = f"{turn_id}/compact-{self._number}"
        return [*found, _call(self._open, "Compacting the conversation", "in_progress")]

    def end(self, status: str = "completed") -> list[Json]:
        """It is over."""
        open_id, self._open = self._open, None
        if open_id is None:
            return []
        return [_update(open_id, status) if self._with_updates else _ended(open_id, status)]

    def settle(self) -> list[Json]:
        """It was cut short."""
        return self.end("cancelled" if self._with_updates else "failed")


def _update(compaction_id: str, status: str) -> Json:
    return {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": status}
