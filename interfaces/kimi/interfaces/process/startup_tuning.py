"""Make the console command start faster: no garbage collection, no search for pydantic plugins, nothing compiled early.

Together this saves a tenth of the time to the first answer. Only the console command calls `begin`; drivers that keep
running call `end`. A program that embeds the agent is not affected.
"""

from __future__ import annotations

import gc
import importlib
import sys
import typing
from types import ModuleType
from typing import Any, Final

from kimi.interfaces.process import lazy_dataclasses

_METADATA_MODULE: Final = "importlib.metadata"


def begin() -> None:
    """Disable the garbage collector and the search for pydantic plugins. Must be called before the imports.

    Imports leave hardly any garbage. To find plugins, pydantic reads the metadata of all installed distributions, which
    loads thirty modules.
    """
    gc.disable()
    lazy_dataclasses.install()
    _put_off_annotations()
    if _METADATA_MODULE not in sys.modules:
        sys.modules[_METADATA_MODULE] = importlib.__dict__["metadata"] = _MetadataStub(_METADATA_MODULE)


def end(*, freeze: bool = True) -> None:
    """Enable the garbage collector after the imports; with `freeze`, it ignores all objects that exist now.

    Frozen objects are never collected, so `freeze` must be False if some of them will become garbage.
    """
    typing.__dict__.pop("compile", None)
    _remove_stub()
    if freeze:
        gc.freeze()
    gc.enable()


def _put_off_annotations() -> None:
    """Let annotations that are strings be compiled when they are evaluated, which few of them ever are.

    pydantic defines hundreds of typed dictionaries; to compile their annotations takes 5 ms.
    """

    def keep_source(source: str, *_: object) -> str:
        return source  # `eval` takes it as well as compiled code

    # The library looks up `compile` among its globals before the built-in functions.
    typing.__dict__["compile"] = keep_source


class _MetadataStub(ModuleType):
    """Replaces `importlib.metadata` until more of it is used than the search for pydantic plugins."""

    def entry_points(self, **selected: str) -> Any:
        """Return the entry points of this group; none for pydantic plugins."""
        return () if selected == {"group": "pydantic"} else _import_metadata().entry_points(**selected)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system reads some of these
            raise AttributeError(name)
        return getattr(_import_metadata(), name)


def _import_metadata() -> Any:
    _remove_stub()
    return importlib.import_module(_METADATA_MODULE)


def _remove_stub() -> None:
    if isinstance(sys.modules.get(_METADATA_MODULE), _MetadataStub):
        del sys.modules[_METADATA_MODULE], importlib.__dict__["metadata"]
