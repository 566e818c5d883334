"""Dataclasses whose methods are compiled late behave like others; in a process of its own, where all are late."""

from __future__ import annotations

import subprocess
import sys

_DEFINITIONS = """
import copy, sys
sys.modules["kimi.some_module"] = sys.modules["__main__"]
from dataclasses import FrozenInstanceError, dataclass, field, replace
from kimi.interfaces.process import lazy_dataclasses
lazy_dataclasses.install()
__name__ = "kimi.some_module"

@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    names: list[str] = field(default_factory=list, compare=False)

@dataclass
class Base:
    a: int
    def __post_init__(self):
        self.sum = self.a

@dataclass(order=True)
class Child(Base):
    b: int = 0
    def __repr__(self):
        return "own"
"""


def said(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", _DEFINITIONS + code], capture_output=True, check=True, text=True)
    return done.stdout.strip()


def test_all_generated_methods_do_what_they_are_for() -> None:
    code = """
point = Point(1, names=["a"])
print(point, point == Point(x=1), point == Point(2), hash(point) == hash(Point(1)), point != 1)
print(replace(point, x=3), copy.copy(point) == point)
print(Child(1, 2), Child(1, 2) < Child(1, 3), Child(4).sum, Base(5))
"""
    assert said(code).splitlines() == [
        "Point(x=1, y=2, names=['a']) True False True True",
        "Point(x=3, y=2, names=['a']) True",
        "own True 4 Base(a=5)",
    ]


def test_mistakes_are_refused_in_the_same_words() -> None:
    code = """
def tell(call):
    try: call()
    except Exception as error: print(type(error).__name__, error)
tell(lambda: Point())
tell(lambda: Point(1, 2, z=3))
tell(lambda: setattr(Point(1), "x", 2))
tell(lambda: delattr(Point(1), "x"))
tell(lambda: hash(Base(1)))
"""
    assert said(code).splitlines() == [
        "TypeError Point.__init__() missing 1 required positional argument: 'x'",
        "TypeError Point.__init__() got an unexpected keyword argument 'z'",
        "FrozenInstanceError cannot assign to field 'x'",
        "FrozenInstanceError cannot delete field 'x'",
        "TypeError unhashable type: 'Base'",
    ]


def test_methods_are_compiled_with_the_first_call_and_stay() -> None:
    code = """
before = Point.__init__
point = Point(1)
after = Point.__init__
Point(2)
print(before is not after, after is Point.__init__, after.__qualname__, after.__code__.co_varnames)
"""
    assert said(code) == "True True Point.__init__ ('self', 'x', 'y', 'names')"


def test_classes_of_other_packages_are_compiled_at_once() -> None:
    code = """
__name__ = "other.module"
sys.modules["other.module"] = sys.modules["__main__"]
@dataclass
class Other:
    x: int
before = Other.__init__
Other(1)
print(before is Other.__init__, before.__code__.co_varnames)
"""
    assert said(code) == "True ('self', 'x')"
