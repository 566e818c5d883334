"""Add pages to the site that are no files below docs/: those of the root, and references generated from the code.

mkdocs calls the functions that are named `on_...`; see `mkdocs.yml`.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.reference import write_configuration_reference, write_tools_reference, write_wire_reference

_ROOT = Path(__file__).resolve().parents[1]
_ROOT_PAGES = {
    "README.md": "first-steps.md",  # under its own name it would be the start of the site
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "examples/README.md": "examples.md",
}
"""The pages of the root, with their places in the site."""
_REFERENCES = {
    "reference/configuration.md": write_configuration_reference,
    "reference/tools.md": write_tools_reference,
    "reference/wire.md": write_wire_reference,
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    # By name and untyped: the library is in a dependency group that type checks and tests do without.
    generate = import_module("mkdocs.structure.files").File.generated
    texts = {place: (_ROOT / name).read_text(encoding="utf-8") for name, place in _ROOT_PAGES.items()}
    texts |= {path: write() for path, write in _REFERENCES.items()}
    for path, text in texts.items():
        files.append(generate(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Point links between the pages of the root and the others to their places in the site."""
    path = page.file.src_uri
    if path in _ROOT_PAGES.values():
        markdown = re.sub(r"\]\((?:\.\./)?docs/", "](", markdown)
        markdown = re.sub(r"\[([^]]+\.py)\]\(\1\)", r"`\1`", markdown)  # programs are no pages
    up = "../" * path.count("/")
    for name, place in _ROOT_PAGES.items():
        source = name if path in _ROOT_PAGES.values() else f"{up}../{name}"
        markdown = re.sub(rf"\]\({re.escape(source)}(?=[)#])", f"]({up}{place}", markdown)
    return markdown
