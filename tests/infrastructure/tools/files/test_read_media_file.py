"""ReadMediaFile (tools spec 3.3)."""

from __future__ import annotations

import base64
import io
import random
import struct
import warnings
import zlib
from pathlib import Path

import pytest
from PIL import Image

from kimi.application.settings.settings import ModelSettings, Settings
from kimi.domain.content.parts import ImagePart, TextPart, VideoPart
from kimi.domain.tools.tool import ToolReturnValue
from kimi.infrastructure.store.memory import MemoryStore
from kimi.infrastructure.tools.files.pictures import PictureRefused, prepare_picture
from kimi.infrastructure.tools.files.read_media_file import ReadMediaFileTool
from kimi.interfaces.bootstrap.containers import App
from kimi.interfaces.bootstrap.injector import providers
from kimi.interfaces.bootstrap.opening import create_session_container
from tests.support.file_tools import Files, brief, call

pytestmark = pytest.mark.anyio

BOTH = frozenset({"image_in", "video_in"})


def picture(size: tuple[int, int], form: str = "PNG") -> bytes:
    """A picture of one colour."""
    output = io.BytesIO()
    Image.new("RGB", size, (10, 200, 30)).save(output, form)
    return output.getvalue()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def tool(files: Files, capabilities: frozenset[str] = BOTH) -> ReadMediaFileTool:
    return ReadMediaFileTool(files.workspace, files.policy, capabilities)


def shown(result: ToolReturnValue) -> Image.Image:
    """The picture that the model gets."""
    assert isinstance(result.output, tuple)
    part = result.output[1]
    assert isinstance(part, ImagePart)
    head, _, data = part.image_url.url.partition(";base64,")
    assert head.startswith("data:image/")
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.spec("T-67")
@pytest.mark.parametrize(("capabilities", "there"), [((), False), (("image_in",), True), (("video_in",), True)])
async def test_tool_is_offered_only_to_models_with_media_support(
    tmp_path: Path, capabilities: tuple[str, ...], there: bool
) -> None:
    model = ModelSettings(provider_name="p", type="_echo", model="m", capabilities=frozenset(capabilities))
    settings = Settings(share_dir=str(tmp_path / "share"), work_dir=str(tmp_path), model=model)
    app = App(settings=providers.Object(settings), store=providers.Object(MemoryStore(str(tmp_path))))
    toolset = create_session_container(app, await app.store().create("s1")).toolset()
    assert ("ReadMediaFile" in [spec.name for spec in toolset.visible_specs()]) is there


@pytest.mark.spec("T-67")
async def test_image_is_enclosed_in_tags(files: Files) -> None:
    content = picture((64, 48))
    path = files.put("a.png", content)
    result = await call(tool(files), path="a.png")
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    assert isinstance(result.output, tuple)
    first, image, last = result.output
    assert (first, last) == (TextPart(f'<image path="{path}">'), TextPart("</image>"))
    assert isinstance(image, ImagePart)
    assert image.image_url.url == url
    assert result.message.startswith(
        f"Loaded image file `{path}` (image/png, {len(content)} bytes, original size 64x48px)."
    )


async def test_a_video_is_sent_as_it_is(files: Files) -> None:
    path = files.put("a.mp4", b"\0\0\0\x18ftypisom" + b"\0" * 100)
    result = await call(tool(files), path="a.mp4")
    assert isinstance(result.output, tuple)
    first, video, last = result.output
    assert (first, last) == (TextPart(f'<video path="{path}">'), TextPart("</video>"))
    assert isinstance(video, VideoPart)
    assert video.video_url.url.startswith("data:video/mp4;base64,")
    assert result.message == f"Loaded video file `{path}` (video/mp4, 112 bytes)."


