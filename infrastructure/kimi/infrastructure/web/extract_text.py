"""A program that reads HTML from stdin and prints its main text as UTF-8 (tools spec 3.11).

Its argument says what comes: `text`, which is UTF-8, or `bytes`, whose encoding the page itself tells.
"""

from __future__ import annotations

import sys
from contextlib import suppress

CPU_S = 60
"""Seconds of work after which the system ends it, should the one that started it be gone by then."""


def limit_cpu_time() -> None:
    """Take at most `CPU_S`, where the system knows such limits and none is narrower."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def main() -> None:
    """Look for the main text; what cannot be understood has none."""
    import trafilatura

    limit_cpu_time()
    content = sys.stdin.buffer.read()
    html = content.decode("utf-8", "replace") if sys.argv[1:] == ["text"] else content
    text = trafilatura.extract(html, include_comments=True, include_tables=True, with_metadata=True)
    if text is not None:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
