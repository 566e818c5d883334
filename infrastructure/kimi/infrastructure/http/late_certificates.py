"""Import aiohttp without the certificates of the system, which take it 50 ms and megabytes to read.

It makes two TLS contexts of its own when it is imported and reads all certificates for each. Requests of the HTTP
client bring a context, so nothing here uses those two. Another user of aiohttp in this process, such as an installed
tool, gets the certificates with the first connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, cast


@contextmanager
def certificates_when_used() -> Generator[None]:
    """Let the TLS contexts that this thread makes here read the system's certificates with their first connection."""
    own_thread, read = get_ident(), ssl.SSLContext.set_default_verify_paths
    contexts: list[ssl.SSLContext] = []

    def put_off(context: ssl.SSLContext) -> None:
        if get_ident() == own_thread:
            contexts.append(context)
        else:
            read(context)

    setattr(ssl.SSLContext, read.__name__, put_off)
    try:
        yield
    finally:
        delattr(ssl.SSLContext, read.__name__)  # the method itself is one of the class below
    for context in contexts:
        _read_when_used(context)


def _read_when_used(context: ssl.SSLContext) -> None:
    def read_and_wrap(*args: Any, **kwargs: Any) -> ssl.SSLObject:
        if context.__dict__.pop("wrap_bio", None) is not None:
            context.set_default_verify_paths()
        return context.wrap_bio(*args, **kwargs)

    cast("dict[str, object]", context.__dict__)["wrap_bio"] = read_and_wrap
