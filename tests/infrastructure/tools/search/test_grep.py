"""Grep: the three modes with ripgrep and without, secrets, pages, time-outs, errors."""

import itertools
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi.application.settings.settings import FileSettings
from kimi.domain.permissions.file_patterns import SENSITIVE_PATTERNS
from kimi.domain.permissions.path_rules import NamedPath, PathScopes
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.tools.files.path_policy import ResolvedPath
from kimi.infrastructure.tools.search.grep import GrepTool
from kimi.infrastructure.tools.search.grep_output import ContentCollector, SecretFilter
from kimi.infrastructure.tools.search.ripgrep import Ripgrep, RipgrepSearch, build_search_arguments
from kimi.infrastructure.tools.search.search_exclusions import build_exclusions, may_share_name
from tests.support.encoded_texts import SAMPLES
from tests.support.file_tools import CONTEXT, Files, brief, call, effect, example_path, no_ripgrep, real_ripgrep, text
from tests.support.patterns.bombs import EXPLOSIVE_EXPRESSIONS, EXPLOSIVE_GLOBS, EXPLOSIVE_TEXTS
from tests.support.program.pace import slowdown

pytestmark = pytest.mark.anyio

ENGINES = {"ripgrep": real_ripgrep, "fallback": no_ripgrep}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture(params=ENGINES)
def grep(request: pytest.FixtureRequest, files: Files) -> GrepTool:
    return GrepTool(files.workspace, files.policy, ENGINES[request.param]())


def lines(result: ToolReturnValue) -> list[str]:
    return text(result).splitlines()


async def test_output_modes_list_files_lines_or_counts(files: Files, grep: GrepTool) -> None:
    files.put("a.py", "import os\n\nos.name\nos.sep, os.curdir\n")
    files.put("sub/b.txt", "nothing\nos\n")
    os.utime(files.work_dir / "a.py", (1, 1))
    result = await call(grep, pattern="os")
    assert (result.output, result.message) == ("./sub/b.txt\n./a.py\n", "")
    result = await call(grep, pattern="os", output_mode="count_matches")
    assert result.output == "./a.py:4\n./sub/b.txt:1\n"
    assert result.message == "Found 5 total occurrences across 2 files."
    result = await call(grep, pattern="os", output_mode="content", path="a.py")
    assert result.output == "a.py:1:import os\na.py:3:os.name\na.py:4:os.sep, os.curdir\n"
    result = await call(grep, pattern="name", output_mode="content", path="a.py", **{"-n": False})
    assert result.output == "a.py:os.name\n"
    result = await call(grep, pattern="import|curdir", output_mode="content", path="a.py", **{"-A": 1})
    assert result.output == "a.py:1:import os\na.py-2-\n--\na.py:4:os.sep, os.curdir\n"
    result = await call(grep, pattern="name", output_mode="content", path="a.py", **{"-C": 1, "-n": False})
    assert result.output == "a.py-\na.py:os.name\na.py-os.sep, os.curdir\n"
    result = await call(grep, pattern="NAME", output_mode="content", path="a.py", **{"-i": True, "-B": 2})
    assert lines(result) == ["a.py-1-import os", "a.py-2-", "a.py:3:os.name"]
    result = await call(grep, pattern="os.*?name", output_mode="content", path="a.py", multiline=True)
    assert lines(result) == ["a.py:1:import os", "a.py:2:", "a.py:3:os.name"]
    result = await call(grep, pattern="os", path=str(files.work_dir))
    assert result.output == "sub/b.txt\na.py\n"
    result = await call(grep, pattern="os", type="py")
    assert result.output == "./a.py\n"
    result = await call(grep, pattern="os", glob="*.{txt,md}")
    assert result.output == "./sub/b.txt\n"


