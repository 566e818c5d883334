"""Paths in the file tools: work dirs, links, additional directories, secrets, our own files."""

import os
import sys
from pathlib import Path

import pytest

from kimi.application.settings.settings import FileSettings
from kimi.domain.permissions.file_patterns import NOT_SENSITIVE_PATTERNS, SENSITIVE_PATTERNS
from kimi.domain.permissions.path_rules import OWN_FILES
from kimi.domain.tools.tool import DiffBlock
from kimi.infrastructure.tools.files.read_media_file import ReadMediaFileTool
from tests.support.file_tools import CONTEXT, Files, brief, call, effect, example_path

pytestmark = pytest.mark.anyio

EDIT = {"old": "a", "new": "b"}
OUTSIDE = "edit file outside of working directory"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.spec("T-35")
async def test_each_session_has_its_own_work_dir(tmp_path: Path) -> None:
    one, two = Files(tmp_path / "one"), Files(tmp_path / "two")
    one.put("a.txt", "first\n")
    two.put("a.txt", "second\n")
    assert (await call(one.read, path="a.txt")).output == "     1\tfirst\n"
    assert (await call(two.read, path="a.txt")).output == "     1\tsecond\n"
    await call(two.write, path="b.txt", content="b")
    await call(two.edit, path="a.txt", edit={"old": "second", "new": "2"})
    assert not (one.work_dir / "b.txt").exists()
    assert (one.work_dir / "a.txt").read_text() == "first\n"


