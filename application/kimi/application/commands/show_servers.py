"""`/mcp [reload]`: list the MCP servers, or connect those again that are not connected (tools spec 4.2)."""

from __future__ import annotations

from kimi.application.control.mcp_servers import list_servers, reload_servers, start_servers
from kimi.application.conversation.conversation import Conversation
from kimi.domain.content.parts import TextPart

_USAGE = "Usage: /mcp [reload]"
_NO_SERVERS = "No MCP servers are configured: `kimi mcp add` does that."


async def run_mcp_command(conversation: Conversation, arguments: str) -> None:
    """List the servers with their state; with `reload` connect the others again. Raises StoreFailed."""
    await conversation.events.emit(TextPart(_carry_out(conversation, arguments.strip().lower())))


def _carry_out(conversation: Conversation, word: str) -> str:
    if word not in ("", "reload"):
        return _USAGE
    servers = list_servers(conversation)
    if not servers:
        return _NO_SERVERS
    if not word:
        return "\n".join(f"- {one.name}: {one.state}{f' ({one.reason})' if one.reason else ''}" for one in servers)
    waiting = [one.name for one in servers if one.state != "connected"]
    reload_servers(conversation)
    start_servers(conversation)
    return f"Tried again: {', '.join(waiting)}. `/mcp` shows the outcome." if waiting else "All servers are connected."
