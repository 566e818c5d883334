"""A tree of half a million files: searches beside find and ripgrep, `@`, and whether a start notices it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from benchmarks.client import Json
from benchmarks.figures import Bench, Case, Measured, Row, Target, ms
from benchmarks.worlds import FLOOR, OURS, Candidate, World, world
from kimi.interfaces.bootstrap.shell import list_git_files, walk_files
from kimi.interfaces.completion.work_dir_files import WorkDirFiles
from kimi.interfaces.shell.terminal.input.completion import rank_files

GLOB, NEEDLE, TYPED = "**/*7.py", "needle", "d1e5m42"
_CALLS: dict[str, Json] = {"Glob": {"pattern": GLOB}, "Grep": {"pattern": NEEDLE, "path": "."}}
_PER_DIRECTORY = 100


def tree(bench: Bench) -> list[Row]:
    """Searches, completion and start; the floor is find or ripgrep, and a start in an empty directory."""
    count = 20_000 if bench.quick else 500_000
    with _made_tree(count) as root:
        bench.say(f"tree: {count} files made")

        def search(candidate: Candidate) -> Measured:
            return _bare(root) if candidate == FLOOR else _searched(candidate, root)

        def start(candidate: Candidate) -> Measured:
            with world(OURS) as place:
                if candidate != FLOOR:
                    place.work = root
                return _started(place)

        found = bench.medians("tree", search)
        started = bench.medians("tree, start", start, (OURS, FLOOR))
    files = f"{count:,} files".replace(",", " ")
    return [
        ms(f"Glob in {files}, to find", found, "Glob", Target(ratio=1.5)),
        ms(f"Grep in {files}, to rg", found, "Grep", Target(ratio=1.5)),
        ms(f"@ in {files}, to rg --files", found, "@", Target(ratio=1.5)),
        ms("  each further character", found, "typed"),
        ms(f"spawn → initialize in {files}, to an empty directory", started, "ready", Target(ratio=1.1)),
        ms("  first turn", started, "first", Target(ratio=1.1)),
    ]


@contextmanager
def _made_tree(count: int) -> Generator[Path, None, None]:
    """A repository of this many small Python files, a hundred in a directory; one of each hundred has the needle.

    All are links to a few files, or making and removing them would take longer than all searches.
    """
    plain = found = ""
    with TemporaryDirectory(prefix="kimi-bench-tree-") as name:
        for number in range(count // _PER_DIRECTORY):
            directory = os.path.join(name, f"d{number // 100}", f"e{number % 100}")
            os.makedirs(directory)
            if number % 100 == 0:  # a file has at most some ten thousand links
                plain, found = (os.path.join(os.path.dirname(directory), kind) for kind in ("plain.py", "found.py"))
                Path(plain).write_text("def function(): return 1\n")
                Path(found).write_text("# needle\n")
            for file in range(_PER_DIRECTORY):
                os.link(found if file == 7 else plain, os.path.join(directory, f"m{file}.py"))
        if git := which("git"):
            subprocess.run([git, "init", "-q", name], check=True)
        yield Path(name)


def _searched(candidate: Candidate, root: Path) -> Measured:
    """Seconds of each tool's call, after a small command has warmed everything, and of the completion."""
    spec: Json = {
        "calls": [["Shell", json.dumps({"command": "true"})], *([n, json.dumps(a)] for n, a in _CALLS.items())]
    }
    with world(candidate, spec) as place:
        place.work = root
        with place.wire() as client:
            client.initialize()
            time.sleep(0.5)
            turn = client.prompt("go")
    assert len(turn.outputs) == 1 + len(_CALLS)
    assert "m7.py" in turn.outputs[1]
    assert "m7.py" in turn.outputs[2]
    _, *lasted = (end - begin for begin, end in zip(turn.times("StepBegin"), turn.times("ToolResult"), strict=False))
    return {**dict(zip(_CALLS, lasted, strict=True)), **_completed(root)}


def _completed(root: Path) -> Measured:
    """Seconds of the first completion, in a fresh listing, and of the next."""
    files = WorkDirFiles(str(root), walk_files, lambda directory: list_git_files(directory, os.environ))
    found: dict[str, float] = {}
    for name in ("@", "typed"):
        began = time.perf_counter()
        ranked = rank_files(files.find_matching(TYPED), TYPED)
        found[name] = time.perf_counter() - began
        assert ranked or not which("git"), "nothing is completed"
    return found


def _bare(root: Path) -> Measured:
    """Seconds of the programs that do no more than look."""
    rg = which("rg", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))) or "rg"
    commands = {
        "Glob": ["find", ".", "-name", GLOB.removeprefix("**/")],
        "Grep": [rg, "--no-config", "-l", NEEDLE, "."],
        "@": [rg, "--no-config", "--files"],
    }
    found: dict[str, float] = {}
    for name, command in commands.items():
        began = time.perf_counter()
        subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True)
        found[name] = time.perf_counter() - began
    return found


def _started(place: World) -> Measured:
    place.wire().__exit__(None, None, None)
    with place.wire() as client:
        ready = client.initialize()
        return {"ready": ready, "first": client.prompt("hi").seconds}


CASES: dict[str, Case] = {"tree": tree}