@pytest.mark.spec("T-36")
async def test_paths_outside_the_work_dir_are_refused_or_asked(files: Files, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x\n")
    for result, verb in (
        (await call(files.read, path="../x"), "read"),
        (await call(files.write, path="../x", content=""), "write"),
        (await call(files.edit, path="../x", edit=EDIT), "edit"),
    ):
        assert brief(result) == "Invalid path"
        assert result.message == (
            f"`../x` is not an absolute path. You must provide an absolute path to {verb} a file outside the working "
            "directory."
        )
    path = str(tmp_path / "x")
    assert await effect(files.read, path=path) is None
    assert (await call(files.read, path=path)).output == "     1\tx\n"
    asking = Files(tmp_path, FileSettings(read_outside="ask"))
    asked = await effect(asking.read, path=path)
    assert asked is not None
    assert (asked.action, asked.description) == ("read file outside of working directory", f"Read file `{path}`")
    asking.readable.append(str(tmp_path))
    assert await effect(asking.read, path=path) is None
    denying = Files(tmp_path, FileSettings(read_outside="deny"))
    denied = await call(denying.read, path=path)
    assert denied.is_error
    assert brief(denied) == "Path outside working directory"


async def test_empty_path_is_refused(files: Files) -> None:
    for result in (
        await call(files.read, path=""),
        await call(files.write, path="", content=""),
        await call(files.edit, path="", edit=EDIT),
    ):
        assert (result.message, brief(result)) == ("File path cannot be empty.", "Empty file path")
    assert (await call(files.read, path="a\0b")).is_error


async def test_tilde_slash_is_home_and_other_tilde_names_are_relative(files: Files) -> None:
    (files.home / "x").write_text("home\n")
    files.put("~x/y", "tilde\n")
    assert (await call(files.read, path="~/x")).output == "     1\thome\n"
    assert (await call(files.read, path="~x/y")).output == "     1\ttilde\n"
    assert (await call(files.read, path="~")).message == "`~` is not a file."


@pytest.mark.spec("T-38")
async def test_a_link_to_the_outside_counts_as_outside(tmp_path: Path) -> None:
    files = Files(tmp_path, FileSettings(read_outside="ask"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("a\n")
    os.symlink(other, files.work_dir / "etc")
    asked = await effect(files.read, path="etc/x")
    assert asked is not None
    assert asked.action == "read file outside of working directory"
    assert asked.description == f"Read file `etc/x` (-> `{other}/x`)"
    for asked, verb in (
        (await effect(files.write, path="etc/x", content="b\n"), "Write"),
        (await effect(files.edit, path="etc/x", edit=EDIT), "Edit"),
    ):
        assert asked is not None
        assert (asked.action, asked.subject) == (OUTSIDE, str(other / "x"))
        assert asked.description == f"{verb} file `etc/x` (-> `{other}/x`)"
    asked = await effect(files.write, path="etc/new", content="b\n")
    assert asked is not None
    assert asked.action == OUTSIDE


async def test_a_work_dir_behind_a_link_shows_plain_paths(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    files = Files(tmp_path / "link")
    files.put("a.txt", "a\n")
    asked = await effect(files.write, path="a.txt", content="b")
    assert asked is not None
    assert (asked.action, asked.description) == ("edit file", f"Write file `{tmp_path}/link/work/a.txt`")
    asked = await effect(files.edit, path=str(tmp_path / "real/work/a.txt"), edit=EDIT)
    assert asked is not None
    assert asked.action == "edit file"


@pytest.mark.spec("T-39")
async def test_a_link_swapped_in_after_approval_is_not_followed(files: Files, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "a.txt").write_text("a\n")
    inside = files.put("dir/a.txt", "a\n")
    for tool, arguments in (
        (files.write, {"path": "dir/a.txt", "content": "evil"}),
        (files.edit, {"path": "dir/a.txt", "edit": EDIT}),
        (files.write, {"path": "dir/new.txt", "content": "evil"}),
    ):
        async with tool.prepare(arguments, CONTEXT) as prepared:
            (files.work_dir / "dir").rename(files.work_dir / "aside")
            os.symlink(victim, files.work_dir / "dir")
            result = await prepared.run()
        assert result.is_error
        (files.work_dir / "dir").unlink()
        (files.work_dir / "aside").rename(files.work_dir / "dir")
    async with files.write.prepare({"path": "dir/a.txt", "content": "evil"}, CONTEXT) as prepared:
        inside.unlink()
        os.symlink(victim / "a.txt", inside)
        assert (await prepared.run()).is_error
    assert (victim / "a.txt").read_text() == "a\n"
    assert [entry.name for entry in victim.iterdir()] == ["a.txt"]


async def test_additional_directories_count_as_workspace(files: Files, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "a.txt").write_text("a\n")
    path = str(library / "a.txt")
    assert (await call(files.edit, path="../library/a.txt", edit=EDIT)).is_error
    files.additional.append(str(library))
    for asked in (
        await effect(files.write, path=path, content="b"),
        await effect(files.edit, path="../library/a.txt", edit=EDIT),
    ):
        assert asked is not None
        assert asked.action == "edit file"
    assert (await call(files.read, path="../library/a.txt")).output == "     1\ta\n"


@pytest.mark.spec("T-42")
@pytest.mark.parametrize("pattern", SENSITIVE_PATTERNS)
async def test_secrets_are_not_read(files: Files, pattern: str) -> None:
    media = ReadMediaFileTool(files.workspace, files.policy, frozenset({"image_in", "video_in"}))
    name = example_path(pattern)
    secret = files.put(name, "SECRET=1\n")
    os.symlink(secret, files.work_dir / "plain.txt")
    os.symlink(secret.parent, files.work_dir / "plain")
    for path in (name, str(secret), "plain.txt", f"plain/{secret.name}"):
        result = await call(files.read, path=path)
        assert brief(result) == "Sensitive file"
        assert brief(await call(media, path=path)) == "Sensitive file"
        assert result.message == (
            f"`{path}` appears to contain secrets (matched sensitive file pattern). "
            "Reading this file is blocked to protect credentials."
        )


@pytest.mark.spec("T-42")
@pytest.mark.parametrize("pattern", NOT_SENSITIVE_PATTERNS)
async def test_exempt_names_are_read(files: Files, pattern: str) -> None:
    files.put(example_path(pattern), "PUBLIC=1\n")
    assert not (await call(files.read, path=example_path(pattern))).is_error


@pytest.mark.spec("T-44")
@pytest.mark.spec("R-235")
async def test_changes_of_secrets_show_the_new_text_only(files: Files) -> None:
    path = files.put(".env", "TOKEN=topsecret\nB=2\n")
    os.symlink(".env", files.work_dir / "plain")
    edit = {"old": "topsecret", "new": "other"}
    for name in (".env", "plain"):
        for asked, written in (
            (await effect(files.write, path=name, content="TOKEN=other\n"), "TOKEN=other"),
            (await effect(files.write, path=name, content="C=3\n", mode="append"), "C=3"),
            (await effect(files.edit, path=name, edit=edit), "other"),
            (await effect(files.edit, path=name, edit={"old": "guess", "new": "x"}), "x"),
        ):
            assert asked is not None
            assert "topsecret" not in repr(asked)
            diffs = [block for block in asked.display if isinstance(block, DiffBlock)]
            assert [(block.old_text, block.new_text) for block in diffs if not block.is_summary] == [("", written)]
            assert all("the file may hold secrets" in block.old_text for block in diffs if block.is_summary)
    result = await call(files.edit, path=".env", edit=edit)
    assert not result.is_error
    assert "topsecret" not in repr(result)
    assert "other" not in repr(result.display)
    assert path.read_text() == "TOKEN=other\nB=2\n"


@pytest.mark.spec("T-45")
@pytest.mark.parametrize("name", OWN_FILES)
async def test_program_files_are_protected(files: Files, name: str) -> None:
    own = files.share / name if "." in name or name == "device_id" else files.share / name / "h" / "x.json"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("a\n")
    os.symlink(files.share, files.work_dir / "share")
    through = "share/" + str(own.relative_to(files.share))
    for path in (str(own), through, "~/.kimi/" + str(own.relative_to(files.share))):
        assert brief(await call(files.read, path=path)) == "Sensitive file"
        for result in (
            await call(files.write, path=path, content="b"),
            await call(files.write, path=str(Path(path).with_name("new")) if "/h/" in path else path, content="b"),
            await call(files.edit, path=path, edit=EDIT),
        ):
            assert brief(result) == "Protected file"
        assert await effect(files.write, path=path, content="b") is None
    assert own.read_text() == "a\n"


async def test_spilled_output_of_the_session_may_be_read(files: Files) -> None:
    spill = files.opened
    spill.mkdir(parents=True)
    (spill / "1.txt").write_text("output\n")
    assert (await call(files.read, path=str(spill / "1.txt"))).output == "     1\toutput\n"
    assert brief(await call(files.write, path=str(spill / "1.txt"), content="")) == "Protected file"


async def test_target_of_a_linked_configuration_file_is_protected(files: Files, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles.toml"
    dotfiles.write_text("api_key = 1\n")
    os.symlink(dotfiles, files.share / "config.toml")
    assert brief(await call(files.read, path=str(dotfiles))) == "Sensitive file"


async def test_deny_rules_get_the_real_path_of_unapproved_reads(files: Files) -> None:
    real = files.put("private/a.txt", "a\n")
    os.symlink(real, files.work_dir / "b.txt")
    media = ReadMediaFileTool(files.workspace, files.policy, frozenset({"image_in"}))
    for tool, arguments in ((files.read, {}), (media, {}), (files.grep, {"pattern": "a"})):
        async with tool.prepare({"path": "b.txt", **arguments}, CONTEXT) as prepared:
            assert prepared.subject == str(real.resolve())


async def test_link_changed_during_approval_is_not_followed(tmp_path: Path) -> None:
    files = Files(tmp_path, FileSettings(read_outside="ask"))
    for name in ("asked", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(f"{name}\n")
    link = files.work_dir / "link"
    for tool, arguments in ((files.read, {"path": "link/x"}), (files.grep, {"path": "link", "pattern": "s"})):
        link.unlink(missing_ok=True)
        os.symlink(tmp_path / "asked", link)
        async with tool.prepare(arguments, CONTEXT) as prepared:
            assert prepared.proposed_action is not None
            assert not (await prepared.run()).is_error
            link.unlink()
            os.symlink(tmp_path / "secret", link)
            assert brief(await prepared.run()) == "Path changed"


@pytest.mark.skipif(sys.platform != "linux", reason="the environments of processes are files on Linux only")
@pytest.mark.parametrize("process", ["self", "thread-self", str(os.getpid())], ids=["self", "thread", "number"])
async def test_the_environment_of_a_process_cannot_be_read(files: Files, process: str) -> None:
    assert brief(await call(files.read, path=f"/proc/{process}/environ")) == "Sensitive file"
    assert (await call(files.grep, pattern="PATH", path=f"/proc/{process}/environ")).output == ""


# --- own and protected files ------------------------------------------------------------------------------------

PROTECTED = "edit protected file"


@pytest.mark.spec("R-201")
@pytest.mark.parametrize("name", OWN_FILES)
async def test_no_root_opens_own_files(files: Files, name: str) -> None:
    own = files.share / name
    own.write_text("KEY=1\n")
    files.readable += ["/", str(files.root), str(files.share), str(own)]
    files.additional += [str(files.home), str(files.share)]
    for tool in (files.read, ReadMediaFileTool(files.workspace, files.policy, frozenset({"image_in"}))):
        assert brief(await call(tool, path=str(own))) == "Sensitive file"
    assert "KEY" not in repr(await call(files.grep, pattern="KEY", path=str(files.share), include_ignored=True))
    assert brief(await call(files.write, path=str(own), content="")) == "Protected file"


@pytest.mark.spec("R-201")
async def test_an_opened_folder_that_is_a_link_opens_nothing(files: Files) -> None:
    (files.share / "config.toml").write_text("KEY=1\n")
    files.opened.parent.mkdir(parents=True)
    os.symlink(files.share, files.opened)
    assert brief(await call(files.read, path=str(files.opened / "config.toml"))) == "Sensitive file"
    assert brief(await call(files.read, path=str(files.share / "config.toml"))) == "Sensitive file"


@pytest.mark.spec("R-206")
@pytest.mark.parametrize(
    "name", [".git/config", ".git/hooks/pre-commit", "AGENTS.md", "sub/aGENTS.md", ".kimi/skills/x/SKILL.md", ".envrc"]
)
async def test_a_change_of_a_protected_file_is_asked_for_as_such(files: Files, name: str) -> None:
    real = files.put(name, "a\n")
    os.symlink(real, files.work_dir / "plain.txt")
    os.symlink(real.parent, files.work_dir / "plain")
    (files.work_dir / "deep").mkdir()
    for path in (name, str(real), "plain.txt", f"plain/{real.name}", f"deep/../{name}", f"./{name}"):
        for asked in (
            await effect(files.write, path=path, content="b\n"),
            await effect(files.edit, path=path, edit=EDIT),
        ):
            assert asked is not None
            assert (asked.action, asked.is_protected, asked.kind) == (PROTECTED, True, "path")
            assert asked.subject == str(real.resolve())
    asked = await effect(files.write, path="src/plain.py", content="b\n")
    assert asked is not None
    assert (asked.action, asked.is_protected) == ("edit file", False)


@pytest.mark.spec("R-206")
async def test_a_guarded_path_is_protected_under_its_real_name_too(files: Files) -> None:
    files.put("tools/hook.sh", "a\n")
    os.symlink("tools", files.work_dir / "named")
    files.guarded.append(str(files.work_dir / "named/hook.sh"))
    for path in ("tools/hook.sh", "named/hook.sh"):
        asked = await effect(files.write, path=path, content="b\n")
        assert asked is not None
        assert asked.is_protected
    asked = await effect(files.write, path="tools/other.sh", content="b\n")
    assert asked is not None
    assert not asked.is_protected


@pytest.mark.spec("R-206")
async def test_shell_start_files_and_keys_of_the_user_are_protected(files: Files) -> None:
    for name in (".bashrc", ".zshrc", ".profile", ".ssh/config", ".gitconfig", ".config/autostart/x.desktop"):
        (files.home / name).parent.mkdir(parents=True, exist_ok=True)
        asked = await effect(files.write, path=f"~/{name}", content="x")
        assert asked is not None
        assert (asked.action, asked.is_protected) == (PROTECTED, True)


@pytest.mark.spec("R-206")
async def test_a_directory_that_becomes_a_link_after_the_question_is_not_written_to(files: Files) -> None:
    files.put("plain/pre-commit", "a\n")
    hooks = files.put(".git/hooks/pre-commit", "a\n")
    for tool, arguments in ((files.write, {"content": "b\n"}), (files.edit, {"edit": EDIT})):
        async with tool.prepare({"path": "plain/pre-commit", **arguments}, CONTEXT) as prepared:
            assert prepared.proposed_action is not None
            assert not prepared.proposed_action.is_protected
            (files.work_dir / "plain").rename(files.work_dir / "before")
            os.symlink(hooks.parent, files.work_dir / "plain")
            assert brief(await prepared.run()) == "Path changed"
        (files.work_dir / "plain").unlink()
        (files.work_dir / "before").rename(files.work_dir / "plain")
    assert hooks.read_text() == "a\n"
