"""Cassettes: a model's answers, recorded to a file and replayed without a network.

A cassette is a file of JSON lines in UTF-8. The first line is the header `{"cassette": 1}`. Each call is a sequence of
lines: the fingerprint of the request (`call`), every part in the envelope of the wire (`part`), and how the call ended:
`end`, `error`, or `left` when the caller left early. The lines of a call are written together when it has ended, so
concurrent calls do not interleave; `started` keeps their order. No header and no key is written, and known secrets in
texts are masked.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from anyio.lowlevel import checkpoint

from kimi.application.codec.envelope import encode_event, encode_json
from kimi.application.codec.event_json import decode_event
from kimi.application.ports import ChatModel, ModelItem, ResponseEnd
from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import Message, message_text
from kimi.domain.content.stream import PART_TYPES, StreamPart
from kimi.domain.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APITimeoutError,
    AuthExpired,
    ChatProviderError,
    ConfigError,
    StoreFailed,
)
from kimi.domain.tools.tool import ToolSpec
from kimi.domain.turn import TokenUsage
from kimi.infrastructure.models.json_object import as_object
from kimi.infrastructure.models.offline.cassette_secrets import collect_secrets, mask_secrets
from kimi.infrastructure.models.provider_secrets import Mask, make_mask
from kimi.infrastructure.store.files.append_file import AppendFile

RECORD_VARIABLE = "KIMI_RECORD"
"""The variable that names the file to record to. `{session}` in it is replaced by the id of the session."""

REPLAY_VARIABLE = "KIMI_REPLAY"
"""The variable that names the cassette which a provider of the type `_replay` replays."""

VERSION = 1

_MAX_EXCERPT_CHARS = 120
_ROLES = {"system": "s", "user": "u", "assistant": "a", "tool": "t"}
_ERRORS: dict[str, type[ChatProviderError]] = {
    cls.__name__: cls for cls in (APIConnectionError, APITimeoutError, APIEmptyResponseError, ChatProviderError)
}
_STATUS_ERRORS: dict[str, type[APIStatusError]] = {cls.__name__: cls for cls in (APIStatusError, AuthExpired)}

_log = logging.getLogger(__name__)

Json: TypeAlias = Mapping[str, Any]


# --- what was asked ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestFingerprint:
    """The features by which a request is recognised: the roles of its messages, one letter each, and the user's last
    text. System prompt, tools and results do not count: they contain dates, paths and process ids.
    """

    roles: str
    said: str
    digest: str


def fingerprint_request(history: Sequence[Message], mask: Mask) -> RequestFingerprint:
    """Return the fingerprint of a request with `history`."""
    roles = "".join(_ROLES[message.role] for message in history)
    last = next((message for message in reversed(history) if message.role == "user"), None)
    text = mask(message_text(last, "\n")) if last is not None else ""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return RequestFingerprint(roles, text[:_MAX_EXCERPT_CHARS], digest)


# --- recording --------------------------------------------------------------------------------------------------


class RecordingModel:
    """A `ChatModel` that passes on the answers of another model and records them."""

    def __init__(self, model: ChatModel, path: str, mask: Mask) -> None:
        self.name = model.name
        self.capabilities = model.capabilities
        self.context_size = model.context_size
        self._model = model
        self._path = path
        self._mask = mask
        _create_cassette_file(path)

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`."""
        call = _CallRecorder(fingerprint_request(history, self._mask), self.name)
        try:
            async with (
                self._model.stream(system, history, tools, tokens_used) as items,
                aclosing(call.record_items(items)) as watched,
            ):
                yield watched
        except ChatProviderError as error:
            call.ending = {"error": _encode_error(error, self._mask)}
            raise
        finally:
            self._write_call(call)

    def _write_call(self, call: _CallRecorder) -> None:
        """Record a call. A failure is logged only: a full disk must not cost the user the answer."""
        try:
            _append_lines(self._path, call.encode_lines(self._mask))
        except StoreFailed as error:
            _log.warning(
                "%s: an answer could not be recorded to %s: %s",
                RECORD_VARIABLE,
                self._path,
                _find_failure_reason(error),
            )


