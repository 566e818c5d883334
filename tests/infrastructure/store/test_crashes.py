"""Torn and foreign lines, crashes at any byte, rotation that is whole at every instant (R-62, R-64, W-131)."""

import json
import logging
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi.application.codec.context_line import encode_record
from kimi.application.codec.envelope import encode_event
from kimi.domain.content.message import Message, user_message
from kimi.domain.content.parts import TextPart
from kimi.domain.events.event import TurnBegin, TurnEnd
from kimi.domain.history.session import CheckpointRecord, ContextRecord, SystemPromptRecord, UsageRecord
from kimi.infrastructure.store.event_line import METADATA_LINE, encode_event_line, extract_envelope
from kimi.infrastructure.store.files.lines import read_lines_backward
from tests.support.store_children import end_child, opened, session_path, start_child, store_at, write_session

pytestmark = pytest.mark.anyio

BEFORE: list[ContextRecord] = [SystemPromptRecord("be brief"), CheckpointRecord(0), user_message("läuft?")]
ADDED: list[ContextRecord] = [UsageRecord(9), Message("assistant", (TextPart("ja\nnein"),))]


def lines(records: list[ContextRecord]) -> bytes:
    return b"".join(encode_record(record) + b"\n" for record in records)


@pytest.mark.spec("R-62")
async def test_context_cut_at_any_byte_of_an_append_loads_and_accepts_appends(tmp_path: Path) -> None:
    whole, added = lines(BEFORE), lines(ADDED)
    for cut in range(len(added) + 1):
        share = tmp_path / str(cut)
        write_session(share, whole + added[:cut])
        complete = [record for end, record in ends(ADDED) if end <= cut]
        files = await opened(share)
        assert files.load_context() == BEFORE + complete
        files.append_context([user_message("next")])
        files.close()
        files = await opened(share)
        assert files.load_context() == [*BEFORE, *complete, user_message("next")]
        files.close()


def ends(records: list[ContextRecord]) -> list[tuple[int, ContextRecord]]:
    """Each record with the number of bytes after which its line is complete; the line end itself may be missing."""
    found, end = list[tuple[int, ContextRecord]](), 0
    for record in records:
        end += len(encode_record(record))
        found.append((end, record))
        end += 1
    return found


@pytest.mark.spec("W-131")
async def test_a_log_cut_at_any_byte_of_an_append_keeps_the_next_record_readable(tmp_path: Path) -> None:
    first, torn = encode_event(TurnBegin("läuft?")), encode_event(TurnBegin("x"))
    whole, added = METADATA_LINE + encode_event_line(first, 1.0), encode_event_line(torn, 2.0)
    for cut in range(len(added)):
        share = tmp_path / str(cut)
        write_session(share, events=whole + added[:cut])
        files = await opened(share)
        files.append_event(encode_event(TurnEnd()), 3.0)
        expected = [first, *([torn] if cut == len(added) - 1 else []), encode_event(TurnEnd())]
        assert list(files.events()) == expected
        files.close()


async def test_a_line_torn_by_another_program_while_we_have_the_file_open(tmp_path: Path) -> None:
    files = await store_at(tmp_path).create("one")
    files.append_context(BEFORE)
    with (session_path(tmp_path) / "context.jsonl").open("ab") as other:
        other.write(b'{"role":"user","con')
    files.append_context(ADDED)
    assert files.load_context() == BEFORE + ADDED
    files.close()


async def test_removed_log_is_started_again(tmp_path: Path) -> None:
    files = await store_at(tmp_path).create("one")
    files.append_event(encode_event(TurnEnd()), 1.0)
    (session_path(tmp_path) / "wire.jsonl").unlink()
    files.append_event(encode_event(TurnEnd()), 2.0)
    assert (session_path(tmp_path) / "wire.jsonl").read_bytes().startswith(METADATA_LINE)
    assert list(files.events()) == [encode_event(TurnEnd())]
    files.close()


GARBAGE = [b"{", b"\xff\xfe\x00", b"[1]", b'{"role":"developer"}', b'{"role":"user","content":5}']


