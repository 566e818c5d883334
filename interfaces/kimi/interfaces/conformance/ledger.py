"""What was found about each item of a suite."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeVar

Outcome: TypeAlias = Literal["passed", "failed", "lacking", "unobservable", "skipped"]

TRAFFIC_LINES: Final = 14
LINE_CHARS: Final = 600
BROKEN_OFF: Final = "the scenario broke off before: "
MAX_FAILURES: Final = 5
"""How many failures of an item are kept of a scenario."""

WRONG_SHAPE: Final = (KeyError, TypeError, IndexError, AttributeError, ValueError, UnboundLocalError)
"""What a scenario raises when it reads messages that have another shape, or needs what a failed check has not found."""

_NOT_SHOWN: Final = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
"""The categories of characters that a report has escapes for."""

Found = TypeVar("Found")


class Mismatch(Exception):
    """The server does not do what an item says; the message says what it does instead."""


class FoundEnough(Exception):
    """The one item that matters has failed; the scenario need not go on."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item failed, in which scenario, and the last lines of the traffic before."""

    scenario: str
    reason: str
    traffic: tuple[str, ...]


@dataclass(slots=True)
class ItemFinding:
    """How often an item was looked at, and its failures."""

    looks: int = 0
    failures: list[Failure] = field(default_factory=list[Failure])


class Ledger:
    """Collects the findings of one scenario; after a failure of `stop_at` the scenario ends.

    `show_traffic` returns the lines that a failure keeps; `recover` puts what a failed check has left behind in order.
    """

    def __init__(
        self, scenario: str, items: Iterable[str], watched: Iterable[str] = (), stop_at: str | None = None
    ) -> None:
        self.scenario = scenario
        self._stop_at = stop_at
        self._own = tuple(items)
        self.findings: dict[str, ItemFinding] = {item: ItemFinding() for item in (*self._own, *watched)}
        self.show_traffic: Callable[[], tuple[str, ...]] = tuple
        self.recover: Callable[[], None] = lambda: None

    @contextmanager
    def check(self, *items: str) -> Generator[None, None, None]:
        """Judge items by what is expected within; what is raised there fails them, and the scenario goes on."""
        try:
            yield
        except (Mismatch, OSError, *WRONG_SHAPE) as error:
            self._judge(items, describe(error))
            self.recover()
        except asyncio.CancelledError:
            self._judge(items, "it took too long")
            raise
        else:
            self._judge(items)
        if self._stop_at is not None and self.findings[self._stop_at].failures:
            raise FoundEnough

    def watch(self, item: str, holds: bool, reason: str) -> None:
        """Judge an item by a line that arrived, if this scenario judges it."""
        if item in self.findings:
            self._judge((item,), "" if holds else reason)

    def fail(self, item: str, reason: str) -> None:
        """Add a failure of an item; the same reason is kept once."""
        known = self.findings[item].failures
        text = escape_controls(shorten(reason, 4 * LINE_CHARS))
        if len(known) < MAX_FAILURES and all(failure.reason != text for failure in known):
            known.append(Failure(self.scenario, text, tuple(map(escape_controls, self.show_traffic()))))

    def break_off(self, reason: str) -> None:
        """Fail every item that nothing was found about: the scenario could not go on. It fails one at least."""
        open_items = [item for item in self._own if not self.findings[item].looks]
        has_failed = any(self.findings[item].failures for item in self._own)
        for item in open_items or ([] if has_failed else self._own):
            self.fail(item, f"{BROKEN_OFF}{reason}")

    def _judge(self, items: Iterable[str], reason: str = "") -> None:
        for item in items:
            self.findings[item].looks += 1
            if reason:
                self.fail(item, reason)


def expect(condition: object, otherwise: str) -> None:
    """Raise Mismatch with the text unless the condition holds."""
    if not condition:
        raise Mismatch(otherwise)


def expect_equal(found: object, wanted: object, what: str) -> None:
    """Raise Mismatch unless both are equal; `what` names the value."""
    if found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
        raise Mismatch(f"{what} is {shorten(repr(found))}, not {shorten(repr(wanted))}")


def first_of(found: Iterable[Found], what: str) -> Found:
    """Return the first of what was found. Raises Mismatch if there is none."""
    for one in found:
        return one
    raise Mismatch(f"there is no {what}")


def shorten(text: str, limit: int = LINE_CHARS) -> str:
    """Return the text, cut in the middle if it is long."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} … {text[-half:]}"


def describe(error: Exception) -> str:
    """Say what a scenario met: a Mismatch in its own words, else a file or a message that is not as expected."""
    if isinstance(error, Mismatch):
        return str(error)
    if isinstance(error, OSError):
        return f"a file or connection is not as expected: {error}"
    return f"a message has another shape than expected: {type(error).__name__}: {error}"


def escape_controls(text: str) -> str:
    """Return the text with escapes for what would damage a terminal or a report, such as controls and surrogates."""
    return "".join(
        char if char == "\n" or unicodedata.category(char) not in _NOT_SHOWN else f"\\u{ord(char):04x}" for char in text
    )
