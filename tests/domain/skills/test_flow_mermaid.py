"""Mermaid flowcharts as flows: every production of the subset, every error."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.skills.flow import Flow, FlowEdge, FlowInvalid, FlowNode
from kimi.domain.skills.flow_mermaid import parse_mermaid


def edges(flow: Flow) -> list[tuple[str, str, str | None]]:
    """Source, target and label of every edge."""
    return [(source, edge.target, edge.label) for source, node in flow.nodes.items() for edge in node.edges]


def prompts(flow: Flow) -> dict[str, object]:
    """The prompt of every node but the begin."""
    return {node_id: node.prompt for node_id, node in flow.nodes.items() if node_id != flow.begin}


def one_node(definition: str) -> object:
    """The prompt of the node that these lines define as X."""
    return prompts(parse_mermaid(f"{definition}\nbegin --> X\nX --> end_\nend_[End]"))["X"]


def test_documented_mermaid_example_parses() -> None:
    flow = parse_mermaid(
        """flowchart TD
  A([BEGIN]) --> B[Run the tests and fix one failure]
  B --> C{Are all tests green?}
  C -->|yes| Z([END])
  C -->|no| B
"""
    )
    assert flow == Flow(
        {
            "A": FlowNode("BEGIN", (FlowEdge("B", None, 2),)),
            "B": FlowNode("Run the tests and fix one failure", (FlowEdge("C", None, 3),)),
            "C": FlowNode("Are all tests green?", (FlowEdge("Z", "yes", 4), FlowEdge("B", "no", 5))),
        },
        "A",
        "Z",
    )


@pytest.mark.spec("R-134")
def test_mermaid_productions_and_errors_are_parsed_as_documented() -> None:
    """As the tables below list them."""
    for definition, label in SHAPES.items():
        assert one_node(definition) == label, definition
    for arrow, label in ARROWS.items():
        flow = parse_mermaid(f"begin --> X\nX{arrow}A\nX -->|other| end\nA --> end")
        assert ("X", "A", label) in edges(flow), arrow
    for line in SKIPPED:
        flow = parse_mermaid(f"{line}\nbegin[Begin] --> X\n{line}\nX --> Z[END]\n{line}")
        assert edges(flow) == [("begin", "X", None), ("X", "Z", None)], line
    for text, message in ERRORS.items():
        with pytest.raises(FlowInvalid) as caught:
            parse_mermaid(text)
        assert str(caught.value) == message


SHAPES = {
    "X": "X",
    "X[A label]": "A label",
    "X(A label)": "A label",
    "X{A label}": "A label",
    "X([A label])": "A label",
    "X[  trimmed  ]": "trimmed",
    "X [with a blank]": "with a blank",
    "X[what (about) {this}?]": "what (about) {this}?",
    'X["in ] quotes"]': "in ] quotes",
    r'X("a \"word\" in quotes")': 'a "word" in quotes',
    'X{"a" and "b"}': '"a" and "b"',
    "X[label]:::marked": "label",
    "X:::marked": "X",
    "X[label] %% a comment": "label",
    'X["100%% done"]': "100%% done",
    "X[50% done]": "50% done",
    "X[first]\nX\nX[first]": "first",
    "X\nX[later]": "later",
}
ARROWS = {
    **{f" {arrow}|yes| ": "yes" for arrow in ("-->", "---", "==>", "===", "-.->", "---->", "-..->")},
    "-->|yes|": "yes",
    " --> |yes| ": "yes",
    ' -->|"yes"| ': "yes",
    " -- yes --> ": "yes",
    "-- yes -->": "yes",
    "--yes-->": "yes",
    ' -- "quite so" --> ': "quite so",
    " -- so-so --> ": "so-so",
    " -- yes --- ": "yes",
    " == yes ==> ": "yes",
    " -. yes .-> ": "yes",
}
SKIPPED = [
    "", "   ", "%% a comment", "flowchart TD", "graph LR", "classDef marked fill:#f96", "class X marked",
    "style X fill:#f9f", "linkStyle 0 stroke:red", "click X callback", "subgraph one", "end", "  end  ", "direction TB",
]  # fmt: skip
BE = "begin --> X\n"
ERRORS = {
    "": "Expected exactly one BEGIN node, found 0",
    "A[begin] --> B[Begin]\nB --> Z[END]": "Expected exactly one BEGIN node, found 2",
    "begin --> X": "Expected exactly one END node, found 0",
    "begin --> X\nX --> A[end]\nX --> B[End]": "Expected exactly one END node, found 2",
    "begin --> X\nZ[END]": "The END node cannot be reached from the BEGIN node",
    "begin --> X\nbegin --> Z[END]": "Line 2: The BEGIN node must have one outgoing edge",
    f"{BE}X --> A\nX -->|no| Z[END]": 'Line 2: Node "X" has an unlabeled edge',
    f"{BE}X -->|| A\nX -->|no| Z[END]": 'Line 2: Node "X" has an unlabeled edge',
    f"{BE}X -->|a| A\n\nX -->|a| Z[END]": 'Line 4: Node "X" has duplicate edge labels',
    "X[one]\nX[two]": 'Line 2: Conflicting definition for node "X"',
    "flowchart TD\nX[]": 'Line 2: Node "X" has an empty label',
    'X[" "]': 'Line 1: Node "X" has an empty label',
    "X[open": 'Line 1: Expected "]" after the label at "open"',
    "X([open]": 'Line 1: Expected "])" after the label at "open]"',
    "X -->": "Line 1: Expected a node id at the end of the line",
    "--> X": 'Line 1: Expected a node id at "--> X"',
    "X Y": 'Line 1: Expected an arrow at "Y"',
    "X -> Y": 'Line 1: Expected an arrow at "-> Y"',
    "X -- yes Y": 'Line 1: Expected an arrow at "-- yes Y"',
    "X --> Y --> Z": 'Line 1: Unexpected text at "--> Z"',
    "X & Y --> Z": 'Line 1: Expected an arrow at "& Y --> Z"',
}


def test_unreachable_nodes_are_not_validated() -> None:
    flow = parse_mermaid("begin --> X\nX --> Z[END]\nlost --> X\nlost --> Z")
    assert set(flow.nodes) == {"begin", "X"}


def test_begin_and_end_are_marked_by_their_labels_in_any_case() -> None:
    flow = parse_mermaid("a(bEgIn) --> X\nX --> b{eNd}")
    assert (flow.begin, flow.end) == ("a", "b")


IDS = st.from_regex(r"[A-Za-z0-9_]+(-[A-Za-z0-9_]+)?", fullmatch=True).filter(
    lambda text: text.casefold() not in ("begin", "end")
)
TEXTS = st.text(st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters='"\\'), min_size=1).filter(
    lambda text: text == text.strip() and text.casefold() not in ("begin", "end")
)


@given(st.dictionaries(IDS, TEXTS, min_size=1, max_size=5), st.sampled_from([("[", "]"), ("(", ")"), ("{", "}")]))
def test_chain_round_trips_through_mermaid(labels: dict[str, str], shape: tuple[str, str]) -> None:
    opener, closer = shape
    names = ["BEGIN_", *labels, "END_"]
    lines = [f'{name}{opener}"{label}"{closer}' for name, label in labels.items()]
    lines += ["BEGIN_[BEGIN]", "END_[END]"]
    lines += [f"{source}-->{target}" for source, target in pairwise(names)]
    assert prompts(parse_mermaid("\n".join(lines))) == labels


@given(st.text())
def test_any_mermaid_text_parses_or_is_refused(text: str) -> None:
    try:
        flow = parse_mermaid(text)
    except FlowInvalid:
        return
    assert flow.begin in flow.nodes
