"""How ripgrep is found and called."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kimi.infrastructure.tools.search.grep import GrepTool
from kimi.infrastructure.tools.search.ripgrep import (
    Ripgrep,
    RipgrepSearch,
    build_search_arguments,
    find_packaged_binaries,
)
from tests.support.file_tools import Files, call, no_ripgrep, text

pytestmark = pytest.mark.anyio

VCS = ["--glob", "!.git", "--glob", "!.svn", "--glob", "!.hg", "--glob", "!.bzr", "--glob", "!.jj", "--glob", "!.sl"]
START = ["--no-config", "--null", "--with-filename", "--no-heading"]
NARROW, WIDE = ["--max-columns", "500"], ["--max-columns", "2000", "--max-columns-preview"]

OPTIONS: dict[str, tuple[Any, list[str]]] = {
    "include_ignored": (True, ["--no-ignore"]),
    "ignore_case": (True, ["--ignore-case"]),
    "multiline": (True, ["--multiline", "--multiline-dotall"]),
    "before": (1, ["--before-context", "1"]),
    "after": (0, ["--after-context", "0"]),
    "context": (3, ["--context", "3"]),
    "line_number": (True, ["--line-number"]),
    "glob": ("*.py", ["--glob=*.py"]),
    "type": ("py", ["--type=py"]),
}
CONTENT_ONLY = ("before", "after", "context", "line_number")
MODES = {"content": [], "files_with_matches": ["--files-with-matches"], "count_matches": ["--count-matches"]}


@pytest.mark.spec("T-79")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("one_thread", [False, True])
def test_arguments_are_built_for_every_option_combination(mode: Any, one_thread: bool) -> None:
    for chosen in itertools.product([False, True], repeat=len(OPTIONS)):
        names = list(itertools.compress(OPTIONS, chosen))
        values: dict[str, Any] = {"line_number": False, **{name: OPTIONS[name][0] for name in names}}
        arguments = build_search_arguments(RipgrepSearch("p", "src", output_mode=mode, **values), one_thread=one_thread)
        content = mode == "content"

        def flags(name: str, names: list[str] = names, content: bool = content) -> list[str]:
            return OPTIONS[name][1] if name in names and (content or name not in CONTENT_ONLY) else []

        numbers = flags("line_number") or (["--line-number"] if content and {"before", "context"} & set(names) else [])
        assert arguments == [
            *START,
            *(WIDE if content else NARROW),
            "--hidden",
            *flags("include_ignored"),
            *VCS,
            *(["-j", "1"] if one_thread else []),
            *flags("ignore_case"),
            *flags("multiline"),
            *flags("before"),
            *flags("after"),
            *flags("context"),
            *numbers,
            *flags("glob"),
            *flags("type"),
            *MODES[mode],
            "--",
            "p",
            "src",
        ]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def script(directory: Path, text: str, name: str = "rg") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.spec("T-83")
async def test_ripgrep_is_searched_in_documented_order(files: Files, tmp_path: Path) -> None:
    on_path = script(tmp_path / "bin", "exit 0")
    configured = script(tmp_path / "own", "exit 0", "my-rg")
    extra = script(tmp_path / "extra", "exit 0")
    environ = {"PATH": str(on_path.parent)}

    async def chosen(ripgrep: Ripgrep) -> list[str]:
        return await ripgrep.find_command(files.workspace)

    assert await chosen(Ripgrep(str(configured), environ, lambda: iter([str(extra)]))) == [str(configured)]
    assert await chosen(Ripgrep(None, environ, lambda: iter([str(extra)]))) == [str(on_path)]
    assert await chosen(Ripgrep(None, {"PATH": ""}, lambda: iter([str(extra)]))) == [str(extra)]
    assert await chosen(Ripgrep("/nothing/rg", environ, lambda: iter([str(extra)]))) == [str(extra)]
    fallback = await chosen(Ripgrep(None, {"PATH": ""}, lambda: iter([])))
    assert fallback[0] == sys.executable
    assert fallback[-1] == "kimi.infrastructure.tools.search.grep_fallback"

    script(tmp_path / "bin", "echo 'GLIBC_2.39 not found' >&2; exit 1")
    assert await chosen(Ripgrep(None, environ, lambda: iter([str(extra)]))) == [str(extra)]
    on_path.write_bytes(b"\x7fELF broken")
    assert await chosen(Ripgrep(None, environ, lambda: iter([str(extra)]))) == [str(extra)]
    assert (await chosen(Ripgrep(None, environ, lambda: iter([]))))[0] == sys.executable
    share_bin = script(files.share / "bin", "exit 0")
    assert str(share_bin) not in await chosen(Ripgrep(None, {"PATH": ""}))


async def test_a_binary_is_tried_once_until_it_changes(files: Files, tmp_path: Path) -> None:
    log = tmp_path / "log"
    path = script(tmp_path / "bin", f"echo tried >> {log}")
    ripgrep = Ripgrep(str(path), {})
    for _ in range(3):
        assert await ripgrep.find_command(files.workspace) == [str(path)]
    assert log.read_text() == "tried\n"
    os.utime(path, (1, 1))
    await ripgrep.find_command(files.workspace)
    assert log.read_text() == "tried\ntried\n"


async def test_a_relative_entry_of_path_is_not_trusted(files: Files) -> None:
    script(files.work_dir, "exit 0")
    assert (await Ripgrep(None, {"PATH": "."}, lambda: iter([])).find_command(files.workspace))[0] == sys.executable


def test_packaged_ripgrep_is_found() -> None:
    found = [path for path in find_packaged_binaries() if os.access(path, os.X_OK)]
    assert found
    assert all(os.path.basename(path) in ("rg", "rg.exe") for path in found)


async def test_modules_of_the_work_dir_are_not_imported(files: Files) -> None:
    files.put("re.py", "raise SystemExit('trapped')")
    files.put("kimi/__init__.py", "raise SystemExit('trapped')")
    result = await call(GrepTool(files.workspace, files.policy, no_ripgrep()), pattern="trapped")
    assert sorted(text(result).split()) == ["./kimi/__init__.py", "./re.py"]
