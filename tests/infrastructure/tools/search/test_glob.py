"""Glob: patterns, order, limits, what `**` passes over, links, time limit."""

import os
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi.application.settings.settings import FileSettings
from kimi.infrastructure.tools.search.directory_listing import list_two_levels
from kimi.infrastructure.tools.search.glob import GlobTool
from kimi.infrastructure.tools.search.glob_walk import GlobPattern, GlobWalk
from kimi.infrastructure.tools.search.name_globs import expand_braces
from tests.support.file_tools import Files, brief, call, text

pytestmark = pytest.mark.anyio


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def put(files: Files, *names: str) -> None:
    for name in names:
        files.put(name)


async def found(files: Files, pattern: str, **arguments: object) -> list[str]:
    return text(await call(files.glob, pattern=pattern, **arguments)).split("\n")


@pytest.mark.spec("T-76")
async def test_matches_are_listed_with_messages_and_limits(tmp_path: Path) -> None:
    files = Files(tmp_path)
    put(files, "src/a.py", "src/b.ts", "src/deep/c.py", "src/deep/d.tsx", "src-old/e.py", "top.py", ".hidden.py")
    result = await call(files.glob, pattern="src/*")
    assert result.output == "src/a.py\nsrc/b.ts\nsrc/deep"
    assert (result.message, result.display) == ("Found 3 matches for pattern `src/*`.", ())
    assert await found(files, "src/*", include_dirs=False) == ["src/a.py", "src/b.ts"]
    assert await found(files, "*.py") == [".hidden.py", "top.py"]
    assert await found(files, "src/{a,deep/c}.{py,ts}") == ["src/a.py", "src/deep/c.py"]
    assert await found(files, "*", directory=str(files.work_dir / "src/deep")) == ["c.py", "d.tsx"]
    everything = [".hidden.py", "src/a.py", "src/deep/c.py", "src-old/e.py", "top.py"]
    assert await found(files, "**/*.py") == everything
    assert await found(files, "**/*.{py,tsx}") == [*everything[:3], "src/deep/d.tsx", *everything[3:]]
    result = await call(files.glob, pattern="no/*.such")
    assert (result.output, result.message) == ("", "No matches found for pattern `no/*.such`.")

    put(files, *(f"many/{number:04d}.txt" for number in range(1001)))
    result = await call(files.glob, pattern="many/*.txt")
    assert result.message == (
        "Found 1001 matches for pattern `many/*.txt`. Only the first 1000 matches are returned. "
        "You may want to use a more specific pattern."
    )
    assert text(result).split("\n") == [f"many/{number:04d}.txt" for number in range(1000)]

    strict = Files(tmp_path, FileSettings(glob_strict=True))
    result = await call(strict.glob, pattern="**/*.py")
    assert brief(result) == "Unsafe pattern"
    assert result.message == (
        "Pattern `**/*.py` starts with '**' which is not allowed. This would recursively search all directories and "
        "may include large directories like `node_modules`. Use more specific patterns instead. For your convenience, "
        "a list of all files and directories in the top level of the working directory is provided below."
    )
    assert text(result).startswith("├── many/\n│   ├── 0000.txt\n")
    assert await found(strict, "src/**/*.py") == ["src/a.py", "src/deep/c.py"]


@pytest.mark.spec("T-77")
async def test_paths_outside_are_not_listed(files: Files, tmp_path: Path) -> None:
    put(files, "a/b.txt")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "x.txt").write_text("x")
    for pattern in ("../*", "a/../../*", "{a,..}/*", ".."):
        result = await call(files.glob, pattern=pattern)
        assert (result.message, brief(result)) == (f"Pattern `{pattern}` must not contain '..'.", "Unsafe pattern")
    result = await call(files.glob, pattern="/etc/*")
    assert brief(result) == "Unsafe pattern"
    result = await call(files.glob, pattern="*", directory=str(tmp_path / "secret"))
    assert brief(result) == "Directory outside workspace"
    assert result.message == (
        f"`{tmp_path}/secret` is outside the workspace. You can only search within the working directory, additional "
        "directories, and skills directories."
    )
    result = await call(files.glob, pattern="*", directory="a")
    assert result.message == "`a` is not an absolute path. You must provide an absolute path to search."
    assert brief(result) == "Invalid directory"
    result = await call(files.glob, pattern="*", directory=str(files.work_dir / "no"))
    assert result.message == f"`{files.work_dir}/no` does not exist."
    result = await call(files.glob, pattern="*", directory=str(files.work_dir / "a/b.txt"))
    assert result.message == f"`{files.work_dir}/a/b.txt` is not a directory."

    os.symlink(files.work_dir, files.work_dir / "a" / "loop")
    os.symlink(tmp_path / "secret", files.work_dir / "out")
    os.symlink("a", files.work_dir / "in")
    assert await found(files, "**/*.txt") == ["a/b.txt"]
    assert await found(files, "**") == ["a", "a/b.txt", "a/loop", "in", "out"]
    assert await found(files, "out/*") == [""]
    assert await found(files, "*/*") == ["a/b.txt", "a/loop", "in/b.txt", "in/loop"]
    result = await call(files.glob, pattern="*", directory=str(files.work_dir / "out"))
    assert brief(result) == "Directory outside workspace"
    files.additional.append(str(tmp_path / "secret"))
    assert await found(files, "out/*") == ["out/x.txt"]
    assert await found(files, "*", directory=str(tmp_path / "secret")) == ["x.txt"]


