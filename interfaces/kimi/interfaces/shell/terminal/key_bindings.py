"""The key bindings of the input and of panels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, Filter
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.keys import Keys

from kimi.interfaces.shell.panels import MenuKey

_ALWAYS = Condition(lambda: True)
_ESCAPE: MenuKey = "escape"
_Argument = TypeVar("_Argument")


class InputActions(Protocol):
    """The actions that keys of the input start."""

    buffer: Buffer

    def submit(self, *, steer: bool = False) -> None: ...

    def interrupt(self) -> None: ...

    def request_exit(self) -> None: ...

    def toggle_shell_mode(self) -> None: ...

    def toggle_plan_mode(self) -> None: ...

    def show_thought(self) -> None: ...

    def paste(self, text: str) -> None: ...

    def paste_clipboard(self) -> None: ...

    def open_editor(self) -> None: ...

    def recall_queued(self) -> bool: ...


def create_input_bindings(actions: InputActions, typing: Condition, running: Condition) -> KeyBindings:
    """Return the bindings of the input, active while `typing`; some need a turn that is `running`."""
    keys = KeyBindings()
    buffer = actions.buffer
    completing = Condition(lambda: buffer.complete_state is not None)

    def on(
        *names: Keys | str, where: Filter = _ALWAYS, at_once: bool = False
    ) -> Callable[[Callable[[], object]], None]:
        def bind(action: Callable[[], object]) -> None:
            keys.add(*names, filter=typing & where, eager=at_once)(_bind_action(action))

        return bind

    on("enter")(actions.submit)
    on("escape", "enter")(lambda: buffer.insert_text("\n"))
    on("c-j")(lambda: buffer.insert_text("\n"))
    on("c-s")(lambda: actions.submit(steer=True))
    on("c-c")(actions.interrupt)
    on("escape", where=completing)(buffer.cancel_completion)
    on("escape", where=running & ~completing)(actions.interrupt)
    on("c-d", where=Condition(lambda: not buffer.text))(actions.request_exit)
    on("c-d", where=Condition(lambda: bool(buffer.text)))(buffer.delete)
    on("c-x", at_once=True)(actions.toggle_shell_mode)  # else a second key, like `e`, makes another key
    on("s-tab")(actions.toggle_plan_mode)
    on("c-t")(actions.show_thought)
    on("c-v")(actions.paste_clipboard)
    on("c-o")(actions.open_editor)
    on("up")(lambda: None if actions.recall_queued() else buffer.auto_up())

    @keys.add("c-z", filter=typing)
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @keys.add("c-l")
    def _clear(event: KeyPressEvent) -> None:
        event.app.renderer.clear()

    @keys.add(Keys.BracketedPaste, filter=typing)
    def _pasted(event: KeyPressEvent) -> None:
        actions.paste(event.data)

    return keys


def create_panel_bindings(
    press: Callable[[MenuKey], None],
    number: Callable[[int], None],
    expand: Callable[[], None],
    interrupt: Callable[[], None],
    shown: Condition,
    typing: Condition,
) -> KeyBindings:
    """Return the bindings of a panel; while the user enters text (`typing`), only those that end it."""
    keys = KeyBindings()
    listing = shown & ~typing
    names: dict[str, MenuKey] = {
        "up": "up", "down": "down", "c-p": "up", "c-n": "down", "k": "up", "j": "down", "left": "left",
        "right": "right", "s-tab": "left", "tab": "right", "enter": "enter", " ": "space", "c-a": "toggle",
    }  # fmt: skip
    for name, key in names.items():
        keys.add(name, filter=listing)(_bind_with_argument(press, key))
    for digit in range(1, 10):
        keys.add(str(digit), filter=listing)(_bind_with_argument(number, digit))
    keys.add("escape", filter=shown)(_bind_with_argument(press, _ESCAPE))
    keys.add("c-e", filter=listing)(_bind_action(expand))
    keys.add("c-c", filter=shown)(_bind_action(interrupt))
    keys.add("c-d", filter=listing)(_bind_with_argument(press, _ESCAPE))
    return keys


def _bind_with_argument(action: Callable[[_Argument], None], argument: _Argument) -> Callable[[KeyPressEvent], None]:
    return lambda event: action(argument)


def _bind_action(action: Callable[[], object]) -> Callable[[KeyPressEvent], None]:
    def act(event: KeyPressEvent) -> None:
        action()

    return act
