"""Reads from a trace of Chromium how long a page has worked between two frames."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from playwright.sync_api import Browser, Page

_CATEGORIES: Final = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline.frame"]
_FRAME: Final = "BeginMainThreadFrame"


class FrameTrace:
    """What was traced: `longest_ms` is the most time that the page's thread has worked between two frames."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.frames = 0

    def read(self, events: list[dict[str, Any]]) -> None:
        """Add up the processor time of the tasks between two frames of the thread that has drawn most of them.

        It is the time of the processor, not of the clock: what else this machine does is no matter of the page.
        """
        drawn = [event for event in events if event.get("name") == _FRAME]
        threads = [(event["pid"], event["tid"]) for event in drawn]
        main = max(set(threads), key=threads.count)
        times = sorted({event["ts"] for event in drawn if (event["pid"], event["tid"]) == main})
        tasks = sorted(
            (event["ts"], event.get("tdur", event["dur"]))
            for event in events
            if event.get("name") == "ThreadControllerImpl::RunTask"
            and event["ph"] == "X"
            and (event["pid"], event["tid"]) == main
        )
        self.frames = len(times)
        at = 0
        for frame in times:
            worked = 0.0
            while at < len(tasks) and tasks[at][0] < frame:
                worked += tasks[at][1] / 1000
                at += 1
            self.longest_ms = max(self.longest_ms, worked)


@contextmanager
def traced(browser: Browser, page: Page) -> Generator[FrameTrace, None, None]:
    """Trace what the page does in the context; the result can be read after it."""
    trace = FrameTrace()
    browser.start_tracing(page=page, categories=_CATEGORIES)
    yield trace
    trace.read(json.loads(browser.stop_tracing())["traceEvents"])
