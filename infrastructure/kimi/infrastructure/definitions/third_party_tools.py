"""Tools of other distributions: entry points of the group `kimi.tools` (tools spec 1.2).

The name of an entry point is the id that agent files use. Installed metadata is read only if an agent file names an id
that is not built in.
"""

from __future__ import annotations

from typing import cast

from kimi.application.ports import ThirdPartyTool
from kimi.domain.errors import ConfigError

GROUP = "kimi.tools"


def is_registered(tool_id: str) -> bool:
    """Return whether an installed distribution registered this id; nothing of it is imported."""
    from importlib.metadata import entry_points

    return bool(entry_points(group=GROUP, name=tool_id))


def load_tool(tool_id: str) -> ThirdPartyTool | None:
    """Load what was registered under this id; None if nothing was.

    Raises:
        ConfigError: it cannot be imported, or cannot be called.
    """
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=tool_id):
        try:
            made: object = entry.load()
        except Exception as error:
            raise ConfigError(f"The tool '{tool_id}' cannot be loaded from {entry.value}: {error}") from error
        if not callable(made):
            raise ConfigError(f"The tool '{tool_id}' cannot be made: {entry.value} cannot be called.")
        return cast("ThirdPartyTool", made)
    return None
