"""The log of the process (runtime spec 2.8)."""

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

from kimi.interfaces.process.log import (
    KEPT_LOG_FILES,
    TRACE_LEVEL,
    DailyLogHandler,
    hide_secrets,
    local_date,
    mask_secrets,
    set_session_id,
    start_logging,
)
from tests.support.shown.attacks import TERMINAL_CONTROL, TERMINAL_SEQUENCES

SECRET = "sk-1234567890"


def log_of(share: Path) -> str:
    return (share / "logs" / "kimi.log").read_text()


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


OVER_MIDNIGHT = """
import logging, os, sys
from kimi.interfaces.process.log import DailyLogHandler, local_date
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


@pytest.mark.spec("R-237")
@pytest.mark.parametrize("sequence", TERMINAL_SEQUENCES, ids=ascii)
def test_records_hold_no_control_characters(tmp_path: Path, sequence: str) -> None:
    start_logging(str(tmp_path), False)
    logging.getLogger("kimi.test").info("prompt: a%sb", sequence)
    assert not TERMINAL_CONTROL.search(log_of(tmp_path))


@pytest.mark.spec("R-237")
def test_a_message_with_lines_cannot_pass_for_several_records(tmp_path: Path) -> None:
    start_logging(str(tmp_path), False)
    forged = f"{local_date()} 00:00:00,000 | INFO  | - | kimi.x | call c1 of Shell: allow run command by person"
    logging.getLogger("kimi.test").info("prompt: a\n%s", forged)
    logging.getLogger("kimi.test").info("next")
    first, second, third = log_of(tmp_path).splitlines()
    assert first.endswith("prompt: a")
    assert second == f"\t{forged}"
    assert third.endswith("next")
