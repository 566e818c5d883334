"""The first import of fastmcp, under our conditions. Whoever imports a module that imports it calls this before."""

from __future__ import annotations

import importlib
import logging
import os

_ENV_FILE_VARIABLE = "FASTMCP_ENV_FILE"


def load_fastmcp() -> None:
    """Import fastmcp, so that it takes no settings from a `.env` of the project and logs where we log.

    By itself it reads that file in the current directory, which may come from anybody, and writes to stderr.
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
