"""Plugins as directories with a manifest and scripts, and archives of them."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

from tests.support.program.wire_process import Json

ECHO = """
import json, os, sys
given = json.load(sys.stdin)
print("hello", given["name"], "from", os.getcwd())
"""
GREET: Json = {
    "name": "greet",
    "description": "Greets somebody.",
    "command": [sys.executable, "scripts/tool.py"],
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
SKILL = "---\nname: greeting\ndescription: How people are greeted here\n---\nUse the tool `greet`.\n"


def write_plugin(parent: Path, name: str = "hello", script: str = ECHO, **members: object) -> Path:
    """Write a plugin with the tool `greet` below `parent`; `members` replace those of its manifest."""
    directory = parent / name
    (directory / "scripts").mkdir(parents=True)
    (directory / "scripts/tool.py").write_text(script, encoding="utf-8")
    manifest = {"name": name, "version": "1.0.0", "description": "Says hello", "tools": [GREET]} | members
    (directory / "plugin.json").write_text(json.dumps(manifest), encoding="utf-8")
    return directory


def with_tool(**members: object) -> Json:
    """Return the tool `greet` with other members."""
    return GREET | members


def zip_directory(directory: Path, archive: Path, top: str = "") -> Path:
    """Pack a directory, below the directory `top` of the archive if it is given."""
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(directory.rglob("*")):
            packed.write(path, str(Path(top) / path.relative_to(directory)))
    return archive
