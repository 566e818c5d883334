"""Import the SDK's connection without the SDK's models of the protocol: the only module that imports the SDK.

The package imports all of them at once, some hundred, which takes a third of a second and 20 MB. The connection and
the router pass messages as they are, and take 4 ms.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Final, cast

_PACKAGE: Final = "acp"

_modules = cast("dict[str, object]", sys.modules)
_hidden_modules = [name for name in ("logfire", "opentelemetry") if name not in _modules]
"""What the SDK traces its messages with where it is installed."""
_modules.update(dict.fromkeys(_hidden_modules))  # None makes an import fail, which the SDK takes as "not installed"
if _PACKAGE not in _modules and (_spec := find_spec(_PACKAGE)) is not None:
    # Its modules are found by its path alone. The package itself is not run before somebody else imports it.
    _bare_package = ModuleType(_PACKAGE)
    _bare_package.__path__ = list(_spec.submodule_search_locations or ())
    _modules[_PACKAGE] = _bare_package
    _hidden_modules.append(_PACKAGE)
try:
    from acp.connection import Connection
    from acp.exceptions import RequestError
    from acp.router import MessageRouter, Route
finally:
    for _name in _hidden_modules:
        del _modules[_name]

__all__ = ["Connection", "MessageRouter", "RequestError", "Route"]
