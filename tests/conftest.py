"""Fixtures that every test may use."""

import os
import signal
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import settings

# A busy machine is no failure, and CI tries the same examples always.
settings.register_profile("patient", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "patient")


# An installed program starts from bytecode, and so does the one that the tests start, hundreds of times.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Who starts us in the background of a script, or with nohup, has us ignore these signals, and what we start would
# ignore them, too. A handler is not passed on; one that does nothing leaves us as deaf as we were.
for name in {"SIGINT", "SIGQUIT", "SIGHUP"} & {one.name for one in signal.Signals}:
    if signal.getsignal(signal.Signals[name]) == signal.SIG_IGN:
        signal.signal(signal.Signals[name], lambda number, frame: None)


@pytest.fixture
def anyio_backend() -> str:
    """The program runs on asyncio only: its transports use the event loop's own readers."""
    return "asyncio"


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: most tests wait for a program, a time or a disk for the larger part."""
    return (os.cpu_count() or 1) + 2


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why, also without -rs."""
    reports: list[pytest.TestReport] = terminalreporter.getreports("skipped")
    counts = Counter(report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple))
    for reason, count in counts.items():
        terminalreporter.write_line(f"left out, {count} tests: {reason.removeprefix('Skipped: ')}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports travel between processes, where half of a surrogate pair in a captured log cannot go."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
