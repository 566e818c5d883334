"""Completion of our command line in bash, zsh and fish, as a file that the shell reads once (runtime spec 1.2).

The words are written into the file, so that completing starts no program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from kimi.domain.errors import UsageError

ShellName: TypeAlias = Literal["bash", "zsh", "fish"]
SHELL_NAMES: Final[tuple[ShellName, ...]] = get_args(ShellName)
PROGRAMS: Final = ("kimi", "kimi-cli")


@dataclass(frozen=True, slots=True)
class OptionWords:
    """An option: its spellings, what it is for, and the words that its value may be; None for a switch."""

    names: tuple[str, ...]
    help: str
    values: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class CommandWords:
    """A command by its path below the program (empty for the program itself), with its options and subcommands."""

    path: tuple[str, ...]
    options: tuple[OptionWords, ...]
    subcommands: tuple[tuple[str, str], ...]


def collect_words(command: Any, path: tuple[str, ...] = ()) -> Iterator[CommandWords]:
    """Yield the words of a command of the parser and of all commands below it."""
    below = {name: one for name, one in getattr(command, "commands", {}).items() if not one.hidden}
    options = [_describe_option(one) for one in command.params if one.param_type_name == "option" and not one.hidden]
    help_option = OptionWords(("-h", "--help"), "Show the help.", None)
    yield CommandWords(
        path,
        (*options, help_option),
        tuple((name, _shorten(one.get_short_help_str(80))) for name, one in below.items()),
    )
    for name, one in below.items():
        yield from collect_words(one, (*path, name))


def _describe_option(option: Any) -> OptionWords:
    names = (*option.opts, *option.secondary_opts)
    annotation = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    values = None if option.is_flag else SHELL_NAMES if option.metavar == "SHELL" else tuple(map(str, choices))
    return OptionWords(names, _shorten(option.help or ""), values)


def _shorten(text: str) -> str:
    """Return the text without signs that a shell would read."""
    return "".join(char for char in text.split("\n")[0] if char not in "'\"`$\\:[](){}<>|&;!")


def format_completion(shell: ShellName, commands: Sequence[CommandWords]) -> str:
    """Return the file that teaches `shell` these commands."""
    return {"bash": _format_bash, "zsh": _format_zsh, "fish": _format_fish}[shell](commands)


def _format_bash(commands: Sequence[CommandWords]) -> str:
    cases: list[str] = []
    for one in commands:
        key = " ".join(one.path)
        words = [name for name, _ in one.subcommands] + [name for option in one.options for name in option.names]
        cases += [f'    "{key}") words="{" ".join(words)}" ;;']
    return f"""\
_kimi() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path= words= at
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${{path:+$path }}${{COMP_WORDS[at]}}" in
{_format_path_cases(commands)}
    esac
  done
  case "$path|$before" in
{_format_value_cases(commands, 'words="{words}"', "compopt -o default; return")}
  esac
  [[ -n $words ]] || case "$path" in
{chr(10).join(cases)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _kimi {" ".join(PROGRAMS)}
"""


def _format_zsh(commands: Sequence[CommandWords]) -> str:
    cases: list[str] = []
    for one in commands:
        words = [f"'{name}:{text}'" for name, text in one.subcommands]
        words += [f"'{name}:{option.help}'" for option in one.options for name in option.names]
        cases.append(f'    "{" ".join(one.path)}") found=({" ".join(words)}) ;;')
    return f"""\
#compdef {" ".join(PROGRAMS)}
_kimi() {{
  local before=$words[CURRENT-1] word way=
  local -a found
  for word in $words[2,CURRENT-1]; do
    case "${{way:+$way }}$word" in
{_format_path_cases(commands, "way")}
    esac
  done
  case "$way|$before" in
{_format_value_cases(commands, "found=({words})", "_files; return")}
  esac
  (( $#found )) || case "$way" in
{chr(10).join(cases)}
  esac
  _describe kimi found || _files
}}
compdef _kimi {" ".join(PROGRAMS)}
"""


def _format_path_cases(commands: Sequence[CommandWords], variable: str = "path") -> str:
    return "\n".join(
        f'      "{" ".join(one.path)}") {variable}="{" ".join(one.path)}" ;;' for one in commands if one.path
    )


def _format_value_cases(commands: Sequence[CommandWords], choose: str, otherwise: str) -> str:
    """Return a case for each option with a value: its words, else what completes any value."""
    lines: list[str] = []
    for one in commands:
        for option in one.options:
            if option.values is not None:
                names = " | ".join(f'"{" ".join(one.path)}|{name}"' for name in option.names)
                action = choose.format(words=" ".join(option.values)) if option.values else otherwise
                lines.append(f"    {names}) {action} ;;")
    return "\n".join(lines)


def _format_fish(commands: Sequence[CommandWords]) -> str:
    lines: list[str] = []
    for program in PROGRAMS:
        for one in commands:
            below = " ".join(name for name, _ in one.subcommands)
            here = [f"__fish_seen_subcommand_from {name}" for name in one.path]
            if below:
                here.append(f"not __fish_seen_subcommand_from {below}")
            condition = f" -n '{'; and '.join(here)}'" if here else ""
            lines += [f"complete -c {program}{condition} -f -a {name} -d '{text}'" for name, text in one.subcommands]
            for option in one.options:
                names = " ".join(
                    f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
                )
                value = (
                    "" if option.values is None else f" -x -a '{' '.join(option.values)}'" if option.values else " -r"
                )
                lines.append(f"complete -c {program}{condition} {names}{value} -d '{option.help}'")
    return "\n".join(lines) + "\n"


def install_completion(shell: ShellName, text: str, environ: Mapping[str, str]) -> str:
    """Write the file where the shell looks for it; return a sentence that says where, and what else is needed.

    No file of the user's own is changed. Raises OSError.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    data = environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    path = {
        "bash": os.path.join(data, "bash-completion", "completions", "kimi"),
        "zsh": os.path.join(home, ".zfunc", "_kimi"),
        "fish": os.path.join(config, "fish", "completions", "kimi.fish"),
    }[shell]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    further = {
        "bash": "It is read where the package bash-completion is installed; else add to ~/.bashrc: source " + path,
        "zsh": "Add to ~/.zshrc before compinit, if it is not there: fpath=(~/.zfunc $fpath)",
        "fish": "",
    }[shell]
    return f"Written: {path}. It works in new shells. {further}".rstrip()


def write_completion(name: str, command: Any, install: bool, environ: Mapping[str, str]) -> str:
    """Return the completion of the parser's `command` for the named shell, or with `install` where it was written.

    Raises UsageError for a shell that is not known here, OSError.
    """
    if name not in SHELL_NAMES:
        raise UsageError(f"There is completion for {', '.join(SHELL_NAMES)}, not for '{name}'", "--show-completion")
    text = format_completion(name, tuple(collect_words(command)))
    return install_completion(name, text, environ) + "\n" if install else text