@pytest.mark.spec("T-80")
async def test_option_like_text_and_odd_file_names_are_searched(files: Files, grep: GrepTool) -> None:
    files.put("a.txt", "--files\n-e x\n")
    files.put("b.txt", "-e x\n")
    files.put("a:1:b.txt", "needle 1\n")
    files.put("sp ace-2-.txt", "needle 2\n")
    files.put("new\nline.txt", "needle 3\nmore\n")
    files.put("--", "needle 4\n")
    assert lines(await call(grep, pattern="-e x", output_mode="content", path="a.txt")) == ["a.txt:2:-e x"]
    assert lines(await call(grep, pattern="--files", path="a.txt")) == ["a.txt"]
    assert lines(await call(grep, pattern="-e x", glob="!b*")) == ["./a.txt"]
    found = text(await call(grep, pattern="needle", output_mode="content"))
    assert sorted(re.split(r"(?<=\d)\n", found)) == sorted(
        [
            "",
            "./--:1:needle 4",
            "./a:1:b.txt:1:needle 1",
            "./new\nline.txt:1:needle 3",
            "./sp ace-2-.txt:1:needle 2",
        ]
    )
    counted = text(await call(grep, pattern="needle", output_mode="count_matches"))
    assert "./new\nline.txt:1\n" in counted
    assert "./a:1:b.txt:1\n" in counted
    listed = text(await call(grep, pattern="needle 3"))
    assert listed == "./new\nline.txt\n"
    for arguments in ({"type": "--files"}, {"type": "no-such"}):
        assert (await call(grep, pattern="x", **arguments)).message.startswith("Failed to grep. Error: ")
    assert lines(await call(grep, pattern="needle", path="--")) == ["--"]


SECRET = "topsecret"


def put_secrets(files: Files) -> list[str]:
    names = [example_path(pattern) for pattern in SENSITIVE_PATTERNS]
    for name in names:
        files.put(name, f"KEY={SECRET}\nsecond line\n")
    files.put("plain.py", "nothing to see\nsecond line\n")
    files.put(".gitignore", ".env\n")
    return names


@pytest.mark.spec("T-43", "R-216")
@pytest.mark.parametrize("mode", ["content", "count_matches", "files_with_matches"])
@pytest.mark.parametrize(
    "options",
    [
        {"-n": True},
        {"-n": False},
        {"multiline": True},
        {"include_ignored": True},
        {"-C": 2},
        {"head_limit": 1, "glob": "*.py"},  # which file is searched first is left to chance
        {"multiline": True, "include_ignored": True, "head_limit": 0, "-n": False},
    ],
    ids=str,
)
async def test_an_answer_does_not_tell_what_secrets_hold(
    files: Files, grep: GrepTool, mode: str, options: dict[str, Any]
) -> None:
    names = put_secrets(files)
    os.symlink(".env", files.work_dir / "link.txt")
    files.put(".env.example", "KEY=\nsecond line\n")

    async def search(pattern: str) -> tuple[list[str], str]:
        result = await call(grep, pattern=pattern, output_mode=mode, **options)
        return sorted(lines(result)), result.message

    found = await search("KEY|second")
    assert SECRET not in repr(found)
    assert {re.split(r"[:-]\d|:|-", line)[0] for line in found[0]} <= {"./plain.py", "./.env.example", ""}
    assert await search(f"KEY=({SECRET})?$|second") == found
    assert await search(SECRET) == ([], "No matches found.")
    for name in (*names[:3], "link.txt", str(files.work_dir / ".env")):
        result = await call(grep, pattern="KEY|second", output_mode=mode, path=name, **options)
        assert (result.output, brief(result)) == ("", "Sensitive file")
        assert result.message == (await call(files.read, path=name)).message
    unknown = await call(grep, pattern="KEY", output_mode="unknown", **options)
    assert brief(unknown) == "Invalid arguments"


