"""`mcp.json` as a document that commands change (tools spec 4.5): what they do not know stays as it was."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from kimi.domain.errors import ConfigError, UsageError
from kimi.infrastructure.mcp.config import parsed_json, server_entries
from kimi.infrastructure.private_file import write_private_file
from kimi.infrastructure.store.lock import FileLock

WAIT_S: Final = 5.0
"""For another program that changes the file."""


def read_document(path: str) -> dict[str, Any]:
    """The parsed file, an empty document when there is none.

    Raises:
        UsageError: the file cannot be read, is not JSON, or holds no servers; the message names it (R-19).
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            document = parsed_json(file.read())
        server_entries(document, "it")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"Cannot read the MCP config file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"The MCP config file {path} is not UTF-8 text at byte {error.start}") from None
    except (ConfigError, UsageError) as error:
        raise UsageError(f"The MCP config file {path} cannot be used. {error}") from None
    return document


def entries(document: dict[str, Any]) -> dict[str, Any]:
    """The servers in the document by name. Entries of a document without `mcpServers` are moved below it."""
    found = server_entries(document, "it")
    if "mcpServers" not in document:
        for name in found:
            del document[name]
        document["mcpServers"] = found
    return found


@contextmanager
def changing(path: str) -> Generator[dict[str, Any], None, None]:
    """The parsed file, to be changed: it is written when the block ends without an error. Others wait meanwhile.

    Raises:
        UsageError: as `read_document`.
        ConfigError: the file cannot be written, or somebody else does not stop changing it.
    """
    with _locked(os.path.realpath(path)):
        document = read_document(path)
        yield document
        write_document(path, document)


@contextmanager
def _locked(target: str) -> Generator[None, None, None]:
    lock = FileLock(f"{target}.lock")
    end = time.monotonic() + WAIT_S
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        while not lock.try_acquire():
            if time.monotonic() > end:
                raise ConfigError(f"Another program is changing {target}; try again when it is done.")
            time.sleep(0.02)
    except OSError as error:
        raise ConfigError(f"Cannot write the MCP config file {target}: {error.strerror}.") from None
    try:
        yield
    finally:
        lock.release()


def write_document(path: str, document: dict[str, Any]) -> None:
    """Replace the file atomically, readable for its owner only; a link stays a link.

    Raises:
        ConfigError: the file cannot be written; the old one is untouched.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        write_private_file(path, text)
    except OSError as error:
        raise ConfigError(f"Cannot write the MCP config file {path}: {error.strerror}.") from None
