"""Check `requirements.lock`: every pin has hashes, and none has a known weakness.

    uv run python scripts/audit.py [--advisories ALL.ZIP]

Advisories come from pip-audit, which asks the package index. On a machine that cannot, `--advisories` names an archive
of them in the OSV format (`PyPI/all.zip` of osv.dev, fetched elsewhere). Without either, the script says that
advisories were not looked at, and only the pins count. Exit status: 0 if nothing was found, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

Json: TypeAlias = dict[str, Any]

LOCK: Final = Path(__file__).resolve().parent.parent / "requirements.lock"
_PIN: Final = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)(.*(?:\n[ \t].*)*)", re.MULTILINE)


def read_pins(text: str) -> dict[str, str]:
    """Return the version of every pinned package by its canonical name.

    Raises:
        ValueError: a pin has no hash.
    """
    found = list(_PIN.finditer(text))
    bare = [match[1] for match in found if "--hash=sha256:" not in match[3]]
    if bare:
        raise ValueError(f"pinned without a hash: {', '.join(bare)}")
    return {canonicalize_name(match[1]): match[2] for match in found}


def find_weaknesses(pins: Mapping[str, str], archive: Path) -> Iterator[str]:
    """Yield a line for every advisory of the archive that names a pinned version."""
    with zipfile.ZipFile(archive) as members:
        for name in members.namelist():
            advisory: Json = json.loads(members.read(name))
            if "withdrawn" in advisory:
                continue
            for affected in advisory.get("affected", ()):
                package = canonicalize_name(affected.get("package", {}).get("name", ""))
                if package in pins and _is_affected(pins[package], affected):
                    yield f"{package} {pins[package]}: {advisory['id']} {advisory.get('summary', '')}".rstrip()


def _is_affected(version: str, affected: Json) -> bool:
    if version in affected.get("versions", ()):
        return True
    ranges = [one for one in affected.get("ranges", ()) if one.get("type") == "ECOSYSTEM"]
    return any(_is_in_range(Version(version), one.get("events", ())) for one in ranges)


def _is_in_range(version: Version, events: Sequence[Mapping[str, str]]) -> bool:
    """Return whether the last event at or before `version` opened the range."""
    inside = False
    for event in events:
        kind, text = next(iter(event.items()))
        try:
            limit = Version(text) if text != "0" else Version("0.dev0")
        except InvalidVersion:
            continue
        if kind == "introduced" and version >= limit:
            inside = True
        elif (kind == "fixed" and version >= limit) or (kind == "last_affected" and version > limit):
            inside = False
    return inside


def ask_index() -> tuple[list[str], int]:
    """Return the weaknesses that pip-audit finds, and the number of packages about which the index knows nothing."""
    command = ["uv", "tool", "run", "pip-audit", "-r", str(LOCK), "--no-deps", "--disable-pip", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages: list[Json] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return [], -1
    found = [f"{one['name']} {one['version']}: {weak['id']}" for one in packages for weak in one.get("vulns", ())]
    return found, sum("skip_reason" in one for one in packages)


def main() -> int:
    """Check the lock file; see the module."""
    parser = argparse.ArgumentParser(description="Check requirements.lock for missing hashes and known weaknesses.")
    parser.add_argument("--advisories", type=Path, help="an archive of advisories in the OSV format")
    given: Path | None = parser.parse_args().advisories
    try:
        pins = read_pins(LOCK.read_text(encoding="utf-8"))
    except ValueError as error:
        print(error)
        return 1
    if given is not None:
        found, unknown = list(find_weaknesses(pins, given)), 0
    else:
        found, unknown = ask_index()
    print(f"{len(pins)} packages are pinned with hashes.")
    if unknown:
        print("The index has no advisories for some or all of them: --advisories names an archive of them.")
    print("\n".join(found) if found else "No known weakness was found.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
