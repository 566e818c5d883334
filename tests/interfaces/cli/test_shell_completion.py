"""The completion of the command line: what the shells are told, and what bash makes of it."""

import shlex
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from kimi.domain.errors import UsageError
from kimi.interfaces.cli.app import app
from kimi.interfaces.cli.shell_completion import SHELL_NAMES, collect_words, write_completion

COMMAND = get_command(app)


def completed(file: Path, *words: str) -> list[str]:
    """What bash completes the last of `words` to."""
    line = " ".join(map(shlex.quote, words))
    ask = f'source {file}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _kimi; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.spec("R-299")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--edi",), ["--edits"]),
        (("doc",), ["doctor"]),
        (("--agent", ""), ["default", "okabe"]),
        (("--sandbox", "w"), ["workspace"]),
        (("mcp", "a"), ["add", "auth"]),
        (("mcp", "add", "--tra"), ["--transport"]),
        (("--model", "m", "mcp", "l"), ["list"]),
        (("--nothing-like-this",), []),
    ],
)
def test_bash_completes_commands_options_and_values(tmp_path: Path, words: tuple[str, ...], found: list[str]) -> None:
    file = tmp_path / "kimi"
    file.write_text(write_completion("bash", COMMAND, False, {}), encoding="utf-8")
    assert completed(file, "kimi", *words) == found


@pytest.mark.parametrize("shell", SHELL_NAMES)
def test_every_command_and_option_is_in_the_file(shell: str) -> None:
    text = write_completion(shell, COMMAND, False, {})
    for one in collect_words(COMMAND):
        for name in [name for option in one.options for name in option.names] + [name for name, _ in one.subcommands]:
            plain = name.lstrip("-") if shell == "fish" else name
            assert plain in text, name


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/kimi"),
        ("zsh", ".zfunc/_kimi"),
        ("fish", ".config/fish/completions/kimi.fish"),
    ],
)
def test_completion_is_written_where_the_shell_looks(tmp_path: Path, shell: str, place: str) -> None:
    said = write_completion(shell, COMMAND, True, {"HOME": str(tmp_path)})
    assert (tmp_path / place).read_text(encoding="utf-8") == write_completion(shell, COMMAND, False, {})
    assert str(tmp_path / place) in said


def test_an_unknown_shell_is_refused() -> None:
    with pytest.raises(UsageError, match="bash, zsh, fish"):
        write_completion("tcsh", COMMAND, False, {})
