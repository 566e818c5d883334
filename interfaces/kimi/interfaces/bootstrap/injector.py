"""Import the container library without its integrations.

The library imports web frameworks, YAML and settings libraries if they are installed, and an MCP library installs
them. It also imports its own injection by annotation, which is the largest of its modules. Nothing of that is used
here, and it would double the start-up time (performance spec 4).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Final, cast

_WIRING_MODULE: Final = "dependency_injector.wiring"


def _wire(**arguments: Any) -> None:
    """Replace the library's `wire`, which is imported when a program that embeds this one calls it."""
    from dependency_injector.wiring import wire

    wire(**arguments)


def _unwire(**arguments: Any) -> None:
    """Replace the library's `unwire` in the same way."""
    from dependency_injector.wiring import unwire

    unwire(**arguments)


_modules = cast("dict[str, object]", sys.modules)
_hidden_modules = [
    name for name in ("starlette", "fastapi", "flask", "yaml", "pydantic_settings") if name not in _modules
]
_modules.update(dict.fromkeys(_hidden_modules))  # None makes an import fail, which the library takes as "not installed"
if _WIRING_MODULE not in _modules:
    _stub = ModuleType(_WIRING_MODULE)
    _stub.__dict__.update(wire=_wire, unwire=_unwire)
    _modules[_WIRING_MODULE] = _stub
    _hidden_modules.append(_WIRING_MODULE)  # a later import gets the real module
try:
    from dependency_injector import containers, errors, providers
finally:
    for _name in _hidden_modules:
        del _modules[_name]

__all__ = ["containers", "errors", "providers"]
