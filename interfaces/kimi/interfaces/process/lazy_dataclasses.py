"""Compile the generated methods of dataclasses when they are first called.

A start makes over two hundred dataclasses with six generated methods each. To compile them takes a fifth of the time
until the first words of an answer, and most of them are never called: nobody compares settings or prints an event.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

_METHODS: Final = re.compile(r"^ def (\w+)\(", re.MULTILINE)
"""The library writes the source of one function, which defines some methods of a class and returns them."""

_MAKER: Final = "__create_fn__"

_PACKAGES: Final = frozenset({"kimi", "pydantic", "annotated_types", "anyio"})
"""The packages whose classes are compiled late: those of the start, none of which looks at signatures of methods."""

_Method: TypeAlias = Callable[..., Any]


def install() -> None:
    """Let the dataclasses of some packages that are made from now on compile their methods late. Idempotent."""
    # The library compiles with `exec`, which it looks up among its globals before the built-in functions.
    dataclasses.__dict__["exec"] = _define_lazily


def _define_lazily(source: str, scope: dict[str, Any], found: dict[str, Any]) -> None:
    """Replace `exec` in the library: put a function into `found` that returns stubs of the methods in `source`."""
    names = _METHODS.findall(source)
    head, _, returned = source.rpartition("\n return ")
    package = scope.get("__name__", "").partition(".")[0]
    if package not in _PACKAGES or not names or not head.startswith(f"def {_MAKER}("):
        exec(source, scope, found)
        return

    def make_stubs(**variables: Any) -> Any:
        def compile_methods() -> Any:
            made: dict[str, Any] = {}
            exec(source, scope, made)
            return made[_MAKER](**variables)

        if returned.startswith("("):
            return tuple(_make_stub(name, compile_methods, index) for index, name in enumerate(names))
        return _make_stub(names[0], compile_methods)  # before Python 3.13 each method is compiled alone

    found[_MAKER] = make_stubs


def _make_stub(name: str, compile_methods: Callable[[], Any], index: int | None = None) -> _Method:
    """Return a method that puts the compiled one in its place and calls it."""

    compiled: list[_Method] = []

    def stub(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not compiled:
            methods = compile_methods()
            method: _Method = methods if index is None else methods[index]
            method.__qualname__ = stub.__qualname__
            for owner in type(self).__mro__:
                if owner.__dict__.get(name) is stub:
                    setattr(owner, name, method)
            compiled.append(method)
        return compiled[0](self, *args, **kwargs)  # also later: the library itself wraps `__repr__`

    stub.__name__ = name
    return stub
