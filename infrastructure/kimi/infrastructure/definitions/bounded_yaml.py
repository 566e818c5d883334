"""YAML that somebody else may have written: parsed only if it is small however its aliases are resolved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import yaml

MAX_DEPTH = 32

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C if there is one: it takes a tenth of the time."""


def parse_yaml(text: str, max_nodes: int) -> object:
    """Return the value of the only document, of at most `max_nodes` with all aliases resolved.

    Raises:
        ValueError: it is not YAML, or too deep or too large with its aliases resolved; the text is one line.
    """
    try:
        _check_size(text, max_nodes)
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def _check_size(text: str, max_nodes: int) -> None:
    """Count nodes, and those that an alias stands for, before anything is built. Raises ValueError, YAMLError."""
    nodes, sizes = 0, dict[str, int]()
    open_nodes: list[tuple[str | None, int]] = []
    events = cast("Iterable[Any]", yaml.parse(text, Loader=_Loader))  # pyright: ignore[reportUnknownMemberType]
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"the alias {event.anchor} stands for nothing, or for itself")
            nodes += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = nodes - before
        if len(open_nodes) > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
        if nodes > max_nodes:  # a few lines with aliases of aliases can stand for billions
            raise ValueError(f"it has more than {max_nodes} values, with its aliases resolved")
