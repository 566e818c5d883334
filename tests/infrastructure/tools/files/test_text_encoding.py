"""Files that are not UTF-8: they are read as text, and an edit changes the bytes of the edit only."""

import codecs
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from kimi.domain.tools.tool import DiffBlock
from kimi.infrastructure.tools.files.text_encoding import TextEncoding, detect_encoding, detect_mark
from tests.support.encoded_texts import SAMPLES
from tests.support.file_tools import Files, brief, call, effect, text

pytestmark = pytest.mark.anyio

MARKED = {
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
CODE = '// {}\nint main(void) {{ return 0; }}\nprintf("%d\\n", 1);\n'


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize("codec", SAMPLES)
def test_an_encoding_is_told_from_text_alone_and_in_code(codec: str) -> None:
    sample = SAMPLES[codec]
    for written in (sample, sample * 40, CODE.format(sample.split("\n")[0]) * 2):
        content = written.encode(codec)
        found = detect_encoding(content)
        assert found is not None
        assert (found.codec, found.decode(content)) == (codec.replace("latin_1", "cp1252"), written)


@pytest.mark.parametrize("codec", MARKED)
def test_a_byte_order_mark_tells_the_encoding(codec: str) -> None:
    content = MARKED[codec] + "x = 1\n世界\n".encode(codec)
    found = detect_encoding(content)
    assert found is not None
    assert found == TextEncoding(codec, has_mark=True)
    assert found.decode(content) == "\ufeffx = 1\n世界\n"


@pytest.mark.parametrize("content", [b"a\0b", bytes(600), b"\x7fELF\x02\x01\x01" + bytes(9), b"\xff\xfe\x00\xd8a\0"])
def test_binary_content_is_in_no_encoding(content: bytes) -> None:
    assert detect_mark(content) is None
    assert detect_encoding(content) in (None, TextEncoding("utf-8"))


@pytest.mark.spec("R-310")
@pytest.mark.parametrize("codec", SAMPLES)
async def test_a_file_is_read_and_edited_in_its_encoding(files: Files, codec: str) -> None:
    whole = (CODE.format(SAMPLES[codec]) + "last").replace("\n", "\r\n")
    path = files.put("a.txt", whole.encode(codec))
    read = await call(files.read, path="a.txt")
    first = SAMPLES[codec].split("\n")[0]
    assert text(read).startswith(f"     1\t// {first}\n")
    assert "Encoding: " in read.message
    result = await call(files.edit, path="a.txt", edit={"old": "return 0;", "new": "return 1;\n"})
    assert not result.is_error, result.message
    assert "Encoding kept: " in result.message
    whole = whole.replace("return 0;", "return 1;\r\n")
    assert path.read_bytes() == whole.encode(codec)
    result = await call(files.edit, path="a.txt", edit={"old": first, "new": f"{first[-4:]}{first}"})
    assert not result.is_error, result.message
    assert path.read_bytes() == whole.replace(first, f"{first[-4:]}{first}").encode(codec)


@pytest.mark.spec("R-310")
@pytest.mark.parametrize("codec", [*MARKED])
async def test_marks_and_line_ends_of_wide_text_are_kept(files: Files, codec: str) -> None:
    def encoded(content: str) -> bytes:
        return MARKED[codec] + content.encode(codec)

    path = files.put("a.txt", encoded("one\r\nzwei äöü\r\n"))
    assert (await call(files.read, path="a.txt")).output == "     1\tone\n     2\tzwei äöü\n"
    assert (await call(files.read, path="a.txt", line_offset=-1)).output == "     2\tzwei äöü\n"
    await call(files.edit, path="a.txt", edit={"old": "one\n", "new": "世界 😀\neins\n"})
    assert path.read_bytes() == encoded("世界 😀\r\neins\r\nzwei äöü\r\n")
    await call(files.write, path="a.txt", content="drei\n", mode="append")
    assert path.read_bytes() == encoded("世界 😀\r\neins\r\nzwei äöü\r\ndrei\n")
    await call(files.write, path="a.txt", content="neu ✓\n")
    assert path.read_bytes() == encoded("neu ✓\n")


@pytest.mark.spec("R-311")
async def test_what_an_encoding_cannot_hold_is_refused(files: Files) -> None:
    content = SAMPLES["gbk"].encode("gbk")
    path = files.put("a.txt", content)
    result = await call(files.edit, path="a.txt", edit={"old": "世界", "new": "世界 😀"})
    assert brief(result) == "Unsupported encoding"
    assert result.message.startswith("`a.txt` is in GBK, which has no `😀`; nothing was changed.")
    appended = await call(files.write, path="a.txt", content="é ü 😀", mode="append")
    assert brief(appended) == "Unsupported encoding"
    assert path.read_bytes() == content


@pytest.mark.spec("R-311")
async def test_new_text_is_refused_where_its_bytes_depend_on_a_guess(files: Files) -> None:
    content = b"x = 'caf\xe9'\n"
    path = files.put("a.txt", content)
    same = await call(files.edit, path="a.txt", edit={"old": "x = ", "new": "y = "})
    assert not same.is_error
    result = await call(files.edit, path="a.txt", edit={"old": "y = 'café'", "new": "y = 'tři'"})
    assert result.is_error
    assert path.read_bytes() == b"y = 'caf\xe9'\n"


@pytest.mark.spec("R-311")
async def test_an_edit_of_damaged_text_keeps_the_damage(files: Files) -> None:
    content = "Grüße, żółw, naïve, 世界\n".encode() + b"caf\xe9 \xff\nend\n"
    path = files.put("a.txt", content)
    result = await call(files.read, path="a.txt")
    assert "caf\ufffd \ufffd" in text(result)
    assert result.message.endswith("Encoding: UTF-8 with bytes that are no text.")
    asked = await effect(files.edit, path="a.txt", edit={"old": "end", "new": "Ende äöü"})
    assert asked is not None
    assert all("\udcff" not in block.new_text for block in asked.display if isinstance(block, DiffBlock))
    assert not (await call(files.edit, path="a.txt", edit={"old": "end", "new": "Ende äöü"})).is_error
    assert path.read_bytes() == content.replace(b"end", "Ende äöü".encode())
    smuggled = await call(files.edit, path="a.txt", edit={"old": "Ende", "new": "\udcff"})
    assert smuggled.is_error


@pytest.mark.spec("R-311")
async def test_a_new_text_of_a_file_keeps_its_encoding_or_says_what_it_becomes(files: Files) -> None:
    path = files.put("a.txt", SAMPLES["koi8_r"].encode("koi8_r"))
    result = await call(files.write, path="a.txt", content="Новый текст\n")
    assert result.message.endswith("Encoding kept: KOI8-R.")
    assert path.read_bytes() == "Новый текст\n".encode("koi8_r")
    path.write_bytes(SAMPLES["koi8_r"].encode("koi8_r"))
    asked = await effect(files.write, path="a.txt", content="新的\n")
    assert asked is not None
    assert asked.description.endswith("(its encoding becomes UTF-8; it was KOI8-R)")
    result = await call(files.write, path="a.txt", content="新的\n")
    assert "It is in UTF-8 now; it was KOI8-R" in result.message
    assert path.read_bytes() == "新的\n".encode()
    marked = files.put("b.ps1", b"\xef\xbb\xbfWrite-Host 1\r\n")
    await call(files.write, path="b.ps1", content="Write-Host 'ü'\r\n")
    assert marked.read_bytes() == b"\xef\xbb\xbfWrite-Host '\xc3\xbc'\r\n"


@pytest.mark.spec("R-310")
@pytest.mark.parametrize("codec", ["gbk", "shift_jis", "koi8_r", "utf-16-le"])
async def test_large_files_are_shown_in_their_encoding(files: Files, codec: str) -> None:
    line = SAMPLES.get(codec, "").split("\n")[0]
    files.put("a.txt", ("// ascii only\n" * 90_000 + f"{line}\n" * 20_000).encode(codec))
    read = await call(files.read, path="a.txt", line_offset=90_001, n_lines=2)
    assert read.output == f" 90001\t{line}\n 90002\t{line}\n"
    tail = await call(files.read, path="a.txt", line_offset=-2)
    assert tail.output == f"109999\t{line}\n110000\t{line}\n"


def _alphabet(codec: str) -> st.SearchStrategy[str]:
    """Return characters of the encoding that have one form in it, without controls."""
    known = [
        char
        for char in map(chr, range(0x20, 0x10000))
        if not 0x7F <= ord(char) < 0xA0 and not 0xD800 <= ord(char) < 0xF900 and _has_one_form(char, codec)
    ]
    return st.text(st.sampled_from(known), min_size=1, max_size=40)


def _has_one_form(char: str, codec: str) -> bool:
    try:
        return char.encode(codec).decode(codec) == char
    except UnicodeError:
        return False


ALPHABETS = {codec: _alphabet(codec) for codec in SAMPLES}


@pytest.mark.spec("R-310")
@pytest.mark.parametrize("codec", SAMPLES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_an_edit_changes_the_bytes_of_the_edit_or_none(files: Files, codec: str, data: st.DataObject) -> None:
    before, after, new = (data.draw(ALPHABETS[codec], label) for label in ("before", "after", "new"))
    assume("@@" not in before + after)
    content = f"{before}\r\nx = @@ y\r\n{after}".encode(codec)
    path = files.put("a.txt", content)
    result = await call(files.edit, path="a.txt", edit={"old": "x = @@", "new": f"x = 1{new}\n"})
    if result.is_error:
        assert path.read_bytes() == content
        return
    # Whatever the file was taken for: what stands around the edit is as it was.
    written = path.read_bytes()
    start, end = content.split("x = @@".encode(codec))
    assert written.startswith(start + "x = 1".encode(codec))
    assert written.endswith("\r\n".encode(codec) + end)


@pytest.mark.spec("R-310")
@pytest.mark.parametrize("codec", SAMPLES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_new_text_has_the_bytes_of_the_files_encoding(files: Files, codec: str, data: st.DataObject) -> None:
    new = data.draw(ALPHABETS[codec], "new")
    content = (SAMPLES[codec] * 3 + "x = @@ y\n").encode(codec)
    path = files.put("a.txt", content)
    result = await call(files.edit, path="a.txt", edit={"old": "@@", "new": new})
    wanted = content if result.is_error else (SAMPLES[codec] * 3 + f"x = {new} y\n").encode(codec)
    assert path.read_bytes() == wanted


@example(b"\x80" * 50)
@example(b"A" * 100_000 + b"\xe9")
@given(st.binary(max_size=400))
def test_any_bytes_are_told_or_refused(content: bytes) -> None:
    found = detect_encoding(content)
    assert found is None or found.encode(found.decode(content)) == content


def test_the_library_is_loaded_for_no_file_in_utf8() -> None:
    loaded = {name for name in sys.modules if name.startswith("charset_normalizer")}
    assert detect_encoding("Grüße".encode()) == TextEncoding("utf-8")
    assert {name for name in sys.modules if name.startswith("charset_normalizer")} == loaded
