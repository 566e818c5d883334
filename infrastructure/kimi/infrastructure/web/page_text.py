"""The text of a page: unchanged if it is text, else its main content (tools spec 3.11)."""

from __future__ import annotations

import codecs
import logging
import os
import sys
from importlib.util import find_spec
from subprocess import DEVNULL
from typing import Final

import anyio

from kimi.infrastructure.web.page_fetcher import FetchedPage, PageDenied

logger = logging.getLogger(__name__)

HTML = frozenset({"text/html", "application/xhtml+xml", ""})
_TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/x-yaml", "application/javascript"}
)
_TEXT_TYPE_SUFFIXES = ("+json", "+xml")

MAIN_TEXT_S: Final = 30.0
"""The time limit for finding the main text of a page, in seconds."""

NO_LIBRARY = (
    "Failed to fetch URL: reading web pages needs a library that is not installed. "
    "Tell the user to install it with: pip install trafilatura"
)


def is_text(page: FetchedPage) -> bool:
    """Return whether the page is text and needs no extraction."""
    kind = page.content_type
    return kind not in HTML and (kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(_TEXT_TYPE_SUFFIXES))


def decode_page(page: FetchedPage) -> str:
    """Decode the body in the charset that the server names, else UTF-8; invalid bytes are replaced."""
    try:
        codec = codecs.lookup(page.charset or "utf-8").name
        return page.body.decode("utf-8-sig" if codec == "utf-8" else codec, "replace")
    except (LookupError, ValueError):  # no such charset, or a codec that is not a charset, such as `hex` and `idna`
        return page.body.decode("utf-8-sig", "replace")


async def extract_main_text(page: FetchedPage, seconds: float = MAIN_TEXT_S) -> str | None:
    """Return the main content of an HTML page under its metadata; None if nothing is found.

    A separate process extracts it: a page can be made so that this takes hours, which would block everything else.

    Raises:
        PageDenied: the page is neither HTML nor text, the library for HTML is not installed, or it took too long.
    """
    if page.content_type not in HTML:
        text = f"Failed to fetch URL: the content type '{page.content_type[:80]}' is not text."
        raise PageDenied(text, "Unsupported content type")
    if find_spec("trafilatura") is None:
        raise PageDenied(NO_LIBRARY, "Library missing")
    form, html = ("text", decode_page(page).encode("utf-8", "replace")) if page.charset else ("bytes", page.body)
    try:
        with anyio.fail_after(seconds):
            found = await _run_extractor(form, html)
    except TimeoutError:
        text = f"Failed to fetch URL: the text of the page was not found within {seconds:g} seconds."
        raise PageDenied(text, "Page too complex") from None
    return found.decode("utf-8", "replace").strip() or None


async def _run_extractor(form: str, html: bytes) -> bytes:
    """Return the output of the extractor; empty if it fails. It inherits only the variables needed to start."""
    environ = {name: value for name, value in os.environ.items() if _is_startup_variable(name.upper())}
    # -P: the work directory belongs to the user, its modules must not be imported.
    command = [sys.executable, "-P", "-m", "kimi.infrastructure.web.extract_text", form]
    found = b""
    try:
        found = (await anyio.run_process(command, input=html, stderr=DEVNULL, env=environ, check=False)).stdout
    except* (anyio.BrokenResourceError, OSError) as failures:  # it cannot be started, or does not read the page
        logger.warning("the main text of a page was not looked for: %r", failures.exceptions)
    return found


def _is_startup_variable(variable: str) -> bool:
    return variable.startswith(("PYTHON", "LD_", "DYLD_")) or variable in ("PATH", "SYSTEMROOT", "TEMP", "TMP")
