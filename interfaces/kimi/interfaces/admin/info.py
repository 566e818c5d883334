"""`kimi info`: versions, for users and for clients that choose their protocol by them (runtime spec 1.6)."""

from __future__ import annotations

import json
import platform

from kimi.interfaces.version import __version__

AGENT_SPEC_VERSIONS = ("1",)
WIRE_PROTOCOL_VERSION = "1.10"


def format_info(as_json: bool) -> str:
    """Return four labelled lines, or one JSON object on one line; without the final newline."""
    python = platform.python_version()
    if as_json:
        return json.dumps(
            {
                "kimi_cli_version": __version__,
                "agent_spec_versions": list(AGENT_SPEC_VERSIONS),
                "wire_protocol_version": WIRE_PROTOCOL_VERSION,
                "python_version": python,
            }
        )
    return (
        f"kimi-cli version: {__version__}\n"
        f"agent spec versions: {', '.join(AGENT_SPEC_VERSIONS)}\n"
        f"wire protocol: {WIRE_PROTOCOL_VERSION}\n"
        f"python version: {python}"
    )
