"""Headless Chromium of this machine, driven by Playwright, and where to find it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

REQUIRED: Final = "KIMI_REQUIRE_BROWSER"
"""A variable that makes the absence of Chromium a failure; it may hold the path of the program."""

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS: Final = (
    "--no-sandbox",  # it refuses to start as root otherwise
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--js-flags=--expose-gc",
    "--enable-precise-memory-info",
)


def find_chromium() -> str | None:
    """Return the path of Chromium, or None where it is not installed."""
    named = os.environ.get(REQUIRED, "")
    if "/" in named and os.access(named, os.X_OK):
        return named
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def is_required() -> bool:
    """Whether the absence of Chromium is to be a failure."""
    return os.environ.get(REQUIRED, "") not in ("", "0")


@contextmanager
def chromium(path: str) -> Generator[Browser, None, None]:
    """Run a browser while the context is open."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()
