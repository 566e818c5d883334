"""D2 diagrams as flows: every production of the subset, every error."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.skills.flow import FlowInvalid
from kimi.domain.skills.flow_d2 import parse_d2

FRAME = "BEGIN -> X\nX -> END"


def labels(text: str) -> dict[str, object]:
    """The prompts of the nodes between the begin and the end."""
    flow = parse_d2(text)
    return {node_id: node.prompt for node_id, node in flow.nodes.items() if node_id != flow.begin}


def edges(text: str) -> list[tuple[str, str, str | None]]:
    """Source, target and label of every edge."""
    flow = parse_d2(text)
    return [(source, edge.target, edge.label) for source, node in flow.nodes.items() for edge in node.edges]


LABELS: dict[str, str] = {
    "": "X",
    "X": "X",
    "X:": "X",
    "X: Do it": "Do it",
    "X:Do it": "Do it",
    "X: Do it # a comment": "Do it",
    "X: see issue#5": "see issue#5",
    'X: "Do # it: now -> then {x}"': "Do # it: now -> then {x}",
    r'X: "a \"word\""': 'a "word"',
    'X: the "word" here': 'the "word" here',
    "X: see -> that": "see -> that",
    "X: a: b": "a: b",
    "X: Do it {\n  shape: diamond\n  inner: {\n    y -> z\n  }\n}": "Do it",
    "X: Do it { shape: diamond }": "Do it",
    'X: Do it { tooltip: "}" }': "Do it",
    "X: {\n  # }\n  shape: diamond\n}": "X",
    "X {\n}": "X",
    "X: Do it\nX.style.fill: red\nX.style: {\n  fill: red\n}": "Do it",
    "X: Do it\nX.shape: diamond\nX.label: other": "Do it",
    "X: Do it\n(BEGIN -> X)[0].style.opacity: 0.4": "Do it",
    "X: |md\n  # Title\n\n  - a -> b { # kept\n    deeper\n|": "# Title\n\n- a -> b { # kept\n  deeper",
    "X: |md one line |": "one line",
    "X: |\n  plain\n|": "plain",
    "X: ||md\n  | a | b |\n||": "| a | b |",
    "X: |md\n  text |": "text",
    "X: |md first\n  second\n|": "first\nsecond",
    "# a comment\nX: Do it": "Do it",
    "direction: right\nvars: {\n  a: b\n}\nclasses: {\n  c: d\n}\nX: Do it": "Do it",
}
IDS = ["a", "A1", "src/main.py", "a.b.c", "x-y_z", "a-b", "1"]
ERRORS = {
    "": "Expected exactly one BEGIN node, found 0",
    "BEGIN -> X": "Expected exactly one END node, found 0",
    "a: Begin\nb: begin\na -> END": "Expected exactly one BEGIN node, found 2",
    "BEGIN -> X\nEND": "The END node cannot be reached from the BEGIN node",
    "BEGIN -> X -> END\nBEGIN -> END": "Line 2: The BEGIN node must have one outgoing edge",
    f"{FRAME}\nX -> Y: a": 'Line 2: Node "X" has an unlabeled edge',
    f"{FRAME}: a\n\nX -> Y: a": 'Line 4: Node "X" has duplicate edge labels',
    "X: one\n# and\nX: two": 'Line 3: Conflicting definition for node "X"',
    "X: |md\n  one\n|\nX: |md\n  two\n|": 'Line 4: Conflicting definition for node "X"',
    "X -> ": "Line 1: Expected a node id",
    "-> X": "Line 1: Expected a node id",
    "X -> -> Y": "Line 1: Expected a node id",
    ": label": "Line 1: Expected a node id",
    "two words: label": 'Line 1: Expected a node id at "two words"',
    "X <- Y": 'Line 1: Expected a node id at "X <- Y"',
    "X -- Y": 'Line 1: Expected a node id at "X -- Y"',
    "a\nX: |md\n  text": 'Line 2: Expected "|" for this block',
    "a\nX: {\n  a: {\n  }": 'Line 2: Expected "}" for this line',
    "X: a\n}": 'Line 2: Unexpected "}"',
}


@pytest.mark.spec("R-135")
def test_d2_productions_and_errors_are_parsed_as_documented() -> None:
    """As the tables above list them."""
    for definition, label in LABELS.items():
        assert labels(f"{definition}\n{FRAME}") == {"X": label}, definition
    for node_id in IDS:
        assert set(labels(f"BEGIN -> {node_id}\n{node_id}->END")) == {node_id}
    assert edges("BEGIN -> a -> b -> c: last\nc -> a: no\nc -> END: yes") == [
        ("BEGIN", "a", None),
        ("a", "b", None),
        ("b", "c", "last"),
        ("c", "a", "no"),
        ("c", "END", "yes"),
    ]
    assert ("X", "Y", "a: b -> c") in edges(f'{FRAME}: z\nX -> Y: "a: b -> c" {{ style.stroke: red }}')
    for text, message in ERRORS.items():
        with pytest.raises(FlowInvalid) as caught:
            parse_d2(text)
        assert str(caught.value) == message


def test_begin_and_end_are_marked_by_their_labels_in_any_case() -> None:
    flow = parse_d2("a: bEgIn\nb: |md\n  eNd\n|\na -> X -> b")
    assert (flow.begin, flow.end) == ("a", "b")


NODE_IDS = st.from_regex(r"[a-z0-9]{1,4}([./_-][a-z0-9]{1,3})?", fullmatch=True).filter(
    lambda text: text not in ("begin", "end", "vars") and not text.endswith((".top", "top"))
)
TEXTS = st.text(st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters='"\\'), min_size=1).filter(
    lambda text: text == text.strip() and text.casefold() not in ("begin", "end")
)


@given(st.dictionaries(NODE_IDS, TEXTS, min_size=1, max_size=5))
def test_chain_round_trips_through_d2(written: dict[str, str]) -> None:
    names = ["BEGIN", *written, "END"]
    lines = [f'{name}: "{label}"' for name, label in written.items()]
    lines += [f"{source} -> {target}" for source, target in pairwise(names)]
    assert labels("\n".join(lines)) == written


@given(st.text())
def test_any_d2_text_parses_or_is_refused(text: str) -> None:
    try:
        flow = parse_d2(text)
    except FlowInvalid:
        return
    assert flow.begin in flow.nodes