async def test_unusable_lines_cost_one_warning_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = [encode_record(record) for record in BEFORE]
    write_session(tmp_path, b"\n\n".join([GARBAGE[0], good[0], *GARBAGE[1:3], good[1], *GARBAGE[3:], good[2]]))
    files = await opened(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert files.load_context() == BEFORE
    assert len(caplog.records) == len(GARBAGE)
    assert all("developer" not in record.getMessage() for record in caplog.records)
    files.close()


async def test_bad_bytes_inside_a_text_are_replaced(tmp_path: Path) -> None:
    write_session(tmp_path, b'{"role":"user","content":"a\xffb"}\n')
    files = await opened(tmp_path)
    assert files.load_context() == [user_message("a�b")]
    files.close()


async def test_unusable_events_cost_one_warning_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = encode_event_line(encode_event(TurnEnd()), 1.0)
    bad = [b"{\n", b"[]\n", b'{"timestamp":1,"message":5}\n', b'{"timestamp":1,"message":{"type":"X"}}\n']
    write_session(
        tmp_path, events=METADATA_LINE + bad[0] + good + b"\n" + bad[1] + METADATA_LINE + bad[2] + bad[3] + good
    )
    files = await opened(tmp_path)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert list(files.events()) == [encode_event(TurnEnd())] * 2
    assert len(caplog.records) == len(bad)
    files.close()


async def test_log_without_header_gets_no_header(tmp_path: Path) -> None:
    line = encode_event_line(encode_event(TurnEnd()), 1.0)
    write_session(tmp_path, events=line)
    files = await opened(tmp_path)
    files.append_event(encode_event(TurnEnd()), 2.0)
    assert METADATA_LINE not in (session_path(tmp_path) / "wire.jsonl").read_bytes()
    assert len(list(files.events())) == 2
    files.close()


@pytest.mark.parametrize(
    "line",
    [
        b'{"timestamp":1.5,"message":{"type":"A","payload":{"k":"\xc3\xa4"}}}',
        b'{"message": {"type": "A", "payload": {"k": "\xc3\xa4"}}, "timestamp": 1}',
        b'{"timestamp": 1, "message": {"type": "A", "payload": {"k": "\xc3\xa4"}}, "more": {}}',
    ],
)
def test_envelopes_are_found_in_any_json_spelling(line: bytes) -> None:
    envelope = extract_envelope(line)
    assert envelope is not None
    assert json.loads(envelope) == {"type": "A", "payload": {"k": "ä"}}


@given(st.binary(), st.integers(1, 9))
@settings(max_examples=200)
def test_lines_backward_are_the_lines_in_reverse(content: bytes, times: int) -> None:
    content = content.replace(b"a", b"\n") * times * 3_000
    with TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        path.write_bytes(content)
        expected = content.split(b"\n")[::-1] if content else [b""]
        assert list(read_lines_backward(str(path))) == expected


async def test_rotation_keeps_the_old_context_under_the_next_free_number(tmp_path: Path) -> None:
    directory = write_session(tmp_path, lines(BEFORE))
    (directory / "context_7.jsonl").write_bytes(b"older\n")
    files = await opened(tmp_path)
    files.rotate_context(ADDED)
    files.append_context([CheckpointRecord(3)])
    assert (directory / "context_8.jsonl").read_bytes() == lines(BEFORE)
    assert (directory / "context.jsonl").read_bytes() == lines([*ADDED, CheckpointRecord(3)])
    files.close()
    assert sorted(path.name for path in directory.iterdir()) == [
        "context.jsonl",
        "context_7.jsonl",
        "context_8.jsonl",
    ]


async def test_leftover_of_a_crashed_rotation_is_removed(tmp_path: Path) -> None:
    directory = write_session(tmp_path, lines(BEFORE))
    (directory / "context.jsonl.new").write_bytes(b"half")
    files = await opened(tmp_path)
    assert not (directory / "context.jsonl.new").exists()
    assert files.load_context() == BEFORE
    files.close()


ROTATE = """
import anyio
import os
from tests.support.store_children import opened
from kimi.domain.content.message import user_message
from pathlib import Path

def watch(event, arguments):
    global looks
    if not looks and event.partition(".")[0] in ("open", "os"):
        looks = True
        try:
            found = Path(sys.argv[2]).read_bytes().splitlines()
        except OSError:
            found = []
        if len(found) != 50 or len(set(found)) != 1:
            os._exit(9)
        looks = False

async def main():
    global looks
    files = await opened(Path(sys.argv[1]))
    print("ready", flush=True)
    looks = False
    sys.addaudithook(watch)
    for number in range(10_000):
        files.rotate_context([user_message(str(number))] * 50)

anyio.run(main)
"""
"""Looks at the file itself as well, before each of its own system calls, and ends when that is not whole."""


@pytest.mark.spec("R-64")
async def test_a_rotation_that_is_watched_and_killed_always_shows_a_whole_context(tmp_path: Path) -> None:
    chance = random.Random(7)
    for attempt in range(4):
        share = tmp_path / str(attempt)
        directory = write_session(share, lines([user_message("old")] * 50))
        child = start_child(ROTATE, str(share), str(directory / "context.jsonl"))
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            for count in (2, 2 + chance.randrange(6)):  # watched for as long as so many rotations take
                end = time.monotonic() + 10
                while len(list(directory.glob("context_*.jsonl"))) < count and time.monotonic() < end:
                    assert_whole((directory / "context.jsonl").read_bytes())
            assert child.poll() is None
            assert len(list(directory.glob("context_*.jsonl"))) > 1
        finally:
            end_child(child)
        assert_whole((directory / "context.jsonl").read_bytes())
        files = await opened(share)
        assert len(files.load_context()) == 50
        files.close()


def assert_whole(content: bytes) -> None:
    found = content.splitlines(keepends=True)
    assert len(found) == 50
    assert len(set(found)) == 1
    assert content.endswith(b"\n")
