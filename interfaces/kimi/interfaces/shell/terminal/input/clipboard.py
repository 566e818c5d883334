"""Read the system's clipboard, and write to it, with programs of the system or Pillow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from kimi.interfaces.bootstrap.shell import find_program, grab_clipboard

_TIMEOUT_S: Final = 3
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
_SCRIPT: Final = (
    "Add-Type -AssemblyName System.Windows.Forms;"
    "$i=[Windows.Forms.Clipboard]::GetImage();if($i){$m=New-Object IO.MemoryStream;"
    "$i.Save($m,[Drawing.Imaging.ImageFormat]::Png);$o=[Console]::OpenStandardOutput();$m.WriteTo($o)}"
)
_TEXT_SCRIPT: Final = "[Console]::OutputEncoding=[Text.Encoding]::UTF8;Get-Clipboard -Raw"
_TEXT_TYPES: Final = ("text/plain;charset=utf-8", "UTF8_STRING", "text/plain", "STRING")


@dataclass(frozen=True, slots=True)
class ClipboardContent:
    """What the clipboard holds; empty where it holds nothing of that kind, or nothing can read it."""

    paths: tuple[str, ...] = ()
    image: bytes | None = None
    text: str = ""


def read_clipboard(environ: Mapping[str, str]) -> ClipboardContent:
    """Return the copied files, else the picture as PNG, each with the text beside it. Blocks for some seconds."""
    if sys.platform in ("win32", "darwin"):
        return _read_from_desktop(environ)
    for read, list_types in _list_readers():
        program = find_program(read[0], environ)
        types = _run([program, *list_types], environ) if program else None
        if program is not None and types is not None:
            return _read_types([program, *read[1:]], _decode(types), environ)
    return ClipboardContent()


def _list_readers() -> Sequence[tuple[Sequence[str], Sequence[str]]]:
    """Return the commands before the type that is wanted, each with the options that list the types."""
    wayland = ("wl-paste", "--no-newline", "--type"), ("--list-types",)
    x11 = ("xclip", "-selection", "clipboard", "-o", "-t"), ("-selection", "clipboard", "-o", "-t", "TARGETS")
    return (wayland, x11) if os.environ.get("WAYLAND_DISPLAY") else (x11, wayland)


def _read_types(reader: Sequence[str], listed: str, environ: Mapping[str, str]) -> ClipboardContent:
    types = set(listed.split())
    if "text/uri-list" in types:
        paths = _parse_paths(_decode(_run([*reader, "text/uri-list"], environ)))
        if paths:
            return ClipboardContent(paths=paths)
    wanted = next((one for one in _TEXT_TYPES if one in types), None)
    image = _run([*reader, "image/png"], environ) if wanted is None or "image/png" in types else None
    text = _decode(_run([*reader, wanted], environ)) if wanted else ""
    return ClipboardContent(image=image, text=text)


def _parse_paths(uris: str) -> tuple[str, ...]:
    found = (urlsplit(line.strip()) for line in uris.splitlines())
    return tuple(unquote(uri.path) for uri in found if uri.scheme == "file")


def _read_from_desktop(environ: Mapping[str, str]) -> ClipboardContent:
    paths, image = grab_clipboard()
    if paths:
        return ClipboardContent(paths=tuple(paths))
    if sys.platform == "win32":
        shell = ("powershell", "-NoProfile", "-Sta", "-Command")
        images, texts = (*shell, _SCRIPT), (*shell, _TEXT_SCRIPT)
    else:
        images, texts = ("pngpaste", "-"), ("pbpaste",)
    image = image or _run_named(images, environ)
    return ClipboardContent(image=image, text=_decode(_run_named(texts, environ)))


def _run_named(command: Sequence[str], environ: Mapping[str, str]) -> bytes | None:
    program = find_program(command[0], environ)
    return _run([program, *command[1:]], environ) if program else None


def _run(command: Sequence[str], environ: Mapping[str, str]) -> bytes | None:
    """Return what a program prints; None when it fails, prints nothing or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, env=dict(environ))
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and done.stdout else None


def _decode(data: bytes | None) -> str:
    return (data or b"")[:MAX_TEXT_BYTES].decode("utf-8", "replace").lstrip("\ufeff")


def write_clipboard(text: str, environ: Mapping[str, str]) -> bool:
    """Put text into the system's clipboard; return whether a program did so. Blocks for some seconds."""
    for name, *options in _list_writers():
        if (program := find_program(name, environ)) is None:
            continue
        try:
            done = subprocess.run(
                [program, *options],
                input=text.encode("utf-16" if name == "clip" else "utf-8", "replace"),
                stdout=subprocess.DEVNULL,  # the program stays for as long as it owns the clipboard
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_S,
                check=False,
                env=dict(environ),
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return True
    return False


def _list_writers() -> Sequence[Sequence[str]]:
    if sys.platform == "win32":
        return (("clip",),)
    if sys.platform == "darwin":
        return (("pbcopy",),)
    wayland, x11 = ("wl-copy",), ("xclip", "-selection", "clipboard", "-i")
    return (wayland, x11) if os.environ.get("WAYLAND_DISPLAY") else (x11, wayland)
