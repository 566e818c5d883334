"""Compose the MCP servers of a conversation (tools spec 4).

Without a configured server none of the modules used here is imported.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio.to_thread

from kimi.application.ports import NewId, SessionFiles, ToolSource, Workspace
from kimi.application.settings.settings import Settings
from kimi.interfaces.bootstrap.tools.machine import find_spill_directory
from kimi.interfaces.process.log import hide_secrets
from kimi.interfaces.version import __version__

if TYPE_CHECKING:
    from kimi.application.conversation.conversation import Conversation
    from kimi.application.toolset.mcp_tools import ServerTools


def build_tool_source(
    settings: Settings, workspace: Workspace, files: SessionFiles, environ: Mapping[str, str]
) -> ToolSource:
    """Return the configured servers, not connected yet."""
    from kimi.infrastructure.json_schema import check_schema
    from kimi.infrastructure.mcp.host_context import McpHostContext
    from kimi.infrastructure.mcp.tool_source import McpToolSource

    def list_roots() -> Sequence[str]:
        return [workspace.work_dir, *settings.additional_dirs, *files.state.additional_dirs]

    host = McpHostContext(
        workspace.work_dir,
        settings.share_dir,
        environ,
        __version__,
        check_schema,
        list_roots,
        hide_secrets,
        settings.mcp.max_message_bytes,
    )
    return McpToolSource(settings.mcp, host)


def build_server_tools(
    settings: Settings,
    files: SessionFiles,
    source: ToolSource,
    conversation: Callable[[], Conversation],
    new_id: NewId,
) -> ServerTools:
    """Return the conversation's tools for what the servers offer."""
    from kimi.application.toolset.mcp_tool import ServerToolDeps
    from kimi.application.toolset.mcp_tools import ServerTools
    from kimi.infrastructure.json_schema import check_arguments
    from kimi.infrastructure.tools.output import write_spill_file

    def may_ask() -> bool:
        current = conversation()
        return current.client.supports_question and not current.policy.is_user_absent

    async def spill(text: str) -> str | None:
        directory = find_spill_directory(files)
        if directory is None:
            return None
        path = os.path.join(directory, f"mcp-{secrets.token_hex(8)}.txt")
        return await anyio.to_thread.run_sync(write_spill_file, path, text)

    deps = ServerToolDeps(source, check_arguments, new_id, may_ask, spill, settings.mcp.max_output_chars)
    return ServerTools(settings.mcp, deps)
