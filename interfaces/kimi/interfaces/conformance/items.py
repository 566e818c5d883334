"""The numbered items of the suites; their texts stand in the specification too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Item:
    """An item: since which version 1.N it applies, the capability that it is part of, and why it is not judged."""

    id: str
    area: str
    level: str
    since: int
    part: str
    reason: str
    title: str

    @property
    def protocol(self) -> str:
        """The protocol of the item's suite."""
        return "wire" if self.id.startswith("W-") else "acp"


@cache
def list_all_items() -> tuple[Item, ...]:
    """Return the items of both suites, in their order."""
    text = files("kimi.interfaces.conformance").joinpath("items.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:] if line]
    return tuple(Item(row[0], row[1], row[2], int(row[3]), row[4], row[5], row[6]) for row in rows)


def list_items(protocol: str) -> list[Item]:
    """Return the items of a suite."""
    return [item for item in list_all_items() if item.protocol == protocol]
