"""What the lean start takes away is there again for whoever asks, in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def said(code: str) -> str:
    """What a fresh interpreter prints."""
    code = "import gc, sys\nfrom kimi.interfaces.process import startup_tuning\nstartup_tuning.begin()\n" + code
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.strip()


def test_pydantic_plugin_discovery_is_skipped() -> None:
    code = """
from pydantic import BaseModel
class Some(BaseModel):
    number: int
startup_tuning.end()
print(Some(number="5").number, "importlib.metadata" in sys.modules, "email" in sys.modules)
"""
    assert said(code) == "5 False False"


def test_other_entry_points_and_versions_are_still_found() -> None:
    code = """
from importlib.metadata import entry_points, version
print(len(entry_points(group="console_scripts")) > 0, version("pydantic") > "2")
"""
    assert said(code) == "True True"


def test_importlib_metadata_can_be_imported_and_is_restored() -> None:
    code = """
import importlib.metadata
print(importlib.metadata.version("anyio") > "4")
startup_tuning.end()
import importlib.metadata
print(importlib.metadata.distribution("anyio").name, sys.modules["importlib.metadata"].__file__ is not None)
"""
    assert said(code).split() == ["True", "anyio", "True"]


def test_garbage_is_collected_again_after_the_start() -> None:
    assert said("print(gc.isenabled()); startup_tuning.end(); print(gc.isenabled())").split() == ["False", "True"]


def test_annotations_that_were_put_off_are_evaluated_as_ever() -> None:
    code = """
from typing import Optional, TypedDict, get_type_hints
class Early(TypedDict):
    some: "Optional[int]"
    wrong: "1 +"
startup_tuning.end()
Early.__annotations__.pop("wrong")
print(get_type_hints(Early))
"""
    assert said(code) == "{'some': typing.Optional[int]}"


def test_annotations_after_the_start_are_compiled_at_once() -> None:
    code = """
from typing import ForwardRef
startup_tuning.end()
try:
    ForwardRef("1 +")
except SyntaxError as error:
    print(error)
"""
    assert said(code) == "Forward reference must be an expression -- got '1 +'"
