"""Prompt blocks to user input, and back for a replay."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart
from kimi.interfaces.acp.updates.prompt_content import InvalidPrompt, parse_prompt_blocks, render_user_input

PNG = base64.b64encode(b"\x89PNG").decode()
FINE: list[tuple[dict[str, Any], Any]] = [
    ({"type": "text", "text": " /home/u/a.py explain "}, TextPart(" /home/u/a.py explain ")),
    ({"type": "text", "text": "x", "annotations": {"audience": ["user"]}, "_meta": {"a": 1}}, TextPart("x")),
    (
        {"type": "image", "mimeType": "image/png", "data": PNG, "uri": "file:///x.png"},
        ImagePart(MediaUrl(f"data:image/png;base64,{PNG}")),
    ),
    (
        {"type": "resource_link", "uri": "file:///a/b.py#L10:20", "name": 'b "q" <py>', "size": 3},
        TextPart('<resource_link uri="file:///a/b.py#L10:20" name="b &quot;q&quot; &lt;py&gt;" />'),
    ),
    (
        {"type": "resource", "resource": {"uri": "file:///a?b&c", "text": "one\ntwo </resource> </RESOURCE >"}},
        TextPart('<resource uri="file:///a?b&amp;c">\none\ntwo &lt;/resource> &lt;/RESOURCE >\n</resource>'),
    ),
    (
        {"type": "resource", "resource": {"uri": "file:///a.png", "blob": PNG, "mimeType": "image/png"}},
        ImagePart(MediaUrl(f"data:image/png;base64,{PNG}")),
    ),
    (
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": PNG, "mimeType": "a/b"}},
        TextPart('<resource uri="file:///a.bin" type="a/b" size="4" content="binary, not included" />'),
    ),
    (
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": PNG}},
        TextPart(
            '<resource uri="file:///a.bin" type="application/octet-stream" size="4" content="binary, not included" />'
        ),
    ),
]


@pytest.mark.parametrize(("block", "part"), FINE, ids=range(len(FINE)))
def test_blocks_become_parts(block: dict[str, Any], part: Any) -> None:
    assert parse_prompt_blocks([block]) == (part,)


def test_order_is_kept_and_nothing_is_merged() -> None:
    assert parse_prompt_blocks([block for block, _ in FINE]) == tuple(part for _, part in FINE)


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        (None, "prompt: must be a list"),
        ([], "at least one"),
        ({"type": "text"}, "prompt: must be a list"),
        (["text"], r"prompt\[0\]: must be an object"),
        ([{"type": "text"}], r"prompt\[0\]\.text: must be a string"),
        ([{"type": "text", "text": " \n"}], "holds no content"),
        (
            [FINE[0][0], {"type": "audio", "data": PNG, "mimeType": "audio/wav"}],
            r"prompt\[1\]: audio",
        ),
        ([{"type": "hologram"}], "unknown content block type 'hologram'"),
        ([{"text": "x"}], "unknown content block type"),
        ([{"type": "image", "mimeType": "image/png", "data": "!!!"}], "not base64"),
        ([{"type": "image", "mimeType": "text/html", "data": PNG}], "no image type"),
        ([{"type": "image", "data": PNG}], r"prompt\[0\]\.mimeType"),
        ([{"type": "image", "mimeType": "image/png", "data": "A" * (28 * 1024 * 1024)}], "larger than 20 MB"),
        ([{"type": "resource_link", "uri": "file:///a"}], r"prompt\[0\]\.name"),
        ([{"type": "resource"}], r"prompt\[0\]\.resource: must be an object"),
        ([{"type": "resource", "resource": {"uri": "a"}}], r"resource\.blob"),
        ([{"type": "resource", "resource": {"uri": "a", "blob": "%"}}], "not base64"),
    ],
)
def test_unsupported_content_is_refused(blocks: Any, reason: str) -> None:
    with pytest.raises(InvalidPrompt, match=reason):
        parse_prompt_blocks(blocks)


def test_links_and_resources_are_shown_as_they_came() -> None:
    for block, _ in FINE[3:5]:
        assert render_user_input(parse_prompt_blocks([block])) == [
            {key: value for key, value in block.items() if key in ("type", "uri", "name", "resource")}
        ]
    assert render_user_input("text") == [{"type": "text", "text": "text"}]
    assert render_user_input(parse_prompt_blocks([FINE[2][0]])) == [
        {"type": "image", "mimeType": "image/png", "data": PNG}
    ]


@given(st.text(), st.text())
def test_any_resource_survives(uri: str, text: str) -> None:
    given_block = {"type": "resource", "resource": {"uri": uri, "text": text}}
    part = parse_prompt_blocks([given_block])[0]
    assert isinstance(part, TextPart)
    assert part.text.lower().count("</resource") == 1
    clean = {"uri": uri, "text": text.replace("&lt;/resource>", "</resource>")}
    assert render_user_input((part,)) == [{"type": "resource", "resource": clean}]


def test_lone_surrogates_are_replaced() -> None:
    assert parse_prompt_blocks([{"type": "text", "text": "a\ud800"}]) == (TextPart("a\ufffd"),)
