"""The start of a driver: the streams it is given, and how a start ends (runtime spec 1.3, 1.4; wire spec 1.2)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kimi.interfaces.process.log import log_path
from tests.support.program.command import Finished, environment

SECRET = "sk-1234567890"
CONFIG = json.dumps({"providers": {"p": {"type": "kimi", "base_url": "", "api_key": SECRET}}})

PROGRAM = """
import logging, os, subprocess, sys, warnings
from kimi.application.settings.flags import Flags
from kimi.domain.errors import UsageError
from kimi.infrastructure.config.settings_files import load_settings
from kimi.interfaces.cli.start import start_driver

def serve(flags, settings, streams):
    {body}
    return 0

flags = Flags(work_dir="/", ui="{ui}", config={config!r}, debug={debug})
sys.exit(start_driver(flags, os.environ, load_settings, serve))
"""

NOISE = """
    print("a stray print", flush=True)
    print("a stray error", file=sys.stderr, flush=True)
    os.write(1, b"a stray write" + os.linesep.encode())
    subprocess.run([sys.executable, "-c", "print('a child', flush=True); input()"])
    warnings.warn("a warning")
    logging.getLogger("kimi.test").info("a record")
    os.write(streams.stdout_fd, os.read(streams.stdin_fd, 100))
    streams.write_error("to the person\\n")
"""


def serve(
    share: Path, body: str, *, stdin: str = "protocol", ui: str = "wire", debug: bool = False, redirect: str = ""
) -> Finished:
    """Run `body` as the driver of a process that was started with `stdin`."""
    program = PROGRAM.format(body=body, ui=ui, config=CONFIG, debug=debug)
    command = [sys.executable, "-c", program]
    if redirect:
        command = ["/bin/sh", "-c", f'exec "$@" {redirect}', "sh", *command]
    done = subprocess.run(
        command, input=stdin, capture_output=True, encoding="utf-8", env=environment(share), timeout=30, check=False
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def log_of(share: Path) -> str:
    return (share / "logs" / "kimi.log").read_text()


def test_only_the_driver_reaches_the_streams_of_the_protocol(tmp_path: Path) -> None:
    done = serve(tmp_path, NOISE)
    assert (done.code, done.stdout, done.stderr) == (0, "protocol", "to the person\n")
    log = log_of(tmp_path)
    for noise in ("a stray print", "a stray error", "a stray write", "a child", "a warning", "a record"):
        assert noise in log
    assert "EOFError" in log, "the child must not read the protocol"


def test_a_start_with_closed_streams_does_not_mix_them_up(tmp_path: Path) -> None:
    done = serve(tmp_path, "os.write(streams.stdout_fd, b'x'); streams.write_error('y')", redirect="<&- >&- 2>&-")
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    assert log_of(tmp_path) == ""


def test_streams_can_be_regular_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from a file")
    body = "os.write(streams.stdout_fd, os.read(streams.stdin_fd, 100))"
    done = serve(tmp_path, body, redirect=f"<{tmp_path}/in >{tmp_path}/out")
    assert done.code == 0
    assert (tmp_path / "out").read_text() == "from a file"


def test_unwritable_log_is_tolerated(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    done = serve(tmp_path, NOISE)
    assert (done.code, done.stdout, done.stderr) == (0, "protocol", "to the person\n")


def test_the_result_of_the_driver_is_the_exit_status(tmp_path: Path) -> None:
    assert serve(tmp_path, "return 7").code == 7


def test_failure_names_the_log_file(tmp_path: Path) -> None:
    done = serve(tmp_path, f"raise RuntimeError('broken {SECRET}')")
    assert (done.code, done.stdout) == (1, "")
    first, second, third = done.stderr.splitlines()
    assert first == "broken ***"
    assert log_path(str(tmp_path)) in second
    assert "--debug" in third
    assert "RuntimeError: broken ***" in log_of(tmp_path)
    assert SECRET not in log_of(tmp_path)


def test_debug_shows_the_traceback_instead_without_secrets(tmp_path: Path) -> None:
    done = serve(tmp_path, f"raise RuntimeError('broken {SECRET}')", debug=True)
    assert done.code == 1
    assert done.stderr.startswith("broken ***\nTraceback")
    assert done.stderr.endswith("RuntimeError: broken ***\n")
    assert SECRET not in done.stderr
    assert "The log is in" not in done.stderr


def test_a_failure_inside_task_groups_is_reported_by_itself(tmp_path: Path) -> None:
    nested = "raise ExceptionGroup('a', [ExceptionGroup('b', [UsageError('No such thing', '--continue')])])"
    done = serve(tmp_path, nested)
    assert done.code == 2
    assert done.message.endswith("Error Invalid value for --continue: No such thing")


def test_interrupt_before_the_driver_runs_exits_cleanly(tmp_path: Path) -> None:
    assert serve(tmp_path, "raise KeyboardInterrupt").code == 0


def test_interrupt_before_print_mode_runs_has_its_line(tmp_path: Path) -> None:
    done = serve(tmp_path, "raise KeyboardInterrupt", ui="print")
    assert (done.code, done.stdout, done.stderr) == (1, "Interrupted by user\n", "")
