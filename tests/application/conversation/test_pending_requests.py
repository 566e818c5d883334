"""Every request is resolved once, by an answer to it."""

from __future__ import annotations

import anyio
import pytest

from kimi.application.conversation.pending_requests import DUPLICATE_ID, PendingRequests
from kimi.domain.events.request import (
    Answer,
    ApprovalAnswer,
    ApprovalRequest,
    Request,
    ToolCallAnswer,
    ToolCallRequest,
)
from kimi.domain.tools.tool import tool_ok

pytestmark = pytest.mark.anyio


async def announce(request: Request) -> None:
    """Tell nobody."""


async def test_second_call_with_a_waiting_id_is_refused_and_the_first_answered() -> None:
    requests = PendingRequests()
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await requests.ask(ToolCallRequest("c1", "mine", "{}"), announce))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert await requests.ask(ToolCallRequest("c1", "mine", "{}"), announce) == ToolCallAnswer(DUPLICATE_ID)
            assert requests.resolve("c1", ToolCallAnswer(tool_ok("done")))
    assert answers == [ToolCallAnswer(tool_ok("done"))]


@pytest.mark.spec("R-198")
@pytest.mark.parametrize(("key", "allowed", "released"), [("a", True, True), ("a", False, False), ("b", True, False)])
async def test_request_is_released_by_its_key_if_the_policy_allows_it_then(
    key: str, allowed: bool, released: bool
) -> None:
    requests = PendingRequests()
    answers: list[Answer] = []

    async def ask() -> None:
        request = ApprovalRequest("r", "c1", "Shell", "run command", "Run")
        answers.append(await requests.ask(request, announce, key, is_allowed=lambda: allowed))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            requests.approve_matching("a")
            assert (requests.find("r") is None) is released
            assert requests.resolve("r", ApprovalAnswer("reject")) is not released
    assert answers == [ApprovalAnswer("approve" if released else "reject")]
