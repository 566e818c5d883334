"""The network is cut in the middle of a stream: the page comes back with nothing missing and nothing twice."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.support.browser.cuttable import Cuttable, cuttable
from tests.support.browser.other_client import other_client
from tests.support.browser.web_process import Web, new_session, press, say, session_id, wait_idle, web
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import call_reply, text_reply

PIECES: Final = 240
CUT_S: Final = 10.0


def behind(server: Web, network: Cuttable) -> Web:
    return replace(server, address=network.address)


def port_of(server: Web) -> int:
    return urlsplit(server.address).port or 0


@pytest.mark.spec("R-389")
def test_cut_of_ten_seconds_loses_and_repeats_nothing(place: Place, context: BrowserContext) -> None:
    pieces = [f"w{n} " for n in range(PIECES)]
    with loopback(text_reply(*pieces, event_delay_s=0.05)) as provider:
        place.provider(provider.base_url)
        with web(place) as server, cuttable(port_of(server)) as network:
            page = behind(server, network).open(context)
            new_session(page)
            say(page, "go")
            expect(page.locator(".md").first).to_contain_text("w20")
            network.cut()
            expect(page.locator(".banner")).to_contain_text("cut")
            time.sleep(CUT_S)
            assert f"w{PIECES - 1}" not in page.locator(".items").inner_text()
            network.mend()
            wait_idle(page)
            expect(page.locator(".banner")).to_be_hidden()
            assert " ".join(page.locator(".md").all_inner_texts()).split() == "".join(pieces).split()
            expect(page.locator(".user")).to_have_count(1)


@pytest.mark.spec("R-389")
def test_approval_that_was_asked_while_away_waits(place: Place, context: BrowserContext) -> None:
    call = ("c1", "Shell", '{"command": "touch made"}')
    with loopback(call_reply(call, head_delay_s=0.5), text_reply("The end.")) as provider:
        place.provider(provider.base_url)
        with web(place) as server, cuttable(port_of(server)) as network:
            page = behind(server, network).open(context)
            new_session(page)
            with other_client(server, session_id(page)) as client:
                say(page, "go")
                expect(page.locator(".user")).to_have_count(1)
                network.cut()
                expect(page.locator(".banner")).to_be_visible()
                client.wait("ApprovalRequest")
            expect(page.locator(".card.asked")).to_have_count(0)
            network.mend()
            expect(page.locator(".asked-what")).to_have_text("touch made")
            press(page, "Approve")
            expect(page.get_by_text("The end.")).to_be_visible()
            assert (place.work / "made").exists()


@pytest.mark.spec("R-389")
def test_prompt_sent_into_a_cut_is_sent_once(place: Place, context: BrowserContext) -> None:
    with loopback(text_reply("Once.")) as provider:
        place.provider(provider.base_url)
        with web(place) as server, cuttable(port_of(server)) as network:
            page = behind(server, network).open(context)
            new_session(page)
            network.cut()
            expect(page.locator(".banner")).to_be_visible()
            say(page, "sent while away")
            time.sleep(0.5)
            network.mend()
            expect(page.get_by_text("Once.")).to_be_visible()
            wait_idle(page)
            expect(page.locator(".user")).to_have_count(1)
            assert len(provider.requests) == 1


@pytest.mark.spec("R-389", "W-185")
def test_prompt_held_in_a_dead_connection_is_sent_once(place: Place, context: BrowserContext) -> None:
    with loopback(text_reply("Once."), text_reply("Again.")) as provider:
        place.provider(provider.base_url)
        with web(place) as server, cuttable(port_of(server)) as network:
            page = behind(server, network).open(context)
            new_session(page)
            network.stall_open_ones()
            say(page, "sent into silence")
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # finds that nothing answers
            expect(page.get_by_text("Once.")).to_be_visible()
            wait_idle(page)
            network.mend()
            time.sleep(0.5)
            say(page, "more")
            expect(page.get_by_text("Again.")).to_be_visible()
            wait_idle(page)
            expect(page.locator(".user")).to_have_count(2)
            assert len(provider.requests) == 2


@pytest.mark.spec("R-389")
def test_connection_that_died_in_silence_is_found_on_return(place: Place, context: BrowserContext) -> None:
    pieces = [f"w{n} " for n in range(60)]
    with loopback(text_reply(*pieces, event_delay_s=0.05)) as provider:
        place.provider(provider.base_url)
        with web(place) as server, cuttable(port_of(server)) as network:
            page = behind(server, network).open(context)
            new_session(page)
            say(page, "go")
            expect(page.locator(".md").first).to_contain_text("w10")
            network.stall()
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # the screen is looked at again
            expect(page.locator(".banner")).to_contain_text("cut")
            network.mend()
            wait_idle(page)
            assert " ".join(page.locator(".md").all_inner_texts()).split() == "".join(pieces).split()
