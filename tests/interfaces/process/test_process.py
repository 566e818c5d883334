"""The streams of the process, its log, and how a start ends (runtime spec 1.3, 1.4, 2.8; wire spec 1.2)."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kimi.interfaces.process.process import (
    KEPT_LOG_FILES,
    TRACE_LEVEL,
    DailyLogHandler,
    hide_secrets,
    local_date,
    log_path,
    mask_secrets,
    set_session_id,
    start_logging,
)
from kimi.interfaces.process.startup_errors import format_failure, format_usage_panel
from tests.support.program.command import Finished, environment

SECRET = "sk-1234567890"
CONFIG = json.dumps({"providers": {"p": {"type": "kimi", "base_url": "", "api_key": SECRET}}})

# --- streams ---------------------------------------------------------------------------------------------------

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


# --- the log ---------------------------------------------------------------------------------------------------


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Puts the root logger back as it was."""
    root = logging.getLogger()
    handlers, level, ours = root.handlers[:], root.level, logging.getLogger("kimi").level
    yield
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
            handler.close()
    root.setLevel(level)
    logging.getLogger("kimi").setLevel(ours)


pytestmark = pytest.mark.usefixtures("root_logger")


def test_records_carry_time_level_session_and_source(tmp_path: Path) -> None:
    start_logging(str(tmp_path), debug=False)

    def work() -> None:
        set_session_id("session-1")
        logging.getLogger("kimi.part").warning("hello")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    logging.getLogger("library").info("there")
    first, second = log_of(tmp_path).splitlines()
    assert first.startswith(local_date())
    assert first.endswith("| WARNING | session-1 | kimi.part | hello")
    assert second.endswith("| INFO  | - | library | there")


@pytest.mark.parametrize(("debug", "seen"), [(False, ["info"]), (True, ["trace", "debug", "info"])])
def test_debug_adds_our_detailed_records_but_not_those_of_libraries(
    tmp_path: Path, debug: bool, seen: list[str]
) -> None:
    start_logging(str(tmp_path), debug)
    for name in ("kimi.a", "library"):
        logger = logging.getLogger(name)
        logger.log(TRACE_LEVEL, "%s trace", name)
        logger.debug("%s debug", name)
        logger.info("%s info", name)
    messages = [line.rpartition("| ")[2] for line in log_of(tmp_path).splitlines()]
    assert messages == [f"kimi.a {level}" for level in seen] + ["library info"]


def test_secrets_are_masked_in_messages_arguments_and_tracebacks(tmp_path: Path) -> None:
    start_logging(str(tmp_path), False, ["first-secret"])
    hide_secrets(['with "quotes"\\', "none", "first-secret-and-more", ""])
    logger = logging.getLogger("kimi.test")
    logger.info("first-secret %s", "first-secret-and-more")
    logger.info("%r %s", {"key": 'with "quotes"\\'}, json.dumps('with "quotes"\\'))
    logger.info("none, but nonesuch")
    try:
        raise ValueError("first-secret")
    except ValueError:
        logger.exception("failed")
    log = log_of(tmp_path)
    assert "| *** ***\n" in log
    assert "first-secret" not in log
    assert "quotes" not in log
    assert "| ***, but nonesuch\n" in log
    assert "ValueError: ***" in log
    assert mask_secrets("say first-secret") == "say ***"


def test_a_broken_record_and_a_closed_file_raise_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    handler = DailyLogHandler(str(tmp_path / "logs" / "kimi.log"))
    logger = logging.Logger("alone")
    logger.addHandler(handler)
    logger.warning("%d", "not a number")
    logger.warning("lone \ud800 surrogate")
    handler.close()
    logger.warning("after the end")
    assert "surrogate" in log_of(tmp_path)
    assert capfd.readouterr() == ("", "")


def test_log_is_made_private_to_the_owner(tmp_path: Path) -> None:
    log = tmp_path / "share" / "logs" / "kimi.log"
    start_logging(str(tmp_path / "share"), False)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (log, log.parent, log.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
    log.chmod(0o644)
    start_logging(str(tmp_path / "share"), False)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_log_of_another_day_is_put_away_and_the_oldest_ones_go(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for day in range(1, 15):
        (logs / f"kimi.2020-01-{day:02}.log").write_text("")
    (logs / "kimi.of-another-program.log").write_text("")
    (logs / "kimi.log").write_text("yesterday\n")
    then = time.time() - 86_400
    os.utime(logs / "kimi.log", (then, then))
    start_logging(str(tmp_path), False)
    logging.getLogger("kimi").info("today")
    assert (logs / f"kimi.{local_date(then)}.log").read_text() == "yesterday\n"
    assert "yesterday" not in log_of(tmp_path)
    assert len([name for name in os.listdir(logs) if name.startswith("kimi.2")]) == KEPT_LOG_FILES
    assert (logs / "kimi.of-another-program.log").exists()


def test_log_rotates_at_midnight(tmp_path: Path) -> None:
    days = iter([local_date(), local_date(), "2999-01-01", "2999-01-01"])
    path = tmp_path / "logs" / "kimi.log"
    handler = DailyLogHandler(str(path), lambda: next(days))
    logger = logging.Logger("alone")
    logger.addHandler(handler)
    logger.warning("before")
    logger.warning("after")
    handler.close()
    assert "after" in path.read_text()
    assert "before" not in path.read_text()
    assert "before" in (path.parent / f"kimi.{local_date()}.log").read_text()


# --- texts -----------------------------------------------------------------------------------------------------


def test_panel_wraps_text_but_never_splits_a_word() -> None:
    path = "/" + "x" * 200
    lines = format_usage_panel(f"{'word ' * 40}{path}").splitlines()
    assert lines[0].startswith("Usage: kimi ")
    assert lines[1] == "Try 'kimi -h' for help."
    assert lines[2].startswith("╭─ Error ─")
    assert len({len(line) for line in lines[2:]}) == 1
    assert any(path in line for line in lines)


def test_an_error_without_text_is_named_by_its_type() -> None:
    assert format_failure(KeyError(), "log", debug=False).startswith("KeyError\n")


OVER_MIDNIGHT = """
import logging, os, sys
from kimi.interfaces.process.process import DailyLogHandler, local_date
days = iter([local_date(), "2999-01-01"])
handler = DailyLogHandler(sys.argv[1], lambda: next(days))
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
os.dup2(log, 1)
handler.handle(logging.makeLogRecord({"msg": "record"}))
os.write(1, b"chatter")
"""


def test_redirected_streams_follow_the_log_over_midnight(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "kimi.log"
    subprocess.run([sys.executable, "-c", OVER_MIDNIGHT, str(path)], check=True, timeout=30)
    assert path.read_text().endswith("record\nchatter")
