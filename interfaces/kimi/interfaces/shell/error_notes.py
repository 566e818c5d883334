"""Notes for the user about an error of a turn or command, with a remedy by its class (runtime spec 8)."""

from __future__ import annotations

from kimi.domain.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    CapabilityMissing,
    KimiError,
    ModelNotSet,
    StoreFailed,
)
from kimi.interfaces.process.log import mask_secrets
from kimi.interfaces.shell.render.blocks import Note

NO_MODEL = (
    "No model is configured. `kimi setup` (or /login here) sets one up; `kimi demo` shows one without an account."
)


def build_error_notes(error: Exception) -> tuple[Note, ...]:
    """Return the notes for an error, without secrets: a provider's message may repeat the key."""
    if isinstance(error, ModelNotSet):
        return (Note(error.reason or NO_MODEL, "error"),)
    message = mask_secrets(str(error)) or type(error).__name__
    hint = _suggest_remedy(error)
    if hint is None and not isinstance(error, KimiError):
        message, hint = f"Something went wrong: {type(error).__name__}: {message}", "The log has the details (/debug)."
    return (Note(message, "error"), *((Note(hint),) if hint else ()))


def _suggest_remedy(error: Exception) -> str | None:
    match error:
        case CapabilityMissing():
            return "Choose another model with /model."
        case APIStatusError(status_code=401):
            return "The key was not accepted: check it, or enter another one with /login."
        case APIStatusError(status_code=402 | 403):
            return "The account may not do this, or its quota is used up."
        case APIStatusError(status_code=429):
            return "The provider is asked too often: wait a moment and send it again."
        case APIStatusError(status_code=status) if status >= 500:
            return "The provider has trouble: send it again later."
        case APIConnectionError() | APITimeoutError():
            return "Check the network and the base URL of the provider, then send it again."
        case StoreFailed():
            return "Check the disk: what is said now may not be kept."
        case _:
            return None
