"""The text of a page: as it is where it is text, else its main content (tools spec 3.11)."""

from __future__ import annotations

import codecs
from typing import Any

from kimi.infrastructure.web.pages import Page, PageRefused

HTML = frozenset({"text/html", "application/xhtml+xml", ""})
_TEXT = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/x-yaml", "application/javascript"}
)
_ENDINGS = ("+json", "+xml")

NO_LIBRARY = (
    "Failed to fetch URL: reading web pages needs a library that is not installed. "
    "Tell the user to install it with: pip install 'kimi-wire[web]'"
)


def is_text(page: Page) -> bool:
    """Can the page be given as it is?"""
    kind = page.content_type
    return kind not in HTML and (kind.startswith("text/") or kind in _TEXT or kind.endswith(_ENDINGS))


def plain_text(page: Page) -> str:
    """The body in the charset that the server names, else UTF-8; what cannot be decoded is replaced."""
    try:
        codec = codecs.lookup(page.charset or "utf-8").name
        return page.body.decode("utf-8-sig" if codec == "utf-8" else codec, "replace")
    except (LookupError, ValueError):  # no such charset, or a codec that is none, such as `hex` and `idna`
        return page.body.decode("utf-8-sig", "replace")


def main_text(page: Page) -> str | None:
    """The main content of an HTML page under its metadata; None when there is nothing to be found. Takes a while.

    Raises:
        PageRefused: the page is neither HTML nor text, or the library for HTML is not installed.
    """
    if page.content_type not in HTML:
        text = f"Failed to fetch URL: the content type '{page.content_type[:80]}' is not text."
        raise PageRefused(text, "Unsupported content type")
    html = plain_text(page) if page.charset else page.body
    text = _library().extract(html, include_comments=True, include_tables=True, with_metadata=True)
    return text.strip() or None if isinstance(text, str) else None


def _library() -> Any:
    try:
        import trafilatura
    except ImportError:
        raise PageRefused(NO_LIBRARY, "Library missing") from None
    return trafilatura
