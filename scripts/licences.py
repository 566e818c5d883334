"""Print the page docs/licences.md: the licence of every pinned dependency, from the metadata of what is installed.

    uv run python scripts/licences.py > docs/licences.md

With `--check` it prints instead what is wrong: a pinned dependency that the committed page lacks, or a licence that is
not among `ACCEPTED`. The exit status is then 1.
"""

from __future__ import annotations

import re
import sys
from email.message import Message
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Final, cast

ROOT: Final = Path(__file__).resolve().parent.parent

ACCEPTED: Final = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CNRI-Python",
    "HPND",
    "ISC",
    "LGPL-2.1-or-later",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "MPL-2.0",
    "PSF-2.0",
    "Unlicense",
}
"""Licences (SPDX) under which a dependency may be used without changing that of this project, which links none of it
statically."""

_BY_CLASSIFIER: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_STATED_ELSEWHERE: Final = {
    "agent-client-protocol": "Apache-2.0",  # its licence file; the metadata has no field for it
    "colorama": "BSD-3-Clause",  # Windows only
    "email-validator": "Unlicense",  # an extra of pydantic that another package may ask for
    "httpx2-jsfetch": "BSD-3-Clause",  # browsers only
    "pywin32": "PSF-2.0",  # Windows only
}
"""Packages that state no licence in their metadata, or are not installed on every system."""

_BY_TEXT: Final = {"apache": "Apache-2.0", "bsd": "BSD-3-Clause", "mit": "MIT", "psf": "PSF-2.0", "isc": "ISC"}

HEAD: Final = """\
# Licences of the dependencies

What `requirements.lock` pins, with the licence that each package states in its metadata (SPDX). Made by
`uv run python scripts/licences.py > docs/licences.md`; a test fails when a package or its licence is missing here.
The program itself is under Apache-2.0.

| package | licence |
|---|---|
"""


def list_pinned() -> list[str]:
    """Return the names of the pinned packages."""
    return re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)


def find_licence(name: str) -> str | None:
    """Return the SPDX expression of a package; None if it is neither installed nor known, or states none."""
    if name in _STATED_ELSEWHERE:
        return _STATED_ELSEWHERE[name]
    try:
        fields = cast("Message", metadata(name))
    except PackageNotFoundError:
        return None
    if stated := fields.get("License-Expression"):
        return stated
    for classifier in fields.get_all("Classifier") or ():
        if classifier.startswith("License ::") and (known := _BY_CLASSIFIER.get(classifier.rpartition(":: ")[2])):
            return known
    text = (fields.get("License") or "").strip().lower()
    return next((spdx for word, spdx in _BY_TEXT.items() if word in text.split("\n")[0]), None)


def format_page() -> str:
    """Return the page."""
    return HEAD + "\n".join(f"| {name} | {find_licence(name) or 'unknown'} |" for name in sorted(list_pinned()))


def find_faults() -> list[str]:
    """Return a line for each package that the committed page lacks, or whose licence is not accepted."""
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    listed: dict[str, str] = dict(re.findall(r"^\| ([A-Za-z0-9_.-]+) \| (.+) \|$", page, re.MULTILINE))
    del listed["package"]
    return [
        *(f"{name} is pinned and not listed" for name in list_pinned() if name not in listed),
        *(f"{name} is listed and not pinned" for name in sorted(set(listed) - set(list_pinned()))),
        *(f"{name}: {listed[name]} is not accepted" for name in sorted(listed) if not is_accepted(listed[name])),
    ]


def is_accepted(licence: str) -> bool:
    """Return whether an SPDX expression leaves a choice of accepted licences only: one of each list with OR."""
    return all(ACCEPTED.intersection(part.strip("() ").split(" OR ")) for part in licence.split(" AND "))


def main() -> int:
    """Print the page, or its faults; see the module."""
    if sys.argv[1:] != ["--check"]:
        print(format_page())
        return 0
    faults = find_faults()
    print("\n".join(faults) or "Every pinned package is listed with a licence that is accepted.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
