"""What the project is built from: pins with hashes, advisories without a network, licences that are listed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_script(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script of the project to its end."""
    command = [sys.executable, str(ROOT / "scripts" / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def pinned_version(name: str) -> str:
    found = re.search(rf"^{name}==(\S+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def advisories(path: Path, *records: dict[str, Any]) -> Path:
    """Write an archive of advisories as osv.dev publishes it."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, record in enumerate(records):
            archive.writestr(f"TEST-{number}.json", json.dumps({"id": f"TEST-{number}", **record}))
    return path


def affected(name: str, *events: dict[str, str], versions: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "affected": [
            {
                "package": {"ecosystem": "PyPI", "name": name},
                "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
                "versions": list(versions),
            }
        ]
    }


@pytest.mark.spec("R-262")
def test_an_advisory_for_a_pinned_version_fails_the_audit(tmp_path: Path) -> None:
    version = pinned_version("aiohttp")
    hits = (
        affected("AIOHTTP", {"introduced": "0"}),
        affected("aiohttp", {"introduced": version}, {"fixed": "99.0"}),
        affected("aiohttp", {"introduced": "0"}, {"last_affected": version}),
        affected("aiohttp", versions=(version,)),
    )
    for number, hit in enumerate(hits):
        done = run_script("audit.py", "--advisories", advisories(tmp_path / f"{number}.zip", hit))
        assert done.returncode == 1, done.stderr
        assert f"aiohttp {version}: TEST-0" in done.stdout


@pytest.mark.spec("R-262")
def test_advisories_for_other_versions_and_packages_pass_the_audit(tmp_path: Path) -> None:
    version = pinned_version("aiohttp")
    archive = advisories(
        tmp_path / "all.zip",
        affected("aiohttp", {"introduced": "0"}, {"fixed": version}),
        affected("aiohttp", {"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "99.0"}),
        affected("some-other-package", {"introduced": "0"}),
        affected("aiohttp", {"introduced": "0"}) | {"withdrawn": "2026-01-01T00:00:00Z"},
    )
    done = run_script("audit.py", "--advisories", archive)
    assert done.returncode == 0, done.stdout
    assert "No known weakness was found." in done.stdout


@pytest.mark.spec("R-262")
def test_the_page_of_licences_is_complete_and_all_are_accepted() -> None:
    done = run_script("licences.py", "--check")
    assert done.returncode == 0, done.stdout