BELOW = ("src/credentials/a.py", ".env.d/x")
SEARCHES: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"plain.py", ".env.example", "src/credentials/a.py", "k.pub", ".env.d/x"}),
    ({"include_ignored": True}, {"plain.py", ".env.example", *BELOW, "k.pub", "ignored.py"}),
    ({"type": "py"}, {"plain.py", "src/credentials/a.py"}),
    ({"glob": "*.py"}, {"plain.py", "src/credentials/a.py", "ignored.py"}),
    ({"glob": "!*.py"}, {".env.example", "k.pub", ".env.d/x"}),
    ({"glob": "*"}, {"plain.py", ".env.example", "k.pub", "ignored.py"}),
    ({"glob": "**/*"}, {"plain.py", ".env.example", "k.pub", "ignored.py"}),
    ({"glob": ".env*"}, {".env.example"}),
    ({"glob": ".[eE]nv*"}, {".env.example"}),
    ({"glob": "{.env,.env.*,*.pem,plain.py}"}, {"plain.py", ".env.example"}),
    ({"glob": "\\.env"}, set()),
    ({"glob": "[.]{env,x}"}, set()),
    ({"glob": ".aws/*"}, set()),
    ({"glob": "sub/.e?v"}, set()),
]


@pytest.mark.spec("R-216")
@pytest.mark.parametrize(("options", "searched"), SEARCHES, ids=[str(options) for options, _ in SEARCHES])
@pytest.mark.parametrize("engine", ENGINES)
async def test_files_with_secrets_are_not_even_opened(
    files: Files, engine: str, options: dict[str, Any], searched: set[str]
) -> None:
    put_secrets(files)
    for name in ("sub/.env", "sub/.ENV.Local", ".AWS/credentials", "ignored.py", "k.pub", ".env.example", ".env.d/x"):
        files.put(name, "text\n")
    files.put("src/credentials/a.py", "text\n")
    files.put(".ignore", "ignored.py\n.ignore\n.gitignore\n")
    target, scopes = await files.policy.locate("."), await files.policy.resolve_scopes()
    exclusions = build_exclusions(target, options.get("glob"), options.get("type"), str(files.work_dir), scopes)
    arguments = build_search_arguments(RipgrepSearch("", output_mode="files_with_matches", **options), exclusions)
    command = await ENGINES[engine]().find_command(files.workspace)
    done = await anyio.run_process([*command, *arguments], cwd=files.work_dir, check=False)
    assert done.returncode in (0, 1), done.stderr
    shown = {name.removeprefix("./") for name in done.stdout.decode().split("\0") if name}
    assert shown - {".ignore", ".gitignore"} == searched


async def test_the_program_finds_no_secrets_where_the_search_begins_in_their_directory(
    files: Files, grep: GrepTool
) -> None:
    for name in (".aws/credentials", ".kube/config", ".docker/config.json", ".config/gh/hosts.yml"):
        files.put(name, SECRET)
        files.put(os.path.dirname(name) + "/open.txt", "open")
        for path in (os.path.dirname(name), str(files.work_dir / os.path.dirname(name))):
            assert (await call(grep, pattern=SECRET, path=path)).message == "No matches found."
            assert len(lines(await call(grep, pattern="open", path=path))) == 1


async def test_a_user_widens_and_narrows_what_is_searched(tmp_path: Path) -> None:
    files = Files(tmp_path, FileSettings(sensitive=("*.secret", "vault/keys"), not_sensitive=("test.pem",)))
    for name in ("a.secret", "test.pem", "real.pem", "vault/keys", "vault/other"):
        files.put(name, "text\n")
    for ripgrep in ENGINES.values():
        grep = GrepTool(files.workspace, files.policy, ripgrep())
        assert sorted(lines(await call(grep, pattern="text"))) == ["./test.pem", "./vault/other"]


names_of_few = st.text("ab.*?", min_size=0, max_size=5)


@settings(max_examples=300, deadline=None)
@given(names_of_few, names_of_few)
def test_globs_that_share_a_name_are_recognised(one: str, other: str) -> None:
    letters = [""] + ["".join(found) for size in (1, 2, 3, 4) for found in itertools.product("ab.", repeat=size)]
    shared = any(fnmatchcase(name, one) and fnmatchcase(name, other) for name in letters)
    assert may_share_name(one, other) or not shared
    if "*" not in one and "*" not in other and max(len(one), len(other)) < 5:
        assert may_share_name(one, other) == shared


