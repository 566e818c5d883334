"""A program that reads HTML from stdin and prints its main text as UTF-8 (tools spec 3.11).

Its argument names the input: `text`, which is UTF-8, or `bytes`, whose encoding is stated in the page.
"""

from __future__ import annotations

import sys
from contextlib import suppress

CPU_S = 60
"""The CPU time in seconds after which the system ends this program if its parent is gone by then."""


def limit_cpu_time() -> None:
    """Limit the CPU time to `CPU_S`, where the system has such limits and none is narrower."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def main() -> None:
    """Print the main text, or nothing if none is found."""
    import trafilatura

    limit_cpu_time()
    content = sys.stdin.buffer.read()
    html = content.decode("utf-8", "replace") if sys.argv[1:] == ["text"] else content
    text = trafilatura.extract(html, include_comments=True, include_tables=True, with_metadata=True)
    if text is not None:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
