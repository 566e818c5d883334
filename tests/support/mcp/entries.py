"""Entries of `mcp.json` and settings that start the raw server beside this module."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kimi.application.settings.settings import McpServer

RAW = Path(__file__).with_name("raw_server.py")
SPECIAL = frozenset(McpServer.model_fields) - {"name", "command", "args"}


def raw_entry(**options: Any) -> dict[str, Any]:
    """Return an entry of `mcpServers` that starts the raw server with these options; keys of an entry stay in it."""
    keys = {"timeout", *SPECIAL}
    own = {key: value for key, value in options.items() if key in keys}
    told = {key: value for key, value in options.items() if key not in keys}
    return {"command": sys.executable, "args": ["-S", str(RAW), json.dumps(told)], **own}


def raw_server(name: str, **options: Any) -> McpServer:
    """Return the settings of such an entry."""
    return McpServer(name=name, **raw_entry(**options))


def config(**entries: dict[str, Any]) -> str:
    """Return the text of an `mcp.json`."""
    return json.dumps({"mcpServers": entries})
