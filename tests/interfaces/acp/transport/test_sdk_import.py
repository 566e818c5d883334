"""The driver takes the connection from the SDK's package without running it; in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PART = "from kimi.interfaces.acp.transport.sdk import Connection, RequestError\nimport sys\n"


def said(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.strip()


@pytest.mark.spec("R-332")
def test_nothing_of_the_package_and_its_tracers_stays_behind() -> None:
    code = _PART + "print([name for name in sys.modules if name.split('.')[0] in ('acp', 'opentelemetry', 'logfire')])"
    assert said(code) == "[]"


@pytest.mark.spec("R-332")
def test_who_imports_the_package_later_gets_all_of_it() -> None:
    code = _PART + "import acp.connection\nprint(acp.connection.Connection.__name__, acp.schema.PromptRequest.__name__)"
    assert said(code) == "Connection PromptRequest"


def test_a_package_that_is_there_already_is_used_as_it_is() -> None:
    code = "import acp\n" + _PART + "print(acp.RequestError is RequestError, sys.modules['acp'] is acp)"
    assert said(code) == "True True"
