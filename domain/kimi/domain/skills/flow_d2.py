"""Flows as D2 diagrams: the subset of runtime spec 7.4.

Labels, chains of arrows, blocks of text and comments are read. Bodies in braces and properties are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Final

from kimi.domain.skills.flow import Diagram, Flow, FlowInvalid

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_TOKEN = re.compile(rf"(?P<comment>(?:^|(?<=\s))#.*)|(?P<quoted>{_QUOTED.pattern})|[{{}}]|[^{{}}\"#]+|.")
_BLOCK = re.compile(r"(?P<head>[^|\"#{}]*:)\s*(?P<fence>\|+)(?P<tag>[A-Za-z0-9]*)(?:\s+(?P<rest>.*))?")
_PROPERTIES: Final = frozenset(
    {
        "class", "constraint", "height", "icon", "label", "left", "link", "near", "shape", "source-arrowhead",
        "style", "target-arrowhead", "tooltip", "top", "width",
    }
)  # fmt: skip
"""A path in which one of these follows an id sets a property of appearance."""

_TOP_LEVEL_KEYWORDS: Final = frozenset({"classes", "direction", "vars"})
"""Keywords that are not nodes at the top level of a diagram."""


def parse_d2(text: str) -> Flow:
    """Parse a D2 diagram into a flow. Raises FlowInvalid."""
    diagram = Diagram()
    for number, statement, block in _split_statements(text):
        head, colon, label = statement.partition(":")
        head = head.strip()
        if _is_ignored(head, colon):
            continue
        _add_statement(diagram, head, block if block is not None else _parse_label(label), number)
    return diagram.build_flow()


def _add_statement(diagram: Diagram, head: str, label: str | None, line: int) -> None:
    chain = [_check_id(name.strip(), line) for name in head.split("->")]
    if len(chain) == 1:
        diagram.add_node(chain[0], label, line)
        return
    for name in chain:
        diagram.add_node(name, None, line)
    last = len(chain) - 2
    for index in range(last + 1):
        diagram.add_edge(chain[index], chain[index + 1], label if index == last else None, line)


def _is_ignored(head: str, colon: str) -> bool:
    first, *path = head.split(".")
    return head.startswith("(") or (bool(colon) and first in _TOP_LEVEL_KEYWORDS) or not _PROPERTIES.isdisjoint(path)


def _check_id(name: str, line: int) -> str:
    if not _ID.fullmatch(name):
        raise FlowInvalid(f'Expected a node id at "{name}"' if name else "Expected a node id", line)
    return name


def _parse_label(label: str) -> str | None:
    """Return a label without its quotes; None if it is empty."""
    label = label.strip()
    if _QUOTED.fullmatch(label):
        label = label[1:-1].replace('\\"', '"').strip()
    return label or None


def _split_statements(text: str) -> Iterator[tuple[int, str, str | None]]:
    """Yield the line number, the text and, if it has one, the block label of each statement outside of braces."""
    lines = iter(enumerate(text.splitlines(), 1))
    depth = opened = 0
    for number, line in lines:
        if depth == 0 and (block := _BLOCK.fullmatch(line.strip())) is not None:
            yield number, block["head"], _read_block(block, number, lines)
            continue
        statement, after = _strip_braced_text(line, depth)
        opened = number if depth == 0 else opened
        depth = after
        if depth < 0:
            raise FlowInvalid('Unexpected "}"', number)
        if statement:
            yield number, statement, None
    if depth:
        raise FlowInvalid('Expected "}" for this line', opened)


def _strip_braced_text(line: str, depth: int) -> tuple[str, int]:
    """Return the part of a line outside of braces, without comments, and the depth at its end."""
    kept = ""
    for token in _TOKEN.finditer(line):
        if token["comment"]:
            break
        if token[0] in ("{", "}"):
            depth += 1 if token[0] == "{" else -1
            if depth < 0:
                break
        elif depth == 0:
            kept += token[0]
    return kept.strip(), depth


def _read_block(opening: re.Match[str], number: int, lines: Iterator[tuple[int, str]]) -> str | None:
    """Return the text of a block. A block ends with the first line that ends with as many bars as it began with."""
    fence, rest = opening["fence"], (opening["rest"] or "").rstrip()
    if rest.endswith(fence):
        return rest.removesuffix(fence).strip() or None
    collected = [""]
    for _, line in lines:
        stripped = line.rstrip()
        if stripped.endswith(fence):
            collected.append(stripped.removesuffix(fence))
            return f"{rest}{dedent(chr(10).join(collected))}".strip() or None
        collected.append(line)
    raise FlowInvalid(f'Expected "{fence}" for this block', number)
