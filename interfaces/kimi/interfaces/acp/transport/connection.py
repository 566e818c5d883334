"""The SDK's connection over our transport and methods (acp spec 2.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kimi.interfaces.acp.agent import AcpAgent, RpcParams
from kimi.interfaces.acp.transport.lines import AcpTransport
from kimi.interfaces.acp.transport.sdk import Connection, MessageRouter, RequestError, Route


def create_connection(agent: AcpAgent, transport: AcpTransport) -> Connection:
    """Return a connection that serves the agent's methods; its `main_loop` runs until the end of the input."""
    router = MessageRouter(use_unstable_protocol=True)
    requests = agent.request_handlers(lambda error: RequestError(error.code, error.message, error.data))
    for name, answer in requests.items():
        router.add_route(Route(method=name, func=answer, kind="request"))
    notifications = agent.notification_handlers()
    for name, handler in notifications.items():
        router.add_route(Route(method=name, func=_wrap_notification_handler(handler), kind="notification"))

    @router.handle_extension_request
    async def extension_request(name: str, params: dict[str, Any]) -> Any:
        answer = requests.get(f"_{name}")
        if answer is None:
            raise RequestError.method_not_found(f"_{name}")
        return await answer(params)

    async def handle(name: str, params: Any, is_notification: bool) -> Any:
        if is_notification and name not in notifications:
            return None  # the library would log a traceback for each
        return await router(name, params, is_notification)

    _ = extension_request
    return Connection(handle, transport, listening=False)


def _wrap_notification_handler(handler: Callable[[RpcParams], None]) -> Callable[[Any], Any]:
    async def answer(params: Any) -> None:
        if isinstance(params, dict):
            handler(params)  # pyright: ignore[reportUnknownArgumentType]

    return answer
