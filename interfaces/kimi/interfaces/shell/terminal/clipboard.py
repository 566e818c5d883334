"""Read an image from the system's clipboard, with a program of the system."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from kimi.interfaces.bootstrap.shell import find_program

_TIMEOUT_S = 3
_SCRIPT = (
    "Add-Type -AssemblyName System.Windows.Forms;"
    "$i=[Windows.Forms.Clipboard]::GetImage();if($i){$m=New-Object IO.MemoryStream;"
    "$i.Save($m,[Drawing.Imaging.ImageFormat]::Png);$o=[Console]::OpenStandardOutput();$m.WriteTo($o)}"
)


def read_clipboard_image(environ: Mapping[str, str]) -> bytes | None:
    """Return the image as PNG; None when the clipboard has none, or no program can read it."""
    for name, *options in _list_clipboard_commands():
        if (program := find_program(name, environ)) is None:
            continue
        try:
            command = [program, *options]
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, env=dict(environ))
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout:
            return done.stdout
    return None


def _list_clipboard_commands() -> Sequence[Sequence[str]]:
    if sys.platform == "win32":
        return (("powershell", "-NoProfile", "-Sta", "-Command", _SCRIPT),)
    if sys.platform == "darwin":
        return (("pngpaste", "-"),)
    wayland = ("wl-paste", "--type", "image/png")
    x11 = ("xclip", "-selection", "clipboard", "-t", "image/png", "-o")
    return (wayland, x11) if os.environ.get("WAYLAND_DISPLAY") else (x11, wayland)