@pytest.mark.spec("T-67")
async def test_unsupported_files_are_refused(files: Files) -> None:
    large = files.put("large.png", picture((2, 2)))
    with large.open("r+b") as file:
        file.truncate(100 * 1024 * 1024 + 1)
    empty = files.put("empty.png")
    files.put("a.txt", "text")
    files.put("a.zip", b"PK\3\4")
    files.put("a.mp4", b"\0\0\0\x18ftypisom" + b"\0" * 100)
    seeing = tool(files, frozenset({"image_in"}))
    outcomes = {
        "large.png": (
            f"`{large}` is 104857601 bytes, which exceeds the max 100MB bytes for media files.",
            "File too large",
        ),
        "empty.png": (f"`{empty}` is empty.", "Empty file"),
        "a.txt": ("`a.txt` is a text file. Use ReadFile to read text files.", "Unsupported file type"),
        "a.zip": ("`a.zip` is neither an image nor a video that can be shown.", "Unsupported file type"),
        "none.png": ("`none.png` does not exist.", "File not found"),
        ".": ("`.` is not a file.", "Invalid path"),
        "a.mp4": (
            "The current model does not support video input. Tell the user to use a model with video input capability.",
            "Unsupported media type",
        ),
    }
    for path, expected in outcomes.items():
        result = await call(seeing, path=path)
        assert (result.is_error, result.message, brief(result)) == (True, *expected)


async def test_secrets_are_not_read(files: Files) -> None:
    files.put(".env", "KEY=1")
    files.work_dir.joinpath("a.png").symlink_to(".env")
    assert (await call(tool(files), path=".env")).is_error
    assert (await call(tool(files), path="a.png")).is_error


@pytest.mark.spec("T-67")
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
async def test_large_images_are_scaled_down(files: Files, form: str) -> None:
    files.put("a." + form.lower(), picture((4096, 1024), form))
    result = await call(tool(files), path="a." + form.lower())
    assert shown(result).size == (2048, 512)
    assert "original size 4096x1024px" in result.message


@pytest.mark.spec("T-67")
async def test_an_image_of_many_bytes_is_scaled_down(files: Files) -> None:
    noise = Image.frombytes("RGB", (1500, 1500), random.Random(1).randbytes(1500 * 1500 * 3))
    noise.save(files.put("a.png"), "PNG")
    result = await call(tool(files), path="a.png")
    image = shown(result)
    image.save(output := io.BytesIO(), "PNG")
    assert len(output.getvalue()) < 5 * 1024 * 1024
    assert 700 < image.size[0] == image.size[1] < 1500
    assert "original size 1500x1500px" in result.message


async def test_a_photo_that_is_scaled_down_stays_upright(files: Files) -> None:
    photo = Image.new("RGB", (3000, 1500))
    exif = photo.getexif()
    exif[0x0112] = 6  # orientation: turned to the right when it is shown
    photo.save(files.put("a.jpg"), "JPEG", exif=exif)
    result = await call(tool(files), path="a.jpg")
    assert shown(result).size == (1024, 2048)
    assert "original size 1500x3000px" in result.message


@pytest.mark.spec("T-67")
@pytest.mark.parametrize("form", ["BMP", "TIFF", "ICO"])
async def test_rare_formats_are_converted(files: Files, form: str) -> None:
    files.put("a." + form.lower(), picture((16, 16), form))
    image = shown(await call(tool(files), path="a." + form.lower()))
    assert (image.format, image.size) == ("PNG", (16, 16))


@pytest.mark.spec("T-67")
async def test_unconvertible_format_is_refused(files: Files) -> None:
    path = files.put("a.heic", b"\0\0\0\x18ftypheic" + b"\0" * 100)
    result = await call(tool(files), path="a.heic")
    assert result.message.startswith(f"`{path}` cannot be shown: image/heic cannot be converted here (")
    assert brief(result) == "Unsupported image format"


def test_a_broken_image_of_a_common_format_is_left_to_the_provider() -> None:
    content = b"\x89PNG\r\n\x1a\nbroken"
    assert prepare_picture(content, "image/png").content is content
    with pytest.raises(PictureRefused):
        prepare_picture(content, "image/tiff")


def test_huge_image_emits_no_warning() -> None:
    head = struct.pack(">IIBBBBB", 10_000, 9_500, 1, 0, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", b"")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert prepare_picture(content, "image/png").original_size == (10_000, 9_500)
    assert seen == []


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