async def test_program_files_are_not_searched(files: Files, grep: GrepTool) -> None:
    session = files.share / "sessions" / "h" / "s"
    session.mkdir(parents=True)
    (session / "context.jsonl").write_text(SECRET)
    (files.share / "config.toml").write_text(f"api_key = '{SECRET}'\n")
    (files.share / "notes.md").write_text(SECRET)
    os.symlink(files.share, files.work_dir / "linked")
    for path in (str(files.share), str(files.home), "linked"):
        result = await call(grep, pattern=SECRET[:6], output_mode="content", path=path)
        assert len(lines(result)) == 1
        assert "notes.md" in lines(result)[0]
        assert result.message == ""
    for path in (str(session), "~/.kimi/config.toml", "linked/config.toml"):
        assert brief(await call(grep, pattern=SECRET[:6], path=path)) == "Sensitive file"


async def test_search_path_follows_the_path_rules(tmp_path: Path) -> None:
    files = Files(tmp_path, FileSettings(read_outside="ask"))
    (tmp_path / "x").write_text("x\n")
    refused = await call(files.grep, pattern="x", path="../x")
    assert refused.message.startswith("`../x` is not an absolute path. You must provide an absolute path to read a")
    asked = await effect(files.grep, pattern="x", path=str(tmp_path / "x"))
    assert asked is not None
    assert (asked.action, asked.description) == ("read file outside of working directory", f"Search `{tmp_path}/x`")
    assert await effect(files.grep, pattern="x") is None
    missing = await call(files.grep, pattern="x", path="nothing")
    assert (missing.message, brief(missing)) == ("`nothing` does not exist.", "File not found")
    os.mkfifo(files.work_dir / "fifo")
    assert (await call(files.grep, pattern="x", path="fifo")).message == "`fifo` is not a file."
    assert not (await call(files.grep, pattern="x")).is_error


async def test_results_are_paged(files: Files, grep: GrepTool) -> None:
    files.put("a.txt", "".join(f"needle {number}\n" for number in range(300)))
    result = await call(grep, pattern="needle", output_mode="content", path="a.txt")
    assert result.message == "Results truncated to 250 lines (total: 300). Use offset=250 to see more."
    assert lines(result)[-1] == "a.txt:250:needle 249"
    result = await call(grep, pattern="needle", output_mode="content", path="a.txt", offset=250)
    assert (len(lines(result)), result.message) == (50, "")
    result = await call(grep, pattern="needle", output_mode="content", path="a.txt", head_limit=0)
    assert (len(lines(result)), result.message) == (300, "")
    result = await call(grep, pattern="needle", output_mode="content", path="a.txt", offset=400)
    assert result.message == "No matches found. The offset 400 lies beyond the last of 300 lines."
    for number in range(5):
        files.put(f"b{number}.txt", "other\n")
    result = await call(grep, pattern="other", head_limit=2, offset=1)
    assert len(lines(result)) == 2
    assert result.message == "Results truncated to 2 lines (total: 5). Use offset=3 to see more."
    result = await call(grep, pattern="other", head_limit=2, output_mode="count_matches")
    assert result.message == (
        "Found 5 total occurrences across 5 files. Results truncated to 2 lines (total: 5). Use offset=2 to see more."
    )
    result = await call(grep, pattern="absent")
    assert (result.output, result.message, result.is_error) == ("", "No matches found.", False)


async def test_long_results_are_cut_once(files: Files, grep: GrepTool) -> None:
    files.put("a.txt", ("needle " + "x" * 190 + "\n") * 1000 + "needle" + "y" * 5000 + "\n")
    result = await call(grep, pattern="needle", output_mode="content", head_limit=0)
    assert len(text(result)) <= 50_000
    assert result.message == "Output is truncated to fit in the message."
    result = await call(grep, pattern="needley", output_mode="content")
    assert len(lines(result)) == 1
    assert len(lines(result)[0]) <= 2000


def fake(files: Files, script: str, timeout_s: float = 20.0) -> GrepTool:
    """Grep with a ripgrep of our own making."""
    path = files.root / "fake-rg"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\n{script}\n')
    path.chmod(0o755)
    return GrepTool(files.workspace, files.policy, Ripgrep(str(path), {}), timeout_s=timeout_s)


