"""Fixtures of the tests of the page: one Chromium for all of them, and for each a server of its own."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from tests.support.browser.chromium import REQUIRED, chromium, find_chromium, is_required
from tests.support.browser.web_process import DESKTOP
from tests.support.program.wire_process import Place

expect.set_options(timeout=15_000)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium; without it these tests are left out, or fail where it is required."""
    path = find_chromium()
    if path is None:
        reason = "Chromium is not installed, so the page was not tried in a browser"
        (pytest.fail if is_required() else pytest.skip)(f"{reason} ({REQUIRED}=1 makes this a failure)")
    with chromium(path) as running:
        yield running


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A throw-away share directory and work dir."""
    return Place(tmp_path)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser without a past, as large as a desk's, which fails the test when the page has an error."""
    with watched_context(browser) as made:
        yield made


@contextmanager
def watched_context(browser: Browser, size: ViewportSize = DESKTOP) -> Generator[BrowserContext, None, None]:
    """Open a context; an error of any of its pages, or a breach of the policy, fails at the end."""
    errors: list[str] = []
    context = browser.new_context(viewport=size, locale="en-US", reduced_motion="reduce")
    context.set_default_timeout(15_000)

    def watch(page: Page) -> None:
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda told: errors.append(told.text) if "Content Security Policy" in told.text else None)

    context.on("page", watch)
    try:
        yield context
    finally:
        context.close()
    assert errors == []
