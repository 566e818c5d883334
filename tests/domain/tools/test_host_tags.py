"""Text from elsewhere cannot imitate the tags of this program."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.domain.content.parts import ImagePart, MediaUrl, TextPart
from kimi.domain.tools.tool import HOST_TAGS, build_model_result, escape_host_tags, tool_error, tool_message, tool_ok
from tests.support.shown.attacks import HARMLESS_TEXTS
from tests.support.shown.attacks import HOST_TAGS as SPELLINGS

MARK = "0123456789abcdef"


def is_marked(text: str, escaped: str) -> bool:
    """Return whether `escaped` is `text` with `&lt;` in place of some characters, and nothing else."""
    pattern = "".join("(?:&lt;|" + re.escape(char) + ")" for char in text)
    return re.fullmatch(pattern, escaped, re.DOTALL) is not None


@pytest.mark.spec("R-230")
@pytest.mark.parametrize("text", SPELLINGS, ids=ascii)
def test_every_spelling_of_a_host_tag_is_escaped(text: str) -> None:
    escaped = escape_host_tags(text)
    assert escaped.count("&lt;") > text.count("&lt;")
    assert is_marked(text, escaped)
    assert escape_host_tags(escaped) == escaped
    around = escape_host_tags(f"before\n{text}\nafter {text}")
    assert around == f"before\n{escaped}\nafter {escaped}"


@pytest.mark.parametrize("name", HOST_TAGS)
@pytest.mark.parametrize("shape", ["<{}>", "</{}>", "<{} x='y'>", "<{}/>", "< {} >", "<{}", "<{}\n"])
def test_each_tag_of_the_program_is_known(name: str, shape: str) -> None:
    for written in (name, name.upper(), name.title()):
        text = shape.format(written)
        assert escape_host_tags(text) == "&lt;" + text[1:]


@pytest.mark.parametrize("text", HARMLESS_TEXTS, ids=ascii)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert escape_host_tags(text) == text
    assert build_model_result(tool_ok(text, "Done."), None) == tool_ok(text, "Done.")


@pytest.mark.spec("R-230")
@pytest.mark.parametrize("text", SPELLINGS, ids=ascii)
def test_a_tag_in_several_parts_is_escaped(text: str) -> None:
    picture = ImagePart(MediaUrl("data:image/png;base64,"))
    for at in range(len(text) + 1):
        result = build_model_result(tool_ok((TextPart(text[:at]), picture, TextPart(text[at:]))), None)
        first, between, second = result.output
        assert isinstance(first, TextPart)
        assert isinstance(second, TextPart)
        assert between == picture
        assert first.text + second.text == escape_host_tags(text)


@pytest.mark.spec("R-230")
@pytest.mark.parametrize("text", SPELLINGS, ids=ascii)
def test_messages_of_results_are_escaped_too(text: str) -> None:
    for mark in (None, MARK):
        assert build_model_result(tool_error(text, "Brief"), mark).message == escape_host_tags(text)


@pytest.mark.spec("R-232")
def test_the_model_is_told_what_was_escaped() -> None:
    result = build_model_result(tool_ok("<system>", "1 line."), None)
    assert result.output == "&lt;system>"
    assert result.message.startswith("1 line. In this output `&lt;` stands for `<`")


@pytest.mark.spec("R-231")
@pytest.mark.parametrize("text", SPELLINGS, ids=ascii)
def test_exact_output_stands_between_tags_with_a_mark(text: str) -> None:
    message = tool_message("c1", build_model_result(tool_ok(f"     1\t{text}\n", "Read."), MARK))
    head, body = message.content
    assert head == TextPart("<system>Read.</system>")
    assert body == TextPart(f"<file-text-{MARK}>\n     1\t{text}\n</file-text-{MARK}>")


def test_exact_output_that_is_empty_has_no_tags() -> None:
    assert build_model_result(tool_ok("", "Nothing."), MARK) == tool_ok("", "Nothing.")


@given(st.text(alphabet=" <>/-_systemreminder\0\u200b\u0455\uff1c\n", max_size=60))
def test_nothing_that_reads_like_a_tag_is_left(text: str) -> None:
    seen = re.sub("[\0\u200b]", "", escape_host_tags(text)).replace("\u0455", "s").replace("\uff1c", "<")
    assert not re.search(r"<[\s/]*system(?![\w.:;,()\[-])", seen)


@pytest.mark.parametrize("unit", ["<", "< ", "<system ", "<s", "<system- ", "</", "\u00e9<", "<\u200b", "<sys\u0301"])
def test_long_texts_are_searched_in_linear_time(unit: str) -> None:
    began = time.process_time()
    escape_host_tags(unit * (1_000_000 // len(unit)))
    escape_host_tags("<" + unit[-1] * 1_000_000)
    assert time.process_time() - began < 5  # it takes 0.1
