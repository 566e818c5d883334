"""What every `McpConfiguration` does (application/admin)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kimi.application.admin.mcp_configuration import McpConfiguration
from kimi.infrastructure.mcp.config.config_document import UserMcpConfiguration
from tests.support.mcp.configuration import MemoryMcpConfiguration

MakeConfiguration = Callable[[Path], McpConfiguration]


def on_disk(directory: Path) -> McpConfiguration:
    return UserMcpConfiguration(str(directory))


def in_memory(directory: Path) -> McpConfiguration:
    return MemoryMcpConfiguration()


@pytest.fixture(params=[on_disk, in_memory], ids=lambda make: str(make.__name__))
def configuration(request: pytest.FixtureRequest, tmp_path: Path) -> McpConfiguration:
    make: MakeConfiguration = request.param
    return make(tmp_path)


def test_missing_file_has_no_entries(configuration: McpConfiguration) -> None:
    assert configuration.read() == {}
    assert configuration.path.endswith("mcp.json")


def test_entries_are_written_when_the_block_ends(configuration: McpConfiguration) -> None:
    with configuration.edit() as entries:
        entries["b"] = {"command": "x"}
        entries["a"] = {"url": "https://h.test"}
        assert configuration.read() == {}
    assert list(configuration.read().items()) == [("b", {"command": "x"}), ("a", {"url": "https://h.test"})]
    with configuration.edit() as entries:
        del entries["b"]
    assert configuration.read() == {"a": {"url": "https://h.test"}}


def test_error_in_the_block_writes_nothing(configuration: McpConfiguration) -> None:
    with configuration.edit() as entries:
        entries["a"] = {"command": "x"}
    with pytest.raises(KeyError), configuration.edit() as entries:
        del entries["a"], entries["unknown"]
    assert configuration.read() == {"a": {"command": "x"}}


def test_change_of_what_was_read_writes_nothing(configuration: McpConfiguration) -> None:
    configuration.read()["a"] = {"command": "x"}
    assert configuration.read() == {}


def test_entry_of_any_kind_is_parsed(configuration: McpConfiguration) -> None:
    assert configuration.parse("a", {"command": "x"}).command == "x"
    for entry in (None, 5, "x", ("x",)):
        assert configuration.parse("a", entry).config_error is not None
