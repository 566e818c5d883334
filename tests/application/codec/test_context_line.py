"""Context lines: the shapes of the reference, and tolerance when reading (runtime spec 4.2)."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.application.codec.context_line import decode_record, encode_message, encode_record
from kimi.domain.content.message import Function, Message, Role, ToolCall, user_message
from kimi.domain.content.parts import AudioPart, ContentPart, ImagePart, MediaUrl, TextPart, ThinkPart, VideoPart
from kimi.domain.history.session import CheckpointRecord, ContextRecord, SystemPromptRecord, UsageRecord

any_text = st.text(st.characters(exclude_categories=()))
clean_text = st.text(st.characters(exclude_categories=("Cs",)))
media = st.builds(MediaUrl, clean_text, st.none() | clean_text)


def parts(text: st.SearchStrategy[str]) -> st.SearchStrategy[ContentPart]:
    return st.one_of(
        st.builds(TextPart, text),
        st.builds(ThinkPart, text, st.none() | text),
        st.builds(ImagePart, image_url=media),
        st.builds(AudioPart, audio_url=media),
        st.builds(VideoPart, video_url=media),
    )


def records(text: st.SearchStrategy[str]) -> st.SearchStrategy[ContextRecord]:
    json_values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text | st.lists(text, max_size=2)
    extras = st.none() | st.dictionaries(text, json_values, max_size=2)
    calls = st.builds(ToolCall, id=text, function=st.builds(Function, text, st.none() | text), extras=extras)
    messages = st.builds(
        Message,
        st.sampled_from(get_args(Role)),
        st.lists(parts(text), max_size=3).map(tuple),
        st.lists(calls, max_size=2).map(tuple),
        st.none() | text,
        st.none() | text,
        st.none() | st.booleans(),
    )
    return st.one_of(
        messages,
        st.builds(SystemPromptRecord, text),
        st.builds(CheckpointRecord, st.integers(0, 2**53)),
        st.builds(UsageRecord, st.integers(0, 2**53)),
    )


@given(records(clean_text))
def test_every_record_survives_the_round_trip(record: ContextRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(records(any_text))
def test_any_string_encodes_to_a_single_line(record: ContextRecord) -> None:
    line = encode_record(record)
    assert b"\n" not in line
    assert isinstance(json.loads(line), dict)
    assert decode_record(line) is not None


@given(st.binary())
def test_any_bytes_decode_without_exception(line: bytes) -> None:
    decode_record(line)


def test_one_text_part_is_a_string_and_nulls_are_left_out() -> None:
    assert encode_message(user_message("hi")) == b'{"role":"user","content":"hi"}'


def test_other_content_is_a_list_and_members_of_parts_keep_their_nulls() -> None:
    call = ToolCall(id="tc1", function=Function("Shell", "{}"))
    message = Message("assistant", (ThinkPart("hm"), TextPart("ok")), (call,))
    assert encode_message(message) == (
        b'{"role":"assistant","content":[{"type":"think","think":"hm","encrypted":null},{"type":"text","text":"ok"}],'
        b'"tool_calls":[{"type":"function","id":"tc1","function":{"name":"Shell","arguments":"{}"}}]}'
    )


def test_a_message_without_content_has_an_empty_list() -> None:
    assert encode_message(Message("assistant")) == b'{"role":"assistant","content":[]}'


def test_two_text_parts_stay_separate() -> None:
    message = Message("tool", (TextPart("a"), TextPart("b")), tool_call_id="c")
    expected = b'{"role":"tool","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"tool_call_id":"c"}'
    assert encode_message(message) == expected


def test_internal_records_are_encoded_with_reserved_roles() -> None:
    assert encode_record(SystemPromptRecord("be brief")) == b'{"role":"_system_prompt","content":"be brief"}'
    assert encode_record(CheckpointRecord(0)) == b'{"role":"_checkpoint","id":0}'
    assert encode_record(UsageRecord(812)) == b'{"role":"_usage","token_count":812}'


def test_non_finite_numbers_become_null() -> None:
    call = ToolCall(id="c", function=Function("f"), extras={"score": float("nan")})
    assert json.loads(encode_message(Message("assistant", (), (call,))))["tool_calls"][0]["extras"] == {"score": None}


def test_lone_surrogates_become_the_replacement_character_both_ways() -> None:
    assert encode_message(user_message("a\ud800b")) == '{"role":"user","content":"a�b"}'.encode()
    assert decode_record(b'{"role":"user","content":"a\\ud800b"}') == user_message("a�b")


def test_escaped_surrogate_pair_decodes_to_one_character() -> None:
    assert decode_record(b'{"role":"user","content":"\\ud83d\\ude00"}') == user_message("😀")


def test_undecodable_bytes_are_replaced() -> None:
    assert decode_record(b'{"role":"user","content":"a\xffb"}') == user_message("a�b")


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b'{"role": "_checkpoint", "id": 3}\r', CheckpointRecord(3)),
        (b'{"role":"user","content":null}', Message("user")),
        (b'{"role":"user"}', Message("user")),
        (b'{"role":"assistant","content":"x","tool_calls":null,"name":null}', Message("assistant", (TextPart("x"),))),
        (b'{"role":"user","content":[{"type":"text","text":"x","new":1}],"new":2}', user_message("x")),
        (
            b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}',
            Message("user", (ImagePart(image_url=MediaUrl("data:x")),)),
        ),
        (
            b'{"role":"assistant","content":[{"type":"think","think":"t"}],'
            b'"tool_calls":[{"id":"c","function":{"name":"f","arguments":null}}]}',
            Message("assistant", (ThinkPart("t"),), (ToolCall(id="c", function=Function("f")),)),
        ),
    ],
)
def test_records_of_other_programs_are_decoded(line: bytes, record: ContextRecord) -> None:
    assert decode_record(line) == record


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"user"',
        b'{"content":"no role"}',
        b'{"role":5}',
        b'{"role":["user"]}',
        b'{"role":"developer","content":"x"}',
        b'{"role":"_future","content":"x"}',
        b'{"role":"_checkpoint","id":"0"}',
        b'{"role":"_checkpoint","id":true}',
        b'{"role":"_usage"}',
        b'{"role":"user","content":7}',
        b'{"role":"user","content":[{"type":"smell"}]}',
        b'{"role":"assistant","tool_calls":{}}',
        b'{"role":"assistant","tool_calls":[{"id":"c"}]}',
        b'{"role":"user","content":"a"}{"role":"user","content":"b"}',
        b"[" * 100_000,
    ],
)
def test_invalid_record_decodes_to_none(line: bytes) -> None:
    assert decode_record(line) is None
