"""A real `kimi web` process, and the pages that a test opens in it."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import BrowserContext, Page, ViewportSize

from tests.support.program import program
from tests.support.program.wire_process import Place

PHONE: Final[ViewportSize] = {"width": 390, "height": 844}
DESKTOP: Final[ViewportSize] = {"width": 1280, "height": 860}
SETTLED_MS: Final = 500
_NEW_SESSION: Final = """async () => {
  const { createSession, getInfo } = await import("/page/api.js");
  const { work_dir: here, directories } = await getInfo();
  const id = await createSession(here ?? directories[0]);
  const opened = new Promise((resolve) => window.addEventListener("hashchange", resolve, { once: true }));
  location.hash = `#/s/${id}`;
  await opened;
}"""
_LINK: Final = re.compile(rb"(http://[^/\s]+)/\?token=(\S+)")


@dataclass(frozen=True, slots=True)
class Web:
    """A running server: its address without a path, and the token of its link."""

    address: str
    token: str

    @property
    def link(self) -> str:
        """The link that logs in."""
        return f"{self.address}/?token={self.token}"

    def open(self, context: BrowserContext, path: str = "") -> Page:
        """Return a page that is logged in and has begun."""
        page = context.new_page()
        page.goto(self.link + path)
        page.wait_for_selector("#sessions .session-list > *", state="attached")
        return page


@contextmanager
def web(place: Place, *arguments: str) -> Generator[Web, None, None]:
    """Run `kimi web` in the work directory of `place`; end it on leaving."""
    process = program.start(["web", "--no-open", "--port", "0", *arguments], place.work, place.full_environ())
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    drains = [threading.Thread(target=process.stdout.read, daemon=True)]
    try:
        told = b""
        while not (found := _LINK.search(told)):
            line = process.stderr.readline()
            assert line, f"kimi web has ended: {told.decode(errors='replace')}"
            told += line
        drains.append(threading.Thread(target=process.stderr.read, daemon=True))
        for drain in drains:
            drain.start()
        yield Web(found[1].decode(), found[2].decode())
    finally:
        process.terminate()
        process.wait(10)
        for drain in drains:
            drain.join(10)
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


def say(page: Page, text: str) -> None:
    """Write a message and send it."""
    page.get_by_label("Message", exact=True).fill(text)
    page.locator(".composer .primary").click()


def new_session(page: Page) -> None:
    """Start a session in the directory that the server offers first, and open it."""
    page.evaluate(_NEW_SESSION)
    page.wait_for_selector('[data-ready="true"]')


def wait_idle(page: Page) -> None:
    """Wait until the agent has ended its turn."""
    page.wait_for_selector('[data-state="idle"]')


def press(page: Page, name: str) -> None:
    """Press a button of what is asked, once the page takes it: right after it has come up it takes nothing."""
    page.wait_for_selector(".card.asked")
    page.wait_for_timeout(SETTLED_MS)
    page.locator(".card.asked").get_by_role("button", name=name, exact=True).click()


def session_id(page: Page) -> str:
    """Return the id of the session that the page shows."""
    return page.url.rpartition("/")[2]
