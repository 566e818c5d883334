"""The declared dependencies are the ones that are used, in ranges that hold what is used of them."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from inspect import signature
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("domain", "application", "infrastructure", "interfaces")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OPTIONAL: Mapping[str, list[Requirement]] = {
    extra: [Requirement(text) for text in texts] for extra, texts in PROJECT["optional-dependencies"].items()
}
REQUIRED = [Requirement(text) for text in PROJECT["dependencies"]]
DECLARED = [*REQUIRED, *(one for group in OPTIONAL.values() for one in group)]

CAME_ALONG = {
    "click": "typer",
    "httpx2": "fastmcp-slim",
    "markdown-it-py": "rich",
    "mcp": "fastmcp-slim",
    "mcp-types": "fastmcp-slim",
    "py-key-value-aio": "fastmcp-slim",
    "pydantic-core": "pydantic",
    "referencing": "jsonschema",
    "typing-extensions": "pydantic",
    "yarl": "aiohttp",
}
"""Imported, though only another one names it: that one pins or re-exports it."""

USED = (
    ("google.auth", "default", ("scopes", "request")),
    ("google.auth.exceptions", "TransportError", ()),
    ("google.auth.exceptions", "GoogleAuthError", ()),
    ("google.oauth2.service_account", "Credentials.from_service_account_info", ("info",)),
    ("google.oauth2.credentials", "Credentials.from_authorized_user_info", ("info", "scopes")),
    ("google.auth.identity_pool", "Credentials.from_info", ("info",)),
    ("google.auth.credentials", "Credentials.valid", ()),
    ("google.auth.credentials", "Credentials.refresh", ("request",)),
    ("aiohttp_socks", "ProxyConnector", ()),
    ("aiohttp_socks", "ProxyType.SOCKS5", ()),
    ("aiohttp_socks", "ProxyError", ()),
    ("aiohttp_socks", "ProxyConnectionError", ()),
    ("aiohttp_socks", "ProxyTimeoutError", ()),
    ("PIL.Image", "open", ("fp",)),
    ("trafilatura", "extract", ("filecontent",)),
)
"""What is used of the optional libraries: module, name, parameters that are given by name or first."""


SEPARATE = frozenset(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]) - {"dev"}
"""The large libraries that have a development group of their own, named after them."""


@pytest.mark.parametrize("requirement", DECLARED, ids=str)
def test_version_range_has_both_bounds_and_contains_installed_version(requirement: Requirement) -> None:
    operators = {specifier.operator for specifier in requirement.specifier}
    assert operators == {"=="} or (operators & {">=", "=="} and operators & {"<", "=="}), "a next major may break it"
    if requirement.name in SEPARATE and find_spec(requirement.name) is None:
        return  # its group is not installed
    assert requirement.specifier.contains(version(requirement.name), prereleases=True)


@pytest.mark.parametrize(("module", "name", "parameters"), USED, ids=str)
def test_optional_library_offers_the_names_in_use(module: str, name: str, parameters: tuple[str, ...]) -> None:
    found: object = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if parameters:
        assert callable(found)
        assert set(parameters) <= set(signature(found).parameters)


def test_imported_packages_are_declared() -> None:
    distributions = packages_distributions()
    declared = {canonicalize_name(one.name) for one in DECLARED}
    strange: set[str] = set()
    for package, path in imported():
        names = {canonicalize_name(name) for name in distributions.get(package, [])}
        names |= {canonicalize_name(CAME_ALONG[name]) for name in names if name in CAME_ALONG}
        if not names & declared:
            strange.add(f"{package} in {path}")
    assert not strange


def test_each_extra_is_in_the_development_group_or_one_of_its_name() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    for extra, requirements in OPTIONAL.items():
        installed = {canonicalize_name(Requirement(text).name) for text in groups["dev"] + groups.get(extra, [])}
        assert {canonicalize_name(one.name) for one in requirements} <= installed


def imported() -> Iterator[tuple[str, str]]:
    """Top-level packages that are neither ours nor of the standard library, and where they are imported."""
    for layer in LAYERS:
        for path in (ROOT / layer).rglob("*.py"):
            for package in top_levels(ast.parse(path.read_text("utf-8"))):
                if package not in sys.stdlib_module_names and package != "kimi":
                    yield package, str(path.relative_to(ROOT))


def top_levels(tree: ast.Module) -> set[str]:
    """The first part of every absolute import."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found
