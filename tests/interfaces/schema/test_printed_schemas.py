"""What `kimi schema` prints, against the files of docs/spec/schema that others build upon.

After a deliberate change write them anew with `KIMI_WRITE_GOLDEN=1 pytest tests/interfaces/schema`, read the
difference, and say in CHANGELOG.md what changed, with the new digest that the failing test names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from jsonschema import Draft202012Validator

from kimi.interfaces.schema import versions
from kimi.interfaces.schema.messages import build_definitions, build_messages_schema
from kimi.interfaces.schema.openrpc import build_openrpc
from kimi.interfaces.schema.print_schema import format_schema
from kimi.interfaces.schema.typescript import build_typescript
from tests.support.program.wire_process import Place

Json: TypeAlias = dict[str, Any]

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "docs" / "spec" / "schema"
FILES = {
    "messages.json": ("messages", "1.10"),
    "wire.d.ts": ("typescript", "1.10"),
    **{f"openrpc-1.{minor}.json": ("openrpc", f"1.{minor}") for minor in range(versions.NEWEST + 1)},
}


@pytest.mark.spec("R-401")
@pytest.mark.parametrize("name", FILES)
def test_the_printed_schema_is_the_kept_one(name: str) -> None:
    printed = format_schema(*FILES[name])
    if os.environ.get("KIMI_WRITE_GOLDEN"):
        (KEPT / name).write_text(printed, encoding="utf-8")
    assert (KEPT / name).read_text(encoding="utf-8") == printed, "the protocol's types have changed: see the docstring"


def test_no_file_is_kept_that_nothing_prints() -> None:
    assert {path.name for path in KEPT.iterdir()} == set(FILES)


def without_texts(value: Any) -> Any:
    """Return a schema without its descriptions: better words are no change of the protocol."""
    if isinstance(value, list):
        return [without_texts(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    source = cast("Json", value)
    kept = {key: item for key, item in source.items() if not (key == "description" and isinstance(item, str))}
    return {key: without_texts(item) for key, item in kept.items()}


@pytest.mark.spec("R-402")
def test_the_changelog_names_the_digest_of_the_schema() -> None:
    digest = hashlib.sha256(json.dumps(without_texts(build_messages_schema())).encode()).hexdigest()[:12]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"schema {digest}" in changelog, f"say in CHANGELOG.md what changed in the wire's messages (schema {digest})"


def test_every_entry_of_the_versions_names_something() -> None:
    definitions = build_definitions(versions.NEWEST)
    newest_only = {name for name, since in {**versions.METHODS, **versions.EVENTS}.items() if since == versions.NEWEST}
    assert newest_only == {"StepRetry"}
    for name, member in versions.MEMBERS:
        assert member in definitions[name]["properties"], (name, member)


@pytest.mark.spec("R-403")
def test_each_version_has_what_came_with_it_and_nothing_younger() -> None:
    for minor in range(versions.NEWEST + 1):
        document = build_openrpc(minor)
        methods = {method["name"]: method for method in document["methods"]}
        events = methods["event"]["params"][0]["schema"]["enum"] + methods["request"]["params"][0]["schema"]["enum"]
        assert set(methods) - {"event", "request"} == {name for name, v in versions.METHODS.items() if v <= minor}
        current = {"ApprovalResponse" if name == "ApprovalRequestResolved" else name for name in events}
        assert current == {name for name, since in versions.EVENTS.items() if since <= minor}
        for (name, member), since in versions.MEMBERS.items():
            schema = document["components"]["schemas"].get(name)
            assert schema is None or (member in schema["properties"]) == (since <= minor), (minor, name, member)
    assert "ApprovalRequestResolved" in json.dumps(build_openrpc(0))
    assert "ApprovalRequestResolved" not in json.dumps(build_openrpc(1))


OPENRPC_SHAPE: Json = {
    "type": "object",
    "required": ["openrpc", "info", "methods", "components"],
    "properties": {
        "openrpc": {"const": "1.3.2"},
        "info": {"type": "object", "required": ["title", "version"]},
        "methods": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "params"],
                "properties": {
                    "params": {"type": "array", "items": {"$ref": "#/$defs/content"}},
                    "result": {"$ref": "#/$defs/content"},
                    "paramStructure": {"enum": ["by-name"]},
                    "errors": {"type": "array", "items": {"type": "object", "required": ["$ref"]}},
                },
                "patternProperties": {"^x-": {}},
            },
        },
    },
    "$defs": {"content": {"type": "object", "required": ["name", "schema"]}},
}


def test_the_openrpc_documents_have_the_shape_of_openrpc() -> None:
    for minor in range(versions.NEWEST + 1):
        document = build_openrpc(minor)
        Draft202012Validator(OPENRPC_SHAPE).validate(document)  # pyright: ignore[reportUnknownMemberType]
        for reference in re.findall(r'"\$ref": "#/([^"]*)"', json.dumps(document)):
            target: Any = document
            for step in reference.split("/"):
                target = target[step]


def test_every_type_of_the_declarations_is_declared_once() -> None:
    for minor in range(versions.NEWEST + 1):
        text = re.sub(r"/\*.*?\*/|//[^\n]*|\"[^\"]*\"", "", build_typescript(minor), flags=re.DOTALL)
        declared = re.findall(r"^export (?:interface|type) (\w+)", text, re.MULTILINE)
        used = {name for name in re.findall(r"\b[A-Z]\w+", text) if name != "Record"}
        assert used == set(declared)
        assert len(declared) == len(set(declared))
        for opening, closing in ("{}", "()", "[]"):
            assert text.count(opening) == text.count(closing)


USE = """
import type { ClientMessage, ServerMessage } from "./wire";
export function answer(message: ServerMessage): ClientMessage | null {
  if ("method" in message && message.method === "request" && message.params.type === "ApprovalRequest") {
    return { id: message.id, result: { request_id: message.params.payload.id, response: "approve" } };
  }
  if ("method" in message && message.method === "event" && message.params.type === "ContentPart") {
    const part = message.params.payload;
    return part.type === "text" ? { id: part.text, method: "prompt", params: { user_input: part.text } } : null;
  }
  return null;
}
"""
MISUSE = 'import type { PromptResult } from "./wire";\nexport const result: PromptResult = { status: "done" };\n'


def test_a_compiler_accepts_the_declarations_and_refuses_a_misuse(tmp_path: Path) -> None:
    compiler = os.environ.get("KIMI_TSC") or shutil.which("tsc")
    if compiler is None:
        pytest.skip("no TypeScript compiler is installed (tsc, or its path in KIMI_TSC)")
    (tmp_path / "wire.d.ts").write_text(build_typescript(), encoding="utf-8")
    for name, source, status in (("use.ts", USE, 0), ("misuse.ts", MISUSE, 2)):
        (tmp_path / name).write_text(source, encoding="utf-8")
        command = [compiler, "--noEmit", "--strict", "--lib", "es2020,dom", "--target", "es2020", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120)
        assert done.returncode == status, done.stdout.decode()


@pytest.mark.spec("R-404")
def test_the_command_prints_the_schemas_and_refuses_others(tmp_path: Path) -> None:
    place = Place(tmp_path)
    done = place.run("schema", "openrpc", "--protocol-version", "1.3")
    assert done.returncode == 0
    assert done.stdout.decode() == (KEPT / "openrpc-1.3.json").read_text(encoding="utf-8")
    assert place.run("schema", "messages").stdout.decode() == (KEPT / "messages.json").read_text(encoding="utf-8")
    for wrong in (("messages", "--protocol-version", "1.11"), ("messages", "--protocol-version", "1.01"), ("xml",)):
        refused = place.run("schema", *wrong)
        assert refused.returncode == 2
        assert not refused.stdout
        assert b"give one" in refused.stderr


def test_the_methods_of_the_schema_are_those_of_the_server(tmp_path: Path) -> None:
    place = Place(tmp_path).script("text: hi")
    with place.wire() as kimi:
        for method in ("nope", *versions.METHODS):
            error = kimi.response(kimi.call(method)).get("error", {})
            assert (error.get("code") == -32601) == (method == "nope"), method
        kimi.finish()
