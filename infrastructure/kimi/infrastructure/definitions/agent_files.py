"""Agent files: YAML, with inheritance and subagents (runtime spec 6.1).

A file is data: it names tools by id, and nothing is imported from it. The YAML library is imported for the first file.
A file that lies in the project names no file outside of it; one of the user may name any that holds no secrets.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from kimi.application.agents.builtin_agents import BUILTIN_AGENTS
from kimi.application.agents.system_prompt import SUBAGENT_NOTICE
from kimi.domain.agents.agent import (
    BUILTIN_PROMPT,
    AgentDeclaration,
    AgentSpec,
    SubagentDeclaration,
    SubagentType,
    build_agent_spec,
    extend_agent,
)
from kimi.domain.errors import ConfigError
from kimi.infrastructure.definitions.project_files import PromptFiles, name_refusal

T = TypeVar("T")

MAX_AGENT_BYTES = 256 * 1024
MAX_AGENT_NODES = 20_000
MAX_PROMPT_BYTES = 1024 * 1024


def load_agent_file(path: str, builtin_ids: Collection[str], files: PromptFiles) -> AgentSpec:
    """The agent of a file, with the types of subagents that it may start. `builtin_ids` are those of all built-in
    tools: a file may name them without their module.

    Subagents start no subagents, so the entry for subagents in their files is not read.

    Raises:
        ConfigError: the file or one that it extends is missing, is not YAML, extends itself, has a wrong shape, or
            lacks a required member; the file of a prompt is missing, or must not become part of a prompt.
    """
    reader = _AgentReader(files, files.find_bound(path))
    spec = _load_spec(path, builtin_ids, reader)
    for kind in (spec, *(one.spec for one in spec.subagents.values())):
        if kind.prompt_path != BUILTIN_PROMPT:
            reader.read(kind.prompt_path, MAX_PROMPT_BYTES, "System prompt")
    return spec


@dataclass(frozen=True, slots=True)
class _AgentReader:
    """Reads the files that an agent file names; they must lie in `bound`, None for an agent of the user."""

    files: PromptFiles
    bound: str | None

    def read(self, path: str, max_bytes: int, what: str) -> str:
        """Return the text of a file. Raises ConfigError."""
        if not os.path.exists(path):
            raise ConfigError(f"{what} file not found: {path}")
        if not os.path.isfile(path):
            raise ConfigError(f"{what} path is not a file: {path}")
        try:
            return self.files.read(path, max_bytes, self.bound or self.files.find_bound(path))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{what} file cannot be used: {path}: {name_refusal(error)}") from None


def _load_spec(path: str, builtin_ids: Collection[str], reader: _AgentReader) -> AgentSpec:
    stated = _load_stated_agent(os.path.abspath(path), (), reader)
    subagents = {
        name: _load_subagent(entry, builtin_ids, reader) for name, entry in (stated.get("subagents") or {}).items()
    }
    return build_agent_spec(stated, subagents, builtin_ids)


def _load_subagent(entry: SubagentDeclaration, builtin_ids: Collection[str], reader: _AgentReader) -> SubagentType:
    stated = _load_stated_agent(entry["path"], (), reader)
    arguments = {"ROLE_ADDITIONAL": SUBAGENT_NOTICE, **stated.get("system_prompt_args", {})}
    alone: AgentDeclaration = {**stated, "system_prompt_args": arguments, "subagents": None, "own_subagents": {}}
    spec = build_agent_spec(alone, {}, builtin_ids)
    return SubagentType(entry["description"], spec)


def _load_stated_agent(path: str, extending_files: tuple[str, ...], reader: _AgentReader) -> AgentDeclaration:
    """Return what `path` states merged with what it extends; `extending_files` are the files that extend it."""
    real = os.path.realpath(path)
    if real in extending_files:
        chain = " -> ".join((*extending_files[extending_files.index(real) :], real))
        raise ConfigError(f"Agent spec extends itself: {chain}")
    agent = _load_agent_mapping(path, reader)
    own = _read_members(agent, path)
    base = _read_member(agent, "extend", str, path)
    if base is None:
        return own
    found = BUILTIN_AGENTS.get(base)
    if found is None:
        found = _load_stated_agent(_resolve_relative_path(path, base), (*extending_files, real), reader)
    return extend_agent(found, own)


def _load_agent_mapping(path: str, reader: _AgentReader) -> dict[str, Any]:
    source = _parse_yaml_file(path, reader)
    version = str(source.get("version", 1))
    if version != "1":
        raise ConfigError(f"Unsupported agent spec version: {version}")
    agent = source.get("agent")
    if not isinstance(agent, dict):
        raise ConfigError(f"Invalid agent spec in {path}: `agent` must be a mapping")
    return cast("dict[str, Any]", agent)


def _parse_yaml_file(path: str, reader: _AgentReader) -> dict[str, Any]:
    from kimi.infrastructure.definitions.bounded_yaml import (
        parse_yaml,
    )  # start-up time: few sessions have an agent file

    text = reader.read(path, MAX_AGENT_BYTES, "Agent spec")
    try:
        source = parse_yaml(text, MAX_AGENT_NODES)
    except ValueError as error:
        raise ConfigError(f"Invalid YAML in agent spec file: {path}: {error}") from None
    if not isinstance(source, dict):
        raise ConfigError(f"Invalid YAML in agent spec file: {path}: it must hold a mapping")
    return cast("dict[str, Any]", source)


def _read_members(agent: dict[str, Any], path: str) -> AgentDeclaration:
    """Return the members that this file states. A null counts as stated only where it can remove something."""
    own: AgentDeclaration = {}
    if (name := _read_member(agent, "name", str, path)) is not None:
        own["name"] = name
    if (prompt := _read_member(agent, "system_prompt_path", str, path)) is not None:
        own["system_prompt_path"] = _resolve_relative_path(path, prompt)
    if (arguments := _read_mapping(agent, "system_prompt_args", path)) is not None:
        own["system_prompt_args"] = {str(key): _to_text(value) for key, value in arguments.items()}
    if (model := _read_member(agent, "model", str, path)) is not None:
        own["model"] = model
    if (use := _read_member(agent, "when_to_use", str, path)) is not None:
        own["when_to_use"] = use
    for key in ("tools", "allowed_tools", "exclude_tools"):
        if key in agent:
            own[key] = _read_texts(agent, key, path)
    if "subagents" in agent:
        own["subagents"] = _read_subagents(agent, path)
    return own


def _read_member(agent: dict[str, Any], key: str, kind: type[T], path: str) -> T | None:
    value = agent.get(key)
    if value is None:
        return None
    if not isinstance(value, kind):
        wanted = "a mapping" if kind is dict else "a list" if kind is list else "a text"
        raise ConfigError(f"Invalid agent spec in {path}: `{key}` must be {wanted}")
    return value


def _read_mapping(agent: dict[str, Any], key: str, path: str) -> dict[object, object] | None:
    return cast("dict[object, object] | None", _read_member(agent, key, dict, path))


def _to_text(value: object) -> str:
    if value is None:
        return ""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _read_texts(agent: dict[str, Any], key: str, path: str) -> list[str] | None:
    items = cast("list[object] | None", _read_member(agent, key, list, path))
    if items is not None and not all(isinstance(item, str) for item in items):
        raise ConfigError(f"Invalid agent spec in {path}: `{key}` must be a list of texts")
    return cast("list[str] | None", items)


def _read_subagents(agent: dict[str, Any], path: str) -> dict[str, SubagentDeclaration] | None:
    found = _read_mapping(agent, "subagents", path)
    if found is None:
        return None
    return {str(name): _read_subagent_entry(str(name), entry, path) for name, entry in found.items()}


def _read_subagent_entry(name: str, entry: object, path: str) -> SubagentDeclaration:
    source = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    where = source.get("path")
    if not isinstance(where, str) or not where:
        raise ConfigError(f"Invalid agent spec in {path}: the subagent `{name}` needs a `path`")
    return {"path": _resolve_relative_path(path, where), "description": _to_text(source.get("description"))}


def _resolve_relative_path(path: str, relative: str) -> str:
    """Resolve a path of a file, relative to the directory of that file."""
    return os.path.normpath(os.path.join(os.path.dirname(path), os.path.expanduser(relative)))
