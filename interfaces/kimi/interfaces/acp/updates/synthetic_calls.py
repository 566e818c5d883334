"""Updates that look like tool calls of the model: waiting for MCP servers, and compacting (acp spec 3.1)."""

from __future__ import annotations

from typing import Final

from kimi.domain.events.event import McpStatus
from kimi.interfaces.acp.updates.result_content import JsonDict, text_content

SHOW_LOADING_AFTER_S: Final = 0.5
"""A shorter wait for MCP servers is not shown, in seconds."""

_FAILED_STATUSES = ("failed", "unauthorized")
_CONNECTING_STATUSES = ("pending", "connecting")


def _build_call(call_id: str, title: str, status: str, text: str | None = None) -> JsonDict:
    shape: JsonDict = {"sessionUpdate": "tool_call", "toolCallId": call_id, "title": title, "kind": "other"}
    shape["status"] = status
    return shape if text is None else shape | {"content": [text_content(text)]}


def _build_call_end(call_id: str, status: str, text: str | None = None) -> JsonDict:
    shape: JsonDict = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}
    return shape if text is None else shape | {"content": [text_content(text)]}


class McpLoading:
    """Shows the wait for MCP servers and names each server that could not be reached, once."""

    def __init__(self, *, is_silent: bool) -> None:
        self.is_silent = is_silent
        self._servers: dict[str, str] = {}
        self._unreported: dict[str, None] = {}
        self._reported: set[str] = set()
        self._late_servers: list[str] = []
        self._is_loading = False
        self._open_call_id: str | None = None
        self._call_count = 0
        self.next_update_at: float | None = None

    def find_display_name(self, tool: str) -> str:
        """Return the name of a tool for titles: with the name of its MCP server before it, if it has one."""
        server = self._servers.get(tool)
        return tool if server is None else f"{server}: {tool.removeprefix(f'mcp__{server}__')}"

    def record_status(self, status: McpStatus) -> None:
        """Record the state of the servers."""
        self._late_servers = [server.name for server in status.servers if server.status in _CONNECTING_STATUSES]
        for server in status.servers:
            self._servers |= dict.fromkeys(server.tools, server.name)
            if server.status in _FAILED_STATUSES and server.name not in self._reported:
                self._unreported[server.name] = None
            elif server.status == "connected":
                self._unreported.pop(server.name, None)
                self._reported.discard(server.name)

    def begin(self) -> None:
        """Begin a wait of the turn; it is shown if it takes long."""
        self._is_loading = True
        # 0.0 starts the delay at the next `collect_due_updates`, which knows the time.
        self.next_update_at = None if self.is_silent else 0.0

    def collect_due_updates(self, now: float, turn_id: str) -> list[JsonDict]:
        """Return the update that shows the wait, if it is due."""
        if self.next_update_at is None or self.next_update_at > now:
            return []
        if self.next_update_at == 0.0:
            self.next_update_at = now + SHOW_LOADING_AFTER_S
            return []
        self.next_update_at = None
        return [_build_call(self._open_call(turn_id), "Connecting MCP servers", "in_progress")]

    def end(self, turn_id: str) -> list[JsonDict]:
        """End the wait; name the servers whose tools are missing."""
        self._is_loading, self.next_update_at = False, None
        shown, self._open_call_id = self._open_call_id, None
        if shown is None:
            return self.report_failures(turn_id)
        missing = [self._take_failures_text(), self._format_late_servers()]
        return [_build_call_end(shown, "completed", "\n".join(text for text in missing if text) or None)]

    def report_failures(self, turn_id: str) -> list[JsonDict]:
        """Name servers that failed while no turn waited for them."""
        if self.is_silent or self._is_loading or not self._unreported:
            return []
        shown = _build_call(self._open_call(turn_id), "Connecting MCP servers", "completed", self._take_failures_text())
        self._open_call_id = None
        return [shown]

    def cancel(self) -> list[JsonDict]:
        """End the wait because the turn was cut short."""
        shown, self._open_call_id = self._open_call_id, None
        self._is_loading, self.next_update_at = False, None
        return [_build_call_end(shown, "failed")] if shown else []

    def _open_call(self, turn_id: str) -> str:
        self._call_count += 1
        self._open_call_id = f"{turn_id}/mcp-{self._call_count}"
        return self._open_call_id

    def _take_failures_text(self) -> str | None:
        names = ", ".join(self._unreported)
        self._reported |= self._unreported.keys()
        self._unreported.clear()
        return f"These MCP servers could not be connected; their tools are missing: {names}" if names else None

    def _format_late_servers(self) -> str | None:
        names = ", ".join(self._late_servers)
        return f"These MCP servers have not answered yet; their tools are missing so far: {names}" if names else None


class CompactionUpdates:
    """Shows compaction: as compaction updates if the client supports them, else as a tool call."""

    def __init__(self, *, with_updates: bool) -> None:
        self._with_updates = with_updates
        self._turn_id, self._compaction_count = "", 0
        self._open_id: str | None = None

    def begin(self, turn_id: str) -> list[JsonDict]:
        """Show that compaction begins."""
        found = self.cancel()
        self._compaction_count = self._compaction_count + 1 if turn_id == self._turn_id else 1
        self._turn_id = turn_id
        if self._with_updates:
            self._open_id = f"{turn_id}-c{self._compaction_count}"
            return [*found, _build_compaction_update(self._open_id, "in_progress")]
        self._open_id = f"{turn_id}/compact-{self._compaction_count}"
        return [*found, _build_call(self._open_id, "Compacting the conversation", "in_progress")]

    def end(self, status: str = "completed") -> list[JsonDict]:
        """Show that compaction has ended."""
        open_id, self._open_id = self._open_id, None
        if open_id is None:
            return []
        return [_build_compaction_update(open_id, status) if self._with_updates else _build_call_end(open_id, status)]

    def cancel(self) -> list[JsonDict]:
        """Show that compaction was cut short, if any is open."""
        return self.end("cancelled" if self._with_updates else "failed")


def _build_compaction_update(compaction_id: str, status: str) -> JsonDict:
    return {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": status}
