"""Import the SDK's connection without the SDK's models of the protocol: the only module that imports the SDK.

The package imports all its models at once, some hundred, which takes a third of a second and 10 MB. The connection and
the router, which pass messages on as they are, take 4 ms without them.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Final, cast

_PACKAGE: Final = "acp"
_TRACERS: Final = ("logfire", "opentelemetry")
"""What the SDK would trace its messages with where it is installed."""

_modules = cast("dict[str, object]", sys.modules)
_before = frozenset(_modules)
_modules.update((name, None) for name in _TRACERS if name not in _before)  # the SDK takes it as "not installed"
if _PACKAGE not in _before and (_spec := find_spec(_PACKAGE)) is not None:
    # The modules below are found by the path of the package, whose own code is not run.
    _bare_package = ModuleType(_PACKAGE)
    _bare_package.__path__ = list(_spec.submodule_search_locations or ())
    _modules[_PACKAGE] = _bare_package
try:
    from acp.connection import Connection
    from acp.exceptions import RequestError
    from acp.router import MessageRouter, Route
finally:
    # Whoever else imports the package gets all of it, anew.
    for _name in _modules.keys() - _before:
        if _name.partition(".")[0] in (_PACKAGE, *_TRACERS):
            del _modules[_name]

__all__ = ["Connection", "MessageRouter", "RequestError", "Route"]