@pytest.mark.spec("T-81")
async def test_ripgrep_failures_are_reported(files: Files, tmp_path: Path) -> None:
    files.put("a.txt", "x\n")
    result = await call(fake(files, "sleep 77", 0.3), pattern="x")
    assert (result.message, brief(result), result.is_error) == (
        "Grep timed out after 0.3s. Try a more specific path or pattern.",
        "Grep timed out",
        True,
    )
    result = await call(fake(files, "printf 'a.txt\\0'; sleep 77", 0.3), pattern="x")
    assert (result.output, result.message) == (
        "a.txt\n",
        "Grep timed out after 0.3s. Partial results returned.",
    )
    content = {"pattern": "x", "output_mode": "content"}
    result = await call(fake(files, "printf 'a.txt\\0001:x\\na.txt\\0002:ha'; sleep 77", 0.3), **content)
    assert (result.output, result.message) == (
        "a.txt:1:x\n",
        "Grep timed out after 0.3s. Partial results returned.",
    )
    tried = tmp_path / "tried"
    again = f'echo "$@" >> {tried}; [ $(wc -l < {tried}) = 1 ] && '
    again += "{ echo 'rg: Resource temporarily unavailable (os error 11)' >&2; exit 2; }; printf 'a.txt\\0'"
    result = await call(fake(files, again), pattern="x")
    assert (result.output, result.message) == ("a.txt\n", "")
    first, second = tried.read_text().splitlines()
    assert " -j 1 " not in first
    assert " -j 1 " in second
    result = await call(fake(files, "echo 'rg: Resource temporarily unavailable' >&2; exit 2"), pattern="x")
    assert (result.message, brief(result)) == (
        "Failed to grep. Error: rg: Resource temporarily unavailable",
        "Failed to grep",
    )
    result = await call(files.grep, pattern="(")
    assert result.message.startswith("Failed to grep. Error: rg: regex parse error:")
    assert brief(result) == "Failed to grep"
    result = await call(files.grep, pattern="absent")
    assert result.message == "No matches found."
    files.put("a.txt", "x\n" * 260)
    result = await call(files.grep, **content)
    assert result.message == "Results truncated to 250 lines (total: 260). Use offset=250 to see more."


async def test_results_are_kept_despite_unreadable_files(files: Files) -> None:
    result = await call(fake(files, "printf 'a.txt\\0'; exit 2"), pattern="x")
    assert (result.output, result.message) == ("a.txt\n", "Some files could not be searched.")


