"""Flows as Mermaid flowcharts: the subset of runtime spec 7.4, one statement per line.

A run of hyphens is an arrow, or its beginning, before it is part of an id.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kimi.domain.skills.flow import Diagram, Flow, FlowInvalid

_SKIPPED: Final = frozenset(
    {"flowchart", "graph", "classDef", "class", "style", "linkStyle", "click", "subgraph", "direction"}
)
_QUOTE_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|%%')
_ID = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_]|-(?![-.>]))*")
_SHAPES: Final = (("([", "])"), ("[", "]"), ("(", ")"), ("{", "}"))
_QUOTED = re.compile(r'\s*"((?:\\.|[^"\\])*)"\s*')
_CLASS = re.compile(r":::[A-Za-z0-9_-]+")
_TIP: Final = r"-{2,}>|-{3,}|={2,}>|={3,}|-\.+->?"
_ARROW = re.compile(rf"(?:{_TIP})(?:\s*\|(?P<piped>[^|]*)\|)?")
_LABELLED_ARROW = re.compile(rf"(?:--|==|-\.)\s*(?P<text>[^\s>].*?)(?:{_TIP}|(?<!\.)\.+->?)")


class _Node(NamedTuple):
    id: str
    label: str | None


def parse_mermaid(text: str) -> Flow:
    """The flow that a flowchart draws. Raises FlowInvalid."""
    diagram = Diagram()
    for number, line in enumerate(text.splitlines(), 1):
        statement = _without_comment(line).strip()
        if statement and statement != "end" and statement.split(maxsplit=1)[0] not in _SKIPPED:
            _Line(statement, number).read_into(diagram)
    return diagram.as_flow()


def _without_comment(line: str) -> str:
    starts = (found.start() for found in _QUOTE_OR_COMMENT.finditer(line) if found[0] == "%%")
    return line[: next(starts, None)]


class _Line:
    """A statement and how far it was read."""

    def __init__(self, text: str, number: int) -> None:
        self._text = text
        self._number = number
        self._at = 0

    def read_into(self, diagram: Diagram) -> None:
        source = self._node()
        diagram.node(*source, self._number)
        if self._at == len(self._text):
            return
        label = self._arrow()
        target = self._node()
        diagram.node(*target, self._number)
        diagram.edge(source.id, target.id, label, self._number)
        if self._at < len(self._text):
            raise self._fault("Unexpected text")

    def _node(self) -> _Node:
        match = _ID.match(self._text, self._at)
        if match is None:
            raise self._fault("Expected a node id")
        self._go_to(match.end())
        label = self._shape(match[0])
        if marked := _CLASS.match(self._text, self._at):
            self._go_to(marked.end())
        return _Node(match[0], label)

    def _shape(self, node_id: str) -> str | None:
        for opener, closer in _SHAPES:
            if self._text.startswith(opener, self._at):
                self._go_to(self._at + len(opener))
                label = self._label(closer)
                if not label:
                    raise FlowInvalid(f'Node "{node_id}" has an empty label', self._number)
                return label
        return None

    def _label(self, closer: str) -> str:
        """The text up to the closer, which may stand in quotes, with the closer taken as well."""
        quoted = _QUOTED.match(self._text, self._at)
        if quoted is not None and self._text.startswith(closer, quoted.end()):
            self._go_to(quoted.end() + len(closer))
            return _unescaped(quoted[1]).strip()
        end = self._text.find(closer, self._at)
        if end < 0:
            raise self._fault(f'Expected "{closer}" after the label')
        label = self._text[self._at : end].strip()
        self._go_to(end + len(closer))
        return label

    def _arrow(self) -> str | None:
        match = _ARROW.match(self._text, self._at) or _LABELLED_ARROW.match(self._text, self._at)
        if match is None:
            raise self._fault("Expected an arrow")
        self._go_to(match.end())
        label = match["piped"] if "piped" in match.re.groupindex else match["text"]
        return _unquoted(label) if label else None

    def _go_to(self, position: int) -> None:
        """Go on behind `position` and the blanks that follow it."""
        self._at = len(self._text) - len(self._text[position:].lstrip())

    def _fault(self, what: str) -> FlowInvalid:
        rest = self._text[self._at :]
        return FlowInvalid(f'{what} at "{rest}"' if rest else f"{what} at the end of the line", self._number)


def _unquoted(label: str) -> str:
    match = _QUOTED.fullmatch(label)
    return (_unescaped(match[1]) if match else label).strip()


def _unescaped(text: str) -> str:
    return text.replace('\\"', '"')
