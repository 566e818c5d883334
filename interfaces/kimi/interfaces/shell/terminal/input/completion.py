"""Completion of slash commands and `@` files (runtime spec 8)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from kimi.domain.command import CommandInfo
from kimi.interfaces.shell.render.sanitize import fit_one_line

_COMMAND = re.compile(r"/([A-Za-z0-9_:-]*)$")
_MENTION = re.compile(r"(?<![A-Za-z0-9.\-_`'\":@#~])@([^\s@]*)$")
MAX_SHOWN = 50


class InputCompleter(Completer):
    """Completes commands at the start of the input and files after `@`."""

    def __init__(
        self, commands: Callable[[], Sequence[CommandInfo]], files: Callable[[str], Sequence[str]], work_dir: str
    ) -> None:
        self._commands = commands
        self._files = files
        self._work_dir = work_dir

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions for the text before the cursor."""
        text = document.text_before_cursor
        if (match := _COMMAND.match(text)) is not None:
            yield from _complete_commands(self._commands(), match[1])
        elif (match := _MENTION.search(text)) is not None:
            yield from self._complete_files(match[1])

    def _complete_files(self, typed: str) -> Iterator[Completion]:
        if os.path.isfile(os.path.join(self._work_dir, typed)) and typed:
            return  # already complete: close the menu
        for path in rank_files(self._files(typed), typed)[:MAX_SHOWN]:
            yield Completion(path, start_position=-len(typed), display=fit_one_line(path))


def is_command_name(text: str) -> bool:
    """Whether the text is a slash followed only by a name or the beginning of one."""
    return _COMMAND.match(text) is not None


def needs_arguments(info: CommandInfo) -> bool:
    """Return whether the command does nothing without words behind it, as its description says: `: <words>`."""
    return info.description.rstrip().endswith(">") and ": <" in info.description


def _complete_commands(commands: Sequence[CommandInfo], typed: str) -> Iterator[Completion]:
    ranked = [(rank, info) for info in commands if (rank := rank_command(info, typed)) is not None]
    for _, info in sorted(ranked, key=lambda pair: pair[0]):
        aliases = f" ({', '.join(info.aliases)})" if info.aliases else ""
        yield Completion(
            f"/{info.name}",
            start_position=-len(typed) - 1,
            display=f"/{info.name}{aliases}",
            display_meta=fit_one_line(info.description, 100),
        )


def rank_command(info: CommandInfo, typed: str) -> tuple[int, str] | None:
    """Return how well a command matches the typed text; smaller is better, None is no match."""
    names = (info.name, *info.aliases)
    found = [rank for name in names if (rank := rank_name(name, typed)) is not None]
    return (min(found), info.name) if found else None


def rank_name(name: str, typed: str) -> int | None:
    """Return 0 for an equal name, 1 for a prefix, 2 for a substring, 3 for the letters in order; None is no match."""
    name, typed = name.lower(), typed.lower()
    if name == typed:
        return 0
    if name.startswith(typed):
        return 1
    if typed in name:
        return 2
    letters = iter(name)
    return 3 if all(letter in letters for letter in typed) else None


def rank_files(paths: Iterable[str], typed: str) -> list[str]:
    """Return the matching paths, best first: matches in the base name before others, then shorter paths first."""
    ranked: list[tuple[int, int, str]] = []
    for path in paths:
        base = rank_name(os.path.basename(path.rstrip("/")), typed)
        whole = rank_name(path, typed)
        if base is not None or whole is not None:
            ranked.append((base if base is not None else 4 + (whole or 0), len(path), path))
    return [path for _, _, path in sorted(ranked)]
