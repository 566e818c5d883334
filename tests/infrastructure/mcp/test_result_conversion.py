"""Results and descriptions of MCP servers, converted (tools spec 4.6, 4.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kimi.domain.content.parts import AudioPart, ImagePart, MediaUrl, TextPart, VideoPart
from tests.support.mcp.entries import raw_server
from tests.support.mcp.stage import connected, decline, view

pytestmark = pytest.mark.anyio


def link(uri: str, mime: str | None = None) -> dict[str, Any]:
    """A resource link."""
    return {"type": "resource_link", "uri": uri, "name": "n"} | ({"mimeType": mime} if mime else {})


def blob(mime: str) -> dict[str, Any]:
    """An embedded resource of bytes."""
    return {"type": "resource", "resource": {"uri": "file:///b", "mimeType": mime, "blob": "AAAA"}}


ROWS: list[tuple[dict[str, Any], object]] = [
    ({"type": "text", "text": "words"}, TextPart("words")),
    ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, ImagePart(MediaUrl("data:image/png;base64,AAAA"))),
    ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, AudioPart(MediaUrl("data:audio/wav;base64,AAAA"))),
    (blob("image/jpeg"), ImagePart(MediaUrl("data:image/jpeg;base64,AAAA"))),
    (blob("audio/mpeg"), AudioPart(MediaUrl("data:audio/mpeg;base64,AAAA"))),
    (blob("video/mp4"), VideoPart(MediaUrl("data:video/mp4;base64,AAAA"))),
    (
        {"type": "image", "data": "AA\nAA\n", "mimeType": "image/png; x=y"},
        ImagePart(MediaUrl("data:image/png;base64,AAAA")),
    ),
    ({"type": "image", "data": "no base64!", "mimeType": "image/png"}, TextPart("[Unsupported content: image]")),
    ({"type": "image", "data": "AAAA", "mimeType": "text/html"}, TextPart("[Unsupported content: image]")),
    ({"type": "audio", "data": "AAAA", "mimeType": 'audio/"x'}, TextPart("[Unsupported content: audio]")),
    (blob("application/zip"), TextPart("[Unsupported content: resource file:///b (application/zip)]")),
    (
        {"type": "resource", "resource": {"uri": "file:///t", "mimeType": "text/plain", "text": "inside"}},
        TextPart("file:///t\ninside"),
    ),
    (link("http://evil.example/x.png", "image/png"), TextPart("[resource: http://evil.example/x.png (image/png)]")),
    (link("https://evil.example/x"), TextPart("[resource: https://evil.example/x (unknown type)]")),
    (link("file:///etc/passwd", "text/plain"), TextPart("[resource: file:///etc/passwd (text/plain)]")),
    (link("data:image/png;base64,AAAA", "image/png"), ImagePart(MediaUrl("data:image/png;base64,AAAA"))),
    (link("data:text/plain,hi", "text/plain"), TextPart("[resource: data:text/plain,hi (text/plain)]")),
]


@pytest.mark.spec("T-125", "T-127")
async def test_every_content_kind_is_converted(tmp_path: Path) -> None:
    results: dict[str, Any] = {f"r{number}": {"content": [block]} for number, (block, _) in enumerate(ROWS)}
    results["all"] = {"content": [block for block, _ in ROWS], "structuredContent": {"unseen": 1}}
    results["structured"] = {"content": [], "structuredContent": {"a": [1, "ü"]}}
    results["nothing"] = {"content": []}
    results["forgotten"] = {"structuredContent": {"a": 1}}
    async with connected(tmp_path, raw_server("s", tools=list(results), results=results)) as source:
        for number, (_, part) in enumerate(ROWS):
            assert (await source.call("s", f"r{number}", {}, decline)).output == (part,)
        whole = await source.call("s", "all", {}, decline)
        assert whole.output == tuple(part for _, part in ROWS)
        assert (whole.is_error, whole.message, whole.display) == (False, "", ())
        assert (await source.call("s", "structured", {}, decline)).output == (TextPart('{"a":[1,"ü"]}'),)
        assert (await source.call("s", "nothing", {}, decline)).output == ()
        assert (await source.call("s", "forgotten", {}, decline)).output == (TextPart('{"a":1}'),)


@pytest.mark.spec("T-125")
async def test_unknown_content_kind_becomes_a_placeholder(tmp_path: Path) -> None:
    results = {"new": {"content": [{"type": "text", "text": "a"}, {"type": "hologram", "data": "x"}]}}
    async with connected(tmp_path, raw_server("s", tools=["new"], results=results)) as source:
        found = (await source.call("s", "new", {}, decline)).output
        assert found == (TextPart("a"), TextPart("[Unsupported content: hologram]"))


async def test_result_violating_its_output_schema_is_returned(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"name": "odd", "outputSchema": schema}
    results = {"odd": {"content": [{"type": "text", "text": "words"}], "structuredContent": {"n": "no"}}}
    async with connected(tmp_path, raw_server("s", tools=[tool], results=results)) as source:
        assert (await source.call("s", "odd", {}, decline)).output == (TextPart("words"),)


async def test_tool_title_and_read_only_hint_are_read(tmp_path: Path) -> None:
    annotations = {"title": "Nice", "readOnlyHint": True}
    tools = [
        {"name": "a", "annotations": annotations},
        {"name": "b", "title": "Better", "annotations": annotations},
        "c",
    ]
    async with connected(tmp_path, raw_server("s", tools=tools)) as source:
        found = [(tool.name, tool.title, tool.read_only) for tool in view(source, "s").tools]
    assert found == [("a", "Nice", True), ("b", "Better", True), ("c", None, False)]
