"""Flows in Markdown, prompts of decisions, choices."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart
from kimi.domain.skills.flow import Edge, FlowInvalid, FlowNode, chosen, node_input, ralph_flow
from kimi.domain.skills.flow_text import fenced_blocks, flow_in

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
def test_the_first_diagram_counts(markdown: str, node: str) -> None:
    assert node in flow_in(markdown).nodes


def test_the_examples_of_the_documentation_are_the_same_flow() -> None:
    page = (Path(__file__).parents[3] / "docs/skills.md").read_text(encoding="utf-8")
    drawn = [
        flow_in(f"```{tag}\n" + "\n".join(lines)) for tag, lines in fenced_blocks(page) if tag in ("mermaid", "d2")
    ]
    shapes = [{node.prompt: {edge.label for edge in node.edges} for node in flow.nodes.values()} for flow in drawn]
    assert len(shapes) == 2
    assert shapes[0] == shapes[1]


def test_text_without_a_diagram_is_no_flow() -> None:
    for markdown in ("", "mermaid", "```\nx\n```", "``mermaid\nx\n``", "```python\n```mermaid\n```"):
        with pytest.raises(FlowInvalid, match="There is no code block tagged mermaid or d2"):
            flow_in(markdown)


@pytest.mark.parametrize(
    "markdown",
    [
        "```" + " " * 200_000 + "`",
        "```mermaid\nA -- x" + " " * 200_000 + "y\n```",
        "```mermaid\nA -. x" + "." * 200_000 + "y\n```",
    ],
    ids=["fence", "label", "dots"],
)
def test_a_line_that_goes_on_for_long_is_refused_at_once_and_not_after_minutes(markdown: str) -> None:
    with pytest.raises(FlowInvalid):
        flow_in(markdown)


def test_a_fence_is_closed_by_one_of_its_kind_that_is_as_long() -> None:
    markdown = "````a\n```\n~~~~\n`````\n~~~b\n```\n~~~"
    assert list(fenced_blocks(markdown)) == [("a", ["```", "~~~~"]), ("b", ["```"])]


def test_a_task_is_told_as_it_is_and_a_decision_with_its_branches() -> None:
    assert node_input(FlowNode("Do it", (Edge("a", "ignored"),))) == "Do it"
    decision = FlowNode("Done?", (Edge("a", "yes"), Edge("b", "not yet")))
    text = node_input(decision)
    assert isinstance(text, str)
    assert text.startswith("Done?\n")
    assert "\n- yes\n- not yet\n" in text
    assert "<choice>LABEL</choice>" in text
    again = node_input(decision, again=True)
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
def test_the_last_choice_counts_trimmed(text: str, choice: str | None) -> None:
    assert chosen(text) == choice


@given(st.text(), st.text().filter(lambda text: "choice>" not in text))
def test_a_choice_at_the_end_is_found_whatever_stands_before_it(before: str, label: str) -> None:
    assert chosen(f"{before}<choice>{label}</choice>") == label.strip()


def test_a_branch_is_found_by_its_exact_label() -> None:
    decision = FlowNode("Done?", (Edge("a", "yes"), Edge("b", "no")))
    assert [decision.after(choice) for choice in ("yes", "no", "YES", "", None)] == ["a", "b", None, None, None]
    assert FlowNode("x", (Edge("a", "label"),)).after(None) == "a"
    assert FlowNode("x").after(None) is None


def test_the_loop_repeats_the_prompt_with_a_note_media_included() -> None:
    image = ImagePart(MediaUrl("u"))
    flow = ralph_flow((TextPart("look"), image))
    assert flow.nodes["R1"].prompt == (TextPart("look"), image)
    again = node_input(flow.nodes["R2"])
    assert again[:2] == (TextPart("look"), image)
    assert "- CONTINUE\n- STOP" in str(again[-1]).replace("\\n", "\n")