async def test_ignored_directories_are_passed_over(files: Files) -> None:
    put(files, ".git/config", "node_modules/m/a.js", "src/a.js", "src/gen/b.js", "src/keep/gen/c.js", "build/x.js")
    files.put(".gitignore", "# comment\nnode_modules/\n/build\ngen\n")
    files.put("src/keep/.gitignore", "!gen\n")
    assert await found(files, "**/*.js") == ["src/a.js", "src/keep/gen/c.js"]
    assert await found(files, "node_modules/**/*.js") == ["node_modules/m/a.js"]
    assert await found(files, "*/*.js") == ["build/x.js", "src/a.js"]
    assert await found(files, ".git/*") == [".git/config"]
    assert await found(files, "**/gen/*.js") == ["src/gen/b.js", "src/keep/gen/c.js"]
    assert "node_modules" not in await found(files, "**")


async def test_ignore_rules_count_inside_a_repository_only(files: Files) -> None:
    put(files, "build/x.js", "src/a.js")
    files.put(".gitignore", "build\n")
    assert await found(files, "**/*.js") == ["build/x.js", "src/a.js"]
    put(files, ".git/info/exclude")
    (files.work_dir / ".git/info/exclude").write_text("src\n")
    assert await found(files, "**/*.js") == [""]
    assert await found(files, "**/*", directory=str(files.work_dir / "src")) == ["a.js"]


async def test_invalid_patterns_are_refused(files: Files) -> None:
    for pattern in ("", "/", "."):
        result = await call(files.glob, pattern=pattern)
        assert result.is_error
    result = await call(files.glob, pattern="{a,b}" * 10)
    assert brief(result) == "Glob failed"
    assert result.message.startswith("Failed to search for pattern {a,b}")


async def test_undecodable_names_are_listed(files: Files) -> None:
    (files.work_dir / os.fsdecode(b"caf\xe9")).touch()
    assert await found(files, "caf*") == ["caf\ufffd"]


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("a", ["a"]),
        ("{a,b}", ["a", "b"]),
        ("x{a,b{c,d}}y", ["xay", "xbcy", "xbdy"]),
        ("{a}", ["{a}"]),
        ("{a,b", ["{a,b"]),
        ("{{a,b}", ["{a", "{b"]),
        ("{,x}y", ["y", "xy"]),
    ],
)
def test_braces_are_expanded(pattern: str, expanded: list[str]) -> None:
    assert expand_braces(pattern) == expanded


def test_listing_has_two_levels_and_limits(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    for number in range(12):
        (tmp_path / "dir" / f"{number:02d}").touch()
    for number in range(31):
        (tmp_path / f"f{number:02d}").touch()
    lines = list_two_levels(str(tmp_path)).split("\n")
    assert lines[0] == "├── dir/"
    assert lines[1] == "│   ├── 00"
    assert lines[11] == "│   └── ... and 2 more"
    assert lines[-1] == "└── ... and 2 more"
    assert len(lines) == 1 + 11 + 29 + 1
    assert list_two_levels(str(tmp_path / "nothing")) == ""


names = st.sampled_from(["a", "b", "ab"])
paths = st.lists(st.lists(names, min_size=1, max_size=3).map("/".join), max_size=6)
patterns = st.lists(st.sampled_from(["a", "*", "**", "?", "a*", "[ab]", "b"]), min_size=1, max_size=4).map("/".join)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(paths, patterns)
def test_matches_agree_with_pathlib(tmp_path_factory: pytest.TempPathFactory, tree: list[str], pattern: str) -> None:
    root = tmp_path_factory.mktemp("tree")
    for path in tree:
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()
        except (FileExistsError, NotADirectoryError):
            continue
    walk = GlobWalk(
        str(root), GlobPattern(pattern), roots=[str(root)], include_dirs=True, limit=1000, budget_s=10, windows=False
    )
    expected = {path.relative_to(root) for path in root.glob(pattern if not pattern.endswith("**") else pattern + "/*")}
    result = walk.run()
    assert [Path(path) for path in result.paths] == sorted(expected - {Path(".")})
    assert result.count == len(result.paths)


@pytest.fixture(scope="module")
def large_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 000 files in 1 000 directories."""
    work_dir = tmp_path_factory.mktemp("large") / "work"
    work_dir.mkdir()
    for directory in range(1_000):
        path = work_dir / f"{directory % 20:02d}" / f"{directory:04d}"
        path.mkdir(parents=True)
        names = [f"{path}/{number}.py" for number in range(200)]
        for name in names:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    return work_dir.parent


@pytest.mark.timeout(180)  # a slow disk makes the files slowly
@pytest.mark.spec("T-78")
async def test_search_of_a_large_tree_stops_at_timeout_or_cancel(large_tree: Path) -> None:
    files = Files(large_tree)
    started = anyio.current_time()
    result = await call(files.glob, pattern="**/*.py")
    assert anyio.current_time() - started < 11
    assert result.message.startswith("Found ")
    hurried = GlobTool(files.workspace, files.policy, budget_s=0.05)
    started = anyio.current_time()
    result = await call(hurried, pattern="**/*.py")
    assert anyio.current_time() - started < 1
    assert result.message.endswith(" The search ended after 0.05 seconds; there may be more matches.")
    assert not result.is_error
    started = anyio.current_time()
    with anyio.move_on_after(0.05) as scope:
        await call(files.glob, pattern="**/*.py")
    assert scope.cancelled_caught
    assert anyio.current_time() - started < 1


async def test_ignored_files_agree_with_git(files: Files) -> None:
    put(files, "a/x/f", "a/y/f", "b/x/f", "c/z.d/f", "d/e/f/g")
    files.put(".gitignore", "a/x\n**/z.d/\nd/**/f\n\\#odd\n!b/x\nb/*\n")
    await anyio.run_process(["git", "init", "-q", str(files.work_dir)])
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    listed = (await anyio.run_process(command, cwd=files.work_dir)).stdout.decode().split()
    assert sorted(await found(files, "**/f", include_dirs=False)) == sorted(p for p in listed if p.endswith("/f"))
