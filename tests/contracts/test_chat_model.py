"""The contract of `ChatModel`, for every adapter: the scripted one, and each row of `tests.support.dialects.table`."""

from __future__ import annotations

import pytest

from tests.support.chat_model import checks
from tests.support.chat_model.checks import EVERY, OVER_HTTP, Check
from tests.support.chat_model.stage import HttpStage, ScriptStage, Stage
from tests.support.dialects.script import Row
from tests.support.dialects.table import ROWS

pytestmark = pytest.mark.anyio

STAGES: dict[str, Stage] = {"scripted": ScriptStage(), **{row.type: HttpStage(row) for row in ROWS}}


def _title(check: Check[HttpStage]) -> str:
    return check.__name__


@pytest.mark.parametrize(
    "check", [one for one in EVERY if one is not checks.takes_nothing_to_see_for_an_error], ids=_title
)
@pytest.mark.parametrize("kind", STAGES)
async def test_model_passes_each_contract_check(kind: str, check: Check[Stage]) -> None:
    await check(STAGES[kind])


@pytest.mark.spec("R-85")
@pytest.mark.parametrize("kind", STAGES)
async def test_answer_with_nothing_visible_is_an_error(kind: str) -> None:
    await checks.takes_nothing_to_see_for_an_error(STAGES[kind])


@pytest.mark.parametrize("check", OVER_HTTP, ids=_title)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.type)
async def test_http_model_passes_each_contract_check(row: Row, check: Check[HttpStage]) -> None:
    await check(HttpStage(row))
