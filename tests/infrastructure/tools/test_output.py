"""Output limits (tools spec 1.6)."""

from __future__ import annotations

import os
import stat
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi.infrastructure.tools.output import (
    MAX_SPILL_BYTES,
    HeadTailBuffer,
    OutputBuilder,
    truncate_line,
    write_spill_file,
)

SENTENCE = "Output is truncated to fit in the message."


def built(*pieces: str, max_chars: int = 50_000, max_line_chars: int | None = 2_000) -> OutputBuilder:
    builder = OutputBuilder(max_chars, max_line_chars)
    for piece in pieces:
        builder.write(piece)
    return builder


@pytest.mark.spec("T-19")
def test_a_long_line_is_cut_to_the_limit_with_marker_and_line_break() -> None:
    result = built("x" * 2_500 + "\n", "after\n").build().ok("Found it")
    assert result.output == "x" * 1_985 + "[...truncated]\nafter\n"
    assert len(str(result.output).splitlines(keepends=True)[0]) == 2_000
    assert result.message == f"Found it. {SENTENCE}"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\r"])
def test_a_cut_line_keeps_its_own_line_break(ending: str) -> None:
    line = truncate_line("x" * 3_000 + ending, 2_000)
    assert line == "x" * (2_000 - 14 - len(ending)) + "[...truncated]" + ending


def test_a_line_may_come_in_pieces() -> None:
    whole = built("y" * 2_500 + "\nend").build()
    assert built(*["y" * 100] * 25, "\n", "e", "nd").build() == whole


@pytest.mark.spec("T-20")
def test_output_beyond_the_limit_adds_the_truncation_sentence() -> None:
    lines = ("z" * 99 + "\n") * 500
    exact = built(lines).build()
    assert (exact.text, exact.truncated) == (lines, False)
    more = built(lines, "!")
    result = more.build().ok("Done.")
    assert result.message == f"Done. {SENTENCE}"
    assert len(result.output) == 50_000
    assert str(result.output).endswith("z[...truncated]\n")


def test_the_last_line_that_fits_bears_the_marker() -> None:
    output = built("a" * 30 + "\n", "b" * 30 + "\n", "c\n", max_chars=50).build()
    assert output.text == "a" * 30 + "\nbbbb[...truncated]\n"
    assert output.truncated


def test_unlimited_lines_are_cut_at_the_total_limit() -> None:
    output = built("d" * 60_000 + "\n", max_line_chars=None).build()
    assert output.text == "d" * (50_000 - 15) + "[...truncated]\n"


def test_output_within_limits_is_unchanged() -> None:
    result = built("one\n", "two").build()
    assert result.ok().message == ""
    assert result.ok("All good").message == "All good."
    failure = result.error("It failed", "Failed")
    assert (failure.is_error, failure.output, failure.message) == (True, "one\ntwo", "It failed")


@given(st.lists(st.text("ab\r\n", max_size=40), max_size=12), st.integers(20, 60), st.integers(16, 30))
def test_output_never_exceeds_its_limits(pieces: list[str], max_chars: int, max_line_chars: int) -> None:
    output = built(*pieces, max_chars=max_chars, max_line_chars=max_line_chars).build()
    text = "".join(pieces)
    assert len(output.text) <= max_chars
    assert all(len(line) <= max_line_chars for line in output.text.splitlines(keepends=True))
    assert (output.text == text) is not output.truncated


def head_tail(data: bytes, path: Path | None, block: int = 65_536) -> HeadTailBuffer:
    builder = HeadTailBuffer(lambda: str(path) if path else None)
    for start in range(0, len(data), block):
        builder.write(data[start : start + block])
    return builder


NUMBERS = "".join(f"{number:09}\n" for number in range(20_000))


@pytest.mark.parametrize("block", [7, 1_000, 65_536, 300_000])
def test_head_and_tail_stay_and_the_line_between_names_the_full_text(tmp_path: Path, block: int) -> None:
    path = tmp_path / "spill" / "full.txt"
    output = head_tail(NUMBERS.encode(), path, block).build()
    middle = f"[...truncated 150000 chars; full output: {path}]\n"
    assert output.text == NUMBERS[:30_000] + middle + NUMBERS[-20_000:]
    assert output.truncated
    assert path.read_text() == NUMBERS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_output_up_to_the_limit_is_kept_without_a_file(tmp_path: Path) -> None:
    path = tmp_path / "full.txt"
    output = head_tail(NUMBERS[:50_000].encode(), path).build()
    assert (output.text, output.truncated) == (NUMBERS[:50_000], False)
    assert not path.exists()
    assert head_tail(NUMBERS[:50_001].encode(), path).build().truncated
    assert path.read_text() == NUMBERS[:50_001]


def test_truncation_line_names_no_file_if_none_can_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    for path in (None, blocked, blocked / "below"):
        assert "\n[...truncated 150000 chars]\n" in head_tail(NUMBERS.encode(), path).build().text
    assert blocked.read_bytes() == b""


def test_truncation_line_is_separate_and_long_lines_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "full.txt"
    output = head_tail(b"x" * 200_000, path).build()
    cut = "x" * 1_986 + "[...truncated]"
    assert output.text == f"{cut}\n[...truncated 150000 chars; full output: {path}]\n{cut}"
    assert path.read_bytes() == b"x" * 200_000


def test_invalid_bytes_become_replacement_characters_also_across_blocks() -> None:
    data = "aé€\U0001f600".encode() + b"\xff\xc3("
    assert head_tail(data, None, block=1).build().text == "aé€\U0001f600\ufffd\ufffd("
    assert head_tail(b"\xe2\x82", None).build().text == "\ufffd"


def test_spill_file_has_a_limit_and_states_it(tmp_path: Path) -> None:
    path = tmp_path / "full.txt"
    head_tail(b"line of text\n" * (MAX_SPILL_BYTES // 13 + 50_000), path).build()
    data = path.read_bytes()
    assert MAX_SPILL_BYTES < len(data) < MAX_SPILL_BYTES + 100
    assert data.endswith(b"[...the rest is not kept: the output is longer than 10 MiB]\n")


def test_closing_early_closes_the_file(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    builder = head_tail(NUMBERS.encode(), tmp_path / "full.txt")
    builder.close()
    builder.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("block", [b"some line of text\n" * 3_000, b"x" * 50_000, "€uro".encode() * 10_000])
def test_memory_does_not_grow_with_the_output(tmp_path: Path, block: bytes) -> None:
    tracemalloc.start()
    builder = HeadTailBuffer(lambda: str(tmp_path / "full.txt"))
    for _ in range(400):
        builder.write(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    builder.build()
    assert peak < 1_000_000


def test_full_text_is_written_only_to_a_new_private_file(tmp_path: Path) -> None:
    path = tmp_path / "spill" / "full.txt"
    assert write_spill_file(str(path), "ü\ud800") == str(path)
    assert path.read_text() == "ü?"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert write_spill_file(str(path), "other") is None
    assert path.read_text() == "ü?"
