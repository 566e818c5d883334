"""Takes the pictures of docs/web.md: the page of the real program, with a scripted provider, without a network.

python scripts/web_pictures.py [DIRECTORY]

It needs Chromium, see tests/support/browser/chromium.py.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / name) for name in ("domain", "application", "infrastructure", "interfaces"))]

from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, Page, ViewportSize, expect  # noqa: E402

from tests.support.browser.chromium import chromium, find_chromium  # noqa: E402
from tests.support.browser.web_process import PHONE, new_session, press, say, session_id, wait_idle, web  # noqa: E402
from tests.support.program.wire_process import Place  # noqa: E402
from tests.support.providers.loopback import loopback  # noqa: E402
from tests.support.providers.provider_server import Reply, reply_from_json  # noqa: E402

ColorScheme: TypeAlias = Literal["light", "dark"]
COLOURS: Final = 255
MODEL: Final = "kimi-k2"
WIDE: Final[ViewportSize] = {"width": 1180, "height": 800}
_RENAME: Final = """([id, title]) => fetch(`/api/sessions/${id}`, {
  method: "PATCH", body: JSON.stringify({title}), headers: {"Content-Type": "application/json"},
})"""
BEFORE: Final = '''\
"""Greets people."""

from dataclasses import dataclass


@dataclass
class Person:
    name: str
    formal: bool = False


def greet(person: Person) -> str:
    return f"Helo, {person.name}!"
'''
CHECK: Final = """\
from greeting import Person, greet

assert greet(Person("Ada")) == "Hello, Ada!"
assert greet(Person("Dr. Ho", formal=True)) == "Good day, Dr. Ho!"
print("2 greetings are right")
"""
EDITS: Final = [
    {
        "old": '    return f"Helo, {person.name}!"\n',
        "new": '    word = "Good day" if person.formal else "Hello"\n    return f"{word}, {person.name}!"\n',
    },
]
ANSWER: Final = """\
### What changed

`greet` spells *Hello* correctly now, and says **Good day** to those who want it formal:

| person | greeting |
|---|---|
| `Person("Ada")` | Hello, Ada! |
| `Person("Dr. Ho", formal=True)` | Good day, Dr. Ho! |

```python
def test_formal_greeting() -> None:
    # the title stays in front of the name
    assert greet(Person("Dr. Ho", formal=True)) == "Good day, Dr. Ho!"
```

- [x] typo mended, tests added
- [ ] the change waits for your review
"""


def main(directory: Path) -> None:
    """Play the scenes and write their pictures."""
    path = find_chromium()
    if path is None:
        raise SystemExit("Chromium is not installed.")
    with chromium(path) as browser:
        for name, scheme, size, scene in _SCENES:
            root = Path(tempfile.gettempdir()).resolve() / "kimi-picture"  # a random one would be shown
            root.mkdir()
            try:
                _write(directory / name, _play(browser, _make_place(root), scheme, size, scene))
            finally:
                shutil.rmtree(root)


def _make_place(root: Path) -> Place:
    place = Place(root, capabilities=("thinking", "image_in"), context_size=131_072)
    place.environ["HOME"] = str(root)
    (place.work / "greeting.py").write_text(BEFORE, encoding="utf-8")
    (place.work / "check_greeting.py").write_text(CHECK, encoding="utf-8")
    return place


def _replies() -> list[Reply]:
    todos = [
        ("Mend the typo", "done"),
        ("Greet formally, too", "done"),
        ("Run the tests", "in_progress"),
        ("Sum up", "pending"),
    ]
    listed = [{"title": title, "status": status} for title, status in todos]
    prompt = "Which names do the tests of greeting.py use?"
    thought = "A typo, and a wish for formal greetings. I should look at the file before I touch it."
    return [
        _reply(
            think=thought,
            text="I will look at the file, and let somebody look at the tests.",
            calls=[
                _call("c1", "ReadFile", path="greeting.py"),
                _call("c2", "Agent", description="Names in the tests", prompt=prompt, subagent_type="explore"),
            ],
        ),
        _reply(text="The tests use Ada and Dr. Ho, and compare whole sentences. " * 5),
        _reply(
            text="One line has the typo, and it is the one to widen:",
            calls=[_call("c4", "StrReplaceFile", path="greeting.py", edit=EDITS)],
        ),
        _reply(
            text="Now the tests.",
            calls=[
                _call("c5", "SetTodoList", todos=listed),
                _call("c6", "Shell", command="python3 check_greeting.py"),
            ],
        ),
        _reply(text=ANSWER),
    ]


def _reply(**data: Any) -> Reply:
    usage = {"prompt_tokens": 15_100, "completion_tokens": 220, "total_tokens": 15_320}
    return reply_from_json({"usage": usage, **data})


def _call(call_id: str, name: str, **arguments: object) -> list[str]:
    return [call_id, name, json.dumps(arguments)]


def _ask(page: Page) -> None:
    """Stop where the change is asked about."""
    new_session(page)
    say(page, "The greeting has a typo. Please mend it, and let it greet formally, too.")
    page.wait_for_selector(".card.asked")


def _finish(page: Page) -> None:
    """Show the end of the turn."""
    _ask(page)
    press(page, "Approve")
    expect(page.locator(".asked-what")).to_contain_text("check_greeting")
    press(page, "Approve")
    wait_idle(page)


_SCENES: Final[list[tuple[str, ColorScheme, ViewportSize, Callable[[Page], None]]]] = [
    ("web-desktop-light.png", "light", WIDE, _ask),
    ("web-desktop-dark.png", "dark", WIDE, _finish),
    ("web-phone-light.png", "light", PHONE, _ask),
    ("web-phone-dark.png", "dark", PHONE, _finish),
]


def _play(
    browser: Browser, place: Place, scheme: ColorScheme, size: ViewportSize, scene: Callable[[Page], None]
) -> bytes:
    with loopback(*_replies()) as provider:
        place.provider(provider.base_url, "kimi")
        file = place.share / "config.toml"
        file.write_text(
            file.read_text(encoding="utf-8").replace('"m"', f'"{MODEL}"').replace(".m]", f".{MODEL}]"), encoding="utf-8"
        )
        with web(place) as server:
            context = browser.new_context(
                viewport=size, color_scheme=scheme, locale="en-US", reduced_motion="reduce", has_touch=size == PHONE
            )
            page = server.open(context)
            scene(page)
            title = "Greet formally"
            page.evaluate(_RENAME, [session_id(page), title])
            expect(page.locator(".heading h1")).to_have_text(title)
            expect(page.locator(".session-title").first).to_have_text(title)
            page.wait_for_timeout(600)
            picture = page.screenshot()
            context.close()
            return picture


def _write(path: Path, picture: bytes) -> None:
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            path, optimize=True
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs")
