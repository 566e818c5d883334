"""Flows: prompts in the order of a diagram, with branches that the model chooses (runtime spec 5.6, 7.4).

A `Diagram` collects what a parser reads, and `build_flow` checks it. `flow_markdown.parse_flow` finds the diagram in a
skill.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kimi.domain.content.parts import TextPart, UserInput
from kimi.domain.tools.tool import escape_host_tags

BEGIN: Final = "begin"
END: Final = "end"

_CHOICE = re.compile(r"<choice>((?:(?!<choice>).)*?)</choice>", re.DOTALL)


class FlowInvalid(ValueError):
    """The diagram is not a valid flow. The message begins with `Line N: ` if it is about a line of the diagram."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"Line {line}: {message}")


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """An edge to the node `target`; the label matters only at a decision."""

    target: str
    label: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A prompt and its outgoing edges. A node with several edges is a decision."""

    prompt: UserInput
    edges: tuple[FlowEdge, ...] = ()

    @property
    def is_decision(self) -> bool:
        """Whether the model must choose a branch."""
        return len(self.edges) > 1

    def next_node(self, choice: str | None) -> str | None:
        """Return the id of the next node.

        At a decision it is the target of the edge labelled `choice`, else the target of the only edge.
        """
        if self.is_decision:
            return next((edge.target for edge in self.edges if edge.label == choice), None)
        return self.edges[0].target if self.edges else None


@dataclass(frozen=True, slots=True)
class Flow:
    """Checked nodes by id, including the begin node with its one edge; the end is not among them."""

    nodes: Mapping[str, FlowNode]
    begin: str
    end: str


@dataclass(slots=True)
class Diagram:
    """The nodes and edges of a diagram, collected line by line."""

    _labels: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    _edges: dict[str, list[FlowEdge]] = field(default_factory=dict[str, "list[FlowEdge]"])

    def add_node(self, node_id: str, label: str | None, line: int) -> None:
        """Add a node, perhaps with its label. Raises FlowInvalid if it has another label already."""
        known = self._labels.get(node_id)
        if known is not None and label is not None and known != label:
            raise FlowInvalid(f'Conflicting definition for node "{node_id}"', line)
        self._labels[node_id] = label if known is None else known

    def add_edge(self, source: str, target: str, label: str | None, line: int) -> None:
        """Add an edge between two nodes that were added before."""
        self._edges.setdefault(source, []).append(FlowEdge(target, escape_host_tags(label or "") or None, line))

    def build_flow(self) -> Flow:
        """Check the diagram and return its flow. Raises FlowInvalid."""
        begin, end = self._find_single(BEGIN), self._find_single(END)
        reachable = self._collect_reachable(begin)
        if end not in reachable:
            raise FlowInvalid("The END node cannot be reached from the BEGIN node")
        if len(self._edges[begin]) > 1:
            raise FlowInvalid("The BEGIN node must have one outgoing edge", self._edges[begin][1].line)
        reachable.remove(end)
        for node_id in reachable:
            self._check_labels(node_id)
        nodes = {
            node_id: FlowNode(self._node_label(node_id), tuple(self._edges.get(node_id, ()))) for node_id in reachable
        }
        return Flow(nodes, begin, end)

    def _node_label(self, node_id: str) -> str:
        return escape_host_tags(self._labels[node_id] or node_id)

    def _find_single(self, mark: str) -> str:
        found = [node_id for node_id in self._labels if self._node_label(node_id).casefold() == mark]
        if len(found) != 1:
            raise FlowInvalid(f"Expected exactly one {mark.upper()} node, found {len(found)}")
        return found[0]

    def _collect_reachable(self, begin: str) -> list[str]:
        """Return the ids of the reachable nodes, in the order of a walk from the begin node."""
        seen = {begin: None}
        pending = [begin]
        while pending:
            fresh = [edge.target for edge in self._edges.get(pending.pop(), ()) if edge.target not in seen]
            seen.update(dict.fromkeys(fresh))
            pending += fresh
        return list(seen)

    def _check_labels(self, node_id: str) -> None:
        edges = self._edges.get(node_id, [])
        if len(edges) < 2:
            return
        seen: set[str] = set()
        for edge in edges:
            if edge.label is None:
                raise FlowInvalid(f'Node "{node_id}" has an unlabeled edge', edge.line)
            if edge.label in seen:
                raise FlowInvalid(f'Node "{node_id}" has duplicate edge labels', edge.line)
            seen.add(edge.label)


def build_node_input(node: FlowNode, *, is_retry: bool = False) -> UserInput:
    """Build the model's input at a node; `is_retry` follows an answer without a valid choice."""
    if not node.is_decision:
        return node.prompt
    branches = "".join(f"\n- {edge.label}" for edge in node.edges)
    request = (
        f"Choose one of these branches:\n{branches}\n\nEnd your answer with <choice>LABEL</choice>, where LABEL is "
    )
    request += "one of the branches above, spelled exactly so."
    if is_retry:
        request += "\n\nYour last answer held no valid choice, so you are asked once more."
    if isinstance(node.prompt, str):
        return f"{node.prompt}\n\n{request}"
    return (*node.prompt, TextPart(request))


def parse_choice(text: str) -> str | None:
    """Return the choice in an answer: its last `<choice>…</choice>`, trimmed; None if there is none."""
    choices = _CHOICE.findall(text)
    return choices[-1].strip() if choices else None


def build_ralph_flow(user_input: UserInput) -> Flow:
    """Build the flow that repeats a prompt until the model has nothing left to do (runtime spec 5.6)."""
    note = (
        "The request above is repeated to you automatically, for as long as there is something left to do. Go on with "
        "it where you stand. Choose STOP only when all of it is done and checked, else CONTINUE."
    )
    again: UserInput = f"{user_input}\n\n{note}" if isinstance(user_input, str) else (*user_input, TextPart(note))
    nodes = {
        "BEGIN": FlowNode("BEGIN", (FlowEdge("R1"),)),
        "R1": FlowNode(user_input, (FlowEdge("R2"),)),
        "R2": FlowNode(again, (FlowEdge("R2", "CONTINUE"), FlowEdge("END", "STOP"))),
    }
    return Flow(nodes, "BEGIN", "END")
