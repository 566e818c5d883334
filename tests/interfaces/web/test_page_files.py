"""What the server sends for the page before any other file of it: the document, with its style and chosen colours."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from pathlib import Path

import pytest

from kimi.interfaces.web import access
from tests.support.program.wire_process import Place
from tests.support.web.hosting import hosting

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.write_config("_echo")
    return place


@pytest.mark.spec("R-391")
async def test_policy_allows_the_one_style_of_the_document(place: Place) -> None:
    async with hosting(place) as web, web.http.get(f"{web.base}/", headers=web.headers()) as answer:
        styles = re.findall(r"<style>(.*?)</style>", await answer.text(), re.DOTALL)
        allowed = answer.headers["Content-Security-Policy"]
    assert len(styles) == 1
    digest = "sha256-" + base64.b64encode(sha256(styles[0].encode()).digest()).decode()
    assert digest == access.SHELL_STYLE
    assert f"style-src 'self' '{digest}'" in allowed


@pytest.mark.parametrize(("theme", "attribute"), [("dark", "dark"), ("light", "light"), ('"><script>', None)])
async def test_document_has_the_colours_that_were_chosen(place: Place, theme: str, attribute: str | None) -> None:
    async with hosting(place) as web:
        async with web.http.get(f"{web.base}/", headers=web.headers()) as answer:
            plain, tag = await answer.text(), answer.headers["ETag"]
        chosen = {**web.headers(), "Cookie": f"kimi_theme={theme}"}
        async with web.http.get(f"{web.base}/", headers=chosen) as answer:
            found = await answer.text()
            own_tag = answer.headers["ETag"]
        async with web.http.get(f"{web.base}/", headers={**chosen, "If-None-Match": tag}) as answer:
            assert answer.status == (304 if attribute is None else 200)
        async with web.http.get(f"{web.base}/", headers={**chosen, "If-None-Match": own_tag}) as answer:
            assert answer.status == 304
    if attribute is None:
        assert (found, own_tag) == (plain, tag)
    else:
        assert found == plain.replace("<html ", f'<html data-theme="{attribute}" ', 1)
        assert own_tag != tag
