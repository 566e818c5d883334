"""The lists in the documentation, compared with what the program has: keys, defaults, variables, commands, events."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel

from kimi.application.commands.registry import COMMANDS
from kimi.domain.events.event import EVENT_TYPES
from kimi.infrastructure.config.schema import (
    ConfigSection,
    Configuration,
    HookConfig,
    ModelConfig,
    OAuthReference,
    ProviderConfig,
    ServiceConfig,
    validate_configuration,
)
from kimi.interfaces.cli.app import app
from kimi.interfaces.shell.commands import COMMAND_TABLE, NOT_PROVIDED

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
SOURCES = ("domain", "application", "infrastructure", "interfaces")


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def keys(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key below `section` that is no table, dotted, with its default."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def documented_defaults() -> dict[str, str]:
    """What the tables with a column `default` name for each key, as it is written there."""
    found: dict[str, str] = {}
    counts = False
    for line in text_of("docs/configuration.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("key") or not line:
            counts = "default" in cells
        elif counts and line.startswith("| `"):
            names, values = re.findall(r"`([a-z_.]+)`", cells[0]), cells[1].split(", ")
            assert len(values) == len(names) or values == [""], cells[0]
            found |= dict(zip(names, values if any(values) else [""] * len(names), strict=True))
    return found


def as_written(value: Any) -> str:
    """A default as a reader of TOML expects it; sizes of whole MiB as such."""
    if value is None or value == "":
        return ""
    if isinstance(value, tuple):
        return "[]"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 2**20 and value % 2**20 == 0:
        return f"{value // 2**20} MiB"
    return value if isinstance(value, str) else json.dumps(value)


TABLES = {"providers", "models", "hooks"}
"""Keys that hold tables of the reader's naming: their keys are compared apart."""


@pytest.mark.parametrize(("key", "default"), [pair for pair in keys(Configuration()) if pair[0] not in TABLES])
def test_every_key_is_documented_with_its_default(key: str, default: Any) -> None:
    documented = documented_defaults()
    assert key in documented, "docs/configuration.md"
    assert documented[key].strip('`"') == as_written(default), key


def test_no_documented_key_is_unknown() -> None:
    known = {key for key, _ in keys(Configuration())}
    assert {key for key in documented_defaults() if key not in known} == set()


@pytest.mark.parametrize("section", [ProviderConfig, ModelConfig, ServiceConfig, OAuthReference])
def test_the_keys_of_each_kind_of_table_are_described(section: type[ConfigSection]) -> None:
    page = text_of("docs/configuration.md")
    missing = [name for name in section.model_fields if not re.search(rf"`{name}`|^#? ?{name} = ", page, re.MULTILINE)]
    assert missing == []


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}" for name in PAGES)])
def test_the_examples_of_configurations_are_valid(page: str) -> None:
    for block in blocks(page, "toml"):
        found = tomllib.loads(block)
        if "project" in found:  # of a distribution
            continue
        assert set(found) <= set(Configuration.model_fields)
        assert validate_configuration(found)
        commented_in = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", block, flags=re.MULTILINE))
        for kind, described in (("providers", ProviderConfig), ("models", ModelConfig)):
            for table in commented_in.get(kind, {}).values():
                assert set(table) <= set(described.model_fields), page


def test_the_examples_of_json_are_json() -> None:
    for page in PAGES:
        for block in blocks(f"docs/{page}", "json"):
            whole = block.startswith("{\n") or "mcpServers" in block
            assert [json.loads(text) for text in ([block] if whole else block.splitlines())], page


def test_the_keys_of_a_hook_are_described() -> None:
    example = text_of("docs/hooks.md").partition("```toml")[2].partition("```")[0]
    assert re.findall(r"^(\w+) = ", example, re.MULTILINE) == list(HookConfig.model_fields)


def test_every_environment_variable_is_documented() -> None:
    """Those of a prompt's template are names of another kind and stand in agents.md."""
    sources = [path.read_text(encoding="utf-8") for root in SOURCES for path in (ROOT / root).rglob("*.py")]
    read = {name for text in sources for name in re.findall(r'"(KIMI_[A-Z_]+)"', text)}
    page = text_of("docs/configuration.md")
    arguments = set(re.findall(r"`(KIMI_[A-Z_]+)`", text_of("docs/agents.md")))
    assert sorted(name for name in read - arguments if f"`{name}`" not in page) == []


def test_every_option_is_described() -> None:
    table = text_of("docs/configuration.md").partition("## Command line")[2]
    for option in typer.main.get_command(app).params:
        if not getattr(option, "hidden", False):
            assert [name for name in (*option.opts, *option.secondary_opts) if f"`{name}" not in table] == []


def test_architecture_names_every_package_of_the_program() -> None:
    page = text_of("docs/architecture.md")
    packages = {path.parent.name for root in SOURCES for path in (ROOT / root).rglob("*/__init__.py")}
    assert sorted(name for name in packages if f"`{name}`" not in page and f"{name}/" not in page) == []
    files = [
        path.with_suffix("").as_posix() for root in (*SOURCES, "benchmarks") for path in (ROOT / root).rglob("*.py")
    ]
    files += [path.removesuffix("/__init__") for path in files if path.endswith("/__init__")]  # packages
    named = re.findall(r"`((?!tests/)[a-z_]+/[a-z_]+)(?:\.py)?`", page)
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []


def test_every_slash_command_is_listed() -> None:
    page = text_of("docs/commands.md")
    names = [name for row in COMMANDS for name in (row.info.name, *row.info.aliases)]
    assert [name for name in names if f"`/{name}" not in page] == []
    shells = [info for info in COMMAND_TABLE.infos if info.description != NOT_PROVIDED]
    shell_page = text_of("docs/shell.md").partition("## Commands")[2]
    for info in shells:
        assert [name for name in (info.name, *info.aliases) if f"/{name}" not in shell_page] == []


def test_every_type_of_event_is_described() -> None:
    page = text_of("docs/wire.md")
    assert [
        name for name in sorted(set(EVENT_TYPES.values())) if f"`{name}`" not in page and f"**{name}**" not in page
    ] == []


def test_the_readme_leads_to_every_page() -> None:
    table = text_of("README.md").partition("## Read on")[2]
    assert [name for name in PAGES if f"(docs/{name})" not in table] == []


def test_no_line_of_prose_is_too_long() -> None:
    """Rows of tables and what stands in blocks of code cannot be broken."""
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{name}" for name in PAGES)):
        prose = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
        assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")] == [], page
