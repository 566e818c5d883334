"""The temporary home of a server under test: its directories, configuration and environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kimi.interfaces.conformance.model_server import API_KEY, MODEL_NAME

_FOREIGN: Final = ("KIMI_", "OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_")


@dataclass(slots=True)
class Home:
    """Directories below `root`: `share` with the configuration, `work`, and the user's `home`."""

    root: Path
    base_url: str
    environ: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def share(self) -> Path:
        return self.root / "share"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def prepare(self, config: str = "", capabilities: tuple[str, ...] = (), context_size: int = 100_000) -> None:
        """Make the directories and write the configuration, with more TOML at its end."""
        for path in (self.share, self.work, self.root / "home"):
            path.mkdir(parents=True, exist_ok=True)
        lines = [
            'default_model = "kit"',
            "[providers.kit]",
            'type = "openai_legacy"',
            f"base_url = {json.dumps(self.base_url)}",
            f"api_key = {json.dumps(API_KEY)}",
            "[models.kit]",
            'provider = "kit"',
            f"model = {json.dumps(MODEL_NAME)}",
            f"max_context_size = {context_size}",
            f"capabilities = {json.dumps(list(capabilities))}",
        ]
        self.write_config("\n".join(lines) + "\n" + config)

    def write_config(self, text: str) -> None:
        """Write the configuration file."""
        (self.share / "config.toml").write_text(text, encoding="utf-8")

    def write_mcp_servers(self, servers: Mapping[str, Any]) -> None:
        """Write the file with the MCP servers."""
        (self.share / "mcp.json").write_text(json.dumps({"mcpServers": dict(servers)}), encoding="utf-8")

    def full_environ(self) -> dict[str, str]:
        """Return the environment of the server: ours without what configures such programs, and the kit's."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_FOREIGN) and not name.lower().endswith("_proxy")
        }
        user = str(self.root / "home")
        kit = {
            "KIMI_SHARE_DIR": str(self.share),
            "HOME": user,
            "USERPROFILE": user,
            "KIMI_CONFORMANCE_BASE_URL": self.base_url,
            "KIMI_CONFORMANCE_API_KEY": API_KEY,
            "KIMI_CONFORMANCE_MODEL": MODEL_NAME,
        }
        return kept | kit | self.environ

    def event_logs(self) -> list[Path]:
        """Return the event logs of all stored sessions, oldest first; those of subagents are left out."""
        return sorted(self.share.glob("sessions/*/*/wire.jsonl"), key=lambda path: path.stat().st_mtime)

    def session_directories(self) -> list[Path]:
        """Return the directories of all stored sessions."""
        return [path for path in self.share.glob("sessions/*/*") if path.is_dir()]

    def recorded(self) -> list[dict[str, Any]]:
        """Return the lines of the newest event log."""
        logs = self.event_logs()
        lines = logs[-1].read_text(encoding="utf-8").splitlines() if logs else []
        return [json.loads(line) for line in lines if line.strip()]
