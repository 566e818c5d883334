"""Masks secrets in recorded answers, also those that are split between two pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kimi.application.settings.settings import ModelSettings
from kimi.domain.content.message import ToolCall, ToolCallPart
from kimi.domain.content.parts import TextPart, ThinkPart
from kimi.domain.content.stream import StreamPart
from kimi.infrastructure.models.provider_secrets import Mask, collect_provider_secrets

_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


def collect_secrets(settings: ModelSettings, environ: Mapping[str, str]) -> set[str]:
    """Return the values that a cassette must not contain: the provider's, and those of variables named like secrets."""
    variables = [*environ.items(), *settings.env.items()]
    named = {value for name, value in variables if any(word in name.upper() for word in _SECRET_NAMES)}
    return collect_provider_secrets(settings) | named


def mask_secrets(parts: Sequence[StreamPart], mask: Mask) -> list[StreamPart]:
    """Return `parts` with secrets masked. The pieces of a text become one if a secret is split between them."""
    return [clean for run in _group_runs(parts) for clean in _mask_run(run, mask)]


def _group_runs(parts: Sequence[StreamPart]) -> list[list[StreamPart]]:
    """Group neighbouring parts whose texts continue each other."""
    runs: list[list[StreamPart]] = []
    for part in parts:
        if runs and _is_continuation(runs[-1][-1], part):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _is_continuation(first: StreamPart, second: StreamPart) -> bool:
    if isinstance(second, ToolCallPart):
        return isinstance(first, ToolCall | ToolCallPart)
    return isinstance(second, TextPart | ThinkPart) and type(first) is type(second)


def _mask_run(run: list[StreamPart], mask: Mask) -> list[StreamPart]:
    text = "".join(map(_get_text, run))
    if mask(text) == text:
        return run
    return [_replace_text(part, mask(text) if index == 0 else "") for index, part in enumerate(run)]


def _get_text(part: StreamPart) -> str:
    match part:
        case TextPart(text=text) | ThinkPart(think=text):
            return text
        case ToolCall():
            return part.function.arguments or ""
        case ToolCallPart():
            return part.arguments_part or ""
        case _:
            return ""


def _replace_text(part: StreamPart, text: str) -> StreamPart:
    match part:
        case TextPart():
            return TextPart(text)
        case ThinkPart():
            return replace(part, think=text)
        case ToolCall():
            return replace(part, function=replace(part.function, arguments=text))
        case ToolCallPart():
            return ToolCallPart(text)
        case _:
            return part
