"""Flows in Markdown, prompts of decisions, choices."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart
from kimi.domain.skills.flow import FlowEdge, FlowInvalid, FlowNode, build_node_input, build_ralph_flow, parse_choice
from kimi.domain.skills.flow_markdown import iter_fenced_blocks, parse_flow

MERMAID = "graph TD\nA[BEGIN] --> X\nX --> Z[END]"
D2 = "BEGIN -> y -> END"


@pytest.mark.parametrize(
    ("markdown", "node"),
    [
        (f"# Text\n\n```mermaid\n{MERMAID}\n```\n", "X"),
        (f"~~~ d2\n{D2}\n~~~", "y"),
        (f"```D2 title=x\n{D2}\n```", "y"),
        (f"```python\nx = 1\n```\n````d2\n{D2}\n````\n```mermaid\n{MERMAID}\n```", "y"),
        (f"~~~text\n```mermaid\n```\n~~~\n```d2\n{D2}\n```", "y"),
        (f"  ```d2\n{D2}\n  ```", "y"),
        (f"```d2\n{D2}", "y"),
    ],
)
def test_first_diagram_is_used(markdown: str, node: str) -> None:
    assert node in parse_flow(markdown).nodes


def test_the_examples_of_the_documentation_are_the_same_flow() -> None:
    page = (Path(__file__).parents[3] / "docs/skills.md").read_text(encoding="utf-8")
    drawn = [
        parse_flow(f"```{tag}\n" + "\n".join(lines))
        for tag, lines in iter_fenced_blocks(page)
        if tag in ("mermaid", "d2")
    ]
    shapes = [{node.prompt: {edge.label for edge in node.edges} for node in flow.nodes.values()} for flow in drawn]
    assert len(shapes) == 2
    assert shapes[0] == shapes[1]


def test_text_without_a_diagram_is_no_flow() -> None:
    for markdown in ("", "mermaid", "```\nx\n```", "``mermaid\nx\n``", "```python\n```mermaid\n```"):
        with pytest.raises(FlowInvalid, match="There is no code block tagged mermaid or d2"):
            parse_flow(markdown)


@pytest.mark.parametrize(
    "markdown",
    [
        "```" + " " * 200_000 + "`",
        "```mermaid\nA -- x" + " " * 200_000 + "y\n```",
        "```mermaid\nA -. x" + "." * 200_000 + "y\n```",
    ],
    ids=["fence", "label", "dots"],
)
def test_very_long_line_is_refused_quickly(markdown: str) -> None:
    with pytest.raises(FlowInvalid):
        parse_flow(markdown)


def test_fence_is_closed_by_same_kind_of_at_least_equal_length() -> None:
    markdown = "````a\n```\n~~~~\n`````\n~~~b\n```\n~~~"
    assert list(iter_fenced_blocks(markdown)) == [("a", ["```", "~~~~"]), ("b", ["```"])]


def test_task_node_is_sent_as_written_and_decision_node_with_its_branches() -> None:
    assert build_node_input(FlowNode("Do it", (FlowEdge("a", "ignored"),))) == "Do it"
    decision = FlowNode("Done?", (FlowEdge("a", "yes"), FlowEdge("b", "not yet")))
    text = build_node_input(decision)
    assert isinstance(text, str)
    assert text.startswith("Done?\n")
    assert "\n- yes\n- not yet\n" in text
    assert "<choice>LABEL</choice>" in text
    again = build_node_input(decision, is_retry=True)
    assert isinstance(again, str)
    assert again.startswith(text)
    assert "no valid choice" in again


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("", None),
        ("yes", None),
        ("<choice>yes", None),
        ("<choice>yes</choice>", "yes"),
        ("a <choice>no</choice> b <choice>\n yes\t</choice> c", "yes"),
        ("<choice>open <choice>yes</choice>", "yes"),
        ("<choice>< 5 & more</choice>", "< 5 & more"),
        ("<choice></choice>", ""),
        ("<Choice>yes</Choice>", None),
    ],
)
def test_last_choice_is_used_and_trimmed(text: str, choice: str | None) -> None:
    assert parse_choice(text) == choice


@given(st.text(), st.text().filter(lambda text: "choice>" not in text))
def test_choice_at_the_end_is_found_after_any_text(before: str, label: str) -> None:
    assert parse_choice(f"{before}<choice>{label}</choice>") == label.strip()


def test_a_branch_is_found_by_its_exact_label() -> None:
    decision = FlowNode("Done?", (FlowEdge("a", "yes"), FlowEdge("b", "no")))
    assert [decision.next_node(choice) for choice in ("yes", "no", "YES", "", None)] == ["a", "b", None, None, None]
    assert FlowNode("x", (FlowEdge("a", "label"),)).next_node(None) == "a"
    assert FlowNode("x").next_node(None) is None


def test_the_loop_repeats_the_prompt_with_a_note_media_included() -> None:
    image = ImagePart(MediaUrl("u"))
    flow = build_ralph_flow((TextPart("look"), image))
    assert flow.nodes["R1"].prompt == (TextPart("look"), image)
    again = build_node_input(flow.nodes["R2"])
    assert again[:2] == (TextPart("look"), image)
    assert "- CONTINUE\n- STOP" in str(again[-1]).replace("\\n", "\n")
