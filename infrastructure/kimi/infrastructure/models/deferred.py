"""A model over HTTP whose adapter is imported with its first request (performance spec 4).

A conversation needs the model's name, capabilities and context size at the start. It needs the adapter, with the code
that encodes histories and reads streams, only when it calls the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import TYPE_CHECKING

from kimi.application.ports import ChatModel
from kimi.application.settings.settings import ModelSettings
from kimi.infrastructure.http.client import parse_host
from kimi.infrastructure.http.headers import validate_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kimi.application.ports import ModelItem
    from kimi.domain.content.message import Message
    from kimi.domain.tools.tool import ToolSpec


class DeferredChatModel:
    """A `ChatModel` that makes its adapter with `make_adapter` on the first request.

    Raises:
        ConfigError: on creation, as the adapter would: the base URL or a custom header cannot be used.
    """

    def __init__(self, settings: ModelSettings, make_adapter: Callable[[], ChatModel]) -> None:
        # A mistake in the settings must end the start of the program, not the first turn.
        validate_headers(settings.custom_headers)
        parse_host(settings.base_url)
        self.name = settings.model
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._make_adapter = make_adapter

    @cached_property
    def _adapter(self) -> ChatModel:
        return self._make_adapter()

    def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        return self._adapter.stream(system, history, tools, tokens_used)
