"""A program that reads HTML from stdin and prints its main text as UTF-8 (tools spec 3.11).

Its argument says what comes: `text`, which is UTF-8, or `bytes`, whose encoding the page itself tells.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Look for the main text; what cannot be understood has none."""
    import trafilatura

    content = sys.stdin.buffer.read()
    html = content.decode("utf-8", "replace") if sys.argv[1:] == ["text"] else content
    text = trafilatura.extract(html, include_comments=True, include_tables=True, with_metadata=True)
    if text is not None:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