@dataclass
class _CallRecorder:
    """Collects the items of a running call."""

    fingerprint: RequestFingerprint
    model: str
    started_ns: int = field(default_factory=time.time_ns)
    parts: list[StreamPart] = field(default_factory=list["StreamPart"])
    ending: Json = field(default_factory=lambda: {"left": True})

    async def record_items(self, items: AsyncIterator[ModelItem]) -> AsyncGenerator[ModelItem]:
        """Yield `items` and remember them."""
        async for item in items:
            if isinstance(item, ResponseEnd):
                self.ending = {"end": asdict(item)}
            else:
                self.parts.append(item)
            yield item

    def encode_lines(self, mask: Mask) -> bytes:
        """Return the lines of the call."""
        head = encode_json({"call": {**asdict(self.fingerprint), "model": self.model, "started": self.started_ns}})
        parts = [b'{"part":' + encode_event(part) + b"}" for part in mask_secrets(self.parts, mask)]
        lines = b"\n".join((head, *parts, encode_json(self.ending))) + b"\n"
        return mask(lines.decode()).encode()


def _encode_error(error: ChatProviderError, mask: Mask) -> Json:
    found: dict[str, Any] = {"kind": type(error).__name__, "message": mask(str(error))}
    if isinstance(error, APIStatusError):
        found |= {"status_code": error.status_code, "retry_after": error.retry_after, "transient": error.transient}
    return found


def _create_cassette_file(path: str) -> None:
    """Create the file with its header, readable for its owner only, if it does not exist.

    Raises:
        ConfigError: it cannot be created, or exists and is not a cassette of this version.
    """
    try:
        if os.path.exists(path) and os.path.getsize(path):
            with open(path, "rb") as file:
                _check_header(path, file.readline())
        else:
            _append_lines(path, b"")
    except (OSError, StoreFailed) as error:
        raise ConfigError(f"{RECORD_VARIABLE}: cannot record to {path}: {_find_failure_reason(error)}.") from error


def _append_lines(path: str, lines: bytes) -> None:
    """Append whole lines, after the header if the file is new. Raises StoreFailed; the file is then unchanged."""
    file = AppendFile(path, encode_json({"cassette": VERSION}) + b"\n")
    try:
        file.append(lines)
    finally:
        file.close()


def _find_failure_reason(error: OSError | StoreFailed) -> str | None:
    """Return the reason alone: the text of a StoreFailed gives advice about sessions."""
    cause = error.__cause__ if isinstance(error, StoreFailed) else error
    return cause.strerror if isinstance(cause, OSError) else str(error)


# --- playing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A recorded call. Its last item is a `ResponseEnd` unless the call failed."""

    fingerprint: RequestFingerprint
    items: tuple[ModelItem, ...]
    error: ChatProviderError | None
    started_ns: int = 0
    """The start in nanoseconds. Only the order of these values has a meaning."""


class Cassette:
    """The calls of a cassette, in the order in which they started. Each is replayed once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._calls = load_calls(path)
        self._position = 0

    def take_call(self, fingerprint: RequestFingerprint) -> RecordedCall:
        """Return the next call if its fingerprint is the same.

        Raises:
            ChatProviderError: no call is left, or another request was recorded here.
        """
        number = self._position + 1
        if number > len(self._calls):
            raise ChatProviderError(
                f"The cassette {self.path} is exhausted: it ends before call {number}. "
                f"Record it again with {RECORD_VARIABLE}."
            )
        call = self._calls[self._position]
        if (call.fingerprint.roles, call.fingerprint.digest) != (fingerprint.roles, fingerprint.digest):
            raise ChatProviderError(
                f"The cassette {self.path} does not match at call {number}: {_format_fingerprint(call.fingerprint)} "
                f"was recorded, {_format_fingerprint(fingerprint)} was asked. Record it again with {RECORD_VARIABLE}."
            )
        self._position = number
        return call


def _format_fingerprint(fingerprint: RequestFingerprint) -> str:
    return f"{json.dumps(fingerprint.said, ensure_ascii=False)} (messages: {fingerprint.roles})"


class ReplayModel:
    """A `ChatModel` that replays a cassette."""

    def __init__(self, cassette: Cassette, settings: ModelSettings, mask: Mask) -> None:
        self.name = settings.model or "replay"
        self.capabilities = settings.capabilities
        self.context_size = settings.max_context_size
        self._cassette = cassette
        self._mask = mask

    @asynccontextmanager
    async def stream(
        self, system: str, history: Sequence[Message], tools: Sequence[ToolSpec], tokens_used: int
    ) -> AsyncGenerator[AsyncIterator[ModelItem]]:
        """See `kimi.application.ports.ChatModel.stream`. Every call replays the next one of the cassette."""
        call = self._cassette.take_call(fingerprint_request(history, self._mask))
        if call.error is not None and not call.items:
            raise call.error
        async with aclosing(_replay_items(call)) as items:
            yield items


async def _replay_items(call: RecordedCall) -> AsyncGenerator[ModelItem]:
    await checkpoint()
    for item in call.items:
        yield item
    if call.error is not None:
        raise call.error


@lru_cache(maxsize=64)
def open_shared_cassette(path: str, session_id: str) -> Cassette:
    """Return the cassette that a session shares with its subagents and with models that are opened anew: each continues
    where the last call ended.
    """
    return Cassette(path)


# --- reading ----------------------------------------------------------------------------------------------------


def load_calls(path: str) -> list[RecordedCall]:
    """Return the calls of a cassette.

    Raises:
        ConfigError: it cannot be read, or is not a cassette of a known version.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"The cassette {path} cannot be read: {error.strerror}.") from error
    _check_header(path, lines[0] if lines else b"")
    calls = [_decode_call(path, block) for block in _split_calls(path, lines[1:])]
    return sorted(calls, key=lambda call: call.started_ns)


