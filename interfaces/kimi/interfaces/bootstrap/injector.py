"""The container library, imported without what it would integrate with.

It imports web frameworks, YAML and settings libraries wherever they happen to be installed, and they are as soon
as an MCP library is. None of that is used here, and it would double the start-up time (performance spec 4).
"""

from __future__ import annotations

import sys
from typing import cast

_modules = cast("dict[str, object]", sys.modules)
_hidden_modules = [
    name for name in ("starlette", "fastapi", "flask", "yaml", "pydantic_settings") if name not in _modules
]
_modules.update(dict.fromkeys(_hidden_modules))  # None makes an import fail, which the library takes as "not installed"
try:
    from dependency_injector import containers, errors, providers
finally:
    for _name in _hidden_modules:
        del _modules[_name]

__all__ = ["containers", "errors", "providers"]