async def test_cancelling_ends_the_search(files: Files, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    grep = fake(files, f"echo $$ > {pid_file}; sleep 77")
    with anyio.move_on_after(0.5):
        async with grep.prepare({"pattern": "x"}, CONTEXT) as prepared:
            await prepared.run()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


@pytest.mark.spec("R-215")
@pytest.mark.parametrize("expression", EXPLOSIVE_EXPRESSIONS)
async def test_explosive_expression_is_searched_without_ripgrep(files: Files, expression: str) -> None:
    for number, content in enumerate(EXPLOSIVE_TEXTS):
        files.put(f"{number}.txt", content + "\n")
    grep = GrepTool(files.workspace, files.policy, no_ripgrep(), timeout_s=15 * slowdown())
    for multiline in (False, True):
        result = await call(grep, pattern=expression, output_mode="count_matches", multiline=multiline)
        assert not result.is_error
        assert "timed out" not in result.message


@pytest.mark.spec("R-215")
@pytest.mark.parametrize("expression", ["(?=a)", "(?<!a)b", r"(a)\1", "a++", "("])
async def test_expressions_that_no_engine_knows_are_refused(files: Files, grep: GrepTool, expression: str) -> None:
    files.put("a.txt", "aab\n")
    result = await call(grep, pattern=expression)
    assert brief(result) == "Failed to grep" or expression == "a++"  # a repetition of a repetition, to ripgrep


async def test_hostile_ignore_files_and_globs_do_not_hold_up_a_search(files: Files) -> None:
    files.put("a" * 250, "needle\n")
    files.put(".ignore", "\n".join(glob for glob in EXPLOSIVE_GLOBS if not glob.startswith("{")) + "\n")
    grep = GrepTool(files.workspace, files.policy, no_ripgrep(), timeout_s=15 * slowdown())
    assert "a" * 250 in text(await call(grep, pattern="needle"))
    for glob in EXPLOSIVE_GLOBS:
        result = await call(grep, pattern="needle", glob=glob)
        assert "timed out" not in result.message


def corpus(files: Files) -> None:
    files.put(".git/HEAD", "needle\n")
    files.put(".gitignore", "ignored/\n*.log\n")
    files.put("ignored/a.txt", "needle\n")
    files.put("x.log", "needle\n")
    files.put("sub/.gitignore", "!x.log\n/only.txt\n")
    files.put("sub/x.log", "needle\n")
    files.put("sub/only.txt", "needle\n")
    files.put("sub/deep/only.txt", "Needle needle\n")
    files.put(".hidden/a.txt", "needle\n")
    files.put(".ignore", "skipped.txt\n")
    files.put("skipped.txt", "needle\n")
    files.put("a.py", "def needle():\n    return 'Needle'\n\n\nneedle()\nneedle() + needle()\n# end\n")
    files.put("b.py", "no\n")
    files.put("c.ts", "const needle = 1;\r\nlet other;\r\n")
    files.put("umlaut.txt", "Nadel, Nädel, needle ü\nÜ\n")
    files.put("binary.bin", b"needle\n\0needle\n")
    files.put("utf16.txt", "needle in utf-16\n".encode("utf-16"))
    files.put("bom.txt", b"\xef\xbb\xbfneedle first\n")
    files.put("latin.txt", b"needle caf\xe9\n")
    files.put("gbk.c", "// 针 needle\nint 针 = 1;\n这是一个测试文件。\n".encode("gbk"))
    files.put("sub/koi.txt", "Это тестовый файл, needle.\nИголка в стоге сена\n".encode("koi8_r"))
    files.put("sub/more.koi", "Ещё один тестовый файл.\nИголка и нитка\n".encode("koi8_r"))
    files.put("ignored/koi.txt", "Это тестовый файл.\nИголка\n".encode("koi8_r"))
    files.put("utf8.txt", "针 и иголка\n")
    files.put("unended.txt", "x\nneedle")
    files.put("empty.txt", "")
    files.put("many.txt", "".join(f"{'needle' if number % 7 == 0 else 'hay'} {number}\n" for number in range(60)))
    os.symlink("a.py", files.work_dir / "link.py")
    os.symlink("sub", files.work_dir / "linked")


def by_file(output: str) -> list[str]:
    """Groups of lines in a fixed order: ripgrep searches files in any order."""
    groups: dict[str, list[str]] = {}
    for line in output.splitlines():
        if line != "--":
            groups.setdefault(re.split(r"[:-]\d+[:-]|:", line)[0], []).append(line)
    return [line for name in sorted(groups) for line in groups[name]]


QUERIES: list[dict[str, Any]] = [
    {"pattern": "needle"},
    {"pattern": "needle", "-i": True},
    {"pattern": "needle", "include_ignored": True},
    {"pattern": "^needle\\(\\)$"},
    {"pattern": "n[[:alpha:]]+e\\b"},
    {"pattern": "(?<what>needle)\\s\\d+"},
    {"pattern": "ü", "-i": True},
    {"pattern": "\\w+dle", "-C": 1},
    {"pattern": "needle", "-B": 2, "-A": 0, "-n": False},
    {"pattern": "return.*?needle", "multiline": True},
    {"pattern": "^$", "multiline": True, "path": "a.py"},
    {"pattern": "needle", "glob": "*.py"},
    {"pattern": "needle", "glob": "!*.{py,ts}"},
    {"pattern": "needle", "glob": "sub/**"},
    {"pattern": "needle", "type": "ts"},
    {"pattern": "needle", "path": "sub"},
    {"pattern": "needle", "path": "ignored/a.txt"},
    {"pattern": "needle", "path": "binary.bin"},
    {"pattern": "needle$"},
    {"pattern": "n\\w+l"},
    {"pattern": "N\\w{2}e[\\w,]"},
    {"pattern": "[^\\w\\s]$"},
    {"pattern": "\\d\\D"},
    {"pattern": "[]d]e"},
    {"pattern": "x*", "path": "umlaut.txt"},
    {"pattern": "nothing at all"},
    {"pattern": "针"},
    {"pattern": "иголка", "-i": True},
    {"pattern": "Иголка .*\\w", "-B": 1},
    {"pattern": "Иголка", "glob": "*.txt"},
    {"pattern": "针|иголка|needle", "path": "gbk.c"},
    {"pattern": "№"},
]


@pytest.mark.spec("R-317")
@pytest.mark.parametrize("codec", ["gbk", "big5", "shift_jis", "euc_jp", "euc_kr", "cp1251", "koi8_r", "cp1252"])
async def test_text_in_any_encoding_is_found_and_shown(files: Files, grep: GrepTool, codec: str) -> None:
    line = SAMPLES[codec].split("\n")[0]
    files.put("a.txt", f"ascii needle\n{line}\n".encode(codec))
    files.put("b.txt", f"{line}\n")
    files.put(".env", f"{line}\n".encode(codec))
    for pattern in (re.escape(line), f"{line[:3]}.*{line[-2]}"):
        found = await call(grep, pattern=pattern, output_mode="content")
        assert sorted(text(found).splitlines()) == [f"./a.txt:2:{line}", f"./b.txt:1:{line}"]
        counted = await call(grep, pattern=pattern, output_mode="count_matches")
        assert sorted(text(counted).splitlines()) == ["./a.txt:1", "./b.txt:1"]
        listed = await call(grep, pattern=pattern)
        assert sorted(text(listed).splitlines()) == ["./a.txt", "./b.txt"]
    near = await call(grep, pattern="needle", output_mode="content", **{"-A": 1})
    assert text(near) == f"./a.txt:1:ascii needle\n./a.txt-2-{line}\n"


@pytest.mark.spec("T-82")
@pytest.mark.parametrize("query", QUERIES, ids=str)
async def test_ripgrep_and_python_search_agree(files: Files, query: dict[str, Any]) -> None:
    corpus(files)
    slow = GrepTool(files.workspace, files.policy, no_ripgrep())
    for mode in ("content", "files_with_matches", "count_matches"):
        fast_result = await call(files.grep, output_mode=mode, **query)
        slow_result = await call(slow, output_mode=mode, **query)
        assert by_file(text(slow_result)) == by_file(text(fast_result)), mode
        assert (slow_result.message, slow_result.is_error) == (fast_result.message, fast_result.is_error)


record_lines = st.lists(
    st.tuples(
        st.sampled_from([b"a.py", b"b/c.py", b".env", b"new\nline", b"long" * 300]),
        st.lists(st.sampled_from([b"1:x\n", b"2-y\n", b"3:" + b"z" * 1500 + b"\n", b"\n"]), min_size=1, max_size=6),
    ),
    max_size=5,
    unique_by=lambda record: record[0],
)


@settings(max_examples=150, deadline=None)
@given(record_lines, st.integers(0, 4), st.integers(1, 5), st.integers(1, 4000))
def test_block_size_does_not_change_the_results(
    records: list[tuple[bytes, list[bytes]]], offset: int, limit: int, size: int
) -> None:
    data = b"".join(path + b"\0" + line for path, group in records for line in group)
    target = ResolvedPath(NamedPath(".", ".", "/w", True), "/w", False)

    def page(size: int, limit: int | None) -> tuple[str, int, int]:
        secrets = SecretFilter(target, ".", "/w", PathScopes(("/w",)))
        window = ContentCollector(secrets, offset=offset, limit=limit, has_line_numbers=True, show_line_numbers=True)
        for at in range(0, len(data), size):
            window.feed(data[at : at + size])
        found = window.build_page()
        return found.output.text, found.lines, found.total

    expected = sum(len(group) for path, group in records if path != b".env")
    assert page(size, limit) == page(len(data) + 1, limit)
    assert page(size, limit)[2] == page(size, None)[2] == expected
