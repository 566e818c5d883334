"""StrReplaceFile: exact replacements, what is refused, bytes that survive, parallel edits."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kimi.application.settings.settings import FileSettings
from kimi.domain.tools.tool import DiffBlock
from kimi.infrastructure.tools.files.str_replace_file import Edit, EditedText, apply_edits
from tests.support.file_tools import Files, brief, call, edits, effect

pytestmark = pytest.mark.anyio


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def done(count: int, replacements: int) -> str:
    return f"File successfully edited. Applied {count} edit(s) with {replacements} total replacement(s)."


@pytest.mark.spec("T-71")
async def test_replacements_are_made_and_counted(files: Files) -> None:
    path = files.put("a.txt", "one two\none\n")
    asked = await effect(files.edit, path="a.txt", edit={"old": "two", "new": "2"})
    assert asked is not None
    assert (asked.action, asked.description) == ("edit file", f"Edit file `{path}`")
    result = await call(files.edit, path="a.txt", edit={"old": "two", "new": "2"})
    assert (result.output, result.message) == ("", done(1, 1))
    assert (
        result.display == asked.display == (DiffBlock(path=str(path), old_text="one two\none", new_text="one 2\none"),)
    )
    result = await call(files.edit, path="a.txt", edit={"old": "one", "new": "1", "replace_all": True})
    assert result.message == done(1, 2)
    assert path.read_text() == "1 2\n1\n"
    result = await call(files.edit, path="a.txt", edit=edits(("1 2", "x x"), ("x\n", "y\n")))
    assert result.message == done(2, 2)
    assert path.read_text() == "x y\n1\n"
    result = await call(
        files.edit,
        path="a.txt",
        edit=[{"old": "x y\n1", "new": "a a a"}, {"old": "a", "new": "b", "replace_all": True}],
    )
    assert result.message == done(2, 4)
    assert path.read_text() == "b b b\n"
    result = await call(files.edit, path="a.txt", edit={"old": "b", "new": "c"})
    assert result.message == done(1, 1) + " Note: the old string occurs 3 times; only the first was replaced."
    assert path.read_text() == "c b b\n"


@pytest.mark.spec("T-72")
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"old": "x", "new": "y"}, "No replacements were made. The old string was not found in the file."),
        ([{"old": "x", "new": "y"}], "No replacements were made. The old string was not found in the file."),
        ({"old": "", "new": "y"}, "Edit 1 of 1: the old string must not be empty."),
        ({"old": "a", "new": "a"}, "Edit 1 of 1: the old and the new string are the same."),
        (edits(("a", "b"), ("x", "y")), "Edit 2 of 2: the old string was not found in the file."),
        (edits(("x", "b"), ("a", "y")), "Edit 1 of 2: the old string was not found in the file."),
    ],
)
async def test_edits_that_cannot_be_applied_are_refused(files: Files, edit: Any, message: str) -> None:
    path = files.put("a.txt", "a\n")
    before = path.stat()
    assert await effect(files.edit, path="a.txt", edit=edit) is None
    result = await call(files.edit, path="a.txt", edit=edit)
    assert result.is_error
    assert result.message == message
    assert brief(result) == ("Invalid edit" if "must not" in message or "same" in message else "No replacements made")
    assert path.read_text() == "a\n"
    assert path.stat().st_ino == before.st_ino


async def test_invalid_arguments_are_refused(files: Files) -> None:
    files.put("a.txt", "a\n")
    senseless: list[Any] = [[], "text", {"old": "a"}]
    for edit in senseless:
        assert brief(await call(files.edit, path="a.txt", edit=edit)) == "Invalid arguments"
    missing = await call(files.edit, path="b.txt", edit={"old": "a", "new": "b"})
    assert missing.message == "`b.txt` does not exist."


@pytest.mark.spec("T-73")
async def test_unedited_bytes_are_preserved(files: Files) -> None:
    path = files.put("a.txt", b"\xef\xbb\xbfone\r\ntwo\r\nthree\nlast")
    result = await call(files.edit, path="a.txt", edit={"old": "one\ntwo", "new": "1\n2\n2.5"})
    assert not result.is_error
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2.5\r\nthree\nlast"
    assert not (await call(files.edit, path="a.txt", edit={"old": "three\r\nlast", "new": "end"})).is_error
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2.5\r\nend"
    odd = files.put("odd.txt", b"caf\xe9\x02\x90\x06\x04\x98\n")
    result = await call(files.edit, path="odd.txt", edit={"old": "caf", "new": "tea"})
    assert result.message == (
        "`odd.txt` is not valid UTF-8 text, and its encoding is not certain; edit it with a command instead."
    )
    assert brief(result) == "Unsupported encoding"
    assert odd.read_bytes() == b"caf\xe9\x02\x90\x06\x04\x98\n"


@pytest.mark.spec("T-74")
async def test_parallel_edits_all_apply(files: Files) -> None:
    path = files.put("a.txt", "".join(f"<{number}>\n" for number in range(20)))
    (files.work_dir / "same").symlink_to("a.txt")
    results: list[bool] = []

    async def edit(number: int) -> None:
        name = "a.txt" if number % 2 else "same"
        result = await call(files.edit, path=name, edit={"old": f"<{number}>", "new": f"[{number}]"})
        results.append(result.is_error)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(edit, number)
    assert results == [False] * 20
    assert path.read_text() == "".join(f"[{number}]\n" for number in range(20))


async def test_a_file_that_changed_since_it_was_read_is_stale(files: Files) -> None:
    path = files.put("a.txt", "one\n")
    await call(files.read, path="a.txt")
    path.write_text("one two\n")
    result = await call(files.edit, path="a.txt", edit={"old": "one", "new": "1"})
    assert result.message == "File changed on disk since it was read; read it again before editing."
    assert brief(result) == "Stale file"
    await call(files.read, path="a.txt")
    assert not (await call(files.edit, path="a.txt", edit={"old": "one", "new": "1"})).is_error
    assert not (await call(files.edit, path="a.txt", edit={"old": "1", "new": "2"})).is_error
    assert not (await call(files.write, path="a.txt", content="three\n")).is_error
    assert not (await call(files.edit, path="a.txt", edit={"old": "three", "new": "3"})).is_error
    assert path.read_text() == "3\n"


async def test_an_edit_that_would_make_the_file_too_large_is_refused(files: Files) -> None:
    path = files.put("a.txt", "a" * 100_000)
    edit = {"old": "a", "new": "b" * 100_000, "replace_all": True}
    assert brief(await call(files.edit, path="a.txt", edit=edit)) == "File too large"
    assert path.read_text() == "a" * 100_000
    assert not (await call(files.edit, path="a.txt", edit={**edit, "replace_all": False})).is_error


async def test_a_file_that_was_never_read_may_be_edited(files: Files) -> None:
    files.put("a.txt", "one\n")
    assert not (await call(files.edit, path="a.txt", edit={"old": "one", "new": "1"})).is_error


@pytest.mark.spec("T-75")
async def test_strict_mode_requires_reading_and_unique_matches(tmp_path: Path) -> None:
    files = Files(tmp_path, FileSettings(strict_edit=True))
    path = files.put("a.txt", "one one\n")
    unread = await call(files.edit, path="a.txt", edit={"old": "one", "new": "1"})
    assert (unread.message, brief(unread)) == (
        "`a.txt` has not been read yet; read it before editing.",
        "File not read",
    )
    await call(files.read, path="a.txt")
    several = await call(files.edit, path="a.txt", edit={"old": "one", "new": "1"})
    assert several.is_error
    assert brief(several) == "Several matches"
    assert path.read_text() == "one one\n"
    path.write_text("one three\n")
    assert brief(await call(files.edit, path="a.txt", edit={"old": "three", "new": "3"})) == "Stale file"
    await call(files.read, path="a.txt")
    assert not (await call(files.edit, path="a.txt", edit={"old": "three", "new": "3"})).is_error
    assert not (await call(files.edit, path="a.txt", edit={"old": "e", "new": "E", "replace_all": True})).is_error
    assert path.read_text() == "onE 3\n"


plain = st.text("ab\n", max_size=30)


@given(plain, st.text("ab\n", min_size=1, max_size=3), plain, st.booleans(), st.sampled_from(["\n", "\r\n", "\r"]))
@example("\n\n", "\n\n\n", "", False, "\r\n")
def test_edits_are_independent_of_line_endings(content: str, old: str, new: str, every: bool, kind: str) -> None:
    if old == new:
        return
    result = apply_edits(content.replace("\n", kind), [Edit(old=old, new=new, replace_all=every)], False)
    found = content.count(old)
    if not found:
        assert not isinstance(result, EditedText)
        return
    assert isinstance(result, EditedText)
    expected = content.replace(old, new, -1 if every else 1)
    if "\n" in content:
        assert result.text == expected.replace("\n", kind)
    else:
        assert result.text == expected
    assert result.replacements == (found if every else 1)
