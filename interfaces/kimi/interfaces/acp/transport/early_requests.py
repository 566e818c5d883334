"""Serve the first requests of a client until the SDK is loaded, with the same methods over the same transport.

Loading the SDK takes a third of a second, and the first session of a client must not wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

from anyio.abc import TaskGroup

from kimi.interfaces.acp.agent import AcpAgent, RpcMethod, RpcParams
from kimi.interfaces.acp.transport.errors import RpcError, method_not_found
from kimi.interfaces.acp.transport.lines import AcpTransport, RpcMessage

logger = logging.getLogger(__name__)


async def serve_without_sdk(agent: AcpAgent, transport: AcpTransport, tasks: TaskGroup) -> None:
    """Serve until the end of the input or until cancelled; requests under way run in `tasks` and are still answered."""
    requests, notifications = agent.request_handlers(lambda error: error), agent.notification_handlers()
    while (message := await transport.receive()) is not None:
        name, params = message.get("method"), message.get("params")
        if name is None:
            logger.info("answer to a request that was never made: %r", message.get("id"))
        elif "id" in message:
            tasks.start_soon(_answer_request, transport, message, requests.get(name))
        elif (handler := notifications.get(name)) is not None and isinstance(params, dict):
            tasks.start_soon(
                _handle_notification, handler, cast("RpcParams", params)
            )  # as a task: handled here, it would overtake the request before it, whose task has not started yet


async def _handle_notification(handler: Callable[[RpcParams], None], params: RpcParams) -> None:
    handler(params)


async def _answer_request(transport: AcpTransport, message: RpcMessage, method: RpcMethod | None) -> None:
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        if method is None:
            raise method_not_found(message["method"])
        answer["result"] = await method(message["params"])
    except RpcError as refused:
        answer["error"] = {"code": refused.code, "message": refused.message, "data": refused.data}
    await transport.send(answer)
