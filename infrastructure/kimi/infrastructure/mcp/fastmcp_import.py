"""The first import of fastmcp, with this program's settings. Call `load_fastmcp` before any module that imports it."""

from __future__ import annotations

import importlib
import logging
import os

_ENV_FILE_VARIABLE = "FASTMCP_ENV_FILE"


def load_fastmcp() -> None:
    """Import fastmcp without a `.env` of the project as its settings, and with this program's logging.

    By default it reads `.env` in the current directory, whose author may be anyone, and writes to stderr.
    """
    named = os.environ.get(_ENV_FILE_VARIABLE)
    os.environ[_ENV_FILE_VARIABLE] = named or os.devnull
    try:
        importlib.import_module("fastmcp")
    finally:
        if named is None:
            del os.environ[_ENV_FILE_VARIABLE]
    logger = logging.getLogger("fastmcp")
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
    logger.setLevel(logging.WARNING)
    logger.propagate = True
