"""The error tree.

    KimiError
    ├── UsageError                 the command line is wrong (exit 2)
    ├── ConfigError                the configuration cannot be used (exit 1)
    ├── StateError                 the conversation is not in a state for this (wire -32000)
    ├── TooManyTasks               no further background task may start now
    ├── TooManySessions            no further session may be open now
    ├── McpUnauthorized            an MCP server wants the user to log in
    ├── SessionError               a stored session cannot be used
    │   ├── InvalidSessionId       the id could escape the store, or is unusable
    │   ├── UnknownSession         there is none of this id
    │   ├── SessionBusy            another process holds it
    │   └── StoreFailed            the disk refused (full, read-only, gone)
    └── ModelError                 the errors that a `ChatModel` raises
        ├── ModelNotSet            nothing usable is configured (wire -32001)
        ├── CapabilityMissing      the model lacks what the input needs (wire -32002)
        └── ChatProviderError      the provider or the connection failed (wire -32003)
            ├── APIConnectionError     no or broken connection (transient)
            ├── APITimeoutError        no answer in time (transient)
            ├── APIStatusError         an HTTP status; transient for some
            │   └── AuthExpired        HTTP 401 with an OAuth-backed provider (wire -32004)
            └── APIEmptyResponseError  nothing visible came back (transient)

The message of each is one sentence for the user; it never holds a secret. The class names under
`ChatProviderError` are visible to clients in `StepRetry.error_type` (wire spec 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence

RETRYABLE_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which the same request may succeed (runtime spec 3.7, R-82)."""


class KimiError(Exception):
    """Root of all errors that are meant for the user."""


class UsageError(KimiError):
    """The command line is wrong. `hint` names the option that the message is about, if there is one."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(KimiError):
    """The configuration cannot be used; the message names the file or variable and the rule."""


class StateError(KimiError):
    """The conversation is not in a state for this call; nothing was changed."""


class TooManyTasks(KimiError):
    """The limit of running background tasks is reached."""

    def __init__(self) -> None:
        super().__init__("Too many background tasks are already running.")


class McpUnauthorized(KimiError):
    """An MCP server requires a login, which only `kimi mcp auth` can do."""


class TooManySessions(KimiError):
    """The process has as many open sessions as it may have, and all of them are busy."""

    def __init__(self) -> None:
        super().__init__("Too many sessions are open and busy; close one or wait until a turn has ended.")


class SessionError(KimiError):
    """A stored session cannot be used."""


class InvalidSessionId(SessionError):
    """The id is empty, too long, or could name something outside the store."""


class UnknownSession(SessionError):
    """There is no session of this id, or it is not clear which one is meant."""


class SessionBusy(SessionError):
    """Another process has the session open."""


class StoreFailed(SessionError):
    """The operating system refused to read or write the session."""


class ModelError(KimiError):
    """Root of the errors about models."""


class ModelNotSet(ModelError):
    """No usable model is configured. `reason` is a sentence for the user where more is known than that."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "LLM is not set")
        self.reason = reason


class CapabilityMissing(ModelError):
    """The input needs capabilities that the model lacks."""

    def __init__(self, model: str, capabilities: Sequence[str]) -> None:
        noun = "capability" if len(capabilities) == 1 else "capabilities"
        names = ", ".join(capabilities)
        super().__init__(f"LLM model '{model}' does not support required {noun}: {names}.")
        self.capabilities = tuple(capabilities)


class ChatProviderError(ModelError):
    """The provider, or the connection to it, failed. A retry makes sense only if `transient` is set."""

    transient = False


class APIConnectionError(ChatProviderError):
    """The connection failed or broke."""

    transient = True


class APITimeoutError(ChatProviderError):
    """No response, or no further data, came in time."""

    transient = True


class APIStatusError(ChatProviderError):
    """The provider answered with an error status.

    `retry_after` is in seconds and is set when the provider sent it. `final` marks a response whose status is usually
    worth a retry but whose cause is not: the quota is used up.
    """

    def __init__(
        self, status_code: int, message: str, *, retry_after: float | None = None, final: bool = False
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.retry_after = retry_after
        self.transient = status_code in RETRYABLE_STATUS and not final


class AuthExpired(APIStatusError):
    """The login of an OAuth-backed provider is no longer valid."""


class APIEmptyResponseError(ChatProviderError):
    """The response held no text and no tool call, or only thinking."""

    transient = True