def _check_header(path: str, line: bytes) -> None:
    header = _parse_object(line)
    version = header.get("cassette") if header else None
    if version is None:
        raise ConfigError(f'{path} is not a cassette: its first line must be {{"cassette": {VERSION}}}.')
    if version != VERSION:
        raise ConfigError(f"The cassette {path} has version {version}; this program knows version {VERSION}.")


def _split_calls(path: str, lines: Iterable[bytes]) -> list[list[Json]]:
    blocks: list[list[Json]] = []
    for number, line in enumerate(lines, 2):
        entry = _parse_object(line)
        if entry is None or not (blocks or "call" in entry):
            raise ConfigError(f"The cassette {path} is damaged at line {number}.")
        if "call" in entry:
            blocks.append([])
        blocks[-1].append(entry)
    return blocks


def _parse_object(line: bytes) -> dict[str, Any] | None:
    try:
        return as_object(json.loads(line))
    except ValueError:
        return None


def _decode_call(path: str, block: Sequence[Json]) -> RecordedCall:
    head, *rest = block
    try:
        items = [_decode_item(entry) for entry in rest if "part" in entry or "end" in entry]
        error = next((_decode_error(entry["error"]) for entry in rest if "error" in entry), None)
        request = RequestFingerprint(head["call"]["roles"], head["call"]["said"], head["call"]["digest"])
        started = int(head["call"].get("started", 0))
    except (KeyError, TypeError, ValueError, AttributeError) as damage:
        raise ConfigError(f"The cassette {path} is damaged: a call in it cannot be understood.") from damage
    if error is None and not (items and isinstance(items[-1], ResponseEnd)):
        error = ChatProviderError(f"The recording of this call in the cassette {path} ends here.")
    return RecordedCall(request, tuple(items), error, started)


def _decode_item(entry: Json) -> ModelItem:
    if "end" in entry:
        end = entry["end"]
        usage = None if end["usage"] is None else TokenUsage(**end["usage"])
        return ResponseEnd(end["message_id"], usage, end["stop_reason"])
    part = decode_event(entry["part"])
    if isinstance(part, PART_TYPES):
        return part
    raise ValueError("not a part of an answer")


def _decode_error(error: Json) -> ChatProviderError:
    message = str(error["message"])
    if (status_kind := _STATUS_ERRORS.get(error["kind"])) is not None:
        raised = status_kind(error["status_code"], message, retry_after=error["retry_after"])
        raised.transient = bool(error["transient"])
        return raised
    return _ERRORS.get(error["kind"], ChatProviderError)(message)


# --- as configured ----------------------------------------------------------------------------------------------


def make_recording_model(
    model: ChatModel, settings: ModelSettings, session_id: str, environ: Mapping[str, str]
) -> ChatModel:
    """Return a model that records `model` to the file that the environment names.

    Raises:
        ConfigError: the file cannot be used.
    """
    path = os.path.expanduser(environ[RECORD_VARIABLE].strip().replace("{session}", session_id))
    return RecordingModel(model, path, make_mask(collect_secrets(settings, environ)))


def make_replay_model(settings: ModelSettings, session_id: str, environ: Mapping[str, str]) -> ReplayModel:
    """Return the model of a provider of the type `_replay`.

    Raises:
        ConfigError: no cassette is named, or it cannot be used.
    """
    path = (settings.env.get(REPLAY_VARIABLE) or environ.get(REPLAY_VARIABLE, "")).strip()
    if not path:
        raise ConfigError(f"{REPLAY_VARIABLE} is required for _replay: name the cassette to play.")
    tape = open_shared_cassette(os.path.abspath(os.path.expanduser(path)), session_id)
    return ReplayModel(tape, settings, make_mask(collect_secrets(settings, environ)))
