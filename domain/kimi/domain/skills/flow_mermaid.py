"""Flows as Mermaid flowcharts: the subset of runtime spec 7.4, one statement per line.

A run of hyphens is read as an arrow, or as its beginning, before it is read as part of an id.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kimi.domain.skills.flow import Diagram, Flow, FlowInvalid

_IGNORED_KEYWORDS: Final = frozenset(
    {"flowchart", "graph", "classDef", "class", "style", "linkStyle", "click", "subgraph", "direction"}
)
_QUOTE_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|%%')
_ID = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_]|-(?![-.>]))*")
_SHAPES: Final = (("([", "])"), ("[", "]"), ("(", ")"), ("{", "}"))
_QUOTED = re.compile(r'\s*"((?:\\.|[^"\\])*)"\s*')
_CLASS = re.compile(r":::[A-Za-z0-9_-]+")
_ARROW_TIP: Final = r"-{2,}>|-{3,}|={2,}>|={3,}|-\.+->?"
_ARROW = re.compile(rf"(?:{_ARROW_TIP})(?:\s*\|(?P<piped>[^|]*)\|)?")
_LABELLED_ARROW = re.compile(rf"(?:--|==|-\.)\s*(?P<text>[^\s>].*?)(?:{_ARROW_TIP}|(?<!\.)\.+->?)")


class _MermaidNode(NamedTuple):
    id: str
    label: str | None


def parse_mermaid(text: str) -> Flow:
    """Parse a Mermaid flowchart into a flow. Raises FlowInvalid."""
    diagram = Diagram()
    for number, line in enumerate(text.splitlines(), 1):
        statement = _strip_comment(line).strip()
        if statement and statement != "end" and statement.split(maxsplit=1)[0] not in _IGNORED_KEYWORDS:
            _MermaidLineParser(statement, number).parse_into(diagram)
    return diagram.build_flow()


def _strip_comment(line: str) -> str:
    starts = (found.start() for found in _QUOTE_OR_COMMENT.finditer(line) if found[0] == "%%")
    return line[: next(starts, None)]


class _MermaidLineParser:
    """A parser of one statement."""

    def __init__(self, text: str, number: int) -> None:
        self._text = text
        self._number = number
        self._position = 0

    def parse_into(self, diagram: Diagram) -> None:
        source = self._parse_node()
        diagram.add_node(*source, self._number)
        if self._position == len(self._text):
            return
        label = self._parse_arrow()
        target = self._parse_node()
        diagram.add_node(*target, self._number)
        diagram.add_edge(source.id, target.id, label, self._number)
        if self._position < len(self._text):
            raise self._syntax_error("Unexpected text")

    def _parse_node(self) -> _MermaidNode:
        match = _ID.match(self._text, self._position)
        if match is None:
            raise self._syntax_error("Expected a node id")
        self._skip_to(match.end())
        label = self._parse_shape(match[0])
        if marked := _CLASS.match(self._text, self._position):
            self._skip_to(marked.end())
        return _MermaidNode(match[0], label)

    def _parse_shape(self, node_id: str) -> str | None:
        for opener, closer in _SHAPES:
            if self._text.startswith(opener, self._position):
                self._skip_to(self._position + len(opener))
                label = self._parse_label(closer)
                if not label:
                    raise FlowInvalid(f'Node "{node_id}" has an empty label', self._number)
                return label
        return None

    def _parse_label(self, closer: str) -> str:
        """Return the text up to `closer`, which may be quoted, and skip the closer."""
        quoted = _QUOTED.match(self._text, self._position)
        if quoted is not None and self._text.startswith(closer, quoted.end()):
            self._skip_to(quoted.end() + len(closer))
            return _unescape(quoted[1]).strip()
        end = self._text.find(closer, self._position)
        if end < 0:
            raise self._syntax_error(f'Expected "{closer}" after the label')
        label = self._text[self._position : end].strip()
        self._skip_to(end + len(closer))
        return label

    def _parse_arrow(self) -> str | None:
        match = _ARROW.match(self._text, self._position) or _LABELLED_ARROW.match(self._text, self._position)
        if match is None:
            raise self._syntax_error("Expected an arrow")
        self._skip_to(match.end())
        label = match["piped"] if "piped" in match.re.groupindex else match["text"]
        return _unquote(label) if label else None

    def _skip_to(self, position: int) -> None:
        """Move to `position`, then past the blanks that follow it."""
        self._position = len(self._text) - len(self._text[position:].lstrip())

    def _syntax_error(self, what: str) -> FlowInvalid:
        rest = self._text[self._position :]
        return FlowInvalid(f'{what} at "{rest}"' if rest else f"{what} at the end of the line", self._number)


def _unquote(label: str) -> str:
    match = _QUOTED.fullmatch(label)
    return (_unescape(match[1]) if match else label).strip()


def _unescape(text: str) -> str:
    return text.replace('\\"', '"')
