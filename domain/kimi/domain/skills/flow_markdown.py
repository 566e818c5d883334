"""Finds the flow in the text of a skill: the first Markdown block in one of the two diagram languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kimi.domain.skills.flow import Flow, FlowInvalid
from kimi.domain.skills.flow_d2 import parse_d2
from kimi.domain.skills.flow_mermaid import parse_mermaid

PARSERS: Final[Mapping[str, Callable[[str], Flow]]] = {"mermaid": parse_mermaid, "d2": parse_d2}
"""The parsers by the tag of the block."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)")


def parse_flow(markdown: str) -> Flow:
    """Parse the first fenced block that is tagged `mermaid` or `d2`. Raises FlowInvalid."""
    for tag, lines in iter_fenced_blocks(markdown):
        if (parse := PARSERS.get(tag)) is not None:
            return parse("\n".join(lines))
    raise FlowInvalid("There is no code block tagged mermaid or d2")


def iter_fenced_blocks(markdown: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the tag (lower case) and the lines of each fenced block; an unclosed block reaches to the end."""
    lines = iter(markdown.splitlines())
    for line in lines:
        if (opening := _FENCE.fullmatch(line)) is None:
            continue
        closing = re.compile(rf" {{0,3}}{opening[1][0]}{{{len(opening[1])},}}\s*")
        block: list[str] = []
        for inner in lines:
            if closing.fullmatch(inner):
                break
            block.append(inner)
        yield next(iter(opening[2].split(maxsplit=1)), "").lower(), block
