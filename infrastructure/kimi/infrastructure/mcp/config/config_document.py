"""`mcp.json` as a document that commands edit; unknown members stay unchanged (tools spec 4.5)."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from kimi.application.settings.settings import McpServer
from kimi.domain.errors import ConfigError, UsageError
from kimi.infrastructure.config.private_file import lock_for_change, write_private_file
from kimi.infrastructure.config.text_file import read_text
from kimi.infrastructure.mcp.config.server_config import (
    default_config_path,
    find_server_entries,
    parse_json,
    parse_server,
)


def read_document(path: str) -> dict[str, Any]:
    """Return the parsed file, or an empty document if there is none.

    Raises:
        UsageError: the file cannot be read, is not JSON, or holds no servers; the message names it (R-19).
    """
    try:
        document = parse_json(read_text(path))
        find_server_entries(document, "it")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"Cannot read the MCP config file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"The MCP config file {path} is not UTF-8 text at byte {error.start}") from None
    except (ConfigError, UsageError) as error:
        raise UsageError(f"The MCP config file {path} cannot be used. {error}") from None
    return document


def ensure_server_entries(document: dict[str, Any]) -> dict[str, Any]:
    """Return the servers in the document by name. Entries of a document without `mcpServers` are moved below it."""
    found = find_server_entries(document, "it")
    if "mcpServers" not in document:
        for name in found:
            del document[name]
        document["mcpServers"] = found
    return found


def write_document(path: str, document: dict[str, Any]) -> None:
    """Replace the file atomically, readable only for its owner; a link stays a link.

    Raises:
        ConfigError: the file cannot be written; the old one is unchanged.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        write_private_file(path, text)
    except OSError as error:
        raise ConfigError(f"Cannot write the MCP config file {path}: {error.strerror}.") from None


class UserMcpConfiguration:
    """The `mcp.json` of the share directory, for the commands of `kimi mcp`."""

    def __init__(self, share_dir: str) -> None:
        self.path = default_config_path(share_dir)

    def read(self) -> dict[str, Any]:
        """Return the entries; empty when there is no file. Raises UsageError: the file cannot be used."""
        return ensure_server_entries(read_document(self.path))

    @contextmanager
    def edit(self) -> Generator[dict[str, Any], None, None]:
        """Yield the entries to be changed: they are written when the block ends without an error.

        Raises:
            UsageError: the file cannot be used.
            ConfigError: it cannot be written, or another process does not stop changing it.
        """
        try:
            with lock_for_change(self.path):
                document = read_document(self.path)
                yield ensure_server_entries(document)
                write_document(self.path, document)
        except OSError as error:
            raise ConfigError(f"Cannot write the MCP config file {self.path}: {error.strerror}.") from None

    def parse(self, name: str, entry: object) -> McpServer:
        """Return the server that an entry describes; `config_error` says what is wrong with it."""
        return parse_server(name, entry)
