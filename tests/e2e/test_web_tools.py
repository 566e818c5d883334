"""The web tools of the real process: which of them the model is offered."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from tests.support.program.wire_process import Place, approval
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, text_reply
from tests.support.providers.scripts import call, step

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


def asked_hosts(place: Place, config: str, *addresses: str, answer: str = "approve_for_session") -> list[str]:
    """The descriptions of what the user is asked while the model fetches these addresses, one a step."""
    place.config = f"[services.fetch]\nallow_private = true\n{config}"
    steps = [step(call(f"c{number}", "FetchURL", {"url": url})) for number, url in enumerate(addresses)]
    place.script(*steps, "text: done")
    with place.wire() as kimi:
        kimi.prompt("go", lambda request: approval(request, answer))
        assert kimi.finish() == 0
    return [str(one["description"]) for one in kimi.payloads("ApprovalRequest")]


@pytest.mark.spec("R-229")
def test_fetch_asks_once_for_each_host(place: Place) -> None:
    with loopback(Reply(body=b"page", headers={"Content-Type": "text/plain"})) as web:
        port = urlsplit(web.base_url).port
        here, there = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
        expected = [f"Fetch URL `{here}/a` from 127.0.0.1:{port}", f"Fetch URL `{there}/c` from localhost:{port}"]
        assert asked_hosts(place, "", f"{here}/a", f"{here}/b", f"{there}/c", f"{there}/d") == expected
        assert [request.path for request in web.requests] == ["/a", "/b", "/c", "/d"]


def test_fetch_asks_about_each_address_if_configured(place: Place) -> None:
    with loopback(Reply(body=b"page", headers={"Content-Type": "text/plain"})) as web:
        here = f"http://127.0.0.1:{urlsplit(web.base_url).port}"
        assert len(asked_hosts(place, "ask = true\n", f"{here}/a", f"{here}/b", f"{here}/a")) == 2


def test_rules_about_hosts_and_addresses_decide_on_fetch(place: Place) -> None:
    with loopback(Reply(body=b"page", headers={"Content-Type": "text/plain"})) as web:
        port = urlsplit(web.base_url).port
        rules = (
            f'[[approval.rules]]\ndecision = "allow"\ntool = "FetchURL"\nmatch = "127.0.0.1:{port}"\n'
            '[[approval.rules]]\ndecision = "deny"\ntool = "FetchURL"\nmatch = "http://*/secret*"\n'
        )
        here = f"http://127.0.0.1:{port}"
        assert asked_hosts(place, rules, f"{here}/a", f"{here}/secret") == []
        assert [request.path for request in web.requests] == ["/a"]


def test_rejected_host_is_not_contacted(place: Place) -> None:
    with loopback(Reply(body=b"page")) as web:
        asked = asked_hosts(place, "", f"http://127.0.0.1:{urlsplit(web.base_url).port}/?stolen=1", answer="reject")
        assert len(asked) == 1
        assert web.requests == []
