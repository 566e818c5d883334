"""The web tools of the real process: which of them the model is offered."""

from __future__ import annotations

import json

import pytest

from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import text_reply

SERVICES = """
[services.moonshot_search]
base_url = "http://127.0.0.1:1/search"
api_key = "sk-search-secret"
"""


def offered(place: Place, config: str) -> list[str]:
    """The names of the tools that the process sends to its model."""
    place.config = config
    with loopback(text_reply("hello")) as provider:
        place.provider(provider.base_url)
        with place.wire() as kimi:
            kimi.prompt("hi")
            assert kimi.finish() == 0
        tools = json.loads(provider.requests[0].body)["tools"]
    return [one["function"]["name"] for one in tools]


@pytest.mark.spec("T-85")
def test_search_needs_a_service_and_fetch_does_not(place: Place) -> None:
    without = offered(place, "")
    assert "SearchWeb" not in without
    assert "FetchURL" in without
    assert "SearchWeb" in offered(place, SERVICES)


def test_service_without_key_is_ignored_and_logged(place: Place) -> None:
    assert "SearchWeb" not in offered(place, SERVICES.replace("sk-search-secret", ""))
    log = "".join(path.read_text() for path in (place.share / "logs").rglob("*.log"))
    assert "'services.moonshot_search' of the configuration has no effect: it needs base_url and api_key" in log
