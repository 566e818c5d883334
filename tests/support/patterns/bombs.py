"""Expressions, globs and schemas that explode where something backtracks, and a bound on the time of a block."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from kimi.domain.content.message import JsonObject
from tests.support.program.pace import slowdown

EXPLOSIVE_EXPRESSIONS = (
    "(a|a)*$",
    "(a+)+$",
    "(a*)*b",
    "(.*)*x",
    "^(([a-z])+.?)*$",
    "a?" * 40 + "a" * 40,
    "(x+x+)+y",
    ".*" * 24 + "b",
    "^(a{1,9}){1,9}b$",
    "(?:(?:a|ab)(?:c|bcd)?(?:d*)?)*$",
)
EXPLOSIVE_TEXTS = ("a" * 40, "a" * 39 + "!", "x" * 4000, "ab" * 2000 + "!")

LONG_NAME = "a" * 250
EXPLOSIVE_GLOBS = (
    "a*" * 24 + "b",
    "*a" * 60 + "b",
    "*" * 200 + "b",
    "?*" * 100 + "b",
    "[ab]*" * 40 + "c",
    "**/" * 24 + "b",
    "**/a*" * 24 + "/b",
    "*a*/" * 12 + "b",
    "{a,{b,{c,{d,{e,{f,{g,h}}}}}}}" * 3 + "x",
    "{a,b}" * 30,
    "{" * 5000,
    "[" * 5000,
)


def build_reference_bomb(depth: int = 40) -> JsonObject:
    """Return a schema of 40 definitions that all refer twice to the next one."""
    definitions: dict[str, Any] = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(depth)
    }
    definitions[f"d{depth}"] = {}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


@contextmanager
def bounded_cpu_time(seconds: float) -> Generator[None]:
    """Fail if the block takes more time of the processor than `seconds` on a quiet machine."""
    began = time.thread_time()
    yield
    taken = time.thread_time() - began
    assert taken < seconds or taken < seconds * slowdown(), f"{taken:.2f} s instead of {seconds} s"
