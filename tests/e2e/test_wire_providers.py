"""A whole turn of the program with each type of provider: thinking, a call, its result, retries, the answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dialects.script import Answer, Row
from tests.support.dialects.table import ROWS
from tests.support.program.wire_process import Place
from tests.support.providers.loopback import loopback
from tests.support.providers.provider_server import Reply, dumps
from tests.support.providers.scripts import error_of

CALL = ("c1", "ReadFile", '{"path":"note.txt"}')


def failed(row: Row, status: int, text: str) -> Reply:
    """An error status with the body of the dialect, after which waiting is short."""
    return Reply(status=status, body=dumps(row.dialect.error(status, text)))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.type)
def test_turn_survives_thinking_calls_and_transient_failures(place: Place, row: Row) -> None:
    signature = "EsignedThought==" if row.dialect.signs else None
    (place.work / "note.txt").write_text("the note says 月光\n", encoding="utf-8")
    place.capabilities = ("thinking",)
    replies = [
        row.dialect.with_event(row.dialect.stream_error("too busy"), Answer(text="nonsense-77")),
        row.dialect.reply(Answer("let me see", signature, "one moment", (CALL,))),
        failed(row, 529, "still too busy"),
        row.dialect.reply(Answer(text="it says 月光")),
    ]
    with loopback(*replies) as server:
        place.provider(server.base_url, row.type)
        with place.wire("--yolo", "--thinking") as kimi:
            kimi.initialize(capabilities={})
            assert kimi.prompt("what does the note say?")["result"]["status"] == "finished"
            assert [item["status_code"] for item in kimi.payloads("StepRetry")] == [_in_stream(row), 529]
            results = [item["return_value"] for item in kimi.payloads("ToolResult")]
            assert len(results) == 1
            assert "the note says 月光" in str(results[0]["output"])
            usage = [item["token_usage"] for item in kimi.payloads("StatusUpdate") if item["token_usage"]]
            assert [(one["input_other"], one["input_cache_read"], one["output"]) for one in usage] == [(6, 4, 5)] * 2
        assert len(server.requests) == 4
        for request in server.requests:
            row.dialect.check(request)
        last = server.requests[-1].body.decode()
    assert all(mark in last for mark in ("what does the note say?", "one moment", "the note says 月光"))
    assert "nonsense-77" not in last
    assert signature is None or signature in last
    said = [record for record in place.context() if record["role"] == "assistant"]
    assert [_texts(record) for record in said] == ["one moment", "it says 月光"]


def _in_stream(row: Row) -> int:
    """The status that the error inside the stream stands for."""
    return {"anthropic": 529, "openai_responses": 500}.get(row.type, 503)


def _texts(record: dict[str, Any]) -> str:
    content = record["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.type)
def test_a_used_up_account_ends_the_turn_at_once(place: Place, row: Row) -> None:
    status, body = row.dialect.quota
    with loopback(Reply(status=status, body=dumps(body))) as server:
        place.provider(server.base_url, row.type)
        with place.wire() as kimi:
            kimi.initialize(capabilities={})
            code, message = error_of(kimi.prompt("go"))
            assert (code, "Pay first." in message) == (-32003, True)
            assert not kimi.payloads("StepRetry")
        assert len(server.requests) == 1
