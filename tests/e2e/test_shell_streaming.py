"""Streamed answers on a real terminal: everything arrives, once, in linear time and with little work."""

import time
from dataclasses import replace
from pathlib import Path

from tests.support.program.pace import slowdown
from tests.support.program.terminal import ENTER, Terminal, terminal
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply
from tests.support.providers.scripted_calls import call

SHARE_OF_A_CORE = 0.15
"""While a hundred pieces a second are shown, once what the first turn needs has been imported."""


def processor_seconds(shown: Terminal) -> float:
    """What the program has used so far."""
    fields = Path(f"/proc/{shown.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_fifty_thousand_chunks_take_linear_time(place: Place) -> None:
    used: dict[int, float] = {}
    for count in (5_000, 50_000):
        place.script("\n".join(f"text: w{number}" for number in range(count)))
        with terminal(place) as shown:
            shown.until("context:")
            before = processor_seconds(shown)
            shown.type("go", ENTER)
            shown.until(f"w{count - 1}", 40)
            shown.idle()
            used[count] = processor_seconds(shown) - before
            said = "".join(shown.all_text.split())
            assert "".join(f"w{number}" for number in range(count)) in said
            assert len(shown.raw) < 20 * len(said)
    assert used[50_000] < 20 * used[5_000] + 2
    assert used[50_000] < 10


def test_hundred_chunks_a_second_use_little_cpu(place: Place) -> None:
    pieces = [f"word{number} " if number % 25 else "\n\n" for number in range(600)]
    with loopback(replace(text_reply(*pieces), event_delay_s=0.0095)) as server:
        place.provider(server.base_url)
        with terminal(place, columns=100, rows=40) as shown:
            shown.until("context:")
            shown.type("go", ENTER)
            shown.until("word249")  # what is imported for the first turn is there
            shares = [share_until(shown, word) for word in ("word424", "word599")]
            assert min(shares) < SHARE_OF_A_CORE * slowdown(), shares


def share_until(shown: Terminal, word: str) -> float:
    """The share of a core that the shell takes until this is shown."""
    before, began = processor_seconds(shown), time.monotonic()
    shown.until(word)
    return (processor_seconds(shown) - before) / (time.monotonic() - began)


def test_printed_text_is_not_redrawn(place: Place) -> None:
    paragraphs = [f"Paragraph {number} says something.\n\n" for number in range(40)]
    with loopback(replace(text_reply(*paragraphs), event_delay_s=0.03)) as server:
        place.provider(server.base_url)
        with terminal(place) as shown:
            shown.until("context:")
            shown.type("go", ENTER)
            shown.until("Paragraph 39")
            shown.idle()
            text = shown.all_text
            for number in range(40):
                assert text.count(f"Paragraph {number} says") == 1


def test_a_narrow_window_that_changes_keeps_all_text(place: Place) -> None:
    pieces = [f"word{number} " for number in range(120)]
    with loopback(replace(text_reply(*pieces), event_delay_s=0.01)) as server:
        place.provider(server.base_url)
        with terminal(place, columns=60, rows=20) as shown:
            shown.until("context:")
            shown.type("go", ENTER)
            for columns in (40, 90, 50):
                shown.until("Working")
                shown.resize(columns, 20)
                time.sleep(0.1)
            shown.until("word119")
            shown.idle()


def test_hostile_output_cannot_drive_the_terminal(place: Place) -> None:
    evil = "\\033[2J\\033]0;owned\\007\\033[6n\\033[?1049h"
    place.script(
        "text: look \x1b[2J\x1b]52;c;eA==\x07\n" + call("c1", "Shell", command=f"printf '{evil}visible'"), "text: over"
    )
    with terminal(place, "--yolo") as shown:
        shown.until("context:")
        shown.type("go", ENTER)
        text = shown.until("over")
        assert "visible" in text
        for sequence in (b"\x1b[2J", b"\x1b]0;", b"\x1b]52", b"\x1b[6n", b"\x1b[?1049h"):
            assert sequence not in shown.raw
