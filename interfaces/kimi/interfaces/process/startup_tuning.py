"""A lean start of a process of ours: nothing is looked for that cannot be there.

Together this is a tenth of the time to the first answer. For the console command only, which begins with it; drivers
that stay end it. A program that embeds us does as it likes.
"""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType
from typing import Any, Final

_METADATA_MODULE: Final = "importlib.metadata"


def begin() -> None:
    """Before the imports: no search for garbage, next to none comes; no search for plugins of pydantic.

    pydantic looks through the metadata of all installed distributions for them, which takes thirty modules.
    """
    gc.disable()
    if _METADATA_MODULE not in sys.modules:
        sys.modules[_METADATA_MODULE] = importlib.__dict__["metadata"] = _MetadataStub(_METADATA_MODULE)


def end(*, freeze: bool = True) -> None:
    """Everything is imported: the garbage collector works again, and does not look at what stays anyway.

    Without `freeze` it does: there are objects already that will not stay, and frozen ones are never collected.
    """
    _remove_stub()
    if freeze:
        gc.freeze()
    gc.enable()


class _MetadataStub(ModuleType):
    """Stands for `importlib.metadata` until more of it is wanted than plugins of pydantic."""

    def entry_points(self, **selected: str) -> Any:
        """What is installed under this group; no plugins of pydantic."""
        return () if selected == {"group": "pydantic"} else _import_metadata().entry_points(**selected)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # every import asks for some of these
            raise AttributeError(name)
        return getattr(_import_metadata(), name)


def _import_metadata() -> Any:
    _remove_stub()
    return importlib.import_module(_METADATA_MODULE)


def _remove_stub() -> None:
    if isinstance(sys.modules.get(_METADATA_MODULE), _MetadataStub):
        del sys.modules[_METADATA_MODULE], importlib.__dict__["metadata"]
